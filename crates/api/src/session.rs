//! The wire form of the messages between workers and the server, defined once for WebSocket frames
//! and for plain HTTP (`work`).
//!
//! A frame is one numbered batch of messages in one direction. The scheduler never sees payloads,
//! results or output; frames carry them next to its messages. A job is written as its number and
//! fence, `[7, 1]`, and its payload is the text that was submitted, untouched. Each message is
//! converted once: on arrival into the scheduler's message, on departure out of it. `delivery` does
//! that quickly for jobs on their way to a worker.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use filch_scheduler::id::{
    CommitNo, Fence, Hold, JobId, MessageNo, QuestionNo, Seq, SessionNo, WorkerId,
};
use filch_scheduler::message::{
    self, Again, Ending, ErrorText, FromWorker, HelloKind, Placement, Report, Serves, StartMode,
    Suspects, ToWorker, WorkerBatch,
};
use filch_scheduler::name::Name;
use filch_scheduler::record::StoredText;
use filch_scheduler::time::Millis;
use serde::de::{DeserializeOwned, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::job::is_false;
use crate::json::check_depth;
use crate::submission::Span;
use crate::{id, limits};

/// A job and the fence of its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WireHold(pub u64, pub u64);

/// A frame from a worker.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct UpFrame {
    /// The worker's id: sixteen hexadecimal digits, the first of them 0 to 7.
    pub worker: String,
    /// The number of the worker's connection, from 1; each new connection has a higher one.
    pub session: u64,
    /// The batch's number in this session, from 1 without gaps; 0 for a frame that only carries
    /// output.
    #[serde(default)]
    pub number: u64,
    /// The messages, applied in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<Up>,
    /// Output of running jobs, shown while they run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<Output>,
    /// The worker's description of itself, sent along with a hello.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<Box<About>>,
}

/// A frame from a worker, as the server uses it.
#[derive(Debug)]
pub struct Arrived {
    /// The messages; none in a frame that only carries output.
    pub batch: WorkerBatch,
    /// Output of running jobs.
    pub output: Vec<Output>,
    /// The worker's description of itself.
    pub about: Option<Box<About>>,
}

/// A worker's description of itself: shown to people, and used to explain why a job waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct About {
    /// A display name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The kinds of jobs it has handlers for; missing if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "few_or_none")]
    pub kinds: Option<Vec<String>>,
    /// Its process id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

impl About {
    /// Drops fields that exceed their bounds. They are informative only, and no reason to end a
    /// session.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let is_short = |text: &String| text.len() <= limits::NAME_BYTES;
        self.name = self.name.filter(is_short);
        self.kinds = self
            .kinds
            .filter(|kinds| kinds.len() <= limits::WORKER_KINDS && kinds.iter().all(is_short));
        self
    }
}

/// A piece of a running job's output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// The job.
    pub job: WireHold,
    /// Standard output or standard error.
    pub stream: OutputStream,
    /// The text.
    pub text: String,
}

/// The stream that a job wrote to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A message from a worker.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Up {
    /// Opens a session. Always the first message of the first batch.
    Hello(Box<WireHello>),
    /// Renews the lease and carries nothing else.
    Heartbeat,
    /// The most jobs that this worker wants to own from now on: a total, not an increment.
    Want(u32),
    /// Asks for permission to start a job whose assignment had `confirm` set.
    Start(WireHold),
    /// This job has been running for a while. Jobs that end within about 50 ms need not be
    /// announced.
    Started(WireHold),
    /// How an attempt ended. Repeated, after a reconnect in the hello, until it is accepted or
    /// refused.
    Report(WireReport),
    /// These attempts succeeded, without a result or a log: the compact form of a report.
    Finished(#[serde(deserialize_with = "few")] Vec<WireHold>),
    /// The answer to `ask_to_give`. The jobs must not have started, and have left the worker.
    Given {
        /// The number of the question.
        question: u64,
        /// The jobs given away; may be empty.
        #[serde(deserialize_with = "few")]
        jobs: Vec<WireHold>,
    },
    /// The worker is stopping this cancelled job.
    Stopping(WireHold),
    /// The progress of a running job.
    Progress {
        /// The job.
        job: WireHold,
        /// From 0 to 100.
        percent: u8,
    },
    /// The worker is shutting down and wants no more jobs.
    Drain,
    /// The worker's last message: nothing of its jobs runs any more.
    Goodbye,
}

