//! The events and effects of `dispatch`.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write as _};

use crate::id::{
    CommitNo, FetchNo, JobId, LeaseNo, MessageNo, RequestNo, Seq, SessionNo, WorkerId,
};
use crate::message::{FromWorker, ToWorker};
use crate::name::Name;
use crate::record::{JobRow, Mutation, Strategy};
use crate::spec::{JobSpec, QueueKey};
use crate::state::JobState;
use crate::time::Wall;

/// An event for `dispatch`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DispatchEvent {
    /// A request of a client or an operator.
    Request {
        /// Where the answer goes.
        from: RequestNo,
        /// Who asks: the name of a token, for the record. `None` if no token was needed.
        by: Option<Name>,
        /// The request.
        request: Request,
    },
    /// A batch of messages came from a worker.
    Worker {
        /// The worker.
        worker: WorkerId,
        /// The worker's session.
        session: SessionNo,
        /// The batch's number in that session.
        number: MessageNo,
        /// The messages, in order.
        messages: Vec<FromWorker>,
    },
    /// The connection of a session broke. No job moves; the worker only gets no new ones.
    Closed {
        /// The worker.
        worker: WorkerId,
        /// The session.
        session: SessionNo,
    },
    /// The store's answer to [`DispatchEffect::Fetch`]. Jobs that it did not find do not exist.
    Fetched {
        /// Which fetch.
        fetch: FetchNo,
        /// The jobs it found.
        found: Vec<JobRow>,
    },
    /// The store proposes to purge these ended jobs.
    Expired(Vec<(Seq, JobId)>),
    /// The store proposes to remove history that no stored job needs.
    Outdated {
        /// Closed rows of the ledger.
        leases: Vec<LeaseNo>,
        /// Notes about workers from before this moment.
        notes_before: Wall,
    },
    /// Every commit up to this one is durable.
    Committed(CommitNo),
    /// Time has passed.
    Tick,
}

/// A request of a client or an operator.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Request {
    /// Submit these jobs, all or none.
    Submit(Vec<JobSpec>),
    /// The same, by a client that sees only these queues: for it, the jobs of other queues do not
    /// exist.
    SubmitWithin {
        /// The queues.
        queues: Vec<Name>,
        /// The jobs, all of them in these queues.
        jobs: Vec<JobSpec>,
    },
    /// Cancel this job.
    Cancel(JobId),
    /// Give a dead job new attempts.
    Retry(JobId),
    /// Change a job's priority.
    SetPriority {
        /// Which job.
        job: JobId,
        /// Jobs with a higher priority start first.
        priority: i16,
    },
    /// Change a queue.
    SetQueue {
        /// Which queue.
        queue: Name,
        /// What to change.
        change: QueueChange,
    },
    /// Change the scheduling strategy.
    SetStrategy(Strategy),
    /// Shut this worker down gracefully: it finishes running jobs, hands back the rest and leaves.
    DrainWorker(WorkerId),
}

impl Request {
    /// The jobs that it submits.
    #[must_use]
    pub const fn submitted(&self) -> &[JobSpec] {
        match self {
            Self::Submit(jobs) | Self::SubmitWithin { jobs, .. } => jobs.as_slice(),
            _ => &[],
        }
    }
}

/// One change to a queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QueueChange {
    /// Pause it.
    Pause,
    /// Resume it.
    Resume,
    /// The concurrency limit; `None` for none.
    Limit(Option<u32>),
    /// Its share, at least 1.
    Weight(u32),
}

/// An effect of `dispatch`. The shell performs effects in order and never waits in between.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DispatchEffect {
    /// Make these mutations durable, whole and in the order of their numbers.
    Commit {
        /// One more than the last.
        number: CommitNo,
        /// What to store.
        mutations: Vec<Mutation>,
    },
    /// Look these up among the jobs that are not in memory, and answer with
    /// [`DispatchEvent::Fetched`].
    Fetch {
        /// Repeated in the answer.
        fetch: FetchNo,
        /// By the client's id.
        ids: Vec<JobId>,
        /// By idempotency key.
        keys: Vec<QueueKey>,
        /// By number.
        seqs: Vec<Seq>,
    },
    /// Send messages to a worker, once the commit `after` is durable.
    Send {
        /// The commit to wait for, if any.
        after: Option<CommitNo>,
        /// The worker.
        worker: WorkerId,
        /// Only in this session.
        session: SessionNo,
        /// The messages, in order.
        messages: Vec<ToWorker>,
    },
    /// Answer a request, once the commit `after` is durable.
    Reply {
        /// The commit to wait for, if any.
        after: Option<CommitNo>,
        /// The request.
        to: RequestNo,
        /// The answer.
        answer: Answer,
    },
    /// Close this session's connection: its batches are inconsistent.
    HangUp {
        /// The worker.
        worker: WorkerId,
        /// The session.
        session: SessionNo,
    },
}

