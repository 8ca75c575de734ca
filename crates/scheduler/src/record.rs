//! What the store keeps: rows and the mutations that write them.
//!
//! A job is inserted once and written once more at its end. In between, a claim or a theft of any
//! number of jobs is one lease row. A job's true owner is the newest of both: see
//! [`crate::dispatch::Loader`].

use alloc::vec::Vec;

use crate::id::{Fence, Hold, JobId, LeaseNo, Seq, WorkerId};
use crate::message::ErrorText;
use crate::name::Name;
use crate::spec::JobSpec;
use crate::state::JobState;
use crate::time::{Duration, Wall};

/// A change to what is kept. The mutations of one commit are applied together or not at all.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Mutation {
    /// A new job with its edges. The shell adds the payload.
    Put(JobRow),
    /// What changes of a job that is there.
    Write(JobWrite),
    /// Another priority, and nothing else: what the store knows of the job's state may be behind its
    /// open lease row, and stays so.
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
    /// The order in which jobs are taken.
    Strategy(Strategy),
    /// How long leases last; ten seconds in a store that says nothing else.
    LeaseLength(Duration),
    /// These ended jobs and all that belongs to them are removed.
    Purge(Vec<Seq>),
    /// History that no kept job has a part in is removed.
    Trim {
        /// These closed rows of the ledger.
        leases: Vec<LeaseNo>,
        /// Notes about workers that were kept before this moment, as many as one commit can take.
        notes_before: Wall,
    },
    /// Something people may want to know later.
    Note(Note),
}

/// A job as it is kept.
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
    /// Its state. `Leased` is never written: lease rows say it.
    pub state: JobState,
    /// Its fence.
    pub fence: Fence,
    /// How many attempts are charged to it.
    pub attempts: u16,
    /// How often it was there when a worker was lost.
    pub suspicions: u8,
    /// Its present priority.
    pub priority: i16,
    /// When it is due, if it is scheduled.
    pub due: Wall,
    /// Who holds it: the owner of a running job, or who has yet to let go of a cancelled one.
    pub holder: Option<WorkerId>,
    /// Why it ended, if not well.
    pub reason: Option<Reason>,
    /// When this was written; for an ended job, when it ended.
    pub at: Wall,
}

/// Why a job ended badly.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// Somebody cancelled it.
    Request,
    /// Its parents' condition could no longer hold.
    Condition,
    /// Its last attempt failed.
    Failed,
    /// Its last attempt took the worker with it.
    WorkerLost,
}

/// One change of owner, of any number of jobs at once.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LeaseRow {
    /// Rows are read in this order.
    pub number: LeaseNo,
    /// Who owns the jobs now; nobody means that they are queued.
    pub worker: Option<WorkerId>,
    /// How that came.
    pub cause: LeaseCause,
    /// The jobs with their new fences.
    pub jobs: Vec<Hold>,
    /// When.
    pub at: Wall,
}

/// How jobs changed hands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LeaseCause {
    /// Taken from the queue.
    Claim,
    /// Taken from another worker's deque.
    Steal(WorkerId),
    /// Taken back from a worker whose lease ran out.
    Lost(WorkerId),
    /// Handed back by a worker.
    Returned(WorkerId),
}

/// A queue's settings.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct QueueSettings {
    /// Which queue.
    pub queue: Name,
    /// Nothing is taken from it.
    pub paused: bool,
    /// At most this many of its jobs are owned at once.
    pub limit: Option<u32>,
    /// Its share, under the strategy that looks at it; at least 1.
    pub weight: u32,
}

impl QueueSettings {
    /// A queue that nobody has touched.
    #[must_use]
    pub const fn new(queue: Name) -> Self {
        Self { queue, paused: false, limit: None, weight: 1 }
    }
}

/// The order in which ready jobs are taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Strategy {
    /// In the order of submission, whatever the queue.
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
    /// By priority, a minute of waiting worth one step.
    fn default() -> Self {
        Self::Priority { aging: DEFAULT_AGING }
    }
}

/// How long a job waits to gain one step of priority, unless the strategy says otherwise.
pub const DEFAULT_AGING: Duration = Duration::from_secs(60);

/// Something people may want to know later, which no row of a job or of the ledger says.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Note {
    /// A worker's lease ran out, and it held this many jobs.
    WorkerLost {
        /// The worker.
        worker: WorkerId,
        /// How many jobs it held.
        jobs: u32,
    },
    /// An attempt did not succeed.
    Attempt {
        /// Which job, under which fence.
        hold: Hold,
        /// Who tried.
        worker: WorkerId,
        /// How it went.
        outcome: AttemptOutcome,
    },
    /// Somebody cancelled this job.
    Cancelled(JobId),
    /// Somebody gave this dead job new attempts.
    Retried(JobId),
    /// Somebody gave this job another priority.
    Prioritised(JobId),
    /// Somebody told this worker to drain.
    Drained(WorkerId),
}

/// How an attempt ended that did not succeed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum AttemptOutcome {
    /// It failed, and counts.
    Failed(ErrorText),
    /// The handler asked to be called later.
    Snoozed,
    /// The worker drained.
    Interrupted,
    /// The worker was lost and no other job can have been the reason; it counts.
    LostAlone,
    /// The worker was lost and any of several jobs may have been the reason.
    LostAmongOthers,
}

/// What the store hands to [`crate::dispatch::Loader`], in this order: numbers, settings, jobs (ended
/// parents before their children), lease rows.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Loaded {
    /// Where numbering goes on.
    Numbers {
        /// The last commit.
        commit: crate::id::CommitNo,
        /// The last job, ended or not, purged or not.
        seq: Seq,
        /// The last lease row, open or not.
        lease: LeaseNo,
        /// The newest time in the id of any job that is kept.
        newest_id: Option<Wall>,
    },
    /// The order in which jobs are taken.
    Strategy(Strategy),
    /// How long leases last.
    LeaseLength(Duration),
    /// A queue that somebody has set.
    Queue(QueueSettings),
    /// An unfinished job; a cancelled one that somebody still holds; or the ended parent of a job
    /// that is kept as blocked.
    Job(JobRow),
    /// An open lease row.
    Lease(LeaseRow),
}