/// Opens a session.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WireHello {
    /// Whether the worker is new, replaces an older incarnation, or resumes.
    pub kind: WireHelloKind,
    /// How many jobs it can run at once.
    pub slots: u32,
    /// The most jobs that it wants to own.
    pub want: u32,
    /// The queues it serves; all if missing.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "few_or_none")]
    pub queues: Option<Vec<String>>,
    /// Reports that were not answered before, as many as fit. Applied before anything else.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "few")]
    pub reports: Vec<WireReport>,
    /// Jobs of this worker that have been running for a while.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "few")]
    pub started: Vec<WireHold>,
    /// Every job that the worker holds, and every job whose report did not fit and follows.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "few")]
    pub holds: Vec<WireHold>,
}

/// What kind of hello this is.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum WireHelloKind {
    /// A new incarnation.
    New,
    /// A new incarnation in place of the one with this id, all of whose jobs have stopped.
    Replace(String),
    /// A new incarnation with reports of the one with this id, all of whose jobs have stopped. More
    /// of them follow in the next session; the last part comes with `replace`.
    ReportFor(String),
    /// The same incarnation over a new connection.
    Resume,
}

/// How one attempt ended: the same object in a WebSocket frame and in a plain HTTP request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WireReport {
    /// The job's number and the fence of this attempt.
    pub job: WireHold,
    /// How the attempt ended.
    pub ending: WireEnding,
    /// What went wrong, for people to read. Only with `failed` and `unstarted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Another attempt cannot succeed, so the job is not retried. Only with `failed`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub forever: bool,
    /// How long to wait before the next call. Required with `snoozed`, and only allowed there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Span>,
    /// The result of the job, any JSON. Only with `finished`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Value>))]
    pub result: Option<Box<RawValue>>,
    /// The output to keep with the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

/// How an attempt ended, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum WireEnding {
    /// The attempt succeeded.
    Finished,
    /// The attempt failed. It counts against the job's retry policy.
    Failed,
    /// The handler asks to be called again later. It does not count as an attempt.
    Snoozed,
    /// The worker stopped the attempt because it is shutting down. It does not count as an attempt.
    Interrupted,
    /// This worker could not start the job, which is not the job's fault: it goes back to its
    /// queue. It does not count as an attempt.
    Unstarted,
    /// The job was never started; it goes back to its queue.
    Dropped,
    /// The job was cancelled and has stopped.
    Stopped,
}

/// A frame from the server.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DownFrame {
    /// The session it is for.
    pub session: u64,
    /// The batch's number in this session, from 1 without gaps.
    pub number: u64,
    /// The messages, applied in this order.
    pub messages: Vec<Down>,
    /// With `drain_now`: how long running jobs may take, in milliseconds. The worker's own grace
    /// period if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
}

/// A message from the server.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Down {
    /// The answer to a hello. Jobs that the worker holds and that are not listed are no longer its
    /// own: it stops or drops them.
    Reconcile {
        /// The length of the lease, in milliseconds.
        lease_ms: u64,
        /// The jobs that the worker keeps.
        keep: Vec<WireHold>,
    },
    /// The worker now owns these jobs.
    Assign(Vec<WireAssignment>),
    /// Asks for half of the jobs that have not started, because another worker is idle. Answered
    /// with `given`.
    AskToGive {
        /// The question's number, repeated in the answer.
        question: u64,
        /// The most jobs to give.
        most: u32,
        /// The most jobs to give whose assignment had `free_slot` set.
        most_bound: u32,
        /// Jobs whose assignment had `confirm` set must stay.
        suspects_stay: bool,
        /// Only jobs of these queues; of any if missing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queues: Option<Vec<String>>,
    },
    /// The job with `confirm` may start.
    StartGranted(WireHold),
    /// The job is cancelled: the worker drops or stops it, and reports it as `stopped`.
    Cancel(WireHold),
    /// Shut down gracefully: start nothing more, hand back jobs that have not started, finish the
    /// rest.
    DrainNow,
    /// Every batch up to this number has arrived. The lease runs from when that batch was sent.
    Renewed(u64),
    /// These reports are durable; the worker can forget them.
    Accepted(Vec<WireHold>),
    /// This report came too late, because the job has changed hands; the worker can forget it.
    Refused {
        /// The job as it was reported.
        job: WireHold,
        /// The job's current fence; missing if there is no such job.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        current: Option<u64>,
    },
    /// The server does not know this worker, or no longer does: stop every job and come back under
    /// a new id.
    Gone,
}

