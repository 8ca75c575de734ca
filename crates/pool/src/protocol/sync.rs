//! The only source of atomics, locks and threads: those of std, those of loom, which tries every
//! interleaving, or those of shuttle, which tries many.
//!
//! With `--cfg loom`, only the protocol is compiled; with `--cfg shuttle` as well, shuttle replaces
//! loom. Under ThreadSanitizer the locks are our own, because it does not understand those of std:
//! see `sanitizer_locks`.
//!
//! In builds for loom and for ThreadSanitizer a few things that matter can be left out at run time
//! (`planted`). They are all in this file, and the models and the sanitizer must notice that they
//! are missing.

#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic,
    thread::{self, Thread},
};

#[cfg(all(not(loom), not(filch_sanitized)))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};

#[cfg(all(not(loom), filch_sanitized))]
pub(crate) use super::sanitizer_locks::{Condvar, Mutex, MutexGuard, OnceLock};

#[cfg(all(loom, not(shuttle)))]
pub(crate) use loom::{
    sync::{Condvar, Mutex, MutexGuard, atomic},
    thread::{self, Thread},
};

#[cfg(shuttle)]
pub(crate) use shuttle::{
    sync::{Condvar, Mutex, MutexGuard, atomic},
    thread::{self, Thread},
};

use std::sync::PoisonError;

/// Locks. No code of ours panics while it holds a lock, and no user's code runs under one; so a
/// poisoned lock never protects anything half-done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a notification, or returns early.
pub(crate) fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// A fence between a store to one place and a load from another: of two threads that do this
/// crosswise, at least one sees the other's store.
pub(crate) fn fence() {
    if !planted::has_gaps() {
        atomic::fence(atomic::Ordering::SeqCst);
    }
}

/// Marks that the code before and after this runs under one lock, without a gap.
pub(crate) fn unbroken<'a, T>(guard: MutexGuard<'a, T>, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
    if planted::has_gaps() {
        drop(guard);
        return lock(mutex);
    }
    guard
}

/// The ordering of a store that publishes everything the thread did before it.
pub(crate) fn publish() -> atomic::Ordering {
    if planted::has_races() { atomic::Ordering::Relaxed } else { atomic::Ordering::Release }
}

/// Whether a value that may have changed since it was first read is read again. It always is,
/// unless a mistake is planted.
pub(crate) fn looks_again() -> bool {
    !planted::has_gaps()
}

/// Mistakes that a model or a test switches on, to prove that loom and the sanitizer would find
/// them. In every other build these functions are constants, and nothing of them is left.
pub(crate) mod planted {
    /// Whether fences, second looks and unbroken locks are left out. Only in models: on threads, a
    /// worker would now and then sleep for ever, where loom ends the model.
    #[cfg(all(loom, not(shuttle)))]
    pub(crate) fn has_gaps() -> bool {
        IN_THIS_MODEL.get()
    }

    #[cfg(not(all(loom, not(shuttle))))]
    pub(crate) const fn has_gaps() -> bool {
        false
    }

    /// Whether stores that publish are relaxed.
    #[cfg(all(loom, not(shuttle)))]
    pub(crate) fn has_races() -> bool {
        IN_THIS_MODEL.get()
    }

    #[cfg(all(not(loom), filch_sanitized))]
    pub(crate) fn has_races() -> bool {
        IN_THIS_PROCESS.load(std::sync::atomic::Ordering::Relaxed)
    }

    #[cfg(not(any(all(loom, not(shuttle)), all(not(loom), filch_sanitized))))]
    pub(crate) const fn has_races() -> bool {
        false
    }

    // loom runs all threads of a model on the thread that started it.
    #[cfg(all(loom, not(shuttle)))]
    std::thread_local! {
        pub(crate) static IN_THIS_MODEL: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }

    #[cfg(all(not(loom), filch_sanitized))]
    static IN_THIS_PROCESS: std::sync::atomic::AtomicBool =
        std::sync::atomic::AtomicBool::new(false);

    /// Plants races in every pool of this process, for good.
    #[cfg(all(not(loom), filch_sanitized))]
    pub fn plant_races() {
        IN_THIS_PROCESS.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}
