//! Read-only views of the live state: jobs, queues, workers. Reads wait for their receipt like
//! every message and answer: see [`Dispatch::newest_commit`].

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use super::Dispatch;
use super::job::Job;
use super::report::Standing;
use super::worker::Served;
use crate::id::{Fence, Hold, JobId, Seq, SessionNo, WorkerId};
use crate::name::Name;
use crate::record::{QueueSettings, Strategy};
use crate::state::JobState;
use crate::time::{Duration, Monotonic, Wall};

/// A job in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobView {
    /// Its id.
    pub id: JobId,
    /// Its number.
    pub seq: Seq,
    /// Its state.
    pub state: JobState,
    /// Its queue.
    pub queue: Name,
    /// Its kind.
    pub kind: Name,
    /// Its priority.
    pub priority: i16,
    /// The fence of its current or last owner.
    pub fence: Fence,
    /// Charged attempts.
    pub attempts: u16,
    /// How often it may have been running when a worker was lost.
    pub suspicions: u8,
    /// When it was submitted.
    pub submitted_at: Wall,
    /// When it may start.
    pub due: Wall,
    /// The worker that owns it, or that still has to stop it.
    pub holder: Option<WorkerId>,
    /// The reported progress, in percent.
    pub progress: Option<u8>,
}

/// A queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueView {
    /// Its settings.
    pub settings: QueueSettings,
    /// Ready jobs.
    pub ready: usize,
    /// Jobs that count against its limit.
    pub owned: u32,
}

/// A worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerView {
    /// Its id.
    pub id: WorkerId,
    /// Its newest session.
    pub session: SessionNo,
    /// Whether that session's connection is open.
    pub connected: bool,
    /// Whether it takes no more jobs.
    pub draining: bool,
    /// How many jobs it can run at once.
    pub slots: u32,
    /// How many jobs it wants to hold.
    pub want: u32,
    /// How many it holds.
    pub held: usize,
    /// How many of these it is not known to have started.
    pub leased: u32,
    /// When its lease expires, unless it sends something.
    pub lease_end: Monotonic,
    /// The queues it serves; all if `None`.
    pub queues: Option<Vec<Name>>,
}

impl Dispatch {
    /// The job of this id, if it is in memory.
    #[must_use]
    pub fn job_view(&self, id: JobId) -> Option<JobView> {
        let seq = self.jobs.by_id(id)?;
        Some(self.view(seq, self.jobs.get(seq)))
    }

    /// The job of this number, if it is in memory.
    #[must_use]
    pub fn job_at(&self, seq: Seq) -> Option<JobView> {
        self.jobs.find(seq).map(|job| self.view(seq, job))
    }

    /// Whether this worker owns the job under this fence, or still has to let go of it.
    #[must_use]
    pub fn is_held(&self, worker: WorkerId, hold: Hold) -> bool {
        matches!(self.standing(worker, hold), Standing::Owned | Standing::Cancelled)
    }

    /// Jobs in memory after this number, in the order of submission.
    pub fn job_views(&self, after: Seq) -> impl Iterator<Item = JobView> {
        // A cursor comes from outside and can have any value.
        let jobs = self.jobs.iter_from(Seq(after.0.saturating_add(1)));
        jobs.map(|(seq, job)| self.view(seq, job))
    }

    /// How many jobs are in memory.
    #[must_use]
    pub const fn job_count(&self) -> usize {
        self.jobs.count()
    }

    /// Every queue that has jobs or settings or is named by a worker, ordered by name.
    pub fn queue_views(&self) -> impl Iterator<Item = QueueView> {
        self.queues.iter().map(|(_, queue)| QueueView {
            settings: queue.settings.clone(),
            ready: queue.ready_count(),
            owned: queue.room.owned,
        })
    }

    /// The jobs that this worker holds.
    pub fn held_by(&self, worker: WorkerId) -> impl Iterator<Item = Seq> {
        self.workers.find(worker).into_iter().flat_map(|worker| worker.held.keys().copied())
    }

    /// The same, each with the fence of this worker.
    pub fn holds_of(&self, worker: WorkerId) -> impl Iterator<Item = Hold> {
        self.held_by(worker).map(|job| Hold { job, fence: self.jobs.get(job).held_under() })
    }

    /// The newest session of this worker.
    #[must_use]
    pub fn session_of(&self, worker: WorkerId) -> Option<SessionNo> {
        self.workers.find(worker).map(|worker| worker.session)
    }

    /// The lease of workers.
    #[must_use]
    pub const fn lease(&self) -> Duration {
        self.config.lease
    }

    /// The jobs in this range of numbers that workers hold, in the order of submission.
    ///
    /// # Panics
    /// If the range starts after its end.
    pub fn held_views(
        &self,
        range: RangeInclusive<Seq>,
    ) -> impl DoubleEndedIterator<Item = JobView> {
        let held = self.workers.iter().flat_map(|(_, worker)| worker.held.range(range.clone()));
        let mut held: Vec<Seq> = held.map(|(&seq, _)| seq).collect();
        held.sort_unstable();
        held.into_iter().map(|seq| self.view(seq, self.jobs.get(seq)))
    }

    /// Every live incarnation, ordered by id.
    pub fn worker_views(&self) -> impl Iterator<Item = WorkerView> {
        self.workers.iter().map(|(id, worker)| WorkerView {
            id,
            session: worker.session,
            connected: worker.connected,
            draining: worker.draining,
            slots: worker.slots,
            want: worker.want,
            held: worker.held.len(),
            leased: worker.leased,
            lease_end: worker.lease_end,
            queues: match &worker.served {
                Served::All => None,
                Served::Named(numbers) => {
                    let name = |&number: &u32| self.queues.get(number).settings.queue.clone();
                    Some(numbers.iter().map(name).collect())
                }
            },
        })
    }

    /// The current strategy.
    #[must_use]
    pub const fn strategy(&self) -> Strategy {
        self.queues.strategy()
    }

    fn view(&self, seq: Seq, job: &Job) -> JobView {
        JobView {
            id: job.id,
            seq,
            state: job.state(),
            queue: self.queues.get(job.queue).settings.queue.clone(),
            kind: self.kinds.get(job.kind).clone(),
            priority: job.priority,
            fence: job.fence,
            attempts: job.attempts,
            suspicions: job.suspicions,
            submitted_at: job.submitted_at,
            due: job.due,
            holder: job.phase.holder(),
            progress: self.progress.get(&seq).copied(),
        }
    }
}
