//! A job as clients see it.

use filch_scheduler::dispatch::{JobView, Novelty, Submitted, Why};
use filch_scheduler::record::{AttemptOutcome, JobRow, LeaseCause, Note, Reason};
use filch_scheduler::state::JobState;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::act::Act;
use crate::id;
use crate::submission::{RetryPolicy, Span, When, Work};
use crate::suggest::did_you_mean;
use crate::time::Moment;
use crate::turn::{Traffic, Turn};

/// A job: the summary that lists show, or everything that is stored about it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Job {
    /// The job's UUID.
    pub id: String,
    /// The job's number, which is also the cursor of lists.
    pub seq: u64,
    /// blocked, scheduled, queued, leased, running, succeeded, dead or cancelled.
    pub state: String,
    /// The job's queue.
    pub queue: String,
    /// The kind of work.
    pub kind: String,
    /// Higher is sooner.
    pub priority: i16,
    /// How many attempts have started, as far as the server knows.
    pub attempts: u16,
    /// The fencing token of its current or last owner.
    pub fence: u64,
    /// When it was submitted.
    pub submitted_at: Moment,
    /// The earliest start, if the job waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Moment>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Moment>,
    /// The worker that owns it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The progress that the job reported, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<u8>,
    /// Why it did not succeed: request, condition, failed or worker-lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The command line, if the list was asked for it; shortened if it is long.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The details, in the answer about a single job.
    // Raw JSON does not survive flattening on deserialization, so a reader deserializes a job
    // twice.
    #[serde(flatten, skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<Details>>,
}

/// What is stored about a job besides its state.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Details {
    /// The command line, if the job is a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Vec<String>>,
    /// The folder in which the command runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// The names of the command's environment variables. Their values are not shown: they may be
    /// secret.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// The arguments, as they were submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Value>))]
    pub args: Option<Box<RawValue>>,
    /// The idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The parents: jobs that must end first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// How the parents must end.
    #[serde(default)]
    pub when: When,
    /// The retry policy.
    #[serde(default)]
    pub retry: RetryPolicy,
    /// How long one attempt may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// The result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Value>))]
    pub result: Option<Box<RawValue>>,
    /// The error of the last failed attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Why the job is in its current state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Reasoning>,
    /// The changes of owner, in order.
    #[serde(default)]
    pub ledger: Vec<Ownership>,
    /// Actions of operators and clients, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acts: Vec<Act>,
    /// Attempts that did not succeed, in order.
    #[serde(default)]
    pub failures: Vec<Failure>,
    /// Whether older entries of `ledger`, `acts` and `failures` may be left out: each has the
    /// newest 500 at most, and only the newest part of a long ledger is searched.
    #[serde(default, skip_serializing_if = "is_false")]
    pub older_left_out: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde asks for")]
pub(crate) const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Why a job is in its state, or why a queue is not faster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Reasoning {
    /// A stable code for programs. For a job: blocked, held, scheduled, queued, paused, limit,
    /// no-worker, no-handler, owned, ended. For a queue: paused, idle, no-worker, limit, busy,
    /// flowing.
    pub code: String,
    /// A sentence for people.
    pub text: String,
    /// A command that would change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// For a queued job: its position in the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<Turn>,
}

/// One change of owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Ownership {
    /// The fencing token from then on.
    pub fence: u64,
    /// The new owner; missing if the job went back to its queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// claim, steal, lost or returned.
    pub cause: String,
    /// The previous owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// When.
    pub at: Moment,
    /// How this ownership ended: succeeded, failed, snoozed, interrupted, unstarted, lost,
    /// lost-among-others, stolen, returned or cancelled; missing while it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// What went wrong, if it failed or could not be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Moment>,
}

/// An attempt that did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Failure {
    /// The fencing token of the attempt.
    pub fence: u64,
    /// The worker that made the attempt.
    pub worker: String,
    /// failed, snoozed, interrupted, unstarted, lost or lost-among-others.
    pub outcome: String,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When.
    pub at: Moment,
}