/// A job that a worker now owns: the same object in a WebSocket frame and in the answer to a claim.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WireAssignment {
    /// The job's number and the fence of this attempt.
    pub job: WireHold,
    /// The job's id.
    pub id: String,
    /// The job's queue.
    pub queue: String,
    /// The job's kind; `command` for commands.
    pub kind: String,
    /// Jobs with a lower era start first; ranks are compared only within one era.
    pub era: u64,
    /// Within one era, jobs with a lower rank start first.
    pub rank: i64,
    /// Which attempt this is, from 1.
    pub attempt: u16,
    /// The worker must ask with `start` and wait for `start_granted` before it starts this job.
    /// Never set in the answer to a claim.
    #[serde(default, skip_serializing_if = "is_false")]
    pub confirm: bool,
    /// The job must go straight into a free slot and may not wait behind others.
    #[serde(default, skip_serializing_if = "is_false")]
    pub free_slot: bool,
    /// How long the attempt may take, in milliseconds. The worker enforces it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u32>,
    /// What to do: `args` as they were submitted, and for commands `run`, `env` and `dir`.
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub work: Box<RawValue>,
}

/// A frame that cannot be applied, and why. The session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidFrame(pub &'static str);

impl From<Hold> for WireHold {
    fn from(hold: Hold) -> Self {
        Self(hold.job.0, hold.fence.0)
    }
}

impl From<WireHold> for Hold {
    fn from(held: WireHold) -> Self {
        Self { job: Seq(held.0), fence: Fence(held.1) }
    }
}

fn all<A: Into<B> + Copy, B>(items: &[A]) -> Vec<B> {
    items.iter().map(|&item| item.into()).collect()
}

fn queues(serves: &Serves) -> Option<Vec<String>> {
    match serves {
        Serves::All => None,
        Serves::Named(names) => Some(names.iter().map(ToString::to_string).collect()),
    }
}

fn serves(queues: Option<Vec<String>>) -> Serves {
    queues.map_or(Serves::All, |names| {
        Serves::Named(names.iter().map(|name| Name::from(name.as_str())).collect())
    })
}

fn read_worker(text: &str) -> Result<WorkerId, InvalidFrame> {
    id::read_worker(text).ok_or(InvalidFrame("a worker's id has 16 hexadecimal digits"))
}

impl UpFrame {
    /// The frame for a batch of an agent's messages.
    #[must_use]
    pub fn say(
        worker: WorkerId,
        session: SessionNo,
        number: MessageNo,
        messages: &[FromWorker],
    ) -> Self {
        let mut said = Vec::new();
        for message in messages {
            let up = Up::say(message);
            match (&up, said.last_mut()) {
                (Up::Finished(jobs), Some(Up::Finished(before))) => before.extend(jobs),
                _ => said.push(up),
            }
        }
        let worker = id::worker(worker);
        Self {
            worker,
            session: session.0,
            number: number.0,
            messages: said,
            output: Vec::new(),
            about: None,
        }
    }

    /// The frame for the server.
    ///
    /// # Errors
    /// If an id is malformed or a report is incomplete.
    pub fn arrive(self) -> Result<Arrived, InvalidFrame> {
        let worker = read_worker(&self.worker)?;
        let mut messages = Vec::with_capacity(self.messages.len());
        for message in self.messages {
            message.hear(&mut messages)?;
        }
        let (session, number) = (SessionNo(self.session), MessageNo(self.number));
        let batch = WorkerBatch { worker, session, number, messages };
        Ok(Arrived { batch, output: self.output, about: self.about })
    }

