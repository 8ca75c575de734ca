//! What each worker counts, always: only on paths that cost more than the counting.

use crate::protocol::sync::atomic::AtomicU64;
use crate::protocol::sync::atomic::Ordering::Relaxed;

/// A number that one thread adds to and others read.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// For the owner: no other thread may do this.
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    /// For anybody.
    pub(crate) fn add_shared(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[derive(Default)]
pub(crate) struct Counters {
    /// Tasks and stolen forks that this worker ran. Forks that nobody stole are plain calls.
    pub(crate) executed: Counter,
    /// Successful thefts by this worker.
    pub(crate) thefts: Counter,
    /// What these brought.
    pub(crate) stolen: Counter,
    /// What others took from this worker; they write it.
    pub(crate) stolen_from: Counter,
    /// Looks at all others that found nothing.
    pub(crate) failed_thefts: Counter,
    pub(crate) parks: Counter,
    /// Wakes of others, by this worker.
    pub(crate) wakes: Counter,
    /// Wakes for work that this worker did itself in the end.
    pub(crate) wasted_wakes: Counter,
    /// Forks and tasks that were exposed to thieves.
    pub(crate) promotions: Counter,
    /// Tasks moved to the shared queue because the own was full.
    pub(crate) overflowed: Counter,
    /// Turns: how often this worker looked for the next thing to do.
    pub(crate) ticks: Counter,
}
