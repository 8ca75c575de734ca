//! The wall clock, for what is kept with the time at which it is kept.

use std::time::SystemTime;

use filch_scheduler::time::Wall;

pub(crate) fn clock() -> Wall {
    // A clock before 1970 is as good as none.
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    Wall(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
