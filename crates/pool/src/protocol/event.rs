//! An auto-reset event: one thread waits for it, others set it.

use super::sync::atomic::AtomicBool;
use super::sync::atomic::Ordering::Acquire;
use super::sync::{self, Thread, thread};

pub(crate) struct Event {
    is_set: AtomicBool,
    thread: Thread,
}

impl Event {
    /// For the calling thread, which alone may wait for it.
    pub(crate) fn new() -> Self {
        Self { is_set: AtomicBool::new(false), thread: thread::current() }
    }

    /// Everything done before this is visible to the thread that it wakes.
    pub(crate) fn set(&self) {
        // An exchange, as in `wait`: loom knows no order between an exchange and a plain store.
        self.is_set.swap(true, sync::publish());
        self.thread.unpark();
    }

    /// Waits until it has been set since the last wait.
    pub(crate) fn wait(&self) {
        while !self.is_set.swap(false, Acquire) {
            thread::park();
        }
    }
}
