//! The terms under which the jobs of one test run, as far as the test itself has set them: what a queue may
//! have at once, whom a worker serves, what the wall clock was made to show.
//!
//! Only what stands from before the first job to the end is written down here, so that every run can be held
//! to it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use filch_scheduler::time::Wall;

use crate::{since_boot, wall};

/// The terms of one test.
#[derive(Debug, Default)]
pub struct Terms(Mutex<Set>);

/// The same, as runs are held to them.
#[derive(Clone, Debug, Default)]
pub struct Set {
    /// How many jobs of a queue may run at once: none if it is paused.
    pub limits: BTreeMap<String, u32>,
    /// Which queues a worker serves, by the number of its process; whoever is not there serves all.
    pub serves: BTreeMap<i32, Vec<String>>,
    /// What the wall clock showed last before it was set.
    pub readings: Vec<Reading>,
}

/// A reading of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// When, in microseconds since boot.
    pub at: u64,
    /// What it showed.
    pub wall: Wall,
}

impl Terms {
    /// So many jobs of this queue may run at once, from now on and to the end. None does yet.
    ///
    /// # Panics
    /// If it was said otherwise before: it would not be known which run stands under which limit.
    pub fn limit(&self, queue: &str, limit: u32) {
        let before = self.lock().limits.insert(queue.to_owned(), limit);
        assert_eq!(before, None, "the limit of {queue} is set once");
    }

    /// This process is a worker that serves these queues and no other.
    pub fn serves(&self, worker: i32, queues: &[&str]) {
        let queues = queues.iter().map(|&queue| queue.to_owned()).collect();
        self.lock().serves.insert(worker, queues);
    }

    /// The wall clock, which is ahead of the true one by so many seconds, is about to be set. What was due by
    /// what it shows now may run later, when it shows less. No submit and no report of a failure may be
    /// under way.
    pub fn clock_is_about_to_be_set(&self, ahead: i64) {
        let wall = Wall(wall().0.saturating_add_signed(ahead * 1_000));
        self.lock().readings.push(Reading { at: since_boot(), wall });
    }

    /// All of them.
    #[must_use]
    pub fn set(&self) -> Set {
        self.lock().clone()
    }

    /// Who panicked has set nothing by halves.
    fn lock(&self) -> MutexGuard<'_, Set> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
