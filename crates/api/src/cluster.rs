//! Queues, workers and the scheduling strategy, as clients see and set them.

use filch_scheduler::dispatch::{QueueSnapshot, QueueView, WorkerView};
use filch_scheduler::record::{DEFAULT_AGING, Strategy};
use serde::{Deserialize, Serialize};

use crate::act::Act;
use crate::id;
use crate::job::Reasoning;
use crate::submission::Span;
use crate::time::Moment;

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// Whether it is paused: no job of it is started.
    pub paused: bool,
    /// The concurrency limit: how many of its jobs workers may own at once.
    pub limit: Option<u32>,
    /// Its share, under the strategy `fair`.
    pub weight: u32,
    /// Jobs that are ready.
    pub ready: u64,
    /// Jobs that workers own.
    pub owned: u32,
}

impl From<&QueueView> for Queue {
    fn from(view: &QueueView) -> Self {
        Self {
            name: view.settings.queue.to_string(),
            paused: view.settings.paused,
            limit: view.settings.limit,
            weight: view.settings.weight,
            ready: view.ready as u64,
            owned: view.owned,
        }
    }
}

/// A change to a queue. Missing fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct QueueUpdate {
    /// Pause or resume it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// The concurrency limit; 0 removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Its share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1))]
    pub weight: Option<u32>,
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Worker {
    /// Its id.
    pub id: String,
    /// Its name, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// connected, disconnected or draining.
    pub state: String,
    /// How many jobs it can run at once.
    pub slots: u32,
    /// How many it holds.
    pub held: u64,
    /// How many of these have not started, as far as the server knows.
    pub waiting: u32,
    /// The queues it serves; all if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<Vec<String>>,
    /// The kinds of jobs it has handlers for, if it announced them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kinds: Option<Vec<String>>,
    /// Its process id, if it announced it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// How to stop a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct WorkerStop {
    /// The grace period for running jobs. `0s` stops at once; if missing, the worker's own applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<Span>,
}

/// A queue with details.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct QueueDetail {
    /// The summary that lists show.
    #[serde(flatten)]
    pub queue: Queue,
    /// How many of its jobs are in which state.
    pub depth: Depth,
    /// The ready job that was submitted first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Waiting>,
    /// The workers that own jobs of it, and how many.
    pub holders: Vec<Holding>,
    /// How many workers serve it.
    pub workers: u64,
    /// How many jobs these can run at once.
    pub slots: u64,
    /// Jobs that ended within the last minute.
    pub ended_last_minute: u64,
    /// Why it is not faster.
    pub why: Reasoning,
    /// The last changes of its settings, the newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acts: Vec<Act>,
}

/// How many jobs are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Depth {
    /// Waiting for parents.
    pub blocked: u64,
    /// Waiting for their start time.
    pub scheduled: u64,
    /// Ready to start.
    pub queued: u64,
    /// Assigned to a worker and not known to have started.
    pub leased: u64,
    /// Running, or being stopped.
    pub running: u64,
}

/// A job that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Waiting {
    /// Its id.
    pub id: String,
    /// When it was submitted.
    pub submitted_at: Moment,
}

/// A worker that owns jobs of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Holding {
    /// The worker.
    pub worker: String,
    /// How many jobs it owns.
    pub held: u32,
}

/// Which jobs of a queue to cancel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Purge {
    /// The states of the jobs to cancel: blocked, scheduled, queued, leased, running. If missing,
    /// every job that has not started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub states: Option<Vec<String>>,
    /// Only count them.
    #[serde(default)]
    pub dry_run: bool,
}

impl QueueDetail {
    /// From a snapshot of the scheduler and the number of jobs that ended in the last minute.
    #[must_use]
    pub fn new(line: &QueueSnapshot, ended_last_minute: u64) -> Self {
        let QueueSnapshot { view, .. } = line;
        Self {
            queue: Queue::from(view),
            depth: Depth {
                blocked: line.blocked,
                scheduled: line.scheduled,
                queued: view.ready as u64,
                leased: line.leased.into(),
                running: view.owned.saturating_sub(line.leased).into(),
            },
            oldest: line
                .oldest
                .as_ref()
                .map(|job| Waiting { id: id::job(job.id), submitted_at: Moment(job.submitted_at) }),
            holders: line
                .holders
                .iter()
                .map(|holder| Holding { worker: id::worker(holder.worker), held: holder.held })
                .collect(),
            workers: line.serving.len() as u64,
            slots: line.slots,
            ended_last_minute,
            why: Self::why(line),
            acts: Vec::new(),
        }
    }

