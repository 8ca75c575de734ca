//! What a worker and the server say, as JSON: the protocol of `agent` and `dispatch` in numbered batches,
//! with what the brains do not look at (payloads, results, what jobs print) put beside it.
//!
//! A frame is one batch in one direction. Jobs go by number and fence, `[7, 1]`, and a job's payload is
//! the text that was submitted, untouched.

use std::sync::Arc;
use std::time::Duration;

use filch_scheduler::id::{
    CommitNo, Fence, Hold, JobId, MessageNo, QuestionNo, Seq, SessionNo, WorkerId,
};
use filch_scheduler::message::{
    self, Again, Ending, FromWorker, HelloKind, Placement, Report, Serves, StartMode, Suspects,
    ToWorker,
};
use filch_scheduler::name::Name;
use filch_scheduler::time::Millis;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::json::check_depth;
use crate::submission::Span;
use crate::{id, limits};

/// A job and the fence of its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WireHold(pub u64, pub u64);

/// What a worker sends.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpFrame {
    /// Sixteen hexadecimal digits.
    pub worker: String,
    /// Which of its connections this is, from 1.
    pub session: u64,
    /// The batch's number in this session, from 1; 0 for a frame that only brings output.
    #[serde(default)]
    pub number: u64,
    /// What it says, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<Up>,
    /// What running jobs have printed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<Output>,
    /// What the worker says of itself, when it comes. Older ones say nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<Box<About>>,
}

/// What a worker says of itself: for people, and for the question why a job waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The kinds of jobs it has handlers for, if it knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kinds: Option<Vec<String>>,
    /// Its process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

impl About {
    /// Without what is too much: it is only talk, and nothing to end a session for.
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

/// What a job has printed, to be shown while it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// Which job.
    pub job: WireHold,
    /// Where.
    pub stream: OutputStream,
    /// What.
    pub text: String,
}

/// Where a job prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// One thing a worker says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Up {
    /// Opens a session.
    Hello(Box<WireHello>),
    /// Still here.
    Heartbeat,
    /// Own at most so many jobs.
    Want(u32),
    /// May this suspected job be started?
    Start(WireHold),
    /// This job has been running for a while.
    Started(WireHold),
    /// A job has left.
    Report(WireReport),
    /// These jobs have left: the attempt succeeded, and there is nothing else to say of it. So most jobs
    /// end.
    Finished(Vec<WireHold>),
    /// The answer to a question.
    Given {
        /// Which one.
        question: u64,
        /// What is given.
        jobs: Vec<WireHold>,
    },
    /// The cancelled job is being stopped.
    Stopping(WireHold),
    /// How far a running job has come.
    Progress {
        /// Which job.
        job: WireHold,
        /// From 0 to 100.
        percent: u8,
    },
    /// No more jobs.
    Drain,
    /// The last message.
    Goodbye,
}

/// How a worker introduces itself.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WireHello {
    /// Who comes.
    pub kind: WireHelloKind,
    /// How many jobs it can run at once.
    pub slots: u32,
    /// How many it wants to own at most.
    pub want: u32,
    /// The queues it serves; all if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<Vec<String>>,
    /// What it has to report.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reports: Vec<WireReport>,
    /// What has been running for a while.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub started: Vec<WireHold>,
    /// All that it holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<WireHold>,
}

/// Who comes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WireHelloKind {
    /// A new incarnation.
    New,
    /// A new incarnation in place of this one, whose work has stopped.
    Replace(String),
    /// One that was here.
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
    /// What went wrong, for people to read. Only with `failed`.
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
    /// The job was never started; it goes back to its queue.
    Dropped,
    /// The job was cancelled and has stopped.
    Stopped,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde asks for")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// What the server sends.
#[derive(Debug, Serialize, Deserialize)]
pub struct DownFrame {
    /// The session it is for.
    pub session: u64,
    /// The batch's number.
    pub number: u64,
    /// What it says, in order.
    pub messages: Vec<Down>,
    /// How long running jobs may take, if the worker is told to drain; its own grace if missing. Older
    /// workers do not look here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
}