    /// The batch for `dispatch`.
    ///
    /// # Errors
    /// If an id is malformed or a report is incomplete.
    pub fn hear(self) -> Result<WorkerBatch, InvalidFrame> {
        self.arrive().map(|arrived| arrived.batch)
    }
}

/// An [`UpFrame`] whose messages have not been read yet.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UnreadFrame<'a> {
    #[serde(borrow)]
    worker: Cow<'a, str>,
    session: u64,
    #[serde(default)]
    number: u64,
    #[serde(borrow, default)]
    messages: Few<&'a RawValue>,
    #[serde(default, deserialize_with = "few")]
    output: Vec<Output>,
    #[serde(default)]
    about: Option<Box<About>>,
}

impl Arrived {
    /// Reads a frame that came over a socket, from anyone. While it is read it takes at most 4
    /// times as much memory as its text, which is included, besides a few MiB: each message is
    /// converted before the next one is read, and there are at most [`limits::FRAME_ITEMS`].
    ///
    /// # Errors
    /// If it is not a valid frame: why. The reason may quote the frame.
    pub fn read(text: &str) -> Result<Self, String> {
        let frame: UnreadFrame<'_> = serde_json::from_str(text).map_err(|it| it.to_string())?;
        let worker = read_worker(&frame.worker).map_err(|InvalidFrame(why)| why)?;
        let mut messages = Vec::with_capacity(frame.messages.0.len());
        let mut items = frame.messages.0.len();
        for message in frame.messages.0 {
            let message: Up = serde_json::from_str(message.get()).map_err(|it| it.to_string())?;
            items += message.items();
            if items > limits::FRAME_ITEMS {
                return Err(too_many());
            }
            message.hear(&mut messages).map_err(|InvalidFrame(why)| why)?;
        }
        let (session, number) = (SessionNo(frame.session), MessageNo(frame.number));
        let batch = WorkerBatch { worker, session, number, messages };
        Ok(Self { batch, output: frame.output, about: frame.about })
    }
}

fn too_many() -> String {
    format!("a frame has at most {} messages, reports and jobs", limits::FRAME_ITEMS)
}

/// A list in a frame: what is beyond the bound of all lists together is not even read.
struct Few<T>(Vec<T>);

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T>(std::marker::PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Items<T> {
            type Value = Vec<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = list.next_element()? {
                    if items.len() == limits::FRAME_ITEMS {
                        return Err(A::Error::custom(too_many()));
                    }
                    items.push(item);
                }
                Ok(items)
            }
        }

        deserializer.deserialize_seq(Items(std::marker::PhantomData)).map(Self)
    }
}

fn few<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    Few::deserialize(deserializer).map(|few| few.0)
}

fn few_or_none<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<Vec<T>>, D::Error> {
    Option::<Few<T>>::deserialize(deserializer).map(|few| few.map(|few| few.0))
}

impl Up {
    fn say(message: &FromWorker) -> Self {
        match message {
            FromWorker::Hello(hello) => Self::Hello(Box::new(WireHello {
                kind: match hello.kind {
                    HelloKind::New => WireHelloKind::New,
                    HelloKind::Replace(worker) => WireHelloKind::Replace(id::worker(worker)),
                    HelloKind::ReportFor(worker) => WireHelloKind::ReportFor(id::worker(worker)),
                    HelloKind::Resume => WireHelloKind::Resume,
                },
                slots: hello.slots,
                want: hello.want,
                queues: queues(&hello.serves),
                reports: hello.reports.iter().map(WireReport::new).collect(),
                started: all(&hello.started),
                holds: all(&hello.holds),
            })),
            FromWorker::Heartbeat => Self::Heartbeat,
            &FromWorker::Want(count) => Self::Want(count),
            &FromWorker::Start(hold) => Self::Start(hold.into()),
            &FromWorker::Started(hold) => Self::Started(hold.into()),
            FromWorker::Report(report) => match WireReport::new(report) {
                WireReport {
                    job, ending: WireEnding::Finished, result: None, log: None, ..
                } => Self::Finished(vec![job]),
                other => Self::Report(other),
            },
            FromWorker::Given { question, jobs } => {
                Self::Given { question: question.0, jobs: all(jobs) }
            }
            &FromWorker::Stopping(hold) => Self::Stopping(hold.into()),
            &FromWorker::Progress { hold, percent } => Self::Progress { job: hold.into(), percent },
            FromWorker::Drain => Self::Drain,
            FromWorker::Goodbye => Self::Goodbye,
        }
    }

