//! Work of a known length, calibrated in steps per microsecond on this machine.
//!
//! A fixed number of steps is the same work no matter how often a thread is interrupted, and the
//! resulting sum shows that none was left out.

use std::hint::black_box;
use std::sync::LazyLock;
use std::time::Instant;

/// How many steps take a microsecond.
static STEPS: LazyLock<u64> = LazyLock::new(|| {
    const TRIED: u64 = 200_000;
    let fastest = (0..20).map(|_| {
        let start = Instant::now();
        black_box(steps(TRIED, 1));
        start.elapsed()
    });
    let fastest = fastest.min().expect("it was tried").as_nanos();
    let steps = u128::from(TRIED) * 1_000 / fastest.max(1);
    u64::try_from(steps).expect("a microsecond is short").max(1)
});

/// Works for this many microseconds, if it is not interrupted.
#[inline(never)]
pub(crate) fn microseconds(count: u64) -> u64 {
    steps(count * *STEPS, count + 1)
}

/// Works for this many nanoseconds.
#[inline(never)]
pub(crate) fn nanoseconds(count: u64) -> u64 {
    steps(count * *STEPS / 1_000, count + 1)
}

/// Xorshift: each step depends on the one before.
fn steps(count: u64, seed: u64) -> u64 {
    let mut state = seed;
    for _ in 0..count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state)
}
