//! The one door to atomics, locks and threads: those of std, or those of loom, which tries every
//! order in which they could happen, or those of shuttle, which tries many.
//!
//! With `--cfg loom` nothing but the protocol is compiled; with `--cfg shuttle` as well, it is
//! shuttle that stands in. Where ThreadSanitizer looks on, the locks are ours, since it does not see
//! those of std: see `seen`.
//!
//! With `--cfg filch_planted` a few things that matter are left out. They are all here, and the models
//! and the sanitizer have to find that they are missing.

#[cfg(not(loom))]
pub(crate) use std::{
    sync::atomic,
    thread::{self, Thread},
};

#[cfg(all(not(loom), not(filch_sanitized)))]
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};

#[cfg(all(not(loom), filch_sanitized))]
pub(crate) use super::seen::{Condvar, Mutex, MutexGuard, OnceLock};

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

/// What lies behind the lock. No code of ours panics while it holds one, and no user's code runs
/// under one; so nothing half-done is ever seen.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until somebody says that what lies behind the lock has changed, or for no reason at all.
pub(crate) fn wait<'a, T>(changed: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    changed.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// A fence between a store and a load of two places: of two threads that do this crosswise, at least
/// one sees the other's store.
pub(crate) fn fence() {
    if !IS_GAPPY {
        atomic::fence(atomic::Ordering::SeqCst);
    }
}

/// What comes before this and what comes after it happens under one lock, without a gap.
pub(crate) fn unbroken<'a, T>(guard: MutexGuard<'a, T>, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
    if IS_GAPPY {
        drop(guard);
        return lock(mutex);
    }
    guard
}

/// What was done before is seen by who finds that it was done.
pub(crate) const PUBLISH: atomic::Ordering =
    if IS_PLANTED { atomic::Ordering::Relaxed } else { atomic::Ordering::Release };

/// Whether something is looked at again that may have changed since it was first looked at. It always
/// is.
pub(crate) const LOOKS_AGAIN: bool = !IS_GAPPY;

const IS_PLANTED: bool = cfg!(filch_planted);

/// Not on threads: somebody would sleep for ever, now and then, where the models end the story.
const IS_GAPPY: bool = IS_PLANTED && cfg!(loom);
