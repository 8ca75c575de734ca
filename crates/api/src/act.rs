//! The audit trail: who changed what, when, and with which token.

use filch_scheduler::dispatch::QueueChange;
use filch_scheduler::name::Name;
use filch_scheduler::record::{Note, OperatorAct};
use filch_scheduler::time::Wall;
use serde::{Deserialize, Serialize};

use crate::cluster::Order;
use crate::id;
use crate::time::Moment;

/// One entry of the audit trail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Act {
    /// When.
    pub at: Moment,
    /// A job was cancelled, retried or prioritised; a queue was paused, resumed, limited or
    /// weighted; the strategy was set (strategy); a worker was drained; a token was created
    /// (token-created) or revoked (token-revoked).
    pub act: String,
    /// Who: the name and the id of a token. Missing if no token was needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The queue, or the queue of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// The id of the token that was created or revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The new value: a priority, a limit (`none` for none), a weight, a strategy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// A page of the audit trail, the newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Acts {
    /// What was done.
    pub acts: Vec<Act>,
    /// Where the next page starts, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

impl Act {
    /// The act in a note; `None` if the note is about something else.
    #[must_use]
    pub fn noted(at: Wall, note: &Note) -> Option<Self> {
        match note {
            Note::Act { by, act } => Some(Self::new(at, by.as_ref(), act)),
            Note::Attempt { .. } | Note::WorkerLost { .. } => None,
        }
    }

    /// An act as it was recorded.
    #[must_use]
    pub fn new(at: Wall, by: Option<&Name>, act: &OperatorAct) -> Self {
        let (word, to) = match act {
            OperatorAct::Cancel(_) => ("cancelled", None),
            OperatorAct::Retry(_) => ("retried", None),
            OperatorAct::SetPriority { priority, .. } => {
                ("prioritised", Some(priority.to_string()))
            }
            OperatorAct::SetQueue { change, .. } => match change {
                QueueChange::Pause => ("paused", None),
                QueueChange::Resume => ("resumed", None),
                QueueChange::Limit(limit) => {
                    let limit = limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string());
                    ("limited", Some(limit))
                }
                QueueChange::Weight(weight) => ("weighted", Some(weight.to_string())),
            },
            OperatorAct::SetStrategy(strategy) => {
                ("strategy", Some(Order::from(*strategy).word().to_owned()))
            }
            OperatorAct::DrainWorker(_) => ("drained", None),
            OperatorAct::CreateToken(_) => ("token-created", None),
            OperatorAct::RevokeToken(_) => ("token-revoked", None),
        };
        let (queue, worker, token) = match act {
            OperatorAct::SetQueue { queue, .. } => (Some(queue.to_string()), None, None),
            OperatorAct::DrainWorker(worker) => (None, Some(id::worker(*worker)), None),
            OperatorAct::CreateToken(token) | OperatorAct::RevokeToken(token) => {
                (None, None, Some(token.to_string()))
            }
            _ => (None, None, None),
        };
        Self {
            at: Moment(at),
            act: word.to_owned(),
            by: by.map(ToString::to_string),
            job: act.job().map(id::job),
            queue,
            worker,
            token,
            to,
        }
    }

    /// The act in a few words for people.
    #[must_use]
    pub fn words(&self) -> String {
        let to = self.to.as_deref().unwrap_or("?");
        let what = match self.act.as_str() {
            "retried" => "attempts reset".to_owned(),
            "prioritised" => format!("priority set to {to}"),
            "limited" => format!("limit set to {to}"),
            "weighted" => format!("weight set to {to}"),
            "strategy" => format!("strategy set to {to}"),
            "token-created" => "token created".to_owned(),
            "token-revoked" => "token revoked".to_owned(),
            other => other.to_owned(),
        };
        format!("{what} by {}", self.by.as_deref().unwrap_or("a user"))
    }
}
