//! The shared state of one worker: what other workers see of it, and what they may steal.

use crossbeam_utils::CachePadded;

use crate::counters::Counters;
use crate::fork;
use crate::protocol::ancestry::Ancestry;
use crate::protocol::deque::Deque;
use crate::protocol::sync::atomic::Ordering::Relaxed;
use crate::protocol::sync::atomic::{AtomicU8, AtomicUsize};
use crate::raw_task::{TaskRing, TaskSlot};
use crate::stats::WorkerState;

pub(crate) struct WorkerShared {
    /// The only word that a fork reads: as long as fewer private forks than this were made, no
    /// other worker wants any. A thief that finds nothing here stores zero.
    limit: CachePadded<AtomicUsize>,
    /// The task that was spawned last.
    pub(crate) next: CachePadded<TaskSlot>,
    pub(crate) tasks: TaskRing,
    pub(crate) forks: Deque<fork::Header>,
    /// The work that the worker executes.
    pub(crate) ancestry: CachePadded<Ancestry>,
    pub(crate) counters: CachePadded<Counters>,
    /// What the worker is doing, for statistics.
    state: AtomicU8,
}

impl WorkerShared {
    pub(crate) fn new() -> Self {
        Self {
            limit: CachePadded::new(AtomicUsize::new(0)),
            next: CachePadded::new(TaskSlot::new()),
            tasks: TaskRing::new(),
            forks: Deque::new(),
            ancestry: CachePadded::new(Ancestry::new()),
            counters: CachePadded::new(Counters::default()),
            state: AtomicU8::new(WorkerState::Working as u8),
        }
    }

    /// Whether anything is exposed here; not the task in the `next` slot, which is its owner's for
    /// a while.
    pub(crate) fn is_exposed(&self) -> bool {
        !self.forks.is_empty() || !self.tasks.is_empty()
    }

    /// Whether that many private forks have reached the limit. Relaxed: a hint that may come late.
    #[inline(always)]
    pub(crate) fn has_reached_limit(&self, forks: usize) -> bool {
        forks >= self.limit.load(Relaxed)
    }

    /// Another worker requests work from this one.
    pub(crate) fn request_work(&self) {
        // Read first: a cache line that is written moves away from its owner.
        if !self.is_work_requested() {
            self.limit.store(0, Relaxed);
        }
    }

    #[inline(always)]
    pub(crate) fn is_work_requested(&self) -> bool {
        self.limit.load(Relaxed) == 0
    }

    /// The request was satisfied, as far as possible.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Relaxed);
    }

    /// Makes the next fork exposed, whether there was a request or not. For the owner only.
    pub(crate) fn lower_limit(&self, limit: usize) {
        let before = self.limit.load(Relaxed);
        if before > limit {
            // An exchange, so that a request made meanwhile is not lost.
            let _ = self.limit.compare_exchange(before, limit, Relaxed, Relaxed);
        }
    }

    /// What its worker is doing.
    pub(crate) fn state(&self) -> WorkerState {
        // Relaxed: only for display.
        WorkerState::ALL[usize::from(self.state.load(Relaxed))]
    }

    /// For the owner, on paths where the cost does not matter.
    pub(crate) fn set_state(&self, state: WorkerState) {
        self.state.store(state as u8, Relaxed);
    }
}