    /// How many items there are in its lists.
    fn items(&self) -> usize {
        match self {
            Self::Hello(hello) => {
                let queues = hello.queues.as_ref().map_or(0, Vec::len);
                queues + hello.reports.len() + hello.started.len() + hello.holds.len()
            }
            Self::Finished(jobs) | Self::Given { jobs, .. } => jobs.len(),
            _ => 0,
        }
    }

    fn hear(self, messages: &mut Vec<FromWorker>) -> Result<(), InvalidFrame> {
        messages.push(match self {
            Self::Hello(hello) => FromWorker::Hello(message::Hello {
                kind: match hello.kind {
                    WireHelloKind::New => HelloKind::New,
                    WireHelloKind::Replace(worker) => HelloKind::Replace(read_worker(&worker)?),
                    WireHelloKind::ReportFor(worker) => HelloKind::ReportFor(read_worker(&worker)?),
                    WireHelloKind::Resume => HelloKind::Resume,
                },
                slots: hello.slots,
                want: hello.want,
                serves: serves(hello.queues),
                reports: hello
                    .reports
                    .into_iter()
                    .map(WireReport::into_report)
                    .collect::<Result<_, _>>()?,
                started: all(&hello.started),
                holds: all(&hello.holds),
            }),
            Self::Heartbeat => FromWorker::Heartbeat,
            Self::Want(count) => FromWorker::Want(count),
            Self::Start(held) => FromWorker::Start(held.into()),
            Self::Started(held) => FromWorker::Started(held.into()),
            Self::Report(report) => FromWorker::Report(report.into_report()?),
            Self::Finished(jobs) => {
                let report = |job: WireHold| Report::plain(job.into(), Ending::Finished);
                messages.extend(jobs.into_iter().map(|job| FromWorker::Report(report(job))));
                return Ok(());
            }
            Self::Given { question, jobs } => {
                FromWorker::Given { question: QuestionNo(question), jobs: all(&jobs) }
            }
            Self::Stopping(held) => FromWorker::Stopping(held.into()),
            Self::Progress { job, percent } => FromWorker::Progress { hold: job.into(), percent },
            Self::Drain => FromWorker::Drain,
            Self::Goodbye => FromWorker::Goodbye,
        });
        Ok(())
    }
}

impl WireReport {
    /// A report without details.
    #[must_use]
    pub const fn plain(job: WireHold, ending: WireEnding) -> Self {
        Self { job, ending, error: None, forever: false, wait: None, result: None, log: None }
    }

    fn new(report: &Report) -> Self {
        let ending = match &report.ending {
            Ending::Finished => WireEnding::Finished,
            Ending::Failed { .. } => WireEnding::Failed,
            Ending::Snoozed(_) => WireEnding::Snoozed,
            Ending::Interrupted => WireEnding::Interrupted,
            Ending::Unstarted(_) => WireEnding::Unstarted,
            Ending::Dropped => WireEnding::Dropped,
            Ending::Stopped => WireEnding::Stopped,
        };
        let mut wire = Self::plain(report.hold.into(), ending);
        match &report.ending {
            Ending::Failed { again, error } => {
                wire.error = Some(error.to_string());
                wire.forever = *again == Again::Never;
            }
            Ending::Unstarted(error) => wire.error = Some(error.to_string()),
            &Ending::Snoozed(wait) => wire.wait = Some(Span(wait)),
            _ => {}
        }
        // A text that is not JSON never becomes a result.
        let result = report.result.as_ref();
        wire.result = result.and_then(|text| RawValue::from_string(text.to_string()).ok());
        wire.log = report.log.as_ref().map(ToString::to_string);
        wire
    }

