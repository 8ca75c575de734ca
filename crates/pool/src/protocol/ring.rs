//! The exposed tasks of one worker, oldest first: the owner adds at one end; owner and thieves take
//! at the other, thieves half of them by one exchange.
//!
//! Go's run queue. A taker copies first and then exchanges the head; as long as the head has not
//! moved, the owner cannot have reused the slots, so the copy is what was there.

use std::ptr;

use crossbeam_utils::CachePadded;

use super::sync;
use super::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use super::sync::atomic::{AtomicPtr, AtomicUsize};

/// How many tasks can be exposed at once.
#[cfg(not(loom))]
pub(crate) const CAPACITY: usize = 256;
#[cfg(loom)]
pub(crate) const CAPACITY: usize = 4;

const MASK: usize = CAPACITY - 1;

/// The most tasks that one theft takes.
pub(crate) const STEAL_MAX: usize = 32;

pub(crate) struct Ring<T> {
    head: CachePadded<AtomicUsize>,
    tail: CachePadded<AtomicUsize>,
    slots: Box<[AtomicPtr<T>]>,
}

/// The tasks that a theft took, oldest first.
pub(crate) struct Batch<T> {
    tasks: [*mut T; STEAL_MAX],
    count: usize,
}

impl<T> Batch<T> {
    pub(crate) fn as_slice(&self) -> &[*mut T] {
        &self.tasks[..self.count]
    }
}

impl<T> Ring<T> {
    pub(crate) fn new() -> Self {
        Self {
            head: CachePadded::new(AtomicUsize::new(0)),
            tail: CachePadded::new(AtomicUsize::new(0)),
            slots: (0..CAPACITY).map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
        }
    }

    /// About how many there are; exact for the owner if no thief is active.
    pub(crate) fn len(&self) -> usize {
        let head = self.head.load(Relaxed);
        self.tail.load(Relaxed).wrapping_sub(head).min(CAPACITY)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tail.load(Relaxed) == self.head.load(Relaxed)
    }

    /// How many more fit. For the owner only, because only the owner reduces it.
    pub(crate) fn room(&self) -> usize {
        // Acquire: the thread that moved the head has read the slots before. Pairs with the
        // exchange.
        CAPACITY - self.tail.load(Relaxed).wrapping_sub(self.head.load(Acquire))
    }

    /// Adds the newest. For the owner only, which has checked for room.
    pub(crate) fn push(&self, task: *mut T) {
        let tail = self.tail.load(Relaxed);
        self.slots[tail & MASK].store(task, Relaxed);
        // Release: a thread that sees the new tail sees the slot, and what the pointer points to.
        self.tail.store(tail.wrapping_add(1), sync::publish());
    }

    /// Takes the oldest. For the owner.
    pub(crate) fn pop(&self) -> Option<*mut T> {
        let mut head = self.head.load(Acquire);
        loop {
            // Relaxed: only the owner, which is here, moves it.
            if self.tail.load(Relaxed) == head {
                return None;
            }
            let task = self.slots[head & MASK].load(Relaxed);
            match self.head.compare_exchange_weak(head, head.wrapping_add(1), SeqCst, Acquire) {
                Ok(_) => return Some(task),
                Err(moved) => head = moved,
            }
        }
    }

    /// Takes the oldest `count(how many there are)`, at most [`STEAL_MAX`].
    pub(crate) fn steal(&self, count: impl Fn(usize) -> usize) -> Batch<T> {
        let mut batch = Batch { tasks: [ptr::null_mut(); STEAL_MAX], count: 0 };
        loop {
            let head = self.head.load(Acquire);
            // Acquire: pairs with `push`.
            let tail = self.tail.load(Acquire);
            let there = tail.wrapping_sub(head);
            if there > CAPACITY {
                // The two were read at different times, and the head has moved in between.
                continue;
            }
            batch.count = count(there).min(STEAL_MAX);
            if batch.count == 0 {
                return batch;
            }
            for (offset, task) in batch.tasks[..batch.count].iter_mut().enumerate() {
                *task = self.slots[head.wrapping_add(offset) & MASK].load(Relaxed);
            }
            let after = head.wrapping_add(batch.count);
            if self.head.compare_exchange(head, after, SeqCst, Relaxed).is_ok() {
                return batch;
            }
        }
    }
}
