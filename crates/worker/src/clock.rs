//! This process's clocks: a monotonic one that includes time asleep, and the wall clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use filch_scheduler::time::{Monotonic, Now, Wall};
use rustix::time::{ClockId, clock_gettime};

/// Both clocks, read now.
pub(crate) fn now() -> Now {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000;
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { monotonic: Monotonic(seconds * 1_000_000 + micros), wall: Wall(wall.as_millis() as u64) }
}

/// How long until then.
pub(crate) fn until(at: Monotonic) -> Duration {
    at.since(now().monotonic)
}