/// One thing the server says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Down {
    /// What is truly the worker's.
    Reconcile {
        /// The length of the lease.
        lease_ms: u64,
        /// What the worker keeps.
        keep: Vec<WireHold>,
    },
    /// These jobs are the worker's.
    Assign(Vec<WireAssignment>),
    /// Give half.
    AskToGive {
        /// To be repeated.
        question: u64,
        /// At most so many.
        most: u32,
        /// At most so many that must go into a free slot.
        most_bound: u32,
        /// Suspected jobs must stay.
        suspects_stay: bool,
        /// Only of these queues; all if missing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queues: Option<Vec<String>>,
    },
    /// The suspected job may start.
    StartGranted(WireHold),
    /// The job is cancelled.
    Cancel(WireHold),
    /// Drain.
    DrainNow,
    /// Everything up to this batch has arrived.
    Renewed(u64),
    /// These reports are stored.
    Accepted(Vec<WireHold>),
    /// This report is too late.
    Refused {
        /// What was reported.
        job: WireHold,
        /// The fence the job has now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        current: Option<u64>,
    },
    /// Stop everything and come back as a new incarnation.
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

/// A frame makes no sense. The session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidFrame(pub &'static str);

/// What an attempt left behind, beside the report of its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportedOutput {
    /// Whose.
    pub hold: Hold,
    /// What it came to.
    pub result: Option<Arc<str>>,
    /// What it printed.
    pub log: Option<Arc<str>>,
}

/// A batch as the brain takes it.
#[derive(Debug)]
pub struct WorkerBatch {
    /// Who speaks.
    pub worker: WorkerId,
    /// In which session.
    pub session: SessionNo,
    /// The batch's number; 0 if there is none.
    pub number: MessageNo,
    /// What it says.
    pub messages: Vec<FromWorker>,
    /// What attempts left behind.
    pub left: Vec<ReportedOutput>,
}

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

