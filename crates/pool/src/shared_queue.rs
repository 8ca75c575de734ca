//! The queue that all workers share: tasks from outside the pool, overflow, and tasks with a
//! priority.

use crate::protocol::locked_queue::LockedQueue;
use crate::raw_task::Task;

/// The priority of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Runs when a worker finds nothing else in this process, and once in a while so that it does
    /// not starve.
    Low,
    /// Runs in the normal search order.
    #[default]
    Normal,
    /// Runs before everything else, even before a worker's own tasks.
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

    /// Adds tasks that did not fit elsewhere. They are handed back if the queue is closed, to be
    /// dropped where nothing is locked or borrowed: dropping a task may run any code, and may
    /// spawn.
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

    /// Takes a task of any priority; low priority comes first at every other call, so that none
    /// starves.
    pub(crate) fn pop_any(&self, low_first: bool) -> Option<Task> {
        if low_first {
            self.low.pop().or_else(|| self.high.pop()).or_else(|| self.normal.pop())
        } else {
            self.high.pop().or_else(|| self.normal.pop()).or_else(|| self.low.pop())
        }
    }

    /// Takes one task, and moves a fair share for one of that many workers into `rest`.
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

    /// Drops the contents, and accepts nothing more.
    pub(crate) fn close(&self) {
        self.high.close();
        self.normal.close();
        self.low.close();
    }
}