/// The answer to a submitted job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Receipt {
    /// The id of the job.
    pub id: String,
    /// Its number.
    pub seq: u64,
    /// Whether this request created the job; otherwise it existed before.
    pub new: bool,
}

/// The answer to a chunk of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Chunk {
    /// How many lines have been stored so far.
    pub lines: u64,
    /// How many of this chunk's jobs are new.
    pub new: u64,
}

impl From<&Submitted> for Receipt {
    fn from(submitted: &Submitted) -> Self {
        Self {
            id: id::job(submitted.id),
            seq: submitted.seq.0,
            new: submitted.novelty == Novelty::New,
        }
    }
}

/// Reads a state, or one of the state names of other systems.
#[must_use]
pub fn states(word: &str) -> Option<Vec<JobState>> {
    let own = JobState::ALL.into_iter().find(|state| state.to_string() == word);
    Some(match word {
        "PENDING" => vec![JobState::Blocked, JobState::Scheduled],
        "QUEUED" => vec![JobState::Queued, JobState::Leased],
        "RUNNING" => vec![JobState::Running],
        "SUCCESS" | "COMPLETED" => vec![JobState::Succeeded],
        "FAILED" => vec![JobState::Dead],
        _ => vec![own?],
    })
}

/// How many attempts a job had, including the one that runs or has succeeded: the scheduler counts
/// only those that went wrong.
#[must_use]
pub fn attempts_shown(state: JobState, charged: u16) -> u16 {
    let goes_well = matches!(state, JobState::Running | JobState::Succeeded);
    charged.saturating_add(u16::from(goes_well))
}

impl Job {
    /// Reads one job with its details.
    ///
    /// # Errors
    /// If it is not a job.
    pub fn read(json: &[u8]) -> serde_json::Result<Self> {
        let job: Self = serde_json::from_slice(json)?;
        let details = serde_json::from_slice(json)?;
        Ok(Self { details: Some(details), ..job })
    }

    /// A job that is in the scheduler's memory.
    #[must_use]
    pub fn live(view: &JobView) -> Self {
        Self {
            id: id::job(view.id),
            seq: view.seq.0,
            state: view.state.to_string(),
            queue: view.queue.to_string(),
            kind: view.kind.to_string(),
            priority: view.priority,
            attempts: attempts_shown(view.state, view.attempts),
            fence: view.fence.0,
            submitted_at: Moment(view.submitted_at),
            due_at: (view.state == JobState::Scheduled).then_some(Moment(view.due)),
            ended_at: None,
            worker: view.holder.map(id::worker),
            progress: view.progress,
            reason: None,
            command: Vec::new(),
            details: None,
        }
    }

    /// A job that is only in the store.
    #[must_use]
    pub fn kept(row: &JobRow) -> Self {
        let now = &row.now;
        Self {
            id: id::job(row.spec.id),
            seq: row.seq.0,
            state: now.state.to_string(),
            queue: row.spec.queue.to_string(),
            kind: row.spec.kind.to_string(),
            priority: now.priority,
            attempts: attempts_shown(now.state, now.attempts),
            fence: now.fence.0,
            submitted_at: Moment(row.submitted_at),
            due_at: (now.state == JobState::Scheduled).then_some(Moment(now.due)),
            ended_at: now.state.is_ended().then_some(Moment(now.at)),
            worker: now.holder.map(id::worker),
            progress: None,
            reason: now.reason.map(|reason| reason_word(reason).to_owned()),
            command: Vec::new(),
            details: None,
        }
    }
}

impl Details {
    /// What the store has besides the state.
    #[must_use]
    pub fn kept(row: &JobRow, payload: &str) -> Self {
        let work: Work = serde_json::from_str(payload).unwrap_or_default();
        Self {
            run: work.run,
            dir: work.dir,
            env: work.env.into_keys().collect(),
            args: work.args,
            key: row.spec.key.as_ref().map(ToString::to_string),
            after: row.spec.parents.iter().map(|&parent| id::job(parent)).collect(),
            when: row.spec.condition.into(),
            retry: row.spec.retry.into(),
            timeout: row.spec.timeout.map(Span),
            ..Self::default()
        }
    }
}

