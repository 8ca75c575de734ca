//! How many tasks are done, counted without their threads fighting over one word: that would be
//! what is measured then.

use std::cell::Cell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;
use std::time::Duration;

const PLACES: usize = 64;

/// A word on a line of its own.
#[repr(align(128))]
struct Place(AtomicU64);

static PLACES_TAKEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static MINE: Cell<usize> = Cell::new(PLACES_TAKEN.fetch_add(1, Relaxed) % PLACES);
}

static DONE: [Place; PLACES] = [const { Place(AtomicU64::new(0)) }; PLACES];

/// One more is done.
#[inline]
pub(crate) fn one() {
    // Nobody else has this word, unless there are more threads than words; so it costs little.
    DONE[MINE.get()].0.fetch_add(1, Release);
}

/// What is done by all since the program began.
pub(crate) fn total() -> u64 {
    DONE.iter().map(|place| place.0.load(Acquire)).sum()
}

/// Waits until so many are done, without keeping a processor busy.
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
