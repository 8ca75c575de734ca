//! Locks that ThreadSanitizer understands.
//!
//! std is built without the sanitizer, which therefore does not see which thread releases a lock of
//! std and which one acquires it next, and reports the protected data as unprotected. Each of these
//! locks has one of std inside, which holds its contents, and an atomic around it that makes the
//! order visible. They spin where those of std sleep; nothing else is different.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};
use std::thread;
use std::time::{Duration, Instant};

/// How long a thread that waits for a change sleeps between two checks.
const NAP: Duration = Duration::from_micros(50);

#[derive(Default)]
pub(crate) struct Mutex<T> {
    is_locked: AtomicBool,
    inside: std::sync::Mutex<T>,
}

/// In this order: the inner lock is released first.
pub(crate) struct MutexGuard<'a, T> {
    inside: std::sync::MutexGuard<'a, T>,
    turn: Turn<'a, T>,
}

struct Turn<'a, T>(&'a Mutex<T>);

impl<T> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        self.0.is_locked.store(false, Release);
    }
}

impl<T> Mutex<T> {
    pub(crate) const fn new(inside: T) -> Self {
        Self { is_locked: AtomicBool::new(false), inside: std::sync::Mutex::new(inside) }
    }

    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        loop {
            if let Ok(guard) = self.try_lock() {
                return Ok(guard);
            }
            thread::yield_now();
        }
    }

    pub(crate) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        if self.is_locked.swap(true, Acquire) {
            return Err(TryLockError::WouldBlock);
        }
        let turn = Turn(self);
        let inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(MutexGuard { inside, turn })
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inside
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inside
    }
}

/// Does nothing: waiting threads check again by themselves.
#[derive(Default)]
pub(crate) struct Condvar;

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self
    }

    pub(crate) fn notify_one(&self) {}

    pub(crate) fn notify_all(&self) {}

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let mutex = guard.turn.0;
        drop(guard);
        thread::sleep(NAP);
        mutex.lock()
    }

    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        _at_most: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, ())> {
        let guard = self.wait(guard).unwrap_or_else(PoisonError::into_inner);
        Ok((guard, ()))
    }

    pub(crate) fn wait_timeout_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        at_most: Duration,
        mut goes_on: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, ())> {
        let until = Instant::now() + at_most;
        while goes_on(&mut *guard) && Instant::now() < until {
            guard = self.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        Ok((guard, ()))
    }
}

pub(crate) struct OnceLock<T> {
    is_set: AtomicBool,
    making: Mutex<()>,
    inside: std::sync::OnceLock<T>,
}

impl<T> OnceLock<T> {
    pub(crate) const fn new() -> Self {
        Self {
            is_set: AtomicBool::new(false),
            making: Mutex::new(()),
            inside: std::sync::OnceLock::new(),
        }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        self.is_set.load(Acquire).then(|| self.inside.get()).flatten()
    }

    pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if !self.is_set.load(Acquire) {
            let _making = self.making.lock();
            self.inside.get_or_init(make);
            self.is_set.store(true, Release);
        }
        self.inside.get().expect("it was set before the flag")
    }

    pub(crate) fn set(&self, value: T) -> Result<(), T> {
        let _making = self.making.lock();
        let set = self.inside.set(value);
        self.is_set.store(true, Release);
        set
    }
}
