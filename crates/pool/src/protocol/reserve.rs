//! How many threads wait, how many reserves work in their place, and who sits on the idle.

use super::sync::atomic::AtomicUsize;
use super::sync::atomic::Ordering::SeqCst;
use super::sync::{self, Mutex};

/// The most reserves of one pool. If more threads than this wait, the pool has fewer that compute.
const RESERVES_MAX: usize = 256;

pub(crate) struct Reserve {
    /// How many threads wait now.
    wanted: AtomicUsize,
    /// How many reserves work. Changes under the lock.
    active: AtomicUsize,
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    /// Seats of those who sit there.
    workers: Vec<usize>,
    /// How many reserves there are altogether.
    count: usize,
}

impl Reserve {
    pub(crate) fn new() -> Self {
        Self {
            wanted: AtomicUsize::new(0),
            active: AtomicUsize::new(0),
            idle: Mutex::new(Idle::default()),
        }
    }

    /// One more thread waits. If one who sits on the idle is to come, says who: it has to be woken. If
    /// nobody sits there, `start` may start one more, and says whether it has.
    #[must_use]
    pub(crate) fn request(&self, start: impl FnOnce() -> bool) -> Option<usize> {
        self.wanted.fetch_add(1, SeqCst);
        let mut idle = sync::lock(&self.idle);
        // As many as are wanted by now: who comes to the lock first need not be who came first.
        if self.active.load(SeqCst) >= self.wanted.load(SeqCst) {
            return None;
        }
        let called = idle.workers.pop();
        if called.is_some() {
            self.active.fetch_add(1, SeqCst);
        } else if idle.count < RESERVES_MAX && start() {
            idle.count += 1;
            self.active.fetch_add(1, SeqCst);
        }
        called
    }

    /// So many fewer are needed.
    pub(crate) fn release(&self, count: usize) {
        self.wanted.fetch_sub(count, SeqCst);
    }

    /// Whether there is one reserve too many.
    pub(crate) fn is_surplus(&self) -> bool {
        self.active.load(SeqCst) > self.wanted.load(SeqCst)
    }

    /// The reserve on this seat sits down on the idle, if it is one too many; says whether it does.
    #[must_use]
    pub(crate) fn go_idle(&self, worker: usize) -> bool {
        let mut idle = sync::lock(&self.idle);
        // Once more, under the lock: who was not called before is called from here on.
        if sync::looks_again() && !self.is_surplus() {
            return false;
        }
        self.active.fetch_sub(1, SeqCst);
        idle.workers.push(worker);
        true
    }

    /// Whether the reserve on this seat sits on the idle.
    pub(crate) fn is_idle(&self, worker: usize) -> bool {
        sync::lock(&self.idle).workers.contains(&worker)
    }

    /// How many reserves work.
    #[cfg(all(test, loom))]
    pub(crate) fn active(&self) -> usize {
        self.active.load(SeqCst)
    }
}