    /// The one thing that limits the queue's throughput.
    fn why(line: &QueueSnapshot) -> Reasoning {
        let settings = &line.view.settings;
        let (queue, owned) = (&settings.queue, line.view.owned);
        let workers = line.serving.len();
        let (code, text, help) = if settings.paused {
            let text = "the queue is paused".to_owned();
            ("paused", text, Some(format!("filch queue resume {queue}")))
        } else if line.view.ready == 0 {
            ("idle", "no job is ready to start".to_owned(), None)
        } else if workers == 0 {
            let text = "no worker serves it".to_owned();
            ("no-worker", text, Some(format!("filch worker start --queues {queue}")))
        } else if let Some(limit) = settings.limit.filter(|limit| owned >= *limit) {
            let text = format!("{owned} of its {limit} slots are busy");
            ("limit", text, Some(format!("filch queue set {queue} --limit N")))
        } else if line.free_slots == 0 {
            let text =
                format!("all {} slots of the {workers} workers that serve it are busy", line.slots);
            ("busy", text, Some(format!("filch worker start --queues {queue}")))
        } else {
            let text = format!("{} slots are free; jobs are being assigned", line.free_slots);
            ("flowing", text, None)
        };
        Reasoning { code: code.to_owned(), text, help, turn: None }
    }
}

impl From<&WorkerView> for Worker {
    fn from(view: &WorkerView) -> Self {
        let state = match (view.draining, view.connected) {
            (true, _) => "draining",
            (false, true) => "connected",
            (false, false) => "disconnected",
        };
        Self {
            id: id::worker(view.id),
            state: state.to_owned(),
            slots: view.slots,
            held: view.held as u64,
            waiting: view.leased,
            queues: view
                .queues
                .as_ref()
                .map(|names| names.iter().map(ToString::to_string).collect()),
            name: None,
            kinds: None,
            pid: None,
        }
    }
}

/// The order in which jobs are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// As they were submitted.
    Fifo,
    /// The highest priority first; a minute of waiting is worth one step.
    Priority,
    /// Queues in turn.
    RoundRobin,
    /// Queues in proportion to their weights.
    Fair,
}

impl Order {
    /// Its name.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Priority => "priority",
            Self::RoundRobin => "round-robin",
            Self::Fair => "fair",
        }
    }
}

impl From<Order> for Strategy {
    fn from(order: Order) -> Self {
        match order {
            Order::Fifo => Self::Fifo,
            Order::Priority => Self::Priority { aging: DEFAULT_AGING },
            Order::RoundRobin => Self::RoundRobin,
            Order::Fair => Self::Fair,
        }
    }
}

impl From<Strategy> for Order {
    fn from(strategy: Strategy) -> Self {
        match strategy {
            Strategy::Fifo => Self::Fifo,
            Strategy::Priority { .. } => Self::Priority,
            Strategy::RoundRobin => Self::RoundRobin,
            Strategy::Fair => Self::Fair,
        }
    }
}

/// The status of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Status {
    /// The version of the program.
    pub version: String,
    /// Its process id.
    pub pid: u32,
    /// Unfinished jobs.
    pub jobs: u64,
    /// Workers that are connected.
    pub workers: u64,
    /// The order in which jobs are taken.
    pub strategy: Order,
    /// The length of a lease in milliseconds.
    pub lease_ms: u64,
    /// Steals that moved at least one job since the start.
    pub steals: u64,
    /// Jobs that were moved by steals since the start.
    pub stolen: u64,
    /// Reports that were rejected because the job had changed its owner.
    pub stale: u64,
    /// Workers whose lease expired since the start.
    pub lost: u64,
    /// Number of disk syncs since the start.
    pub syncs: u64,
}
