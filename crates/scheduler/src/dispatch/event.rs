//! Everything that can happen to `dispatch`, and everything it can cause.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::{self, Write as _};

use crate::id::{
    CommitNo, FetchNo, JobId, LeaseNo, MessageNo, RequestNo, Seq, SessionNo, WorkerId,
};
use crate::message::{FromWorker, ToWorker};
use crate::name::Name;
use crate::record::{JobRow, Mutation, Strategy};
use crate::spec::JobSpec;
use crate::state::JobState;
use crate::time::Wall;

/// What can happen.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DispatchEvent {
    /// A client or an operator asks for something.
    Request {
        /// Whom the answer goes to.
        from: RequestNo,
        /// What is asked.
        request: Request,
    },
    /// A batch of messages came from a worker.
    Worker {
        /// Who speaks.
        worker: WorkerId,
        /// In which of its sessions.
        session: SessionNo,
        /// The batch's number in that session.
        number: MessageNo,
        /// What it says, in order.
        messages: Vec<FromWorker>,
    },
    /// The connection of a session broke. That moves no job; the worker only gets no new ones.
    Closed {
        /// Whose connection.
        worker: WorkerId,
        /// Which one.
        session: SessionNo,
    },
    /// The store's answer to [`DispatchEffect::Fetch`]. What it did not find is not there.
    Fetched {
        /// Which fetch.
        fetch: FetchNo,
        /// The jobs it found.
        found: Vec<JobRow>,
    },
    /// The store proposes to forget these ended jobs.
    Expired(Vec<(Seq, JobId)>),
    /// The store proposes to forget history that no kept job has a part in.
    Outdated {
        /// Closed rows of the ledger.
        leases: Vec<LeaseNo>,
        /// Notes about workers that were kept before this moment.
        notes_before: Wall,
    },
    /// Every commit up to this one is durable.
    Committed(CommitNo),
    /// Time has passed.
    Tick,
}

/// What a client or an operator can ask for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Request {
    /// Take these jobs, all or none.
    Submit(Vec<JobSpec>),
    /// This job is not wanted any more.
    Cancel(JobId),
    /// Give a dead job new attempts.
    Retry(JobId),
    /// Change a job's priority.
    SetPriority {
        /// Which job.
        job: JobId,
        /// Higher is sooner.
        priority: i16,
    },
    /// Change a queue.
    SetQueue {
        /// Which queue.
        queue: Name,
        /// What to change.
        change: QueueChange,
    },
    /// Take jobs in another order from now on.
    SetStrategy(Strategy),
    /// Let this worker finish what it runs, hand back the rest and leave.
    DrainWorker(WorkerId),
}

/// One change to a queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QueueChange {
    /// Take nothing from it.
    Pause,
    /// Take jobs from it again.
    Resume,
    /// Own at most this many of its jobs at once; `None` for any number.
    Limit(Option<u32>),
    /// Its share, at least 1.
    Weight(u32),
}

/// What `dispatch` causes. The shell performs these in order and never waits in between.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum DispatchEffect {
    /// Make these mutations durable, whole and in the order of their numbers.
    Commit {
        /// One more than the last.
        number: CommitNo,
        /// What to store.
        mutations: Vec<Mutation>,
    },
    /// Look these up among the jobs that are not in memory; answer with [`DispatchEvent::Fetched`].
    Fetch {
        /// To be repeated in the answer.
        fetch: FetchNo,
        /// By the client's id.
        ids: Vec<JobId>,
        /// By idempotency key.
        keys: Vec<Name>,
        /// By number.
        seqs: Vec<Seq>,
    },
    /// Tell a worker something, once the commit `after` is durable.
    Send {
        /// Nothing is told before its receipt; `None` if there is nothing to wait for.
        after: Option<CommitNo>,
        /// Whom.
        worker: WorkerId,
        /// Only in this session.
        session: SessionNo,
        /// What, in order.
        messages: Vec<ToWorker>,
    },
    /// Answer a request, once the commit `after` is durable.
    Reply {
        /// Nothing is told before its receipt; `None` if there is nothing to wait for.
        after: Option<CommitNo>,
        /// Whom.
        to: RequestNo,
        /// What.
        answer: Answer,
    },
    /// End this session's connection: what came over it does not fit together.
    HangUp {
        /// Whose connection.
        worker: WorkerId,
        /// Which one.
        session: SessionNo,
    },
}

/// The answer to a request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    /// The jobs are there, each new or as before, in the order in which they were submitted.
    Submitted(Vec<Submitted>),
    /// It is done.
    Done,
    /// It was not done, and nothing has changed.
    Refused(Refused),
}

/// What became of one submitted job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Submitted {
    /// The id under which the job is kept: the submitted one, or that of the job with the same key.
    pub id: JobId,
    /// Its number.
    pub seq: Seq,
    /// Whether this submit made it.
    pub novelty: Novelty,
}

/// Whether a submit made a job or met it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Novelty {
    /// This submit made it.
    New,
    /// It was there, with the same body.
    Known,
}

/// Why a request was not carried out. Every variant is something the caller can act on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Refused {
    /// There is no such job, or it was purged after its retention.
    UnknownJob(JobId),
    /// There is no such worker, or it is lost.
    UnknownWorker(WorkerId),
    /// A job with this id is there, with another body.
    IdConflict(JobId),
    /// A job with this idempotency key is there, with another body.
    KeyConflict {
        /// The key.
        key: Name,
        /// The job that has it.
        holder: JobId,
    },
    /// The jobs wait for one another: each is a parent of the next, and the last is the first.
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
    /// The job names a parent that is not there.
    UnknownParent {
        /// The job.
        child: JobId,
        /// The parent.
        parent: JobId,
    },
    /// The job is not in a state in which this can be done.
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
    /// Too much is waiting for the store; the same request will do in a moment.
    Busy,
}

/// What has a bound.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Bound {
    /// Jobs in one submit.
    Jobs,
    /// Parents of all jobs in one submit.
    Edges,
    /// Unfinished jobs altogether.
    LiveJobs,
    /// Bytes in a name.
    NameBytes,
    /// Attempts of a job: at least 1.
    Attempts,
    /// The weight of a queue: at least 1.
    Weight,
    /// Queues that somebody has set or that hold jobs.
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
                write!(formatter, "job {job} is already there with another body")
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
                write!(formatter, "job {child} names a parent that is not there: {parent}")
            }
            Self::WrongState { job, state } => write!(formatter, "job {job} is {state}"),
            Self::OutOfBounds { what, asked, bound } => {
                write!(formatter, "{}: {asked} asked for, the bound is {bound}", what.text())
            }
            Self::Busy => {
                formatter.write_str("too many requests wait for the store; repeat this one shortly")
            }
        }
    }
}

impl core::error::Error for Refused {}
