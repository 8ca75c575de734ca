//! The clocks of this process, and the time that the scheduler uses.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use filch_scheduler::time::{Monotonic, Now, Wall};

/// The scheduler is called at least this often, to notice jumps of the wall clock.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// If the loop was not called for this long, the process was suspended.
const STILL: Duration = TICK.saturating_mul(2);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { start: Instant::now() }
    }

    pub(crate) fn now(self) -> Now {
        let monotonic = Monotonic(self.start.elapsed().as_micros() as u64);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { monotonic, wall: Wall(wall.as_millis() as u64) }
    }
}

/// The time in which the server could receive heartbeats. While the whole process is suspended, by
/// a signal or with its virtual machine, heartbeats are not received; that is not the workers'
/// fault, so no lease expires by it. A lease that lasts longer here than at its worker does no
/// harm.
#[derive(Debug)]
pub(crate) struct WakingTime {
    clock: Clock,
    last: Monotonic,
    missed: Duration,
}

impl WakingTime {
    /// For a scheduler that started to load at `begun`: heartbeats could not be received since.
    pub(crate) fn since(begun: Now, clock: Clock) -> Self {
        let last = clock.now().monotonic;
        Self { clock, last, missed: last.since(begun.monotonic) }
    }

    pub(crate) fn now(&mut self) -> Now {
        self.at(self.clock.now())
    }

    fn at(&mut self, now: Now) -> Now {
        let span = now.monotonic.since(self.last);
        self.last = now.monotonic;
        if span > STILL {
            self.missed += span;
            tracing::warn!(
                seconds = span.as_secs_f64(),
                "the process was suspended; leases were extended by as long"
            );
        }
        let awake = now.monotonic.0.saturating_sub(self.missed.as_micros() as u64);
        Now { monotonic: Monotonic(awake), ..now }
    }

    /// The instant of this time, if the process is not suspended until then.
    pub(crate) fn instant(&self, at: Monotonic) -> Instant {
        self.clock.start + self.missed + Duration::from_micros(at.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_while_suspended_does_not_count() {
        let clock = Clock::start();
        let start = Monotonic(clock.now().monotonic.0 + 5_000_000);
        let mut time = WakingTime { clock, last: start, missed: Duration::ZERO };
        let mut at = |millis: u64| {
            let monotonic = start.plus(Duration::from_millis(millis));
            let seen = time.at(Now { monotonic, wall: Wall(millis) });
            assert_eq!(seen.wall, Wall(millis), "the wall clock is not changed");
            let soon = time.instant(seen.monotonic);
            let real = time.clock.start + Duration::from_micros(monotonic.0);
            assert_eq!(soon, real, "deadlines are met");
            seen.monotonic.since(start).as_millis()
        };
        assert_eq!(at(900), 900);
        assert_eq!(at(1_900), 1_900);
        assert_eq!(at(3_900), 3_900, "two seconds are no suspension");
        assert_eq!(at(9_900), 3_900);
        assert_eq!(at(10_000), 4_000);
        assert_eq!(at(3_610_000), 4_000);
        assert_eq!(at(3_611_000), 5_000);
    }

    #[test]
    fn time_while_loading_does_not_count() {
        let clock = Clock::start();
        let begun = clock.now();
        let loaded = loop {
            let now = clock.now();
            if now.monotonic > begun.monotonic {
                break now;
            }
        };
        let mut time = WakingTime::since(begun, clock);
        let seen = time.at(Now { monotonic: time.last.plus(TICK), ..loaded });
        assert_eq!(seen.monotonic, begun.monotonic.plus(TICK));
    }
}
