//! What must hold of a mutation before it is kept, the same for every keeping.
//!
//! Here are the rules that follow from a job's own row, and the words for every way not to fit. What
//! needs a look at other rows (is the number new, is the key taken) is asked where the rows are.

use std::cmp::Ordering;
use std::fmt;

use filch_scheduler::id::{CommitNo, Fence, JobId, LeaseNo, Seq};
use filch_scheduler::name::Name;
use filch_scheduler::record::{JobWrite, Mutation};
use filch_scheduler::state::JobState;

use crate::CommitError;
use crate::store::Commit;

/// Why a commit does not fit to what is kept: whoever decided on it believes something else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Misfit {
    NoJob(Seq),
    SeqOrder { seq: Seq, last: Seq },
    WrittenAs { seq: Seq, job: Seq },
    SameId { id: JobId, other: Seq, seq: Seq },
    SameKey { key: Name, other: Seq, seq: Seq },
    Leased(Seq),
    Holder { job: Seq, state: JobState, held: bool },
    FenceBack { job: Seq, kept: Fence, new: Fence },
    Final { job: Seq, kept: JobState, new: JobState },
    LeaseOrder { number: LeaseNo, last: LeaseNo },
    NotOpen(LeaseNo),
    TrimmedOpen(LeaseNo),
    PurgedAlive { job: Seq, state: JobState, held: bool },
    NoPayload(Seq),
    NotPut(Seq),
    PurgeCauses { purges: usize, causes: usize },
    TooLarge(u64),
}

impl Misfit {
    /// The same for whoever commits.
    pub(crate) fn broken(&self, commit: CommitNo) -> CommitError {
        CommitError::Broken(format!("commit {}: {self}", commit.0))
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoJob(seq) => write!(formatter, "there is no job number {}", seq.0),
            Self::SeqOrder { seq, last } => {
                write!(formatter, "job number {} comes after {}", seq.0, last.0)
            }
            Self::WrittenAs { seq, job } => {
                write!(formatter, "job number {} is written as {}", seq.0, job.0)
            }
            Self::SameId { id, other, seq } => {
                write!(formatter, "{id} has the number {} and is put as {}", other.0, seq.0)
            }
            Self::SameKey { key, other, seq } => {
                write!(formatter, "jobs number {} and {} have one key, {key:?}", other.0, seq.0)
            }
            Self::Leased(seq) => {
                write!(formatter, "job number {} is written as leased: rows say that", seq.0)
            }
            Self::Holder { job, state, held } => {
                let has = if *held { "a" } else { "no" };
                write!(formatter, "job number {} is {state} and has {has} holder", job.0)
            }
            Self::FenceBack { job, kept, new } => {
                let (old, new) = (kept.0, new.0);
                write!(formatter, "the fence of job number {} goes from {old} to {new}", job.0)
            }
            Self::Final { job, kept, new } => {
                write!(formatter, "job number {} is {kept} and becomes {new}", job.0)
            }
            Self::LeaseOrder { number, last } => {
                write!(formatter, "lease row {} comes after {}", number.0, last.0)
            }
            Self::NotOpen(number) => {
                write!(formatter, "lease row {} is not open and is closed", number.0)
            }
            Self::TrimmedOpen(number) => {
                write!(formatter, "lease row {} is open and is trimmed", number.0)
            }
            Self::PurgedAlive { job, state, held } => {
                let held = if *held { ", held by a worker" } else { "" };
                write!(formatter, "job number {} is {state}{held} and is purged", job.0)
            }
            Self::NoPayload(seq) => {
                write!(formatter, "job number {} is put without a payload", seq.0)
            }
            Self::NotPut(seq) => {
                write!(formatter, "there is a payload for job number {}, which is not put", seq.0)
            }
            Self::PurgeCauses { purges, causes } => {
                write!(formatter, "{purges} purges have {causes} causes")
            }
            Self::TooLarge(number) => {
                write!(formatter, "{number} is larger than any number that can be kept")
            }
        }
    }
}

/// Whether a server that starts has to know of the job for its own sake.
pub(crate) const fn is_live(now: &JobWrite) -> bool {
    !now.state.is_ended() || now.holder.is_some()
}

/// A state that a load would refuse is not kept.
pub(crate) const fn check_holder(now: &JobWrite) -> Result<(), Misfit> {
    let held = now.holder.is_some();
    let fits = match now.state {
        JobState::Leased => return Err(Misfit::Leased(now.job)),
        JobState::Running => held,
        JobState::Cancelled => true,
        JobState::Blocked
        | JobState::Scheduled
        | JobState::Queued
        | JobState::Succeeded
        | JobState::Dead => !held,
    };
    if fits { Ok(()) } else { Err(Misfit::Holder { job: now.job, state: now.state, held }) }
}

/// Whether a job that is kept like this may be written like that.
pub(crate) fn check_write(kept: &JobWrite, write: &JobWrite) -> Result<(), Misfit> {
    let JobWrite { job, state, fence, .. } = *write;
    if fence < kept.fence {
        return Err(Misfit::FenceBack { job, kept: kept.fence, new: fence });
    }
    let may_change = match kept.state {
        JobState::Succeeded => false,
        JobState::Cancelled => kept.holder.is_some() && state == JobState::Cancelled,
        JobState::Dead => fence > kept.fence,
        JobState::Blocked
        | JobState::Scheduled
        | JobState::Queued
        | JobState::Leased
        | JobState::Running => true,
    };
    if !may_change {
        return Err(Misfit::Final { job, kept: kept.state, new: state });
    }
    check_holder(write)
}

/// Whether a job that is kept like this may be removed.
pub(crate) const fn check_purge(now: &JobWrite) -> Result<(), Misfit> {
    if is_live(now) {
        let held = now.holder.is_some();
        return Err(Misfit::PurgedAlive { job: now.job, state: now.state, held });
    }
    Ok(())
}

/// Whether each purge has its cause.
pub(crate) fn check_purges(commit: &Commit) -> Result<(), Misfit> {
    let is_purge = |mutation: &&Mutation| matches!(mutation, Mutation::Purge(_));
    let purges = commit.mutations.iter().filter(is_purge).count();
    let causes = commit.purges.len();
    if purges == causes { Ok(()) } else { Err(Misfit::PurgeCauses { purges, causes }) }
}

/// Whether each job that is put has its payload, and no other has one.
pub(crate) fn check_payloads(commit: &Commit) -> Result<(), Misfit> {
    let put = || {
        commit.mutations.iter().filter_map(|mutation| match mutation {
            Mutation::Put(row) => Some(row.seq),
            _ => None,
        })
    };
    let given = commit.payloads.iter().map(|&(seq, _)| seq);
    if put().eq(given.clone()) {
        return Ok(());
    }
    // In another order they are welcome too.
    let (mut put, mut given): (Vec<Seq>, Vec<Seq>) = (put().collect(), given.collect());
    put.sort_unstable();
    given.sort_unstable();
    let (mut put, mut given) = (put.into_iter().peekable(), given.into_iter().peekable());
    while let (Some(missing), Some(stray)) = (put.peek(), given.peek()) {
        match missing.cmp(stray) {
            Ordering::Less => return Err(Misfit::NoPayload(*missing)),
            Ordering::Greater => return Err(Misfit::NotPut(*stray)),
            Ordering::Equal => _ = (put.next(), given.next()),
        }
    }
    let missing = put.next().map(Misfit::NoPayload);
    missing.or_else(|| given.next().map(Misfit::NotPut)).map_or(Ok(()), Err)
}