impl UpFrame {
    /// What a worker's brain says, as a frame; `leftovers` finds what an attempt left behind.
    #[must_use]
    pub fn say(
        worker: WorkerId,
        session: SessionNo,
        number: MessageNo,
        messages: &[FromWorker],
        mut leftovers: impl FnMut(Hold) -> Option<ReportedOutput>,
    ) -> Self {
        let mut said = Vec::new();
        for message in messages {
            let up = Up::say(message, &mut leftovers);
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

    /// What the server's brain hears.
    ///
    /// # Errors
    /// If the frame makes no sense.
    pub fn hear(self) -> Result<WorkerBatch, InvalidFrame> {
        let worker =
            id::read_worker(&self.worker).ok_or(InvalidFrame("a worker's id is 16 digits"))?;
        let mut left = Vec::new();
        let mut messages = Vec::with_capacity(self.messages.len());
        for message in self.messages {
            match message {
                Up::Finished(jobs) => messages.extend(jobs.into_iter().map(|job| {
                    FromWorker::Report(Report { hold: job.into(), ending: Ending::Finished })
                })),
                other => messages.push(other.hear(&mut left)?),
            }
        }
        let (session, number) = (SessionNo(self.session), MessageNo(self.number));
        Ok(WorkerBatch { worker, session, number, messages, left })
    }
}

impl Up {
    fn say(
        message: &FromWorker,
        leftovers: &mut impl FnMut(Hold) -> Option<ReportedOutput>,
    ) -> Self {
        match message {
            FromWorker::Hello(hello) => Self::Hello(Box::new(WireHello {
                kind: match hello.kind {
                    HelloKind::New => WireHelloKind::New,
                    HelloKind::Replace(worker) => WireHelloKind::Replace(id::worker(worker)),
                    HelloKind::Resume => WireHelloKind::Resume,
                },
                slots: hello.slots,
                want: hello.want,
                queues: queues(&hello.serves),
                reports: hello
                    .reports
                    .iter()
                    .map(|report| WireReport::new(report, leftovers))
                    .collect(),
                started: all(&hello.started),
                holds: all(&hello.holds),
            })),
            FromWorker::Heartbeat => Self::Heartbeat,
            &FromWorker::Want(count) => Self::Want(count),
            &FromWorker::Start(hold) => Self::Start(hold.into()),
            &FromWorker::Started(hold) => Self::Started(hold.into()),
            FromWorker::Report(report) => match WireReport::new(report, leftovers) {
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

    fn hear(self, left: &mut Vec<ReportedOutput>) -> Result<FromWorker, InvalidFrame> {
        Ok(match self {
            Self::Hello(hello) => FromWorker::Hello(message::Hello {
                kind: match hello.kind {
                    WireHelloKind::New => HelloKind::New,
                    WireHelloKind::Replace(worker) => HelloKind::Replace(
                        id::read_worker(&worker)
                            .ok_or(InvalidFrame("a worker's id is 16 digits"))?,
                    ),
                    WireHelloKind::Resume => HelloKind::Resume,
                },
                slots: hello.slots,
                want: hello.want,
                serves: serves(hello.queues),
                reports: hello
                    .reports
                    .into_iter()
                    .map(|report| report.into_report(left))
                    .collect::<Result<_, _>>()?,
                started: all(&hello.started),
                holds: all(&hello.holds),
            }),
            Self::Heartbeat => FromWorker::Heartbeat,
            Self::Want(count) => FromWorker::Want(count),
            Self::Start(held) => FromWorker::Start(held.into()),
            Self::Started(held) => FromWorker::Started(held.into()),
            Self::Report(report) => FromWorker::Report(report.into_report(left)?),
            Self::Finished(_) => return Err(InvalidFrame("it is more than one message")),
            Self::Given { question, jobs } => {
                FromWorker::Given { question: QuestionNo(question), jobs: all(&jobs) }
            }
            Self::Stopping(held) => FromWorker::Stopping(held.into()),
            Self::Progress { job, percent } => FromWorker::Progress { hold: job.into(), percent },
            Self::Drain => FromWorker::Drain,
            Self::Goodbye => FromWorker::Goodbye,
        })
    }
}

impl WireReport {
    /// A report without details.
    #[must_use]
    pub const fn plain(job: WireHold, ending: WireEnding) -> Self {
        Self { job, ending, error: None, forever: false, wait: None, result: None, log: None }
    }

    fn new(report: &Report, output: &mut impl FnMut(Hold) -> Option<ReportedOutput>) -> Self {
        let ending = match &report.ending {
            Ending::Finished => WireEnding::Finished,
            Ending::Failed { .. } => WireEnding::Failed,
            Ending::Snoozed(_) => WireEnding::Snoozed,
            Ending::Interrupted => WireEnding::Interrupted,
            Ending::Dropped => WireEnding::Dropped,
            Ending::Stopped => WireEnding::Stopped,
        };
        let mut wire = Self::plain(report.hold.into(), ending);
        match &report.ending {
            Ending::Failed { again, error } => {
                wire.error = Some(error.to_string());
                wire.forever = *again == Again::Never;
            }
            &Ending::Snoozed(wait) => wire.wait = Some(Span(wait)),
            _ => {}
        }
        if let Some(output) = output(report.hold) {
            // A text that is not JSON never becomes a result.
            wire.result =
                output.result.and_then(|text| RawValue::from_string(text.to_string()).ok());
            wire.log = output.log.map(|text| text.to_string());
        }
        wire
    }

    /// The report for `dispatch`; its result and log go to `outputs`.
    ///
    /// filch's own worker keeps to the bounds by itself. For others they are enforced here, since a
    /// report that is rejected would be repeated for ever: texts are cut, and a result that is too
    /// large is a failure.
    ///
    /// # Errors
    /// If a snoozed report has no `wait`.
    pub fn into_report(self, outputs: &mut Vec<ReportedOutput>) -> Result<Report, InvalidFrame> {
        let hold = self.job.into();
        let excess = self.result.as_deref().and_then(|result| excess(result.get()));
        let result = self.result.filter(|_| excess.is_none());
        let log = self.log.map(|log| beginning(log, limits::LOG_BYTES));
        if result.is_some() || log.is_some() {
            outputs.push(ReportedOutput {
                hold,
                result: result.map(|result| Arc::from(result.get())),
                log: log.map(Arc::from),
            });
        }
        let ending = match (self.ending, excess) {
            (WireEnding::Finished, Some(excess)) => {
                Ending::Failed { again: Again::Never, error: excess.into() }
            }
            (WireEnding::Finished, None) => Ending::Finished,
            (WireEnding::Failed, _) => {
                let error = self.error.unwrap_or_else(|| "the worker gave no reason".into());
                Ending::Failed {
                    again: if self.forever { Again::Never } else { Again::ByPolicy },
                    error: beginning(error, limits::ERROR_BYTES).into(),
                }
            }
            (WireEnding::Snoozed, _) => {
                let wait = self.wait.ok_or(InvalidFrame("a snoozed report needs `wait`"))?;
                Ending::Snoozed(wait.0)
            }
            (WireEnding::Interrupted, _) => Ending::Interrupted,
            (WireEnding::Dropped, _) => Ending::Dropped,
            (WireEnding::Stopped, _) => Ending::Stopped,
        };
        Ok(Report { hold, ending })
    }
}

/// Why a result cannot be kept; nothing if it can.
#[must_use]
pub fn excess(result: &str) -> Option<String> {
    let (bytes, most) = (result.len(), limits::RESULT_BYTES);
    if bytes > most {
        return Some(format!(
            "the result has {bytes} bytes, and may have {most}: put it somewhere and return where it is"
        ));
    }
    check_depth(result.as_bytes()).err().map(|problem| format!("the result: {}", problem.title))
}

fn beginning(mut text: String, most: usize) -> String {
    text.truncate(text.floor_char_boundary(most));
    text
}

impl Down {
    /// What the server's brain says; `work` is what each job that is assigned has to do.
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

    /// What a worker's brain hears; what each job has to do goes to `work`.
    ///
    /// # Errors
    /// If it makes no sense.
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
    /// What the server's brain says of a job, with what it has to do.
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
        let id: JobId = id::read_job(&self.id).ok_or(InvalidFrame("a job's id is a UUID"))?;
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

    fn heard(report: &serde_json::Value) -> (Report, Vec<ReportedOutput>) {
        let mut left = Vec::new();
        let report: WireReport = serde_json::from_str(&report.to_string()).expect("a report");
        (report.into_report(&mut left).expect("a valid report"), left)
    }

    #[test]
    fn a_report_is_held_to_the_bounds_whoever_wrote_it() {
        let finished = |result: &str| {
            let result: serde_json::Value = serde_json::from_str(result).expect("JSON");
            heard(&serde_json::json!({"job": [1, 1], "ending": "finished", "result": result}))
        };
        let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for result in [text(limits::RESULT_BYTES), nested(limits::JSON_DEPTH)] {
            let (report, left) = finished(&result);
            assert_eq!((report.ending, left.len()), (Ending::Finished, 1));
        }
        for result in [text(limits::RESULT_BYTES + 1), nested(limits::JSON_DEPTH + 1)] {
            let (report, left) = finished(&result);
            let Ending::Failed { again: Again::Never, error } = report.ending else {
                panic!("it is no success: {report:?}");
            };
            assert!(error.to_string().starts_with("the result"), "{error}");
            assert_eq!(left, []);
        }
        let long = "é".repeat(limits::LOG_BYTES);
        let (report, left) = heard(
            &serde_json::json!({"job": [1, 1], "ending": "failed", "error": long, "log": long}),
        );
        let Ending::Failed { error, .. } = report.ending else { panic!("it failed") };
        assert_eq!(error.to_string().len(), limits::ERROR_BYTES);
        assert_eq!(left[0].log.as_deref().map(str::len), Some(limits::LOG_BYTES));
    }
}
