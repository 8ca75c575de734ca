//! What clients were told: which jobs are kept for them, and how some have ended.
//!
//! A promise once heard must hold for ever, so it is written down with the moment at which it was heard.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use filch_api::id::read_job;
use filch_api::job::{Job, states};
use filch_scheduler::id::{Fence, JobId};
use filch_scheduler::state::JobState;

use crate::since_boot;

/// All that clients of one test were told.
#[derive(Debug, Default)]
pub struct Clients(Mutex<Heard>);

/// The same, as it is judged.
#[derive(Clone, Debug, Default)]
pub struct Heard {
    /// The jobs whose submit was acknowledged, and when that was first heard, in microseconds since boot.
    pub acknowledged: BTreeMap<JobId, u64>,
    /// The ends that were told, in order.
    pub ends: Vec<End>,
    /// The jobs that an operator has tried again or taken away after their end. Of these no story is told:
    /// what it would say against them is what was asked for.
    pub operated: BTreeSet<JobId>,
}

/// A client was told that a job has ended.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Which.
    pub job: JobId,
    /// How.
    pub state: JobState,
    /// Under which fence.
    pub fence: Fence,
    /// When it was told, in microseconds since boot.
    pub at: u64,
}

impl Clients {
    /// A submit of this job was acknowledged.
    ///
    /// # Panics
    /// If that is no id.
    pub fn acknowledged(&self, id: &str) {
        self.lock().acknowledged.entry(number(id)).or_insert_with(since_boot);
    }

    /// An operator asks for this job, which has ended, to be tried again or taken away.
    ///
    /// # Panics
    /// If that is no id.
    pub fn operated(&self, id: &str) {
        self.lock().operated.insert(number(id));
    }

    /// Everything kept is gone, as it should be, and with it what was promised.
    pub fn forget(&self) {
        *self.lock() = Heard::default();
    }

    /// A client was shown this job. It may have ended.
    ///
    /// # Panics
    /// If it is in no state that a job can be in.
    pub fn shown(&self, job: &Job) {
        let state = states(&job.state).and_then(|states| states.first().copied());
        let state = state.unwrap_or_else(|| panic!("a job is {:?}", job.state));
        if state.is_ended() {
            let (job, fence) = (number(&job.id), Fence(job.fence));
            self.lock().ends.push(End { job, state, fence, at: since_boot() });
        }
    }

    /// Everything so far.
    #[must_use]
    pub fn heard(&self) -> Heard {
        self.lock().clone()
    }

    /// A client that panicked has told nothing by halves.
    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn number(id: &str) -> JobId {
    read_job(id).unwrap_or_else(|| panic!("{id:?} is not the id of a job"))
}
