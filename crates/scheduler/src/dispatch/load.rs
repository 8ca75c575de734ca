//! Rebuilds the whole state from what the store loaded, and only from that.
//!
//! A job is as its own row describes it, unless an open lease row has a higher fence for it: then
//! that row determines its owner. A job stored as blocked is released if its parents' outcomes
//! allow it. Every lease starts anew; incarnations that ran inside the server's own process ended
//! with it, unless that process may still run.

use alloc::vec::Vec;
use core::fmt;

use super::session::End;
use super::worker::Worker;
use super::{Dispatch, DispatchConfig, DispatchEffect};
use crate::id::{CommitNo, JobId, LeaseNo, Seq, SessionNo, WorkerId};
use crate::planted::{Bug, planted};
use crate::record::{JobRow, LeaseCause, LeaseRow, Loaded};
use crate::state::{JobState, Phase};
use crate::time::{Duration, Now, Wall};

/// Takes the stored state, piece by piece.
pub struct Loader {
    dispatch: Dispatch,
    /// Jobs stored as blocked, with their parents.
    children: Vec<(Seq, Vec<JobId>)>,
    /// How long the former owner may renew leases, if it may still run.
    former_renews_for: Option<Duration>,
}

/// The pieces that the store loaded are inconsistent. Nothing has been written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadError {
    /// Two jobs have this number, or the second has an id that is taken.
    JobTwice(Seq),
    /// A job or row number is higher than the last one given out.
    BeyondLast(u64),
    /// A job's row has a state that is never stored like this.
    ImpossibleState {
        /// The job.
        job: Seq,
        /// The state in its row.
        state: JobState,
    },
    /// A blocked job's parent was not loaded.
    ParentMissing {
        /// The job.
        child: Seq,
        /// The parent.
        parent: JobId,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::JobTwice(seq) => write!(formatter, "the store has job number {} twice", seq.0),
            Self::BeyondLast(number) => {
                write!(formatter, "the store has a row {number} that was never numbered")
            }
            Self::ImpossibleState { job, state } => {
                write!(formatter, "the store says that job number {} is {state}", job.0)
            }
            Self::ParentMissing { child, parent } => {
                write!(formatter, "the store lacks {parent}, a parent of job number {}", child.0)
            }
        }
    }
}

impl core::error::Error for LoadError {}

impl Dispatch {
    /// Starts a server from the stored state; its first effects are appended to `effects`. The
    /// pieces come in the order that [`Loaded`] asks for.
    ///
    /// # Errors
    /// If the pieces are inconsistent.
    pub fn load(
        config: DispatchConfig,
        now: Now,
        pieces: impl IntoIterator<Item = Loaded>,
        effects: &mut Vec<DispatchEffect>,
    ) -> Result<Self, LoadError> {
        let mut loader = Loader::new(config, now);
        for piece in pieces {
            loader.add(piece)?;
        }
        loader.finish(effects)
    }
}

impl Loader {
    /// A loader that has no pieces yet.
    #[must_use]
    pub fn new(config: DispatchConfig, now: Now) -> Self {
        Self {
            dispatch: Dispatch::empty(config, now),
            children: Vec::new(),
            former_renews_for: None,
        }
    }

    /// Adds one piece, in the order that [`Loaded`] asks for.
    ///
    /// # Errors
    /// If it is inconsistent with earlier pieces.
    pub fn add(&mut self, loaded: Loaded) -> Result<(), LoadError> {
        let dispatch = &mut self.dispatch;
        match loaded {
            Loaded::Numbers { commit, seq, lease, newest_id } => {
                (dispatch.issued, dispatch.receipted, dispatch.era) = (commit, commit, commit);
                dispatch.last_seq = seq;
                dispatch.ledger.set_last(lease);
                dispatch.newest_gone = newest_id;
            }
            Loaded::FormerOwner { renews_for } => self.former_renews_for = Some(renews_for),
            Loaded::Strategy(strategy) => dispatch.queues.set_strategy(strategy, |_| 0),
            Loaded::LeaseLength(lease) => dispatch.lease_kept = lease,
            Loaded::Queue(settings) => dispatch.queues.set(settings),
            Loaded::Job(row) => self.add_job(row)?,
            Loaded::Lease(row) => self.add_lease(&row)?,
        }
        Ok(())
    }

