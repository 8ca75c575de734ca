//! A thread that waits for one thing, and is told when that has happened.

use super::sync::atomic::AtomicBool;
use super::sync::atomic::Ordering::Acquire;
use super::sync::{self, Thread, thread};

pub(crate) struct Bell {
    has_rung: AtomicBool,
    thread: Thread,
}

impl Bell {
    /// For the calling thread, which alone may wait for it.
    pub(crate) fn new() -> Self {
        Self { has_rung: AtomicBool::new(false), thread: thread::current() }
    }

    /// What was done before is seen by the thread that this wakes.
    pub(crate) fn ring(&self) {
        // An exchange, as in `wait`: loom knows no order between an exchange and a plain store.
        self.has_rung.swap(true, sync::publish());
        self.thread.unpark();
    }

    /// Waits until it has rung since the last time.
    pub(crate) fn wait(&self) {
        while !self.has_rung.swap(false, Acquire) {
            thread::park();
        }
    }
}
