//! The constraints that a test has configured for its jobs: concurrency limits, the queues that a
//! worker serves, jumps of the wall clock.
//!
//! Only what is set before the first job and never changed is recorded here, so that every run can
//! be checked against it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use filch_scheduler::time::Wall;

use crate::{since_boot, wall};

/// The constraints of one test.
#[derive(Debug, Default)]
pub struct Constraints(Mutex<ConstraintSet>);

/// The same, for the check.
#[derive(Clone, Debug, Default)]
pub struct ConstraintSet {
    /// The concurrency limits of queues; 0 if a queue is paused.
    pub limits: BTreeMap<String, u32>,
    /// The queues that a worker serves, by its process id; a worker that is not listed serves all.
    pub serves: BTreeMap<i32, Vec<String>>,
    /// What the wall clock showed before each time it was set.
    pub readings: Vec<ClockReading>,
}

/// A reading of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// When, in microseconds since boot.
    pub at: u64,
    /// What the clock showed.
    pub wall: Wall,
}

impl Constraints {
    /// Sets the concurrency limit of a queue, to the end of the test. No job of it may run yet.
    ///
    /// # Panics
    /// If there was a limit before: it would be unknown which limit applies to which run.
    pub fn limit(&self, queue: &str, limit: u32) {
        let before = self.lock().limits.insert(queue.to_owned(), limit);
        assert_eq!(before, None, "the limit of {queue} can be set only once");
    }

    /// This process is a worker that serves only these queues.
    pub fn serves(&self, worker: i32, queues: &[&str]) {
        let queues = queues.iter().map(|&queue| queue.to_owned()).collect();
        self.lock().serves.insert(worker, queues);
    }

    /// The wall clock, which is ahead of the true one by this many seconds, is about to be set.
    /// Jobs that are due now may run later, when it shows less. No submit and no report of a
    /// failure may be in progress.
    pub fn clock_is_about_to_be_set(&self, ahead: i64) {
        let wall = Wall(wall().0.saturating_add_signed(ahead * 1_000));
        self.lock().readings.push(ClockReading { at: since_boot(), wall });
    }

    /// All constraints.
    #[must_use]
    pub fn set(&self) -> ConstraintSet {
        self.lock().clone()
    }

    /// A thread that panicked has left no half-written constraint.
    fn lock(&self) -> MutexGuard<'_, ConstraintSet> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
