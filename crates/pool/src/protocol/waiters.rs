//! Who sleeps until what was taken from it is done, and would help if a part of that lay open.
//!
//! Whoever waits says so, and looks once more; whoever lays something open does that, and then looks who
//! waits. Between the two steps of each stands a fence, so at least one of them sees the other. One is
//! told; whoever was told tells the next, when it has taken what it found or needs nothing any more.

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

    /// Whether nobody waits. Who has laid something open asks behind a fence.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Relaxed) == 0
    }

    /// That seat will sleep until it is told. It has to look once more after this.
    pub(crate) fn wait(&self, worker: usize, waits_for: WaitTarget) {
        let mut list = sync::lock(&self.list);
        list.push(Waiter { worker, waits_for });
        self.count.store(list.len(), Relaxed);
        drop(list);
        // Pairs with the one behind what was laid open.
        sync::fence();
    }

    /// That seat does not sleep any more; true if it was told of something.
    #[must_use]
    pub(crate) fn leave(&self, worker: usize) -> bool {
        self.remove(|waiter| waiter.worker == worker).is_none()
    }

    /// Who is to be told of something that whoever waits on such a worker, for such a target, may take: the last
    /// who came.
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
