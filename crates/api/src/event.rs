//! Events: the live stream of the server, and the history of one job.

use serde::{Deserialize, Serialize};

use crate::time::Moment;

/// An event of the live stream. Everything in it is durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum ClusterEvent {
    /// A job was submitted.
    Submitted {
        /// When.
        at: Moment,
        /// Its id.
        id: String,
        /// Its number.
        seq: u64,
        /// Its queue.
        queue: String,
        /// Its kind.
        kind: String,
    },
    /// The state of a job changed.
    Changed {
        /// When.
        at: Moment,
        /// Its id; missing if the job was purged meanwhile.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// Its number.
        seq: u64,
        /// Its state.
        state: String,
        /// Its attempts, including the one that runs or succeeded.
        attempts: u16,
        /// Its fence.
        fence: u64,
        /// Its queue.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queue: Option<String>,
        /// Its kind.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<String>,
        /// The worker that runs it, or that still has to stop it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        worker: Option<String>,
    },
    /// Jobs changed owner.
    Moved {
        /// When.
        at: Moment,
        /// claim, steal, lost or returned.
        cause: String,
        /// The previous owner.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<String>,
        /// The new owner; missing if they are queued again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
        /// Their numbers.
        jobs: Vec<u64>,
        /// Their ids, without those of jobs that were purged meanwhile.
        #[serde(default)]
        ids: Vec<String>,
    },
    /// A worker's lease expired.
    WorkerLost {
        /// When.
        at: Moment,
        /// The worker.
        worker: String,
        /// How many jobs it held.
        jobs: u32,
    },
}

/// One entry of a job's history.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobEvent {
    /// When.
    pub at: Moment,
    /// submitted; claimed, stolen, lost, returned, when it changed hands; running; attempt-failed,
    /// attempt-snoozed, attempt-interrupted, attempt-unstarted, attempt-lost; cancel-asked,
    /// retried, prioritised; succeeded, dead, cancelled.
    pub event: String,
    /// The fence of its owner at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// The worker that owned it from then on, or that made the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The previous owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The history of one job, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobEvents {
    /// The job.
    pub id: String,
    /// Its state now.
    pub state: String,
    /// Whether the job has ended.
    pub ended: bool,
    /// The entries.
    pub events: Vec<JobEvent>,
    /// Whether older entries may be left out: of a long history, only the newest part is shown.
    #[serde(default, skip_serializing_if = "crate::job::is_false")]
    pub older_left_out: bool,
}
