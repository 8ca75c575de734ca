//! What happens, as it is told to whoever listens.

use filch_scheduler::record::{Cause, Mutation, Note};
use serde::{Deserialize, Serialize};

use crate::id;

/// One thing that has happened and is durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A job was submitted.
    Submitted {
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
        /// Its number.
        seq: u64,
        /// Its state.
        state: String,
        /// Its attempts.
        attempts: u16,
        /// Its fence.
        fence: u64,
    },
    /// Jobs changed hands.
    Moved {
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
    },
    /// A worker's lease ran out.
    WorkerLost {
        /// Which one.
        worker: String,
        /// How many jobs it held.
        jobs: u32,
    },
}

impl Event {
    /// What a mutation tells; `None` if nobody need know.
    #[must_use]
    pub fn of(mutation: &Mutation) -> Option<Self> {
        Some(match mutation {
            Mutation::Put(row) => Self::Submitted {
                id: id::job(row.spec.id),
                seq: row.seq.0,
                queue: row.spec.queue.to_string(),
                kind: row.spec.kind.to_string(),
            },
            Mutation::Write(write) => Self::Changed {
                seq: write.job.0,
                state: write.state.to_string(),
                attempts: write.attempts,
                fence: write.fence.0,
            },
            Mutation::Lease(row) => {
                let (cause, from) = match row.cause {
                    Cause::Claim => ("claim", None),
                    Cause::Steal(worker) => ("steal", Some(worker)),
                    Cause::Lost(worker) => ("lost", Some(worker)),
                    Cause::Returned(worker) => ("returned", Some(worker)),
                };
                Self::Moved {
                    cause: cause.to_owned(),
                    from: from.map(id::worker),
                    to: row.worker.map(id::worker),
                    jobs: row.jobs.iter().map(|hold| hold.job.0).collect(),
                }
            }
            Mutation::Note(Note::WorkerLost { worker, jobs }) => {
                Self::WorkerLost { worker: id::worker(*worker), jobs: *jobs }
            }
            _ => return None,
        })
    }
}