    /// The report for `dispatch`.
    ///
    /// filch's own worker keeps to the bounds by itself. For others they are enforced here, since a
    /// report that is rejected would be repeated for ever: texts are cut, and a result that is too
    /// large is a failure.
    ///
    /// # Errors
    /// If a snoozed report has no `wait`.
    pub fn into_report(self) -> Result<Report, InvalidFrame> {
        let hold = self.job.into();
        let excess = self.result.as_deref().and_then(|result| excess(result.get()));
        let result = self.result.filter(|_| excess.is_none());
        let result = result.map(|result| StoredText::from(result.get()));
        let log = self.log.map(|log| StoredText::from(beginning(log, limits::LOG_BYTES)));
        let ending = match (self.ending, excess) {
            (WireEnding::Finished, Some(excess)) => {
                Ending::Failed { again: Again::Never, error: excess.into() }
            }
            (WireEnding::Finished, None) => Ending::Finished,
            (WireEnding::Failed, _) => Ending::Failed {
                again: if self.forever { Again::Never } else { Again::ByPolicy },
                error: reason(self.error),
            },
            (WireEnding::Unstarted, _) => Ending::Unstarted(reason(self.error)),
            (WireEnding::Snoozed, _) => {
                let wait = self.wait.ok_or(InvalidFrame("a snoozed report needs `wait`"))?;
                Ending::Snoozed(wait.0)
            }
            (WireEnding::Interrupted, _) => Ending::Interrupted,
            (WireEnding::Dropped, _) => Ending::Dropped,
            (WireEnding::Stopped, _) => Ending::Stopped,
        };
        Ok(Report { hold, ending, result, log })
    }
}

/// Why a result cannot be stored; `None` if it can.
#[must_use]
pub fn excess(result: &str) -> Option<String> {
    let (bytes, most) = (result.len(), limits::RESULT_BYTES);
    if bytes > most {
        return Some(format!(
            "the result has {bytes} bytes, and {most} are allowed: store it elsewhere and return a link"
        ));
    }
    check_depth(result.as_bytes()).err().map(|problem| format!("the result: {}", problem.title))
}

fn reason(error: Option<String>) -> ErrorText {
    let error = error.unwrap_or_else(|| "the worker gave no reason".into());
    beginning(error, limits::ERROR_BYTES).into()
}

fn beginning(mut text: String, most: usize) -> String {
    text.truncate(text.floor_char_boundary(most));
    text
}

impl Down {
    /// The wire form of a message of `dispatch`; `work` finds the payload of an assigned job.
    pub fn say(message: ToWorker, mut work: impl FnMut(Hold) -> Box<RawValue>) -> Self {
        match message {
            ToWorker::Reconcile { lease, keep } => {
                Self::Reconcile { lease_ms: lease.as_millis() as u64, keep: all(&keep) }
            }
            ToWorker::Assign(jobs) => Self::Assign(
                jobs.into_iter().map(|job| WireAssignment::say(&job, work(job.hold))).collect(),
            ),
            ToWorker::AskToGive { question, most, most_bound, suspects, serves } => {
                Self::AskToGive {
                    question: question.0,
                    most,
                    most_bound,
                    suspects_stay: suspects == Suspects::Stay,
                    queues: queues(&serves),
                }
            }
            ToWorker::StartGranted(hold) => Self::StartGranted(hold.into()),
            ToWorker::Cancel(hold) => Self::Cancel(hold.into()),
            ToWorker::DrainNow => Self::DrainNow,
            ToWorker::Renewed(number) => Self::Renewed(number.0),
            ToWorker::Accepted(holds) => Self::Accepted(all(&holds)),
            ToWorker::Refused { hold, current } => {
                Self::Refused { job: hold.into(), current: current.map(|fence| fence.0) }
            }
            ToWorker::Gone => Self::Gone,
        }
    }

