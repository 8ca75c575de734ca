//! The clocks of one machine: both run at its own rate, and the wall clock may jump.
//!
//! True time belongs to the simulator; the simulated processes cannot read it.

use filch_scheduler::time::{Monotonic, Now, Wall};

/// A machine's clocks, as a function of true time.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// The rate of both, in millionths of true time.
    rate: u64,
    /// The true time at which the machine's monotonic clock was at `base`.
    since: Monotonic,
    base: u64,
    /// How far the wall clock is ahead of the monotonic one, in milliseconds.
    wall_ahead: i64,
}

/// The wall clock at the start of a run, above 0 so that it can jump back.
pub(crate) const BEGINNING_MS: i64 = 1_000_000_000;

const MILLION: u64 = 1_000_000;

impl Clock {
    pub(crate) const fn new(rate: u32) -> Self {
        Self { rate: rate as u64, since: Monotonic(0), base: 0, wall_ahead: BEGINNING_MS }
    }

    pub(crate) const fn read(&self, at: Monotonic) -> Now {
        let monotonic = self.base + (at.0 - self.since.0) * self.rate / MILLION;
        let wall = (monotonic / 1_000).saturating_add_signed(self.wall_ahead);
        Now { monotonic: Monotonic(monotonic), wall: Wall(wall) }
    }

    /// The first true time at which the clock shows at least this.
    pub(crate) const fn when(&self, shows: Monotonic) -> Monotonic {
        let ahead = shows.0.saturating_sub(self.base);
        Monotonic(self.since.0 + (ahead * MILLION).div_ceil(self.rate))
    }

    pub(crate) const fn jump_wall(&mut self, by_ms: i64) {
        self.wall_ahead += by_ms;
    }

    /// The machine restarts: its monotonic clock starts at 0, the wall clock goes on.
    pub(crate) const fn restart(&mut self, at: Monotonic) {
        let before = self.read(at).monotonic.0;
        (self.since, self.base) = (at, 0);
        self.wall_ahead += (before / 1_000) as i64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_clock_shows_less_and_is_late() {
        let clock = Clock::new(700_000);
        assert_eq!(clock.read(Monotonic(10_000_000)).monotonic, Monotonic(7_000_000));
        assert_eq!(clock.when(Monotonic(7_000_000)), Monotonic(10_000_000));
        for shows in [1, 2, 3, 999, 1_000_001] {
            let at = clock.when(Monotonic(shows));
            assert!(clock.read(at).monotonic.0 >= shows, "{shows}");
        }
    }

    #[test]
    fn the_wall_clock_goes_on_over_a_restart_and_jumps_alone() {
        let mut clock = Clock::new(1_000_000);
        let before = clock.read(Monotonic(5_000_000)).wall;
        clock.restart(Monotonic(5_000_000));
        let after = clock.read(Monotonic(5_000_000));
        assert_eq!((after.monotonic, after.wall), (Monotonic(0), before));
        clock.jump_wall(-60_000);
        assert_eq!(clock.read(Monotonic(5_000_000)).wall.0, before.0 - 60_000);
    }
}
