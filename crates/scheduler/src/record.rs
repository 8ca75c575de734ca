//! What the store keeps: rows and the mutations that write them.
//!
//! A job is inserted once and written once more at its end. In between, a claim or a steal of any
//! number of jobs is one lease row. The newer of both determines a job's owner: see
//! [`crate::dispatch::Loader`].

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::dispatch::QueueChange;
use crate::id::{Fence, Hold, JobId, LeaseNo, Seq, WorkerId};
use crate::message::ErrorText;
use crate::name::Name;
use crate::spec::JobSpec;
use crate::state::JobState;
use crate::time::{Duration, Wall};

/// JSON text of a job (its payload, result or log), passed on as given and never parsed here.
pub type StoredText = Arc<str>;

/// A change to the store. The mutations of one commit are applied together or not at all.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Mutation {
    /// A new job with its edges and its payload.
    Put(JobRow),
    /// The changing part of an existing job.
    Write(JobWrite),
    /// Another priority, and nothing else: the stored state of the job may be older than its open
    /// lease row, and stays so.
    Priority {
        /// Which job.
        job: Seq,
        /// Its priority from now on.
        priority: i16,
    },
    /// A new, open row of the ledger.
    Lease(LeaseRow),
    /// Every job of this row has been written since or is in a later row: a load need not read it.
    Close(LeaseNo),
    /// A queue's settings.
    Queue(QueueSettings),
    /// The scheduling strategy.
    Strategy(Strategy),
    /// The lease duration; ten seconds if the store has none.
    LeaseLength(Duration),
    /// These ended jobs and everything that belongs to them are removed.
    Purge(Vec<Seq>),
    /// History that no stored job needs is removed.
    Trim {
        /// These closed rows of the ledger.
        leases: Vec<LeaseNo>,
        /// Notes about workers from before this moment, as many as one commit can take.
        notes_before: Wall,
    },
    /// An entry of the history, for people.
    Note(Note),
    /// The result and the log of an attempt, as they came with its report.
    Output(AttemptOutput),
}

/// A job as it is stored.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct JobRow {
    /// Its number.
    pub seq: Seq,
    /// What was submitted.
    pub spec: JobSpec,
    /// When.
    pub submitted_at: Wall,
    /// What may change.
    pub now: JobWrite,
}

/// The part of a job that changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct JobWrite {
    /// Which job.
    pub job: Seq,
    /// Its state. `Leased` is never written: lease rows imply it.
    pub state: JobState,
    /// Its fence.
    pub fence: Fence,
    /// How many attempts are charged to it.
    pub attempts: u16,
    /// How often a worker was lost while it held the job.
    pub suspicions: u8,
    /// Its current priority.
    pub priority: i16,
    /// When it is due, if it is scheduled.
    pub due: Wall,
    /// The worker that holds it: the owner of a running job, or the worker that still has to stop a
    /// cancelled one.
    pub holder: Option<WorkerId>,
    /// The report that ended its last attempt, as long as the job has had no owner since.
    pub last: Option<LastReport>,
    /// Why it ended, if it did not succeed.
    pub reason: Option<Reason>,
    /// When this was written; for an ended job, when it ended.
    pub at: Wall,
}

/// The report that ended the last attempt of a job, under the fence that the job still has. The
/// same report again, from the same worker, is a repeat and is accepted; any other is refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LastReport {
    /// The worker that owned the job.
    pub worker: WorkerId,
    /// How the attempt ended.
    pub kind: ReportKind,
}

/// A report that ends an attempt without raising the job's fence.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReportKind {
    /// The attempt succeeded.
    Finished,
    /// The attempt failed.
    Failed,
    /// The handler asked to be called later.
    Snoozed,
}

impl ReportKind {
    /// Whether a job can be in this state after such a report, with no owner since.
    #[must_use]
    pub const fn leads_to(self, state: JobState) -> bool {
        match state {
            JobState::Succeeded => matches!(self, Self::Finished),
            JobState::Dead => matches!(self, Self::Failed),
            JobState::Scheduled | JobState::Queued => matches!(self, Self::Failed | Self::Snoozed),
            JobState::Blocked | JobState::Leased | JobState::Running | JobState::Cancelled => false,
        }
    }
}

/// Why a job did not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// A client or an operator cancelled it.
    Request,
    /// Its parents' condition could no longer be met.
    Condition,
    /// Its last attempt failed.
    Failed,
    /// Its last attempt ended with the loss of the worker.
    WorkerLost,
}

/// One change of owner, of any number of jobs at once.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LeaseRow {
    /// Rows are read in this order.
    pub number: LeaseNo,
    /// The new owner; `None` if the jobs went back to their queues.
    pub worker: Option<WorkerId>,
    /// Why the owner changed.
    pub cause: LeaseCause,
    /// The jobs with their new fences.
    pub jobs: Vec<Hold>,
    /// When.
    pub at: Wall,
}

/// Why jobs changed owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LeaseCause {
    /// Taken from the queue.
    Claim,
    /// Taken from another worker's deque.
    Steal(WorkerId),
    /// Taken back from a worker whose lease expired.
    Lost(WorkerId),
    /// Handed back by a worker.
    Returned(WorkerId),
}

