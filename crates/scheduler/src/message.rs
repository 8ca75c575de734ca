//! What workers and the server say to one another: the protocol between `agent` and `dispatch`.
//!
//! Messages travel in numbered batches within a session; the numbers are on the batch, not in here.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::id::{CommitNo, Fence, Hold, JobId, MessageNo, QuestionNo, WorkerId};
use crate::name::Name;
use crate::time::{Duration, Millis};

/// A free text that `scheduler` hands on and never looks into.
pub type ErrorText = Box<str>;

/// What a worker says.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum FromWorker {
    /// Opens a session; the first message of each.
    Hello(Hello),
    /// Nothing new, still here.
    Heartbeat,
    /// From now on, own this many jobs at most: a ceiling, not an increment.
    Want(u32),
    /// May this suspected job be started?
    Start(Hold),
    /// This job runs, and has done so for a while.
    Started(Hold),
    /// A job ended, or left the worker in another way. Repeated until answered.
    Report(Report),
    /// The answer to [`ToWorker::AskToGive`]: these jobs have left the deque. Answered like reports.
    Given {
        /// Which question this answers.
        question: QuestionNo,
        /// What is given; perhaps nothing.
        jobs: Vec<Hold>,
    },
    /// The cancelled job is being stopped; it starts nothing new.
    Stopping(Hold),
    /// How far a running job has come. Kept in memory only.
    Progress {
        /// The running job.
        hold: Hold,
        /// From 0 to 100.
        percent: u8,
    },
    /// The worker wants no more jobs and hands back what it has not started.
    Drain,
    /// The worker's work has stopped and it is leaving; its last message.
    Goodbye,
}

impl FromWorker {
    /// What became of jobs, as far as this says it.
    #[must_use]
    pub fn reports(&self) -> &[Report] {
        match self {
            Self::Report(report) => core::slice::from_ref(report),
            Self::Hello(hello) => &hello.reports,
            _ => &[],
        }
    }
}

/// How a worker introduces itself.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Hello {
    /// Who comes.
    pub kind: HelloKind,
    /// How many jobs it can run at once.
    pub slots: u32,
    /// How many jobs it wants to own at most.
    pub want: u32,
    /// Which queues it serves.
    pub serves: Serves,
    /// The reports it has not seen answered. Applied before anything else.
    pub reports: Vec<Report>,
    /// Which of its jobs have been running for a while.
    pub started: Vec<Hold>,
    /// Every job it holds.
    pub holds: Vec<Hold>,
}

/// Who comes with a [`Hello`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HelloKind {
    /// A new incarnation.
    New,
    /// A new incarnation, in place of an older one all of whose work has stopped. The reports are
    /// those of the older one.
    Replace(WorkerId),
    /// An incarnation the server has met, over a new connection.
    Resume,
}

/// Which queues a worker serves.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Serves {
    /// Every queue there is or will be.
    All,
    /// These queues.
    Named(Vec<Name>),
}

/// A job has left a worker.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Report {
    /// Which job, under which fence.
    pub hold: Hold,
    /// How it left.
    pub ending: Ending,
}

/// How a job left a worker.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Ending {
    /// The attempt succeeded.
    Finished,
    /// The attempt failed.
    Failed {
        /// Whether another attempt makes sense.
        again: Again,
        /// What went wrong, for people.
        error: ErrorText,
    },
    /// The handler asks to be called again after a while; not counted as an attempt.
    Snoozed(Millis),
    /// The attempt was stopped by the worker's own drain; not counted as an attempt.
    Interrupted,
    /// The job was never started here.
    Dropped,
    /// The cancelled job has stopped.
    Stopped,
}

/// Whether an attempt that failed may be followed by another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Again {
    /// As the job's retry policy says.
    ByPolicy,
    /// Never: the handler knows that trying again cannot help.
    Never,
}

/// What the server says to a worker.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ToWorker {
    /// The answer to a hello: the length of the lease, and what is truly the worker's of all it says
    /// to hold. What it holds beyond that, it must stop or drop.
    Reconcile {
        /// How long the worker's right to own jobs lasts without a message from it.
        lease: Duration,
        /// What the worker keeps.
        keep: Vec<Hold>,
    },
    /// These jobs are the worker's.
    Assign(Vec<Assignment>),
    /// Give half of the unstarted jobs that the asker may run, from the steal end.
    AskToGive {
        /// To be repeated in the answer.
        question: QuestionNo,
        /// At most this many.
        most: u32,
        /// At most this many of the jobs that must go into a free slot.
        most_bound: u32,
        /// Whether jobs whose start must be confirmed may be among them.
        suspects: Suspects,
        /// Only jobs of these queues.
        serves: Serves,
    },
    /// The suspected job may be started; that it was is stored.
    StartGranted(Hold),
    /// The job is cancelled: drop it, or stop it.
    Cancel(Hold),
    /// Drain, as if told by a signal.
    DrainNow,
    /// Everything up to this message has arrived and renewed the lease.
    Renewed(MessageNo),
    /// These reports are stored; the worker may forget them.
    Accepted(Vec<Hold>),
    /// This report is too late; the worker may forget it.
    Refused {
        /// What was reported.
        hold: Hold,
        /// The fence the job has now; `None` if there is no such job.
        current: Option<Fence>,
    },
    /// The incarnation is unknown or lost: stop everything and come back as a new one.
    Gone,
}

/// A job as its new owner learns of it. The shell adds the payload.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Assignment {
    /// The job and the new owner's fence.
    pub hold: Hold,
    /// The name the client gave it.
    pub id: JobId,
    /// The queue it came from.
    pub queue: Name,
    /// What kind of work it is.
    pub kind: Name,
    /// Since which commit the order is in force under which it was taken: ranks are compared only
    /// within one era, and an older one goes first.
    pub era: CommitNo,
    /// Its place among those that wait: lower runs sooner, ties by submission.
    pub rank: i64,
    /// Which attempt this will be, from 1.
    pub attempt: u16,
    /// Whether the start must be confirmed.
    pub start: StartMode,
    /// Whether it may wait among others.
    pub place: Placement,
    /// How long the attempt may take.
    pub timeout: Option<Millis>,
}

/// What is to become of suspected jobs when a worker is asked to give.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Suspects {
    /// They may be given like others.
    Move,
    /// They stay: asker and giver each hold one that must not meet another of its kind.
    Stay,
}

/// How a job may be started.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StartMode {
    /// Without asking anyone.
    Freely,
    /// Only after [`ToWorker::StartGranted`]: it was there when a worker was lost.
    Confirmed,
}

/// Where a job may be put.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Placement {
    /// Into any deque.
    Anywhere,
    /// Only into a free slot: its queue has a limit, or it has been stolen twice. Should a deque hold
    /// it all the same, it is the next to start.
    FreeSlot,
}