    /// The message for an agent; the payload of each assigned job goes to `work`.
    ///
    /// # Errors
    /// If an id is malformed.
    pub fn hear(self, mut work: impl FnMut(Hold, Box<RawValue>)) -> Result<ToWorker, InvalidFrame> {
        Ok(match self {
            Self::Reconcile { lease_ms, keep } => {
                ToWorker::Reconcile { lease: Duration::from_millis(lease_ms), keep: all(&keep) }
            }
            Self::Assign(jobs) => ToWorker::Assign(
                jobs.into_iter().map(|job| job.hear(&mut work)).collect::<Result<_, _>>()?,
            ),
            Self::AskToGive { question, most, most_bound, suspects_stay, queues } => {
                ToWorker::AskToGive {
                    question: QuestionNo(question),
                    most,
                    most_bound,
                    suspects: if suspects_stay { Suspects::Stay } else { Suspects::Move },
                    serves: serves(queues),
                }
            }
            Self::StartGranted(held) => ToWorker::StartGranted(held.into()),
            Self::Cancel(held) => ToWorker::Cancel(held.into()),
            Self::DrainNow => ToWorker::DrainNow,
            Self::Renewed(number) => ToWorker::Renewed(MessageNo(number)),
            Self::Accepted(jobs) => ToWorker::Accepted(all(&jobs)),
            Self::Refused { job, current } => {
                ToWorker::Refused { hold: job.into(), current: current.map(Fence) }
            }
            Self::Gone => ToWorker::Gone,
        })
    }
}

impl WireAssignment {
    /// The wire form of an assignment, with the job's payload.
    #[must_use]
    pub fn say(job: &message::Assignment, work: Box<RawValue>) -> Self {
        Self {
            job: job.hold.into(),
            id: id::job(job.id),
            queue: job.queue.to_string(),
            kind: job.kind.to_string(),
            era: job.era.0,
            rank: job.rank,
            attempt: job.attempt,
            confirm: job.start == StartMode::Confirmed,
            free_slot: job.place == Placement::FreeSlot,
            timeout_ms: job.timeout.map(|timeout| timeout.0),
            work,
        }
    }

    fn hear(
        self,
        work: &mut impl FnMut(Hold, Box<RawValue>),
    ) -> Result<message::Assignment, InvalidFrame> {
        let hold = self.job.into();
        work(hold, self.work);
        let id: JobId = id::read_job(&self.id).ok_or(InvalidFrame("malformed job id"))?;
        Ok(message::Assignment {
            hold,
            id,
            queue: Name::from(self.queue.as_str()),
            kind: Name::from(self.kind.as_str()),
            era: CommitNo(self.era),
            rank: self.rank,
            attempt: self.attempt,
            start: if self.confirm { StartMode::Confirmed } else { StartMode::Freely },
            place: if self.free_slot { Placement::FreeSlot } else { Placement::Anywhere },
            timeout: self.timeout_ms.map(Millis),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(report: &serde_json::Value) -> Report {
        let report: WireReport = serde_json::from_str(&report.to_string()).expect("a report");
        report.into_report().expect("a valid report")
    }

    #[test]
    fn the_bounds_of_reports_are_enforced() {
        let finished = |result: &str| {
            let result: serde_json::Value = serde_json::from_str(result).expect("JSON");
            heard(&serde_json::json!({"job": [1, 1], "ending": "finished", "result": result}))
        };
        let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for result in [text(limits::RESULT_BYTES), nested(limits::JSON_DEPTH)] {
            let report = finished(&result);
            assert_eq!((report.ending, report.result.is_some()), (Ending::Finished, true));
        }
        for result in [text(limits::RESULT_BYTES + 1), nested(limits::JSON_DEPTH + 1)] {
            let report = finished(&result);
            let Ending::Failed { again: Again::Never, error } = &report.ending else {
                panic!("it is no success: {report:?}");
            };
            assert!(error.to_string().starts_with("the result"), "{error}");
            assert_eq!(report.result, None);
        }
        let long = "é".repeat(limits::LOG_BYTES);
        let report = heard(
            &serde_json::json!({"job": [1, 1], "ending": "failed", "error": long, "log": long}),
        );
        let Ending::Failed { error, .. } = report.ending else { panic!("it failed") };
        assert_eq!(error.to_string().len(), limits::ERROR_BYTES);
        assert_eq!(report.log.as_deref().map(str::len), Some(limits::LOG_BYTES));
    }
}