    fn add_job(&mut self, row: JobRow) -> Result<(), LoadError> {
        let dispatch = &mut self.dispatch;
        let JobRow { seq, spec, submitted_at, now } = row;
        if seq > dispatch.last_seq {
            return Err(LoadError::BeyondLast(seq.0));
        }
        if dispatch.jobs.find(seq).is_some() || dispatch.jobs.by_id(spec.id).is_some() {
            return Err(LoadError::JobTwice(seq));
        }
        let impossible = LoadError::ImpossibleState { job: seq, state: now.state };
        let phase = Phase::loaded(now.state, now.holder, now.last).ok_or(impossible)?;
        if now.state == JobState::Leased {
            return Err(impossible);
        }
        let due = if planted(Bug::StartedBeforeDue) { Wall(0) } else { now.due };
        let mut job = dispatch.job(&spec, submitted_at, due, phase);
        job.fence = now.fence;
        job.attempts = now.attempts;
        job.suspicions = now.suspicions;
        job.priority = now.priority;
        dispatch.jobs.insert(seq, job);
        if now.state == JobState::Blocked {
            self.children.push((seq, spec.parents));
        }
        Ok(())
    }

    fn add_lease(&mut self, row: &LeaseRow) -> Result<(), LoadError> {
        for hold in &row.jobs {
            let dispatch = &mut self.dispatch;
            let Some(job) = dispatch.jobs.find_mut(hold.job) else {
                continue;
            };
            let is_newer = hold.fence > job.fence || planted(Bug::ReclaimById);
            if job.state().is_ended() || !is_newer {
                continue;
            }
            job.fence = job.fence.max(hold.fence);
            job.thefts = match row.cause {
                LeaseCause::Steal(_) => job.thefts.saturating_add(1),
                LeaseCause::Claim | LeaseCause::Lost(_) | LeaseCause::Returned(_) => job.thefts,
            };
            let (state, owner) = match row.worker {
                Some(worker) => (JobState::Leased, Some(worker)),
                None => (JobState::Queued, None),
            };
            job.phase = Phase::loaded(state, owner, None).expect("an owner if and only if leased");
            let before = core::mem::replace(&mut job.row, row.number);
            dispatch.ledger.speak(row.number);
            dispatch.ledger.leave(before);
        }
        if row.number > self.dispatch.ledger.last() {
            return Err(LoadError::BeyondLast(row.number.0));
        }
        Ok(())
    }

    /// Puts everything together and continues from there.
    ///
    /// # Errors
    /// If a blocked job's parents were not loaded.
    pub fn finish(self, effects: &mut Vec<DispatchEffect>) -> Result<Dispatch, LoadError> {
        let Self { mut dispatch, children, former_renews_for } = self;
        let renewed = former_renews_for.unwrap_or_default();
        dispatch.lease_kept_until = dispatch.now.monotonic.plus(dispatch.lease_kept);
        for (child, parents) in &children {
            for &parent in parents {
                let missing = LoadError::ParentMissing { child: *child, parent };
                let parent = dispatch.jobs.by_id(parent).ok_or(missing)?;
                dispatch.link(parent, *child);
            }
        }
        let all: Vec<Seq> = dispatch.jobs.iter().map(|(seq, _)| seq).collect();
        for &seq in &all {
            if let Some(holder) = dispatch.jobs.get(seq).phase.holder() {
                dispatch.meet(holder, renewed);
            }
            dispatch.enter_indexes(seq);
        }
        dispatch.queues.accept_loaded();
        for (child, _) in children {
            if dispatch.judge(child) == super::graph::Judged::Cancelled {
                dispatch.tell_children(child);
            }
        }
        // They have ended with their process, if that is gone. Otherwise their leases expire.
        let is_gone = former_renews_for.is_none();
        let embedded = dispatch.workers.iter().map(|(id, _)| id).filter(|id| id.is_embedded());
        let embedded: Vec<WorkerId> = embedded.filter(|_| is_gone).collect();
        for worker in embedded {
            dispatch.end_worker(worker, End::Lost);
        }
        for seq in all {
            dispatch.evict_if_unneeded(seq);
        }
        dispatch.settle();
        dispatch.flush(effects);
        Ok(dispatch)
    }
}

impl Dispatch {
    /// Registers a worker that held jobs when the server ended. Its lease starts anew, as if it was
    /// renewed after this time; it has no session.
    fn meet(&mut self, worker: WorkerId, renewed: Duration) {
        if self.workers.find(worker).is_none() {
            // The worker uses the lease duration that it was sent last, until it is sent another.
            let lease = self.config.lease.max(self.lease_kept);
            let lease_end = self.lease_clock().plus(lease.saturating_add(renewed));
            self.workers.insert(worker, Worker::new(SessionNo(0), lease_end));
        }
    }

    /// A shard that has never held a job.
    #[must_use]
    pub fn new(config: DispatchConfig, now: Now) -> Self {
        let mut loader = Loader::new(config, now);
        let nothing = Loaded::Numbers {
            commit: CommitNo(0),
            seq: Seq(0),
            lease: LeaseNo(0),
            newest_id: None,
        };
        loader.add(nothing).expect("nothing fits to nothing");
        let mut effects = Vec::new();
        let dispatch = loader.finish(&mut effects).expect("nothing fits to nothing");
        assert!(effects.is_empty(), "an empty shard has nothing to do");
        dispatch
    }
}
