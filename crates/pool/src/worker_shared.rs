//! A worker: what others see of one worker, and what they may take from it.

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
    /// The one word that a fork looks at: as long as fewer private forks than this were made, nobody
    /// wants any. A thief that finds nothing here stores zero.
    limit: CachePadded<AtomicUsize>,
    /// The task just made ready.
    pub(crate) next: CachePadded<TaskSlot>,
    pub(crate) tasks: TaskRing,
    pub(crate) forks: Deque<fork::Header>,
    /// What the worker is at.
    pub(crate) ancestry: CachePadded<Ancestry>,
    pub(crate) counters: CachePadded<Counters>,
    /// What the worker does, for others to see.
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

    /// Whether anything lies open here; not what it has just made ready, which is its own for a while.
    pub(crate) fn is_exposed(&self) -> bool {
        !self.forks.is_empty() || !self.tasks.is_empty()
    }

    /// Whether so many private forks are as many as there may be. Relaxed: a hint that may come late.
    #[inline(always)]
    pub(crate) fn has_reached_limit(&self, forks: usize) -> bool {
        forks >= self.limit.load(Relaxed)
    }

    /// Somebody wants work from here.
    pub(crate) fn request_work(&self) {
        // Looked at first: a line that is written goes away from its owner.
        if !self.is_work_requested() {
            self.limit.store(0, Relaxed);
        }
    }

    #[inline(always)]
    pub(crate) fn is_work_requested(&self) -> bool {
        self.limit.load(Relaxed) == 0
    }

    /// The wish was granted, as far as possible.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Relaxed);
    }

    /// The next fork lies open, whether somebody has asked or not. For the owner only.
    pub(crate) fn lower_limit(&self, limit: usize) {
        let before = self.limit.load(Relaxed);
        if before > limit {
            // An exchange, which does not cross out what somebody has wished meanwhile.
            let _ = self.limit.compare_exchange(before, limit, Relaxed, Relaxed);
        }
    }

    /// What its worker does.
    pub(crate) fn state(&self) -> WorkerState {
        // Relaxed: to be shown, nothing follows from it.
        WorkerState::ALL[usize::from(self.state.load(Relaxed))]
    }

    /// For the owner, where it costs nothing that matters.
    pub(crate) fn set_state(&self, state: WorkerState) {
        self.state.store(state as u8, Relaxed);
    }
}
