//! The clocks of this process.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use filch_scheduler::time::{Monotonic, Now, Wall};

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

    /// The moment of this instant.
    pub(crate) fn moment(self, at: Instant) -> Monotonic {
        Monotonic(at.saturating_duration_since(self.start).as_micros() as u64)
    }

    /// The instant of this moment.
    pub(crate) fn instant(self, at: Monotonic) -> Instant {
        self.start + Duration::from_micros(at.0)
    }
}
