//! What happens, as it is told to whoever listens, and what has happened to one job.

use serde::{Deserialize, Serialize};

use crate::time::Moment;

/// One thing that has happened and is durable.
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
    /// A job is in another state.
    Changed {
        /// When.
        at: Moment,
        /// Its id, unless it has been forgotten meanwhile.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// Its number.
        seq: u64,
        /// Its state.
        state: String,
        /// Its attempts, with the one that runs or has succeeded.
        attempts: u16,
        /// Its fence.
        fence: u64,
        /// Its queue.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        queue: Option<String>,
        /// Its kind.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<String>,
        /// Who runs it, or has yet to let go of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        worker: Option<String>,
    },
    /// Jobs changed hands.
    Moved {
        /// When.
        at: Moment,
        /// claim, steal, lost or returned.
        cause: String,
        /// Whom they came from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<String>,
        /// Who owns them now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
        /// Their numbers.
        jobs: Vec<u64>,
        /// Their ids, but for those that have been forgotten meanwhile.
        #[serde(default)]
        ids: Vec<String>,
    },
    /// A worker's lease ran out.
    WorkerLost {
        /// When.
        at: Moment,
        /// Which one.
        worker: String,
        /// How many jobs it held.
        jobs: u32,
    },
}

/// One thing that has happened to a job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobEvent {
    /// When.
    pub at: Moment,
    /// submitted; claimed, stolen, lost, returned, when it changed hands; running; attempt-failed,
    /// attempt-snoozed, attempt-interrupted, attempt-lost; cancel-asked, retried, prioritised;
    /// succeeded, dead, cancelled.
    pub event: String,
    /// The fence of its owner then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<u64>,
    /// Who owned it from then on, or tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Whom it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What has happened to one job, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct JobEvents {
    /// The job.
    pub id: String,
    /// Its state now.
    pub state: String,
    /// Whether nothing more will happen to it by itself.
    pub ended: bool,
    /// What has happened.
    pub events: Vec<JobEvent>,
}
