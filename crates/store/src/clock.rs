//! The wall clock, for rows that record when they were written.

use std::time::SystemTime;

use filch_scheduler::time::Wall;

pub(crate) fn clock() -> Wall {
    // A clock that shows a time before 1970 is treated as 1970.
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    Wall(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
