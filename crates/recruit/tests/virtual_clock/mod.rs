//! A clock that only moves when a test advances it. Each thread has its own.

use std::cell::Cell;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

thread_local! {
    static PASSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// For `RecruiterBuilder::clock`.
pub(crate) fn now() -> Instant {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    *START + PASSED.get()
}

pub(crate) fn advance(time: Duration) {
    PASSED.set(PASSED.get() + time);
}
