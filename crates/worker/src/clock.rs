//! This process's clocks: a monotonic one that includes time asleep, and the wall clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use filch_scheduler::time::{Monotonic, Now, Wall};
use rustix::time::{ClockId, clock_gettime};

/// Both clocks, read now.
pub(crate) fn now() -> Now {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { monotonic: since_boot(), wall: Wall(wall.as_millis() as u64) }
}

/// The time since boot, including time asleep: one clock for all processes of this machine. A
/// moment of it means the same in the worker and in its guardian.
pub(crate) fn since_boot() -> Monotonic {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000;
    Monotonic(seconds * 1_000_000 + micros)
}

/// How long until then.
pub(crate) fn until(at: Monotonic) -> Duration {
    at.since(since_boot())
}
