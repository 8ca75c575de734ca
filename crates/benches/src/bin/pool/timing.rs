//! Measures wall time and processor time.

use std::hint::black_box;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Wall time in milliseconds.
pub(crate) fn wall_ms<R>(f: impl FnOnce() -> R) -> f64 {
    let start = Instant::now();
    black_box(f());
    milliseconds(start.elapsed())
}

/// Processor time in milliseconds, over all threads of this process.
pub(crate) fn processor_ms<R>(f: impl FnOnce() -> R) -> f64 {
    let start = processor_time();
    black_box(f());
    milliseconds(processor_time().saturating_sub(start))
}

pub(crate) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.try_into().expect("time does not run backwards"),
        time.tv_nsec.try_into().expect("nanoseconds are fewer than a billion"),
    )
}
