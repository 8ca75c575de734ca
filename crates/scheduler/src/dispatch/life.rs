//! The life of a job in memory: every change of state goes through [`Dispatch::shift`], which takes
//! the job out of the indexes of its old state and puts it into those of the new one.
//!
//! The allowed transitions are in the table in `crate::state`; this file keeps the indexes
//! consistent.

use super::Dispatch;
use super::job::Job;
use super::strategy::rank;
use crate::id::{Seq, WorkerId};
use crate::planted::{Bug, planted};
use crate::record::{LeaseCause, Mutation, Reason};
use crate::state::{JobState, Verb};

impl Dispatch {
    /// Applies a transition. The caller has checked that it is allowed: an illegal one here is a
    /// bug of ours.
    pub(super) fn shift(&mut self, seq: Seq, verb: Verb, owner: Option<WorkerId>) {
        self.leave_indexes(seq);
        let job = self.jobs.get_mut(seq);
        if let Err(illegal) = job.phase.apply(verb, owner) {
            panic!("{:?} cannot happen to a job that is {}", illegal.verb, illegal.state);
        }
        let is_missed = planted(Bug::StealWithoutNewFence) && verb == Verb::Steal;
        if verb.changes_hands() && !is_missed {
            job.fence = job.fence.next();
        }
        self.enter_indexes(seq);
    }

    /// Changes the job's owner, to a worker or to none, and records that in the ledger.
    pub(super) fn hand_over(
        &mut self,
        seq: Seq,
        verb: Verb,
        owner: Option<WorkerId>,
        cause: LeaseCause,
    ) {
        self.shift(seq, verb, owner);
        let job = self.jobs.get(seq);
        let (before, hold) = (job.row, job.hold(seq));
        let row = self.ledger.enter(owner, cause, hold, self.now.wall);
        self.ledger.leave(before);
        self.jobs.get_mut(seq).row = row;
    }

    /// Writes the job to the store as it is now.
    pub(super) fn write(&mut self, seq: Seq, reason: Option<Reason>) {
        let at = self.now.wall;
        let job = self.jobs.get_mut(seq);
        let row = core::mem::take(&mut job.row);
        let write = job.to_write(seq, reason, at);
        self.ledger.leave(row);
        self.mutate(Mutation::Write(write));
    }

    /// The job's parents no longer block it.
    pub(super) fn release(&mut self, seq: Seq) {
        let is_due = self.jobs.get(seq).due <= self.now.wall;
        self.shift(seq, if is_due { Verb::Release } else { Verb::Defer }, None);
    }

    pub(super) fn due(&mut self, seq: Seq) {
        self.shift(seq, Verb::Due, None);
    }

    /// The job has ended: stores that, and updates its children.
    pub(super) fn end(&mut self, seq: Seq, verb: Verb, reason: Option<Reason>) {
        self.end_alone(seq, verb, reason);
        self.tell_children(seq);
    }

    pub(super) fn end_alone(&mut self, seq: Seq, verb: Verb, reason: Option<Reason>) {
        self.shift(seq, verb, None);
        self.write(seq, reason);
        self.await_receipt(seq);
        self.leave_parents(seq);
    }

    /// An ended job leaves memory only after the receipts of all commits that record its end.
    pub(super) fn await_receipt(&mut self, seq: Seq) {
        self.jobs.get_mut(seq).unreceipted += 1;
        self.ended.push_back((self.upcoming(), seq));
    }

    /// The worker that held a cancelled job has let go of it, or is lost.
    pub(super) fn let_go(&mut self, seq: Seq) {
        self.leave_indexes(seq);
        self.jobs.get_mut(seq).phase.let_go();
        self.write(seq, Some(Reason::Request));
        self.await_receipt(seq);
        self.confirm_cancel(seq);
    }

    /// Removes an ended job from memory if nothing here needs it any more; the store has it.
    pub(super) fn evict_if_unneeded(&mut self, seq: Seq) {
        let Some(job) = self.jobs.find(seq) else {
            return;
        };
        let is_needed = !job.state().is_ended()
            || job.unreceipted > 0
            || job.phase.holder().is_some()
            || job.children_live() > 0
            || self.is_reserved(job);
        if !is_needed {
            let job = self.jobs.remove(seq);
            self.newest_gone = self.newest_gone.max(job.id.made_at());
            self.kinds.release(job.kind);
            self.queues.get_mut(job.queue).jobs -= 1;
            self.queues.forget_if_unused(job.queue);
        }
    }

    /// The job's place in its queue under the current strategy.
    pub(super) fn rank(&self, job: &Job) -> i64 {
        rank(self.queues.strategy(), job.submitted_at, job.priority)
    }

    /// Removes the job from every index for its state.
    pub(super) fn leave_indexes(&mut self, seq: Seq) {
        let job = self.jobs.get(seq);
        match job.state() {
            JobState::Scheduled => {
                self.scheduled.remove(&(job.due, seq));
            }
            JobState::Queued => {
                let (queue, rank, is_solo) = (job.queue, self.rank(job), job.is_solo());
                self.queues.remove(queue, rank, seq, is_solo);
            }
            JobState::Blocked | JobState::Succeeded | JobState::Dead => {}
            JobState::Leased | JobState::Running | JobState::Cancelled => {
                if let Some(holder) = job.phase.holder() {
                    let (queue, is_solo, state) = (job.queue, job.is_solo(), job.state());
                    let is_counted = job.is_counted();
                    let worker = self.workers.get_mut(holder);
                    worker.held.remove(&seq);
                    worker.leased -= u32::from(state == JobState::Leased);
                    worker.solo -= u32::from(is_solo);
                    worker.limited -= u32::from(self.queues.get(queue).room.is_limited());
                    self.workers.touch(holder);
                    if is_counted {
                        self.queues.disown(queue, state);
                    }
                    if state == JobState::Running {
                        self.progress.remove(&seq);
                    }
                }
            }
        }
    }

    /// Adds the job to every index for its state.
    pub(super) fn enter_indexes(&mut self, seq: Seq) {
        let job = self.jobs.get(seq);
        match job.state() {
            JobState::Scheduled => {
                self.scheduled.insert((job.due, seq));
            }
            JobState::Queued => {
                let (queue, rank, is_solo) = (job.queue, self.rank(job), job.is_solo());
                self.queues.insert(queue, rank, seq, is_solo);
            }
            JobState::Blocked | JobState::Succeeded | JobState::Dead => {}
            JobState::Leased | JobState::Running | JobState::Cancelled => {
                if let Some(holder) = job.phase.holder() {
                    let (queue, is_solo, state) = (job.queue, job.is_solo(), job.state());
                    let is_counted = job.is_counted();
                    let now = self.now.monotonic;
                    let worker = self.workers.get_mut(holder);
                    worker.held.insert(seq, now);
                    worker.leased += u32::from(state == JobState::Leased);
                    worker.solo += u32::from(is_solo);
                    worker.limited += u32::from(self.queues.get(queue).room.is_limited());
                    self.workers.touch(holder);
                    if is_counted {
                        self.queues.own(queue, state);
                    }
                }
            }
        }
    }
}