/// How many characters of a command line a list shows.
const COMMAND_CHARS: usize = 200;

/// The words of the command in this payload, or the first of them.
#[must_use]
pub fn command_of(payload: &str) -> Vec<String> {
    let work: Work = serde_json::from_str(payload).unwrap_or_default();
    let (mut words, mut left) = (Vec::new(), COMMAND_CHARS);
    for word in work.run.unwrap_or_default() {
        let count = word.chars().count();
        if count > left {
            words.push(word.chars().take(left).chain(['…']).collect());
            break;
        }
        left -= count;
        words.push(word);
    }
    words
}

const fn reason_word(reason: Reason) -> &'static str {
    match reason {
        Reason::Request => "request",
        Reason::Condition => "condition",
        Reason::Failed => "failed",
        Reason::WorkerLost => "worker-lost",
    }
}

impl Ownership {
    /// One change of owner.
    #[must_use]
    pub fn new(
        fence: u64,
        worker: Option<filch_scheduler::id::WorkerId>,
        cause: LeaseCause,
        at: filch_scheduler::time::Wall,
    ) -> Self {
        let (word, from) = match cause {
            LeaseCause::Claim => ("claim", None),
            LeaseCause::Steal(victim) => ("steal", Some(victim)),
            LeaseCause::Lost(worker) => ("lost", Some(worker)),
            LeaseCause::Returned(worker) => ("returned", Some(worker)),
        };
        Self {
            fence,
            worker: worker.map(id::worker),
            cause: word.to_owned(),
            from: from.map(id::worker),
            at: Moment(at),
            outcome: None,
            error: None,
            ended_at: None,
        }
    }
}

impl Failure {
    /// The failed attempt in a note; `None` if the note is about something else.
    #[must_use]
    pub fn noted(at: filch_scheduler::time::Wall, note: &Note) -> Option<Self> {
        let Note::Attempt { hold, worker, outcome } = note else {
            return None;
        };
        let (word, error) = match outcome {
            AttemptOutcome::Failed(error) => ("failed", Some(error.to_string())),
            AttemptOutcome::Snoozed => ("snoozed", None),
            AttemptOutcome::Interrupted => ("interrupted", None),
            AttemptOutcome::Unstarted(error) => ("unstarted", Some(error.to_string())),
            AttemptOutcome::LostAlone => ("lost", None),
            AttemptOutcome::LostAmongOthers => ("lost-among-others", None),
        };
        Some(Self {
            fence: hold.fence.0,
            worker: id::worker(*worker),
            outcome: word.to_owned(),
            error,
            at: Moment(at),
        })
    }
}

impl Reasoning {
    /// No worker that could take the job has a handler for its kind; `waiting` jobs of this kind
    /// are ready.
    #[must_use]
    pub fn no_handler(kind: &str, waiting: u32, known: &[String]) -> Self {
        let names: Vec<&str> = known.iter().map(String::as_str).collect();
        let near = did_you_mean(kind, &names);
        let wait = match waiting {
            0 => String::new(),
            1 => " (1 job waits)".to_owned(),
            count => format!(" ({count} jobs wait)"),
        };
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Self {
            code: "no-handler".to_owned(),
            text: format!("no worker handles kind {kind:?}{wait}{near}"),
            help: Some(format!("start a worker that handles it; connected workers handle {known}")),
            turn: None,
        }
    }

    /// The same, with the reason why the last worker that had the job could not start it.
    #[must_use]
    pub fn after(mut self, last: Option<&Failure>) -> Self {
        let waits = !matches!(self.code.as_str(), "owned" | "ended");
        if let Some(Failure { worker, error: Some(error), outcome, .. }) = last
            && waits
            && outcome == "unstarted"
        {
            self.text.push_str(&format!("; worker {worker} could not start it: {error}"));
        }
        self
    }