/// A queue's settings.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct QueueSettings {
    /// Which queue.
    pub queue: Name,
    /// Whether it is paused.
    pub paused: bool,
    /// The concurrency limit: how many of its jobs may be owned at once.
    pub limit: Option<u32>,
    /// Its share, under the strategy that uses it; at least 1.
    pub weight: u32,
}

impl QueueSettings {
    /// A queue with default settings.
    #[must_use]
    pub const fn new(queue: Name) -> Self {
        Self { queue, paused: false, limit: None, weight: 1 }
    }
}

/// The scheduling strategy: the order in which ready jobs are assigned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Strategy {
    /// In the order of submission, across all queues.
    Fifo,
    /// Higher priority first, then in the order of submission. Each `aging` of waiting is worth one
    /// step of priority, so that the lowest is served in bounded time.
    Priority {
        /// The wait that is worth one step.
        aging: Duration,
    },
    /// One job from each queue in turn; within a queue by priority.
    RoundRobin,
    /// Queues in proportion to their weights; within a queue by priority.
    Fair,
}

impl Default for Strategy {
    /// By priority; a minute of waiting is worth one step.
    fn default() -> Self {
        Self::Priority { aging: DEFAULT_AGING }
    }
}

/// How long a job waits to gain one step of priority, by default.
pub const DEFAULT_AGING: Duration = Duration::from_secs(60);

/// An entry of the history that is in no job row and no ledger row.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Note {
    /// A worker's lease expired while it held this many jobs.
    WorkerLost {
        /// The worker.
        worker: WorkerId,
        /// How many jobs it held.
        jobs: u32,
    },
    /// An attempt did not succeed.
    Attempt {
        /// The job, and the fence of the attempt.
        hold: Hold,
        /// The worker.
        worker: WorkerId,
        /// How it ended.
        outcome: AttemptOutcome,
    },
    /// Somebody changed something.
    Act {
        /// Who: the name of a token. `None` if no token was needed.
        by: Option<Name>,
        /// What was done.
        act: OperatorAct,
    },
}

impl Note {
    /// The job that it names by its id, and not by its number.
    #[must_use]
    pub const fn job(&self) -> Option<JobId> {
        match self {
            Self::Act { act, .. } => act.job(),
            Self::WorkerLost { .. } | Self::Attempt { .. } => None,
        }
    }
}

/// What an operator did.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum OperatorAct {
    /// Cancelled this job.
    Cancel(JobId),
    /// Gave this dead job new attempts.
    Retry(JobId),
    /// Changed the priority of a job.
    SetPriority {
        /// Which job.
        job: JobId,
        /// The new priority.
        priority: i16,
    },
    /// Changed a queue.
    SetQueue {
        /// Which queue.
        queue: Name,
        /// The change.
        change: QueueChange,
    },
    /// Changed the strategy.
    SetStrategy(Strategy),
    /// Asked this worker to drain.
    DrainWorker(WorkerId),
    /// Created the token with this id. Tokens are not the scheduler's: stores record these two.
    CreateToken(Name),
    /// Revoked the token with this id.
    RevokeToken(Name),
}

impl OperatorAct {
    /// The job that it is about, if it is about one.
    #[must_use]
    pub const fn job(&self) -> Option<JobId> {
        match self {
            Self::Cancel(job) | Self::Retry(job) | Self::SetPriority { job, .. } => Some(*job),
            Self::SetQueue { .. }
            | Self::SetStrategy(_)
            | Self::DrainWorker(_)
            | Self::CreateToken(_)
            | Self::RevokeToken(_) => None,
        }
    }
}

/// The output of one attempt.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AttemptOutput {
    /// Which job, under which fence.
    pub hold: Hold,
    /// Its result; the job's result if the attempt succeeded.
    pub result: Option<StoredText>,
    /// Its log, perhaps truncated.
    pub log: Option<StoredText>,
}

/// How an attempt ended that did not succeed, as the store remembers it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum AttemptOutcome {
    /// It failed, and counts.
    Failed(ErrorText),
    /// The handler asked to be called later.
    Snoozed,
    /// The worker drained.
    Interrupted,
    /// The worker could not start it, for this reason.
    Unstarted(ErrorText),
    /// The worker was lost, and no other job can have caused it; it counts.
    LostAlone,
    /// The worker was lost, and any of several jobs may have caused it.
    LostAmongOthers,
}

/// What the store passes to [`crate::dispatch::Loader`], in this order: numbers, the former owner,
/// settings, jobs (ended parents before their children), lease rows.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Loaded {
    /// The last numbers used.
    Numbers {
        /// The last commit.
        commit: crate::id::CommitNo,
        /// The last job, ended or not, purged or not.
        seq: Seq,
        /// The last lease row, open or not.
        lease: LeaseNo,
        /// The newest time in the id of any stored job.
        newest_id: Option<Wall>,
    },
    /// The process that served this shard before may still run: its own workers with it, and it may
    /// renew leases of others for this long. Without this, that process is gone.
    FormerOwner {
        /// For how long at most.
        renews_for: Duration,
    },
    /// The scheduling strategy.
    Strategy(Strategy),
    /// The lease duration.
    LeaseLength(Duration),
    /// A queue that has settings.
    Queue(QueueSettings),
    /// An unfinished job; a cancelled one that a worker still holds; or the ended parent of a job
    /// that is stored as blocked.
    Job(JobRow),
    /// An open lease row.
    Lease(LeaseRow),
}
