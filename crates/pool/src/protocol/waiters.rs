//! Workers that sleep until a fork that was stolen from them is done, and that would help if a part
//! of it were exposed.
//!
//! A worker that waits first registers here, then checks for exposed forks once more. A worker that
//! exposes a fork then checks for waiting ones. A fence stands between the two steps of each, so at
//! least one of them sees the other. One waiting worker is woken; it wakes the next when it has
//! taken a fork, or when it needs none any more.

use crossbeam_utils::CachePadded;

use super::ancestry::WaitTarget;
use super::sync::atomic::AtomicUsize;
use super::sync::atomic::Ordering::Relaxed;
use super::sync::{self, Mutex};

pub(crate) struct Waiters {
    count: CachePadded<AtomicUsize>,
    list: Mutex<Vec<Waiter>>,
}

struct Waiter {
    worker: usize,
    waits_for: WaitTarget,
}

impl Waiters {
    pub(crate) fn new() -> Self {
        Self { count: CachePadded::new(AtomicUsize::new(0)), list: Mutex::new(Vec::new()) }
    }

    /// Whether no worker waits. A worker that has exposed something calls this after a fence.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    /// Registers a worker that will sleep until it is woken. It has to check once more after this.
    pub(crate) fn wait(&self, worker: usize, waits_for: WaitTarget) {
        let mut list = sync::lock(&self.list);
        list.push(Waiter { worker, waits_for });
        self.count.store(list.len(), Relaxed);
        drop(list);
        // Pairs with the one after an exposure.
        sync::fence();
    }

    /// Removes a worker that does not sleep any more; true if it was woken for a fork.
    #[must_use]
    pub(crate) fn leave(&self, worker: usize) -> bool {
        self.remove(|waiter| waiter.worker == worker).is_none()
    }

    /// Removes and returns the last worker to register that may take a fork, as `may_take` decides
    /// from the worker and what it waits for.
    pub(crate) fn call(&self, may_take: impl Fn(usize, WaitTarget) -> bool) -> Option<usize> {
        self.remove(|waiter| may_take(waiter.worker, waiter.waits_for))
    }

    fn remove(&self, is_meant: impl Fn(&Waiter) -> bool) -> Option<usize> {
        let mut list = sync::lock(&self.list);
        let waiter = list.iter().rposition(is_meant).map(|at| list.remove(at));
        self.count.store(list.len(), Relaxed);
        waiter.map(|waiter| waiter.worker)
    }
}
