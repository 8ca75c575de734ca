//! What the server has confirmed to clients: which jobs are stored, and how some have ended.
//!
//! A confirmation must hold for ever, so it is recorded with the time at which it was received.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use filch_api::id::read_job;
use filch_api::job::{Job, states};
use filch_scheduler::id::{Fence, JobId};
use filch_scheduler::state::JobState;

use crate::since_boot;

/// Everything that the server has confirmed to the clients of one test.
#[derive(Debug, Default)]
pub struct ClientLog(Mutex<ClientRecords>);

/// The same, for the check.
#[derive(Clone, Debug, Default)]
pub struct ClientRecords {
    /// Acknowledged jobs, and when each was first acknowledged, in microseconds since boot.
    pub acknowledged: BTreeMap<JobId, u64>,
    /// Ends of jobs that the server has shown, in order.
    pub ends: Vec<ReportedEnd>,
    /// Jobs that were retried or discarded after their end. These are not checked: what would be a
    /// violation was requested.
    pub operated: BTreeSet<JobId>,
}

/// The server has shown a job that has ended.
#[derive(Clone, Copy, Debug)]
pub struct ReportedEnd {
    /// The job.
    pub job: JobId,
    /// Its last state.
    pub state: JobState,
    /// Its fence.
    pub fence: Fence,
    /// When it was shown, in microseconds since boot.
    pub at: u64,
}

impl ClientLog {
    /// The submit of this job was acknowledged.
    ///
    /// # Panics
    /// If the id is malformed.
    pub fn acknowledged(&self, id: &str) {
        self.lock().acknowledged.entry(number(id)).or_insert_with(since_boot);
    }

    /// This job, which has ended, is about to be retried or discarded.
    ///
    /// # Panics
    /// If the id is malformed.
    pub fn operated(&self, id: &str) {
        self.lock().operated.insert(number(id));
    }

    /// The store was replaced on purpose: no confirmation holds any more.
    pub fn clear(&self) {
        *self.lock() = ClientRecords::default();
    }

    /// The server has shown this job. It may have ended.
    ///
    /// # Panics
    /// If its state is unknown.
    pub fn shown(&self, job: &Job) {
        let state = states(&job.state).and_then(|states| states.first().copied());
        let state = state.unwrap_or_else(|| panic!("unknown state {:?}", job.state));
        if state.is_ended() {
            let (job, fence) = (number(&job.id), Fence(job.fence));
            self.lock().ends.push(ReportedEnd { job, state, fence, at: since_boot() });
        }
    }

    /// All records so far.
    #[must_use]
    pub fn records(&self) -> ClientRecords {
        self.lock().clone()
    }

    /// A client that panicked has left no half-written record.
    fn lock(&self) -> MutexGuard<'_, ClientRecords> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn number(id: &str) -> JobId {
    read_job(id).unwrap_or_else(|| panic!("malformed job id {id:?}"))
}
