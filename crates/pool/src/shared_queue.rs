//! The queue that all workers share: what comes from outside, what overflows, and what has a
//! priority.

use crate::protocol::locked_queue::LockedQueue;
use crate::raw_task::Task;

/// How urgent a task is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Looked for only when nothing else is found in this process, and once in a while so that it does not starve.
    Low,
    /// The order of the ladder.
    #[default]
    Normal,
    /// Before everything else, also before what a worker has made ready itself.
    High,
}

pub(crate) struct SharedQueue {
    high: LockedQueue<Task>,
    normal: LockedQueue<Task>,
    low: LockedQueue<Task>,
}

impl SharedQueue {
    pub(crate) fn new() -> Self {
        Self { high: LockedQueue::new(), normal: LockedQueue::new(), low: LockedQueue::new() }
    }

    /// Adds a task; it is handed back if the queue is closed.
    pub(crate) fn push(&self, task: Task, priority: Priority) -> Result<(), Task> {
        match priority {
            Priority::High => self.high.push(task),
            Priority::Normal => self.normal.push(task),
            Priority::Low => self.low.push(task),
        }
    }

    /// What was too much elsewhere. It is handed back if the queue is closed, to be dropped where
    /// nothing is locked or borrowed: what a task holds may be anything, and may spawn.
    #[must_use]
    pub(crate) fn overflow(&self, tasks: impl Iterator<Item = Task>) -> Vec<Task> {
        self.normal.extend(tasks)
    }

    pub(crate) fn pop_high(&self) -> Option<Task> {
        self.high.pop()
    }

    pub(crate) fn pop_low(&self) -> Option<Task> {
        self.low.pop()
    }

    /// One of any kind, the low ones first at every other turn, so that none starves.
    pub(crate) fn pop_any(&self, low_first: bool) -> Option<Task> {
        if low_first {
            self.low.pop().or_else(|| self.high.pop()).or_else(|| self.normal.pop())
        } else {
            self.high.pop().or_else(|| self.normal.pop()).or_else(|| self.low.pop())
        }
    }

    /// One, and a fair share for a worker of so many into `rest`.
    pub(crate) fn pop_batch(
        &self,
        workers: usize,
        most: usize,
        rest: impl FnMut(Task),
    ) -> Option<Task> {
        self.normal.pop_batch(workers, most, rest)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.high.len() + self.normal.len() + self.low.len()
    }

    /// Drops what is there, and takes nothing any more.
    pub(crate) fn close(&self) {
        self.high.close();
        self.normal.close();
        self.low.close();
    }
}
