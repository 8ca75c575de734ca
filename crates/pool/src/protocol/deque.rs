//! The exposed forks of one worker: its owner adds and takes at the newest end, thieves take the
//! oldest.
//!
//! Chase and Lev's deque with the orderings of Lê, Pop, Cohen and Zappa Nardelli, and with a fixed
//! capacity: a fork that finds it full stays private, so nothing has to grow and nothing has to be
//! reclaimed. The slots are atomic, so a thief that reads one too late reads a stale pointer and
//! loses the exchange; it never reads a torn one.

use std::ptr;

use crossbeam_utils::CachePadded;

use super::sync;
use super::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use super::sync::atomic::{AtomicPtr, AtomicUsize};

/// How many forks can be exposed at once.
#[cfg(not(loom))]
pub(crate) const CAPACITY: usize = 256;
#[cfg(loom)]
pub(crate) const CAPACITY: usize = 4;

const MASK: usize = CAPACITY - 1;

pub(crate) struct Deque<T> {
    /// The steal end. Only grows.
    top: CachePadded<AtomicUsize>,
    /// The owner end; between `top` and this lie the forks. It starts at one, so that an owner that
    /// looks for the newest of none does not step below zero.
    ///
    /// Every store is Release, not only that of `push`: a thief that sees the end as a `pop` has
    /// left it must see the slots below, and a plain store does not carry on what a Release store
    /// before it has published.
    bottom: CachePadded<AtomicUsize>,
    slots: Box<[AtomicPtr<T>]>,
}

/// The result of an attempt to steal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Theft<T> {
    Taken(*mut T),
    /// There was none.
    Empty,
    /// There was one, but the thief may not take it.
    Refused,
    /// Another thread was faster.
    Lost,
}

impl<T> Deque<T> {
    pub(crate) fn new() -> Self {
        Self {
            top: CachePadded::new(AtomicUsize::new(1)),
            bottom: CachePadded::new(AtomicUsize::new(1)),
            slots: (0..CAPACITY).map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
        }
    }

    /// About how many are exposed; exact for the owner if no thief is active.
    pub(crate) fn len(&self) -> usize {
        let bottom = self.bottom.load(Relaxed);
        bottom.saturating_sub(self.top.load(Relaxed))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many more fit. For the owner only, because only the owner reduces it.
    pub(crate) fn room(&self) -> usize {
        CAPACITY - (self.bottom.load(Relaxed) - self.top.load(Acquire))
    }

    /// Adds the newest. For the owner only, which has checked for room.
    pub(crate) fn push(&self, fork: *mut T) {
        let bottom = self.bottom.load(Relaxed);
        debug_assert!(bottom - self.top.load(Relaxed) < CAPACITY, "room was asked for");
        self.slots[bottom & MASK].store(fork, Relaxed);
        // Release: a thread that sees the new end sees the slot, and what the pointer points to.
        // Pairs with the Acquire load in `steal`.
        self.bottom.store(bottom + 1, Release);
    }

    /// Takes the newest. For the owner only.
    pub(crate) fn pop(&self) -> Option<*mut T> {
        let last = self.bottom.load(Relaxed) - 1;
        self.bottom.store(last, Release);
        // Between the claim on the newest and the look at the oldest: either a thief sees the
        // claim, or we see its theft. Pairs with the fence in `steal`.
        sync::fence();
        let top = self.top.load(Relaxed);
        if top > last {
            // There was none.
            self.bottom.store(last + 1, Release);
            return None;
        }
        let fork = self.slots[last & MASK].load(Relaxed);
        if top < last {
            return Some(fork);
        }
        // The last one: owner and thieves decide by one exchange whose it is.
        let won = self.top.compare_exchange(top, top + 1, SeqCst, Relaxed).is_ok();
        self.bottom.store(last + 1, Release);
        won.then_some(fork)
    }

    /// Takes the oldest, if `permitted`, which is called after the thief has seen that there is
    /// one.
    ///
    /// If the answer is yes at that moment, it was yes for the very fork that is taken: for that
    /// one to go and another to take its place, the steal end has to move, and then the exchange
    /// fails.
    pub(crate) fn steal(&self, permitted: impl FnOnce() -> bool) -> Theft<T> {
        let top = self.top.load(Acquire);
        sync::fence();
        let bottom = self.bottom.load(Acquire);
        if top >= bottom {
            return Theft::Empty;
        }
        if !permitted() {
            return Theft::Refused;
        }
        let fork = self.slots[top & MASK].load(Relaxed);
        match self.top.compare_exchange(top, top + 1, SeqCst, Relaxed) {
            Ok(_) => Theft::Taken(fork),
            Err(_) => Theft::Lost,
        }
    }
}
