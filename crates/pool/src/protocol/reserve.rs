//! How many threads wait, how many reserves run in their place, and which reserves are idle.

use super::sync::atomic::AtomicUsize;
use super::sync::atomic::Ordering::SeqCst;
use super::sync::{self, Mutex};

/// The most reserves of one pool. If more threads than this wait, the pool computes on fewer
/// threads.
const RESERVES_MAX: usize = 256;

pub(crate) struct Reserve {
    /// How many threads wait now.
    wanted: AtomicUsize,
    /// How many reserves run. Changes under the lock.
    active: AtomicUsize,
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    /// The idle reserves.
    workers: Vec<usize>,
    /// How many reserves exist.
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

    /// One more thread waits. If an idle reserve takes over, returns it: it has to be woken. If
    /// there is none, `start` may start one more, and returns whether it has.
    #[must_use]
    pub(crate) fn request(&self, start: impl FnOnce() -> bool) -> Option<usize> {
        self.wanted.fetch_add(1, SeqCst);
        let mut idle = sync::lock(&self.idle);
        // Compared with the current number: the first to get the lock need not be the first that
        // waited.
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

    /// That many fewer are needed.
    pub(crate) fn release(&self, count: usize) {
        self.wanted.fetch_sub(count, SeqCst);
    }

    /// Whether there is one reserve too many.
    pub(crate) fn is_surplus(&self) -> bool {
        self.active.load(SeqCst) > self.wanted.load(SeqCst)
    }

    /// Makes this reserve idle if it is surplus, and returns whether it did.
    #[must_use]
    pub(crate) fn go_idle(&self, worker: usize) -> bool {
        let mut idle = sync::lock(&self.idle);
        // Checked again under the lock: from here on, a request reaches this reserve.
        if sync::looks_again() && !self.is_surplus() {
            return false;
        }
        self.active.fetch_sub(1, SeqCst);
        idle.workers.push(worker);
        true
    }

    /// Whether this reserve is idle.
    pub(crate) fn is_idle(&self, worker: usize) -> bool {
        sync::lock(&self.idle).workers.contains(&worker)
    }

    /// How many reserves run.
    #[cfg(all(test, loom))]
    pub(crate) fn active(&self) -> usize {
        self.active.load(SeqCst)
    }
}
