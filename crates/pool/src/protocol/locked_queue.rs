//! A first-in-first-out queue under a lock. Once closed, it drops its contents and accepts nothing
//! more.

use std::collections::VecDeque;

use crossbeam_utils::CachePadded;

use super::sync::atomic::AtomicUsize;
use super::sync::atomic::Ordering::Relaxed;
use super::sync::{self, Mutex};

pub(crate) struct LockedQueue<T> {
    /// The length; written under the lock, read without.
    len: CachePadded<AtomicUsize>,
    tasks: Mutex<Tasks<T>>,
}

struct Tasks<T> {
    queue: VecDeque<T>,
    is_closed: bool,
}

impl<T> LockedQueue<T> {
    pub(crate) fn new() -> Self {
        Self {
            len: CachePadded::new(AtomicUsize::new(0)),
            tasks: Mutex::new(Tasks { queue: VecDeque::new(), is_closed: false }),
        }
    }

    pub(crate) fn len(&self) -> usize {
        // Relaxed: a fence stands between this and the decision that depends on it, in `sleep`.
        self.len.load(Relaxed)
    }

    /// Adds a task, or hands it back if the queue is closed.
    pub(crate) fn push(&self, task: T) -> Result<(), T> {
        let mut tasks = sync::lock(&self.tasks);
        if tasks.is_closed {
            return Err(task);
        }
        // If the queue were closed in between, the task would stay there for ever.
        tasks = sync::unbroken(tasks, &self.tasks);
        tasks.queue.push_back(task);
        self.len.store(tasks.queue.len(), Relaxed);
        Ok(())
    }

    /// Adds all tasks, or hands them back if the queue is closed.
    pub(crate) fn extend(&self, more: impl Iterator<Item = T>) -> Vec<T> {
        let mut tasks = sync::lock(&self.tasks);
        if tasks.is_closed {
            return more.collect();
        }
        tasks.queue.extend(more);
        self.len.store(tasks.queue.len(), Relaxed);
        Vec::new()
    }

    /// Takes the oldest.
    pub(crate) fn pop(&self) -> Option<T> {
        if self.len() == 0 {
            return None;
        }
        let mut tasks = sync::lock(&self.tasks);
        let task = tasks.queue.pop_front();
        self.len.store(tasks.queue.len(), Relaxed);
        task
    }

    /// Takes the oldest, and moves a `share`-th of the rest, at most `most`, into `rest`.
    pub(crate) fn pop_batch(
        &self,
        share: usize,
        most: usize,
        mut rest: impl FnMut(T),
    ) -> Option<T> {
        if self.len() == 0 {
            return None;
        }
        let mut tasks = sync::lock(&self.tasks);
        let first = tasks.queue.pop_front();
        let count = (tasks.queue.len() / share).min(most);
        tasks.queue.drain(..count).for_each(&mut rest);
        self.len.store(tasks.queue.len(), Relaxed);
        first
    }

    /// Drops the contents, and accepts nothing more.
    pub(crate) fn close(&self) {
        let mut tasks = sync::lock(&self.tasks);
        tasks.is_closed = true;
        let dropped = std::mem::take(&mut tasks.queue);
        self.len.store(0, Relaxed);
        drop(tasks);
        drop(dropped);
    }
}
