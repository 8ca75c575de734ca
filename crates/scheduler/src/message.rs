//! The messages between workers and the server: the protocol of `agent` and `dispatch`.
//!
//! Messages travel in numbered batches within a session; the batch has the number, not the message.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::id::{CommitNo, Fence, Hold, JobId, MessageNo, QuestionNo, SessionNo, WorkerId};
use crate::name::Name;
use crate::record::{ReportKind, StoredText};
use crate::time::{Duration, Millis};

/// An error text, passed on without being interpreted.
pub type ErrorText = Box<str>;

/// A message from a worker.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum FromWorker {
    /// Opens a session; the first message of each.
    Hello(Hello),
    /// Renews the lease and carries nothing else.
    Heartbeat,
    /// The most jobs that the worker wants to own from now on: a ceiling, not an increment.
    Want(u32),
    /// Asks for permission to start this suspected job.
    Start(Hold),
    /// This job has been running for a while.
    Started(Hold),
    /// An attempt ended, or the job left the worker in another way. Repeated until answered.
    Report(Report),
    /// The answer to [`ToWorker::AskToGive`]: these jobs have left the deque. Answered like
    /// reports.
    Given {
        /// The question that this answers.
        question: QuestionNo,
        /// The jobs given away; may be empty.
        jobs: Vec<Hold>,
    },
    /// The worker is stopping this cancelled job.
    Stopping(Hold),
    /// The progress of a running job. Kept in memory only.
    Progress {
        /// The running job.
        hold: Hold,
        /// From 0 to 100.
        percent: u8,
    },
    /// The worker is shutting down: it wants no more jobs and hands back those that have not
    /// started.
    Drain,
    /// The worker's last message: none of its jobs runs any more.
    Goodbye,
}

impl FromWorker {
    /// The reports in this message.
    #[must_use]
    pub fn reports(&self) -> &[Report] {
        match self {
            Self::Report(report) => core::slice::from_ref(report),
            Self::Hello(hello) => &hello.reports,
            _ => &[],
        }
    }
}

/// Opens a session.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Hello {
    /// Whether the worker is new, replaces an older incarnation, or resumes.
    pub kind: HelloKind,
    /// How many jobs it can run at once.
    pub slots: u32,
    /// How many jobs it wants to own at most.
    pub want: u32,
    /// Which queues it serves.
    pub serves: Serves,
    /// The reports it has not seen answered, as many as fit. Applied before anything else.
    pub reports: Vec<Report>,
    /// Which of its jobs have been running for a while.
    pub started: Vec<Hold>,
    /// Every job it holds, and every job whose report did not fit and follows.
    pub holds: Vec<Hold>,
}

/// The kind of a [`Hello`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HelloKind {
    /// A new incarnation.
    New,
    /// A new incarnation in place of an older one, all of whose jobs have stopped. The reports are
    /// those of the older one.
    Replace(WorkerId),
    /// A new incarnation that delivers reports of an older one, all of whose jobs have stopped.
    /// More of them follow in the next session, so the older one is not over yet: its lease is
    /// renewed, and it ends with the hello that replaces it.
    ReportFor(WorkerId),
    /// An incarnation that the server knows, over a new connection.
    Resume,
}

impl HelloKind {
    /// The older incarnation whose reports the hello carries; `None` if they are the worker's own.
    #[must_use]
    pub const fn older(self) -> Option<WorkerId> {
        match self {
            Self::Replace(older) | Self::ReportFor(older) => Some(older),
            Self::New | Self::Resume => None,
        }
    }
}

/// Which queues a worker serves.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Serves {
    /// Every queue.
    All,
    /// These queues.
    Named(Vec<Name>),
}

/// How a job left a worker.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Report {
    /// The job, and the fence of the attempt.
    pub hold: Hold,
    /// How it left.
    pub ending: Ending,
    /// The result, if the attempt succeeded and has one.
    pub result: Option<StoredText>,
    /// The output to keep with the attempt.
    pub log: Option<StoredText>,
}

impl Report {
    /// A report without a result and a log.
    #[must_use]
    pub const fn plain(hold: Hold, ending: Ending) -> Self {
        Self { hold, ending, result: None, log: None }
    }

    /// How many bytes of text it carries.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        let error = match &self.ending {
            Ending::Failed { error, .. } | Ending::Unstarted(error) => error.len(),
            _ => 0,
        };
        let length = |text: &Option<StoredText>| text.as_ref().map_or(0, |text| text.len());
        error + length(&self.result) + length(&self.log)
    }
}

/// How a job left a worker.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Ending {
    /// The attempt succeeded.
    Finished,
    /// The attempt failed.
    Failed {
        /// Whether another attempt may follow.
        again: Again,
        /// What went wrong, for people.
        error: ErrorText,
    },
    /// The handler asks to be called again after this time; not counted as an attempt.
    Snoozed(Millis),
    /// The attempt was stopped by the worker's own drain; not counted as an attempt.
    Interrupted,
    /// This worker could not start the job, for this reason, which is not the job's fault; not
    /// counted as an attempt.
    Unstarted(ErrorText),
    /// The job was never started here.
    Dropped,
    /// The cancelled job has stopped.
    Stopped,
}

