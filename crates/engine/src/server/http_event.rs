//! What workers over plain HTTP ask, and the responses.

use std::sync::Arc;
use std::time::Duration;

use filch_scheduler::id::{Fence, Hold, WorkerId};
use filch_scheduler::message::{Assignment, Report, Serves};
use filch_scheduler::name::Name;
use filch_scheduler::record::StoredText;

use super::link::LinkScope;

/// The sender of a request over plain HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpWorker {
    /// The id that it has chosen.
    pub worker: WorkerId,
    /// Identifies its process: no other one may use the same id.
    pub instance: Arc<str>,
    /// What it may do.
    pub scope: LinkScope,
}

/// A request of a worker over plain HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpAsk {
    /// Asks for jobs. Answered with [`HttpReply::Claimed`].
    Claim(HttpClaim),
    /// Renews the lease. Answered with [`HttpReply::HeartbeatDone`].
    Heartbeat {
        /// Every job that the worker was assigned and whose report is not answered yet.
        holds: Vec<Hold>,
        /// Cancelled jobs that it is stopping.
        stopping: Vec<Hold>,
    },
    /// How attempts ended. Answered with [`HttpReply::Answered`].
    Report(Vec<Report>),
    /// The worker's last request. Answered with [`HttpReply::Done`].
    Goodbye,
}

/// A request for jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpClaim {
    /// From 1. The same number gets the same answer; a higher number means that the worker has read
    /// all earlier answers, or never will.
    pub number: u64,
    /// How many jobs the worker can run at once, including those that it holds.
    pub slots: u32,
    /// Which queues it serves.
    pub serves: Serves,
    /// Every job that it was assigned and whose report is not answered yet.
    pub holds: Vec<Hold>,
    /// How long the claim may wait for jobs.
    pub wait: Duration,
}

/// The response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpReply {
    /// The jobs of a claim.
    Claimed {
        /// The jobs that the worker now owns, to be started at once, and their payloads.
        jobs: Vec<(Assignment, StoredText)>,
        /// Jobs that it listed and must stop.
        cancel: Vec<Hold>,
        /// Whether it shall finish its jobs and leave.
        drain: bool,
        /// How long it may be silent before its jobs go to others.
        lease: Duration,
    },
    /// The lease is renewed.
    HeartbeatDone {
        /// Jobs that the worker listed and owns.
        keep: Vec<Hold>,
        /// Jobs that it listed and must stop.
        cancel: Vec<Hold>,
        /// Whether it shall finish its jobs and leave.
        drain: bool,
        /// How long it may be silent before its jobs go to others.
        lease: Duration,
    },
    /// The reports are handled.
    Answered {
        /// These are durable.
        accepted: Vec<Hold>,
        /// These came too late; with the job's current fence, if there is such a job.
        refused: Vec<(Hold, Option<Fence>)>,
    },
    /// The worker has left.
    Done,
}

/// Why a request is not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpRefusal {
    /// The id is reserved for workers inside the server's process.
    ReservedId,
    /// The id belongs to a worker with another token.
    WrongToken,
    /// Another process uses the id.
    IdInUse,
    /// So many workers use plain HTTP already, which is the limit.
    TooManyWorkers(usize),
    /// The token is not valid for this queue.
    WrongQueue(Name),
    /// The token does not allow what was sent.
    NotPermitted(String),
    /// The token was revoked while the request waited.
    TokenEnded,
    /// The claim's number is old.
    OldNumber {
        /// The number of the claim.
        number: u64,
        /// The newest number of the worker.
        newest: u64,
    },
    /// The server does not know this worker, or has given its jobs to others.
    Gone,
    /// Too many requests of this worker wait, or the server cannot take what it sends.
    Busy,
}
