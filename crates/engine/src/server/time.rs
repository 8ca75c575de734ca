//! The time in which a server could receive heartbeats.

use std::time::Duration;

use filch_scheduler::time::{Monotonic, Now};

use crate::planted::{EngineBug, planted};

/// An idle engine is called at least this often, to notice jumps of the wall clock.
pub const TICK: Duration = Duration::from_secs(1);

/// If the engine was not called for this long, the process was suspended.
const STILL: Duration = TICK.saturating_mul(2);

/// While the whole process is suspended, by a signal or with its virtual machine, and while the
/// scheduler is full, heartbeats are not received, or late; that is not the workers' fault, so no
/// lease expires by it. A lease that lasts longer here than at its worker does no harm.
#[derive(Debug)]
pub(super) struct WakingTime {
    last: Monotonic,
    missed: Duration,
}

impl WakingTime {
    /// For a scheduler that started to load at `begun` and is loaded at `now`: heartbeats could not
    /// be received in between.
    pub(super) fn since(begun: Monotonic, now: Monotonic) -> Self {
        Self { last: now, missed: now.since(begun) }
    }

    /// The time for the scheduler, and how long the process was suspended, if it was.
    pub(super) fn at(&mut self, now: Now, was_full: bool) -> (Now, Option<Duration>) {
        let span = now.monotonic.since(self.last);
        self.last = self.last.max(now.monotonic);
        let was_suspended = span > STILL;
        let counts = match was_suspended {
            true => planted(EngineBug::SuspendedTimeCounts),
            false => !was_full || planted(EngineBug::FullTimeCounts),
        };
        if !counts {
            self.missed += span;
        }
        let awake = now.monotonic.0.saturating_sub(self.missed.as_micros() as u64);
        (Now { monotonic: Monotonic(awake), ..now }, was_suspended.then_some(span))
    }

    /// When this moment of the scheduler comes, if no more time is missed until then.
    pub(super) const fn moment(&self, at: Monotonic) -> Monotonic {
        at.plus(self.missed)
    }
}

#[cfg(test)]
mod tests {
    use filch_scheduler::time::Wall;

    use super::*;

    fn at(time: &mut WakingTime, millis: u64, was_full: bool) -> u64 {
        let now = Now { monotonic: Monotonic(millis * 1_000), wall: Wall(millis) };
        let (seen, _) = time.at(now, was_full);
        assert_eq!(seen.wall, Wall(millis), "the wall clock is not changed");
        assert_eq!(time.moment(seen.monotonic), now.monotonic, "deadlines are met");
        seen.monotonic.0 / 1_000
    }

    #[test]
    fn time_while_suspended_does_not_count() {
        let mut time = WakingTime::since(Monotonic(0), Monotonic(0));
        assert_eq!(at(&mut time, 900, false), 900);
        assert_eq!(at(&mut time, 1_900, false), 1_900);
        assert_eq!(at(&mut time, 3_900, false), 3_900, "two seconds are no suspension");
        assert_eq!(at(&mut time, 9_900, false), 3_900);
        assert_eq!(at(&mut time, 10_000, false), 4_000);
        assert_eq!(at(&mut time, 3_610_000, false), 4_000);
        assert_eq!(at(&mut time, 3_611_000, false), 5_000);
    }

    #[test]
    fn time_while_full_does_not_count() {
        let mut time = WakingTime::since(Monotonic(0), Monotonic(0));
        assert_eq!(at(&mut time, 1_000, false), 1_000);
        assert_eq!(at(&mut time, 1_500, true), 1_000);
        assert_eq!(at(&mut time, 2_000, true), 1_000);
        assert_eq!(at(&mut time, 2_400, false), 1_400);
    }

    #[test]
    fn time_while_loading_does_not_count() {
        let mut time = WakingTime::since(Monotonic(1_000_000), Monotonic(5_000_000));
        assert_eq!(at(&mut time, 6_000, false), 2_000);
    }
}
