//! Counts finished tasks without contention between their threads, which would dominate the
//! measurement.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;
use std::time::Duration;

const PLACES: usize = 64;

/// A counter on its own cache line.
#[repr(align(128))]
struct Place(AtomicU64);

static PLACES_TAKEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static MINE: Cell<usize> = Cell::new(PLACES_TAKEN.fetch_add(1, Relaxed) % PLACES);
}

static DONE: [Place; PLACES] = [const { Place(AtomicU64::new(0)) }; PLACES];

/// Counts one more finished task.
#[inline]
pub(crate) fn one() {
    // No other thread uses this counter, unless there are more threads than counters; so it is
    // cheap.
    DONE[MINE.get()].0.fetch_add(1, Release);
}

/// The number of finished tasks since the program started.
pub(crate) fn total() -> u64 {
    DONE.iter().map(|place| place.0.load(Acquire)).sum()
}

/// Waits until this many tasks have finished, without keeping a processor busy.
pub(crate) fn wait_for(total_expected: u64) {
    while total() < total_expected {
        thread::sleep(Duration::from_micros(50));
    }
}

/// A sum that several threads add to.
#[derive(Default)]
pub(crate) struct Sum(AtomicU64);

impl Sum {
    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Acquire)
    }
}