    /// The scheduler's reason as a sentence; for a queued job, with its position.
    #[must_use]
    pub fn of(why: &Why, traffic: Traffic) -> Self {
        let turn = |ahead| Turn::new(ahead, traffic);
        let (code, text, help) = match why {
            Why::Blocked { waiting_for, pending, held, .. } => {
                let first: Vec<String> = waiting_for
                    .iter()
                    .take(3)
                    .map(|parent| format!("{} ({})", id::short(parent.id), parent.state))
                    .collect();
                let names = first.join(", ");
                if *held {
                    let text = "a parent failed, so its condition can no longer be met";
                    ("held", text.to_owned(), Some("cancel it, or retry a parent".to_owned()))
                } else {
                    let more = (*pending as usize).saturating_sub(first.len());
                    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                    ("blocked", format!("waits for {names}{more}"), None)
                }
            }
            Why::NotBefore { due, attempts: 0 } => {
                ("scheduled", format!("not before {}", Moment(*due)), None)
            }
            Why::NotBefore { due, attempts } => {
                let plural = if *attempts == 1 { "" } else { "s" };
                let due = Moment(*due);
                let text = format!("{attempts} attempt{plural} failed; next attempt at {due}");
                ("scheduled", text, None)
            }
            Why::Queued { queue, paused: true, .. } => (
                "paused",
                format!("queue {queue} is paused"),
                Some(format!("filch queue resume {queue}")),
            ),
            Why::Queued { queue, workers: 0, .. } => (
                "no-worker",
                format!("no worker serves queue {queue}"),
                Some(format!("filch worker start --queues {queue}")),
            ),
            Why::Queued { queue, limit: Some((owned, limit)), ahead, .. } if owned >= limit => {
                let turn = turn(*ahead).text(*ahead, "");
                let text = format!("queue {queue} has {owned} of {limit} slots busy; {turn}");
                ("limit", text, Some(format!("filch queue set {queue} --limit N")))
            }
            Why::Queued { queue, ahead, .. } => {
                let place = format!(" in queue {queue}");
                ("queued", turn(*ahead).text(*ahead, &place), None)
            }
            Why::Owned { worker, started, connected, .. } => {
                let worker = id::worker(*worker);
                let doubt = if *connected { "" } else { ", which has lost its connection" };
                let text = match started {
                    true => format!("running on worker {worker}{doubt}"),
                    // Workers report a start only if the job runs for a while.
                    false => {
                        format!("assigned to worker {worker}{doubt}; waiting for a free slot")
                    }
                };
                ("owned", text, None)
            }
            Why::Ended { state, held_by: Some(worker) } => (
                "ended",
                format!("it is {state}; worker {} is stopping it", id::worker(*worker)),
                None,
            ),
            Why::Ended { state, .. } => ("ended", format!("it is {state}"), None),
        };
        let turn = match why {
            // The queue does not move now, whatever its recent throughput was.
            Why::Queued { paused: true, ahead, .. } | Why::Queued { workers: 0, ahead, .. } => {
                Some(Turn::new(*ahead, Traffic::default()))
            }
            Why::Queued { ahead, .. } => Some(turn(*ahead)),
            _ => None,
        };
        Self { code: code.to_owned(), text, help, turn }
    }
}

#[cfg(test)]
mod tests {
    use filch_scheduler::time::Wall;

    use super::*;

    #[test]
    fn one_attempt_is_not_many() {
        let text = |attempts| {
            Reasoning::of(&Why::NotBefore { due: Wall(0), attempts }, Traffic::default()).text
        };
        assert_eq!(text(0), "not before 1970-01-01T00:00:00Z");
        assert_eq!(text(1), "1 attempt failed; next attempt at 1970-01-01T00:00:00Z");
        assert_eq!(text(2), "2 attempts failed; next attempt at 1970-01-01T00:00:00Z");
    }

    #[test]
    fn of_a_long_command_the_beginning_is_told() {
        assert_eq!(command_of(r#"{"run": ["./a.sh", "b c"]}"#), ["./a.sh", "b c"]);
        assert_eq!(command_of(r#"{"args": 1}"#), [""; 0]);
        let long = "ä".repeat(COMMAND_CHARS);
        let told = command_of(&format!(r#"{{"run": ["x", "{long}", "y"]}}"#));
        assert_eq!(told, ["x".to_owned(), "ä".repeat(COMMAND_CHARS - 1) + "…"]);
    }
}