/// The answer to a request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    /// The jobs are stored, each new or known before, in the order of submission.
    Submitted(Vec<Submitted>),
    /// It is done.
    Done,
    /// The request was refused, and nothing has changed.
    Refused(Refused),
}

/// The answer for one submitted job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Submitted {
    /// The job's id: the submitted one, or that of the existing job with the same key.
    pub id: JobId,
    /// Its number.
    pub seq: Seq,
    /// Whether this submit created it.
    pub novelty: Novelty,
}

/// Whether a submit created a job or found it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Novelty {
    /// This submit created it.
    New,
    /// It existed, with the same body.
    Known,
}

/// Why a request was not carried out. Every variant is something the caller can act on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Refused {
    /// No such job, or it was purged after the retention period.
    UnknownJob(JobId),
    /// No such worker, or it is lost.
    UnknownWorker(WorkerId),
    /// A job with this id exists, with another body.
    IdConflict(JobId),
    /// A job of the same queue with this idempotency key exists, with another body.
    KeyConflict {
        /// The key.
        key: Name,
        /// The job that has it.
        holder: JobId,
    },
    /// The jobs depend on one another in a cycle: each is a parent of the next, and the last is the
    /// first.
    Cycle(Vec<JobId>),
    /// The job names itself as a parent.
    OwnParent(JobId),
    /// The job names a parent twice.
    ParentTwice {
        /// The job.
        child: JobId,
        /// The parent.
        parent: JobId,
    },
    /// The job names a parent that does not exist.
    UnknownParent {
        /// The job.
        child: JobId,
        /// The parent.
        parent: JobId,
    },
    /// Not possible in the job's current state.
    WrongState {
        /// The job.
        job: JobId,
        /// Its state.
        state: JobState,
    },
    /// A number or a length is outside its bounds.
    OutOfBounds {
        /// What.
        what: Bound,
        /// How much was asked for.
        asked: u64,
        /// The bound.
        bound: u64,
    },
    /// Too many requests wait for the store; the same request can be repeated in a moment.
    Busy,
}

/// What has a bound.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Bound {
    /// Jobs in one submit.
    Jobs,
    /// Parents of all jobs in one submit.
    Edges,
    /// Unfinished jobs in total.
    LiveJobs,
    /// Bytes in a name.
    NameBytes,
    /// Attempts of a job: at least 1.
    Attempts,
    /// The weight of a queue: at least 1.
    Weight,
    /// Queues that have settings or jobs.
    Queues,
}

impl Bound {
    const fn text(self) -> &'static str {
        match self {
            Self::Jobs => "jobs in one submit",
            Self::Edges => "parents in one submit",
            Self::LiveJobs => "unfinished jobs",
            Self::NameBytes => "bytes in a name",
            Self::Attempts => "attempts",
            Self::Weight => "weight",
            Self::Queues => "queues",
        }
    }
}

impl fmt::Display for JobId {
    /// A readable id by its name, any other as a UUID.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = self.name() {
            return formatter.write_str(name.as_str());
        }
        let hex = alloc::format!("{:032x}", self.0);
        let groups = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        formatter.write_str(&groups.join("-"))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownJob(job) => write!(formatter, "no job {job}"),
            Self::UnknownWorker(worker) => {
                write!(formatter, "no worker {:016x}", worker.bits())
            }
            Self::IdConflict(job) => {
                write!(formatter, "the id {job} is taken by a job with another body")
            }
            Self::KeyConflict { key, holder } => {
                write!(formatter, "key {key:?} belongs to job {holder}, which has another body")
            }
            Self::Cycle(path) => {
                let mut text = String::new();
                for job in path {
                    let arrow = if text.is_empty() { "" } else { " -> " };
                    write!(text, "{arrow}{job}")?;
                }
                write!(formatter, "the jobs have a cycle: {text}")
            }
            Self::OwnParent(job) => {
                write!(formatter, "job {job} is its own parent: {job} -> {job}")
            }
            Self::ParentTwice { child, parent } => {
                write!(formatter, "job {child} names its parent {parent} twice")
            }
            Self::UnknownParent { child, parent } => {
                write!(formatter, "job {child} names an unknown parent: {parent}")
            }
            Self::WrongState { job, state } => write!(formatter, "job {job} is {state}"),
            Self::OutOfBounds { what, asked, bound } => {
                write!(formatter, "{}: {asked} requested, the limit is {bound}", what.text())
            }
            Self::Busy => {
                formatter.write_str("too many requests wait for the store; retry shortly")
            }
        }
    }
}

impl core::error::Error for Refused {}