impl Ending {
    /// Which report that keeps the job's fence this is; `None` if the fence grows.
    #[must_use]
    pub const fn kind(&self) -> Option<ReportKind> {
        match self {
            Self::Finished => Some(ReportKind::Finished),
            Self::Failed { .. } => Some(ReportKind::Failed),
            Self::Snoozed(_) => Some(ReportKind::Snoozed),
            Self::Interrupted | Self::Unstarted(_) | Self::Dropped | Self::Stopped => None,
        }
    }
}

/// Whether an attempt that failed may be followed by another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Again {
    /// According to the job's retry policy.
    ByPolicy,
    /// Never: the handler knows that another attempt cannot succeed.
    Never,
}

/// A message from the server to a worker.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ToWorker {
    /// The answer to a hello: the length of the lease, and which of the jobs that the worker holds
    /// are still its own. It must stop or drop the others.
    Reconcile {
        /// How long the worker owns its jobs without sending a message.
        lease: Duration,
        /// The jobs that the worker keeps.
        keep: Vec<Hold>,
    },
    /// The worker now owns these jobs.
    Assign(Vec<Assignment>),
    /// Asks for half of the unstarted jobs that the thief may run, from the steal end.
    AskToGive {
        /// Repeated in the answer.
        question: QuestionNo,
        /// The most jobs to give.
        most: u32,
        /// The most jobs to give of those that need a free slot.
        most_bound: u32,
        /// Whether jobs whose start must be confirmed may be among them.
        suspects: Suspects,
        /// Only jobs of these queues.
        serves: Serves,
    },
    /// The suspected job may start. The start is already durable.
    StartGranted(Hold),
    /// The job is cancelled: drop it, or stop it.
    Cancel(Hold),
    /// Shut down gracefully, as after a signal.
    DrainNow,
    /// Every batch up to this one has arrived and renewed the lease.
    Renewed(MessageNo),
    /// These reports are durable; the worker can forget them.
    Accepted(Vec<Hold>),
    /// This report came too late; the worker can forget it.
    Refused {
        /// The job as it was reported.
        hold: Hold,
        /// The job's current fence; `None` if there is no such job.
        current: Option<Fence>,
    },
    /// The incarnation is unknown or lost: stop every job and come back as a new one.
    Gone,
}

/// A batch for a worker, and the payload of each assigned job.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Delivery {
    /// The session it is for.
    pub session: SessionNo,
    /// The batch's number in that session.
    pub number: MessageNo,
    /// The messages, in order.
    pub messages: Vec<ToWorker>,
    /// The payloads of the assigned jobs, in the same order.
    pub works: Vec<(Hold, StoredText)>,
    /// The grace period that comes with [`ToWorker::DrainNow`]; the worker's own if missing.
    pub grace: Option<Duration>,
}

/// A batch from a worker.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct WorkerBatch {
    /// The worker that sent it.
    pub worker: WorkerId,
    /// The worker's session.
    pub session: SessionNo,
    /// The batch's number in that session; 0 if it only carries output.
    pub number: MessageNo,
    /// The messages, in order.
    pub messages: Vec<FromWorker>,
}

/// A job for its new owner. The payload is in the [`Delivery`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Assignment {
    /// The job and the new owner's fence.
    pub hold: Hold,
    /// The id that the client gave it.
    pub id: JobId,
    /// The queue it came from.
    pub queue: Name,
    /// What kind of work it is.
    pub kind: Name,
    /// The commit since which the current order (strategy) applies. Ranks are compared only within
    /// one era, and jobs of an older era start first.
    pub era: CommitNo,
    /// Its rank among waiting jobs: lower starts first, ties by submission.
    pub rank: i64,
    /// Which attempt this will be, from 1.
    pub attempt: u16,
    /// Whether the start must be confirmed.
    pub start: StartMode,
    /// Whether it may wait in a deque.
    pub place: Placement,
    /// How long the attempt may take.
    pub timeout: Option<Millis>,
}

/// Whether suspected jobs may move when a worker is asked to give.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Suspects {
    /// They may be given like others.
    Move,
    /// They stay: thief and victim each hold a suspected job, and two must not meet.
    Stay,
}

/// How a job may be started.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StartMode {
    /// Without a confirmation.
    Freely,
    /// Only after [`ToWorker::StartGranted`]: a worker was lost while it held this job.
    Confirmed,
}

/// Where a job may be put.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Placement {
    /// Into any deque.
    Anywhere,
    /// Only into a free slot: its queue has a limit, or it has been stolen twice. If it is in a
    /// deque nevertheless, it starts next.
    FreeSlot,
}
