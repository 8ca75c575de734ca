//! The observable events of a run.
//!
//! The checkers use nothing else. No event comes from inside the server or a worker: they are
//! messages, rows that became durable, processes that start and end, and jobs that start and stop.

use std::time::Duration;

use filch_scheduler::agent::{StopReason, Verdict};
use filch_scheduler::dispatch::{Answer, Request};
use filch_scheduler::id::{CommitNo, Hold, JobId, MessageNo, RequestNo, SessionNo, WorkerId};
use filch_scheduler::message::{Assignment, Ending, FromWorker, Serves, ToWorker};
use filch_scheduler::record::{Mutation, StoredText, Strategy};
use filch_scheduler::time::{Monotonic, Now, Wall};

use crate::plan::Paused;

/// An observed event.
#[derive(Clone, Copy, Debug)]
pub enum Observed<'a> {
    /// A server has started.
    ServerStarted {
        /// The lease of workers.
        lease: Duration,
        /// The order in which jobs are claimed, unless the store has another one.
        strategy: Strategy,
    },
    /// The server's process has died, with all its connections.
    ServerCrashed,
    /// The server read its clocks.
    ServerRead(Now),
    /// A request reached the server.
    Asked {
        /// Its number.
        request: RequestNo,
        /// Its content.
        what: &'a Request,
    },
    /// The server answered a request.
    Answered {
        /// Its number.
        request: RequestNo,
        /// The answer.
        answer: &'a Answer,
    },
    /// A commit became durable.
    Stored {
        /// Its number.
        number: CommitNo,
        /// When it was decided: true time, and the server's clocks.
        decided: (Monotonic, Now),
        /// What it stores.
        mutations: &'a [Mutation],
    },
    /// The server learned that everything up to this commit is durable.
    Receipted(CommitNo),
    /// A batch reached the server.
    Arrived {
        /// The sender.
        worker: WorkerId,
        /// In which session.
        session: SessionNo,
        /// Its number in the session.
        number: MessageNo,
        /// The messages.
        messages: &'a [FromWorker],
    },
    /// The server sent a batch.
    Told {
        /// The receiver.
        worker: WorkerId,
        /// In which session.
        session: SessionNo,
        /// The messages.
        messages: &'a [ToWorker],
    },
    /// The server put a batch on a connection.
    Posted {
        /// The receiver.
        worker: WorkerId,
        /// The messages.
        messages: &'a [ToWorker],
        /// The payloads of the assigned jobs.
        works: &'a [(Hold, StoredText)],
    },
    /// A connection is closed, and its session must be.
    LinkGone {
        /// The worker.
        worker: WorkerId,
        /// Which session.
        session: SessionNo,
    },
    /// A stranger's batch was taken for one of this worker.
    Impersonated {
        /// The worker.
        worker: WorkerId,
    },
    /// An honest node was told that its token does not allow what it does.
    NotPermitted {
        /// The node.
        place: usize,
    },
    /// The server could not receive heartbeats for this long before now: it was suspended, or full.
    Missed(Duration),
    /// A client got the answer to a read of the live state.
    ReadReleased {
        /// The last commit that it could see.
        saw: CommitNo,
    },
    /// A client that waited for the end of a job was notified.
    Waited(JobId),
    /// The retention of the present server.
    Retention(Option<Duration>),
    /// The server learned that a connection is closed.
    Closed {
        /// The worker.
        worker: WorkerId,
        /// Which session.
        session: SessionNo,
    },
    /// A worker's process started.
    Began {
        /// The node.
        place: usize,
        /// How many jobs it runs at once.
        slots: u32,
        /// Which queues it serves.
        serves: &'a Serves,
        /// Whether it runs in the server's process.
        is_embedded: bool,
    },
    /// A worker sent a batch.
    Sent {
        /// The node.
        place: usize,
        /// The sender.
        worker: WorkerId,
        /// The messages.
        messages: &'a [FromWorker],
    },
    /// A batch reached a worker.
    Heard {
        /// The node.
        place: usize,
        /// The receiver.
        worker: WorkerId,
        /// The messages.
        messages: &'a [ToWorker],
    },
    /// A batch with several payloads has more bytes of them than a batch may have.
    Oversized {
        /// The receiver.
        worker: WorkerId,
        /// How many bytes.
        bytes: usize,
    },
    /// A job started to run.
    Started {
        /// The node.
        place: usize,
        /// The worker that runs it.
        worker: WorkerId,
        /// Its assignment.
        assignment: &'a Assignment,
    },
    /// A running job was told to stop.
    Stopping {
        /// The node.
        place: usize,
        /// Which one.
        hold: Hold,
        /// Why.
        why: StopReason,
    },
    /// A worker's own deadline has passed: it must not run anything any more.
    PastDeadline {
        /// The node.
        place: usize,
    },
    /// The execution of a job has ended.
    Ended {
        /// The node.
        place: usize,
        /// Which one.
        hold: Hold,
        /// How.
        how: ExecutionEnd,
    },
    /// A worker received the server's answer to a report.
    Settled {
        /// The node.
        place: usize,
        /// The job.
        hold: Hold,
        /// The answer.
        verdict: Verdict,
    },
    /// A worker's process was told to drain.
    Draining {
        /// The node.
        place: usize,
        /// The true time at which its grace period ends, by its own clock.
        until: Monotonic,
    },
    /// A worker's process was suspended.
    Paused {
        /// The node.
        place: usize,
        /// What its jobs do meanwhile.
        jobs: Paused,
    },
    /// It was resumed.
    Resumed {
        /// The node.
        place: usize,
    },
    /// A worker's process died, with all jobs that ran in it.
    Crashed {
        /// The node.
        place: usize,
    },
    /// A worker's process exited.
    Left {
        /// The node.
        place: usize,
    },
    /// A fault.
    Trouble {
        /// The node; `None` for the server or its store.
        place: Option<usize>,
        /// Until when.
        until: Monotonic,
    },
    /// Everything is repaired; no more faults follow.
    Healed,
    /// The run is over; the server's wall clock.
    Over(Wall),
}

/// How an execution of a job ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExecutionEnd {
    /// It succeeded.
    Finished,
    /// It failed.
    Failed,
    /// It snoozed: it asked to run again later.
    Snoozed,
    /// It was stopped.
    Stopped,
    /// It died with its process, or a guardian killed it.
    Killed,
}

impl From<&Ending> for ExecutionEnd {
    fn from(ending: &Ending) -> Self {
        match ending {
            Ending::Finished => Self::Finished,
            Ending::Failed { .. } => Self::Failed,
            Ending::Snoozed(_) => Self::Snoozed,
            Ending::Interrupted | Ending::Unstarted(_) | Ending::Dropped | Ending::Stopped => {
                Self::Stopped
            }
        }
    }
}

/// Receives the events of a run.
pub trait Observer {
    /// An event happened at this true time.
    fn observe(&mut self, at: Monotonic, seen: Observed<'_>);

    /// Whether the run can stop early.
    fn is_done(&self) -> bool {
        false
    }
}
