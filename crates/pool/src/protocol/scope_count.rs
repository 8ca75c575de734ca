//! Counts the tasks of a scope, so that its owner sleeps until there is one to run, or until all
//! have finished.

use crossbeam_utils::CachePadded;

use super::sync::atomic::Ordering::{Acquire, Relaxed};
use super::sync::atomic::{AtomicBool, AtomicUsize};
use super::sync::{self, Thread, thread};

pub(crate) struct ScopeCount {
    /// Tasks that have not finished.
    pending: CachePadded<AtomicUsize>,
    /// Tasks that have not started.
    queued: AtomicUsize,
    owner: Thread,
    /// The owner sleeps until there is a task to run, or until all have finished.
    owner_sleeps: AtomicBool,
}

impl ScopeCount {
    /// For a scope that the calling thread owns.
    pub(crate) fn new() -> Self {
        Self {
            pending: CachePadded::new(AtomicUsize::new(0)),
            queued: AtomicUsize::new(0),
            owner: thread::current(),
            owner_sleeps: AtomicBool::new(false),
        }
    }

    /// Tasks that have not finished.
    pub(crate) fn pending(&self) -> usize {
        self.pending.load(Relaxed)
    }

    /// Whether there may be a task that has not started.
    pub(crate) fn is_queued(&self) -> bool {
        self.queued.load(Relaxed) > 0
    }

    /// Adds one task. `put` queues it after it was counted: a thread that counts one too many looks
    /// again, but one that counts too few would leave.
    pub(crate) fn add(&self, put: impl FnOnce()) {
        self.pending.fetch_add(1, Relaxed);
        self.queued.fetch_add(1, Relaxed);
        put();
        // Pairs with the one in `sleep`: either we see that the owner sleeps, or it sees the task.
        sync::fence();
        if self.owner_sleeps.load(Relaxed) {
            self.owner.unpark();
        }
    }

    /// A thread has taken a task, and will run it.
    pub(crate) fn started(&self) {
        self.queued.fetch_sub(1, Relaxed);
    }

    /// A task that was started has finished. The owner may continue, and nothing of the scope may
    /// be touched after this.
    pub(crate) fn finished(&self) {
        // Publishes what the task did to the owner. An exchange carries on what earlier ones have
        // published.
        if self.pending.fetch_sub(1, sync::publish()) == 1 {
            self.owner.unpark();
        }
    }

    /// Whether all tasks have finished.
    pub(crate) fn is_over(&self) -> bool {
        // Acquire: pairs with the end of each task.
        self.pending.load(Acquire) == 0
    }

    /// The owner, which has found nothing to do, sleeps until that may have changed. For the owner
    /// only.
    pub(crate) fn sleep(&self) {
        self.owner_sleeps.store(true, Relaxed);
        sync::fence();
        if !self.is_queued() && !self.is_over() {
            thread::park();
        }
        self.owner_sleeps.store(false, Relaxed);
    }
}
