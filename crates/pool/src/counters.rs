//! The counters of each worker. They are always on, and only on paths that cost more than counting.

use crate::protocol::sync::atomic::AtomicU64;
use crate::protocol::sync::atomic::Ordering::Relaxed;

/// A number that one thread increments and others read.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// For the owner: no other thread may call this.
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    /// For any thread.
    pub(crate) fn add_shared(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[derive(Default)]
pub(crate) struct Counters {
    /// Tasks and stolen forks that this worker ran. Forks that were not stolen are plain calls.
    pub(crate) executed: Counter,
    /// Successful steals by this worker.
    pub(crate) steals: Counter,
    /// Forks and tasks that these steals moved.
    pub(crate) stolen: Counter,
    /// Forks and tasks that others stole from this worker; the thieves write it.
    pub(crate) stolen_from: Counter,
    /// Searches through all other workers that found nothing.
    pub(crate) failed_steals: Counter,
    pub(crate) parks: Counter,
    /// Wakes of other workers by this one.
    pub(crate) wakes: Counter,
    /// Wakes for work that this worker ended up doing itself.
    pub(crate) wasted_wakes: Counter,
    /// Forks and tasks that were exposed to thieves.
    pub(crate) promotions: Counter,
    /// Tasks moved to the shared queue because the worker's own queue was full.
    pub(crate) overflowed: Counter,
    /// Turns: how often this worker looked for its next work.
    pub(crate) ticks: Counter,
}
