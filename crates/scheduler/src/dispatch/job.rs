//! One job in memory, in compact form: at a million queued jobs every byte here is a megabyte.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::id::{Digest, Fence, Hold, JobId, LeaseNo, Seq};
use crate::name::Name;
use crate::planted::{Bug, planted};
use crate::record::{JobWrite, Reason};
use crate::spec::{Condition, Otherwise, Retry, Tally};
use crate::state::{JobState, Phase};
use crate::time::{Millis, Wall};

/// A job that is not finished, or that ended and is still needed here (see [`Job::children_live`]).
pub(crate) struct Job {
    pub(crate) id: JobId,
    pub(crate) body: Digest,
    pub(crate) extra: Option<Box<Extra>>,
    pub(crate) submitted_at: Wall,
    /// When it may start: the submitter's wish, or the end of a backoff or a snooze.
    pub(crate) due: Wall,
    pub(crate) fence: Fence,
    /// The open lease row that is newer than the job's own row in the store; 0 for none.
    pub(crate) row: LeaseNo,
    pub(crate) phase: Phase,
    pub(crate) retry: Retry,
    /// 0 for none.
    pub(crate) timeout: Millis,
    pub(crate) queue: u32,
    pub(crate) kind: u32,
    pub(crate) priority: i16,
    /// How many attempts are charged.
    pub(crate) attempts: u16,
    /// How many commits that ended this job have no receipt yet.
    pub(crate) unreceipted: u16,
    /// How often it may have been running when a worker was lost.
    pub(crate) suspicions: u8,
    pub(crate) thefts: u8,
}

/// Fields that few jobs need.
#[derive(Default)]
pub(crate) struct Extra {
    pub(crate) key: Option<Name>,
    pub(crate) condition: Condition,
    pub(crate) otherwise: Otherwise,
    pub(crate) tally: Tally,
    pub(crate) parents: Vec<Seq>,
    pub(crate) children: Vec<Seq>,
    /// Children that have not ended. While there are any, an ended parent stays as a stub.
    pub(crate) children_live: u32,
}

/// From this many suspicions on a job is the only such job on its worker.
const SUSPICIONS_SOLO: u8 = 2;

/// A job stolen this often moves again only into a free slot.
pub(crate) const THEFTS_FREE: u8 = 2;

impl Job {
    pub(crate) const fn state(&self) -> JobState {
        self.phase.state()
    }

    /// Whether its start must be confirmed durably.
    pub(crate) const fn is_suspect(&self) -> bool {
        self.suspicions > 0
    }

    /// Whether it must be the only such job on its worker.
    pub(crate) const fn is_solo(&self) -> bool {
        self.suspicions >= SUSPICIONS_SOLO
    }

    /// Whether it counts against its queue's limit while a worker holds it.
    pub(crate) fn is_counted(&self) -> bool {
        self.thefts == 0 || !planted(Bug::LimitNotCountedOnSteal)
    }

    pub(crate) fn key(&self) -> Option<&Name> {
        self.extra.as_ref()?.key.as_ref()
    }

    pub(crate) fn parents(&self) -> &[Seq] {
        self.extra.as_ref().map_or(&[], |extra| &extra.parents)
    }

    pub(crate) fn children(&self) -> &[Seq] {
        self.extra.as_ref().map_or(&[], |extra| &extra.children)
    }

    pub(crate) fn children_live(&self) -> u32 {
        self.extra.as_ref().map_or(0, |extra| extra.children_live)
    }

    /// The fence that the job's holder was given. A cancel raises the job's fence above that of a
    /// holder that has yet to let go.
    pub(crate) fn held_under(&self) -> Fence {
        match self.state() {
            JobState::Cancelled if self.phase.holder().is_some() => Fence(self.fence.0 - 1),
            _ => self.fence,
        }
    }

    /// The changing part of the job, as the store is to keep it now.
    pub(crate) fn to_write(&self, seq: Seq, reason: Option<Reason>, at: Wall) -> JobWrite {
        JobWrite {
            job: seq,
            state: self.state(),
            fence: self.fence,
            attempts: self.attempts,
            suspicions: self.suspicions,
            priority: self.priority,
            due: self.due,
            holder: self.phase.holder(),
            last: self.phase.last(),
            reason,
            at,
        }
    }

    pub(crate) const fn hold(&self, seq: Seq) -> Hold {
        Hold { job: seq, fence: self.fence }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_fits_into_two_cache_lines() {
        assert!(size_of::<Option<Job>>() <= 128, "{}", size_of::<Option<Job>>());
    }
}
