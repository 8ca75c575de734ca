//! What must hold of a mutation before it is stored: the same rules for every store.
//!
//! This file has the rules that follow from a job's own row, and the texts of all rejections. Rules
//! that need other rows (is the number new, is the key in use) are checked where those rows are.

use std::cmp::Ordering;
use std::fmt;

use filch_scheduler::id::{CommitNo, Fence, JobId, LeaseNo, Seq};
use filch_scheduler::name::Name;
use filch_scheduler::record::{JobWrite, Mutation};
use filch_scheduler::state::JobState;

use crate::CommitError;
use crate::store::Commit;

/// Why a commit contradicts what is stored: its author has another view of the data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Rejection {
    NoJob(Seq),
    SeqOrder {
        seq: Seq,
        last: Seq,
    },
    WrittenAs {
        seq: Seq,
        job: Seq,
    },
    SameId {
        id: JobId,
        other: Seq,
        seq: Seq,
    },
    SameKey {
        key: Name,
        other: Seq,
        seq: Seq,
    },
    Leased(Seq),
    Holder {
        job: Seq,
        state: JobState,
        held: bool,
    },
    FenceBack {
        job: Seq,
        kept: Fence,
        new: Fence,
    },
    Final {
        job: Seq,
        kept: JobState,
        new: JobState,
    },
    LeaseOrder {
        number: LeaseNo,
        last: LeaseNo,
    },
    NotOpen(LeaseNo),
    TrimmedOpen(LeaseNo),
    PurgedAlive {
        job: Seq,
        state: JobState,
        held: bool,
    },
    NoPayload(Seq),
    NotPut(Seq),
    PurgeCauses {
        purges: usize,
        causes: usize,
    },
    /// Only a disk has such a limit.
    #[cfg(feature = "sqlite")]
    TooLarge(u64),
}

impl Rejection {
    /// The same as the error of a commit.
    pub(crate) fn broken(&self, commit: CommitNo) -> CommitError {
        CommitError::Broken(format!("commit {}: {self}", commit.0))
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoJob(seq) => write!(formatter, "no job number {}", seq.0),
            Self::SeqOrder { seq, last } => {
                write!(formatter, "job number {} follows number {}", seq.0, last.0)
            }
            Self::WrittenAs { seq, job } => {
                write!(formatter, "job number {} is written under number {}", seq.0, job.0)
            }
            Self::SameId { id, other, seq } => {
                write!(
                    formatter,
                    "{id} is stored as number {} and is put again as {}",
                    other.0, seq.0
                )
            }
            Self::SameKey { key, other, seq } => {
                write!(
                    formatter,
                    "jobs number {} and {} have the same key, {key:?}",
                    other.0, seq.0
                )
            }
            Self::Leased(seq) => {
                write!(
                    formatter,
                    "job number {} is written as leased: only lease rows may say so",
                    seq.0
                )
            }
            Self::Holder { job, state, held } => {
                let has = if *held { "a" } else { "no" };
                write!(formatter, "job number {} is {state} and has {has} holder", job.0)
            }
            Self::FenceBack { job, kept, new } => {
                let (old, new) = (kept.0, new.0);
                write!(
                    formatter,
                    "the fence of job number {} would go back from {old} to {new}",
                    job.0
                )
            }
            Self::Final { job, kept, new } => {
                write!(formatter, "job number {} is {kept} and cannot become {new}", job.0)
            }
            Self::LeaseOrder { number, last } => {
                write!(formatter, "lease row {} follows row {}", number.0, last.0)
            }
            Self::NotOpen(number) => {
                write!(formatter, "lease row {} is not open and cannot be closed", number.0)
            }
            Self::TrimmedOpen(number) => {
                write!(formatter, "lease row {} is open and cannot be removed", number.0)
            }
            Self::PurgedAlive { job, state, held } => {
                let held = if *held { ", held by a worker" } else { "" };
                write!(formatter, "job number {} is {state}{held} and cannot be purged", job.0)
            }
            Self::NoPayload(seq) => {
                write!(formatter, "job number {} is put without a payload", seq.0)
            }
            Self::NotPut(seq) => {
                write!(formatter, "payload for job number {}, which is not put", seq.0)
            }
            Self::PurgeCauses { purges, causes } => {
                write!(formatter, "{purges} purges, but {causes} causes")
            }
            #[cfg(feature = "sqlite")]
            Self::TooLarge(number) => {
                write!(formatter, "{number} is larger than any number that can be stored")
            }
        }
    }
}

/// Whether a starting server must load the job.
pub(crate) const fn is_live(now: &JobWrite) -> bool {
    !now.state.is_ended() || now.holder.is_some()
}

/// Rejects a state that a starting server could not load.
pub(crate) const fn check_holder(now: &JobWrite) -> Result<(), Rejection> {
    let held = now.holder.is_some();
    let fits = match now.state {
        JobState::Leased => return Err(Rejection::Leased(now.job)),
        JobState::Running => held,
        JobState::Cancelled => true,
        JobState::Blocked
        | JobState::Scheduled
        | JobState::Queued
        | JobState::Succeeded
        | JobState::Dead => !held,
    };
    if fits { Ok(()) } else { Err(Rejection::Holder { job: now.job, state: now.state, held }) }
}

/// Whether a job that is stored as `kept` may be written as `write`.
pub(crate) fn check_write(kept: &JobWrite, write: &JobWrite) -> Result<(), Rejection> {
    let JobWrite { job, state, fence, .. } = *write;
    if fence < kept.fence {
        return Err(Rejection::FenceBack { job, kept: kept.fence, new: fence });
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
        return Err(Rejection::Final { job, kept: kept.state, new: state });
    }
    check_holder(write)
}

/// Whether a job in this state may be purged.
pub(crate) const fn check_purge(now: &JobWrite) -> Result<(), Rejection> {
    if is_live(now) {
        let held = now.holder.is_some();
        return Err(Rejection::PurgedAlive { job: now.job, state: now.state, held });
    }
    Ok(())
}

/// Whether each purge has its cause.
pub(crate) fn check_purges(commit: &Commit) -> Result<(), Rejection> {
    let is_purge = |mutation: &&Mutation| matches!(mutation, Mutation::Purge(_));
    let purges = commit.mutations.iter().filter(is_purge).count();
    let causes = commit.purges.len();
    if purges == causes { Ok(()) } else { Err(Rejection::PurgeCauses { purges, causes }) }
}

/// Whether each job that is put has its payload, and no other job has one.
pub(crate) fn check_payloads(commit: &Commit) -> Result<(), Rejection> {
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
    // They may come in another order.
    let (mut put, mut given): (Vec<Seq>, Vec<Seq>) = (put().collect(), given.collect());
    put.sort_unstable();
    given.sort_unstable();
    let (mut put, mut given) = (put.into_iter().peekable(), given.into_iter().peekable());
    while let (Some(missing), Some(stray)) = (put.peek(), given.peek()) {
        match missing.cmp(stray) {
            Ordering::Less => return Err(Rejection::NoPayload(*missing)),
            Ordering::Greater => return Err(Rejection::NotPut(*stray)),
            Ordering::Equal => _ = (put.next(), given.next()),
        }
    }
    let missing = put.next().map(Rejection::NoPayload);
    missing.or_else(|| given.next().map(Rejection::NotPut)).map_or(Ok(()), Err)
}
