//! Queues, workers and the order of work, as they are shown and set.

use filch_scheduler::dispatch::{QueueView, WorkerView};
use filch_scheduler::record::{DEFAULT_AGING, Strategy};
use serde::{Deserialize, Serialize};

use crate::id;

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// Nothing is taken from it.
    pub paused: bool,
    /// At most so many of its jobs are owned at once.
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

/// A change to a queue; what is missing stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct QueueChange {
    /// Take nothing from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Own at most so many of its jobs at once; 0 for any number.
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
    /// connected, disconnected or draining.
    pub state: String,
    /// How many jobs it can run at once.
    pub slots: u32,
    /// How many it holds.
    pub held: u64,
    /// How many of these have not started, as far as is known.
    pub waiting: u32,
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

/// What a server says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Status {
    /// The version of the program.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Unfinished jobs.
    pub jobs: u64,
    /// Workers that are connected.
    pub workers: u64,
    /// The order in which jobs are taken.
    pub strategy: Order,
    /// The length of a lease in milliseconds.
    pub lease_ms: u64,
    /// Thefts that moved something since the start.
    pub steals: u64,
    /// Jobs that were moved by thefts since the start.
    pub stolen: u64,
    /// Reports that were refused because the job had changed hands.
    pub stale: u64,
    /// Workers whose lease ran out since the start.
    pub lost: u64,
    /// Commits that were made durable since the start.
    pub syncs: u64,
}
