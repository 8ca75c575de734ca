//! What a bystander sees of a run, as it happens.
//!
//! The checkers know nothing else. Nothing in here comes from inside the server or a worker: these are
//! messages, rows that became durable, processes that begin and end, and jobs that start and stop.

use std::time::Duration;

use filch_scheduler::agent::{StopReason, Verdict};
use filch_scheduler::dispatch::{Answer, Request};
use filch_scheduler::id::{CommitNo, Hold, MessageNo, RequestNo, SessionNo, WorkerId};
use filch_scheduler::message::{Assignment, FromWorker, Serves, ToWorker};
use filch_scheduler::record::{Mutation, Strategy};
use filch_scheduler::time::{Monotonic, Now, Wall};

use crate::plan::Paused;

/// Something that was seen.
#[derive(Clone, Copy, Debug)]
pub enum Observed<'a> {
    /// A server has started.
    ServerStarted {
        /// How long workers may be silent.
        lease: Duration,
        /// The order of work, unless the store says otherwise.
        strategy: Strategy,
    },
    /// The server's process is gone, and all its connections.
    ServerCrashed,
    /// The server looked at its clocks.
    ServerRead(Now),
    /// A request reached the server.
    Asked {
        /// Under which number.
        request: RequestNo,
        /// What it says.
        what: &'a Request,
    },
    /// The server answered a request.
    Answered {
        /// Under which number.
        request: RequestNo,
        /// What it says.
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
    /// The server heard that everything up to this commit is durable.
    Receipted(CommitNo),
    /// A batch reached the server.
    Arrived {
        /// Who says so.
        worker: WorkerId,
        /// In which session.
        session: SessionNo,
        /// Its number in the session.
        number: MessageNo,
        /// What it says.
        messages: &'a [FromWorker],
    },
    /// The server sent a batch.
    Told {
        /// To whom.
        worker: WorkerId,
        /// In which session.
        session: SessionNo,
        /// What it says.
        messages: &'a [ToWorker],
    },
    /// The server heard that a connection is gone.
    Closed {
        /// Whose.
        worker: WorkerId,
        /// Which session.
        session: SessionNo,
    },
    /// A worker's process began.
    Began {
        /// Where.
        place: usize,
        /// How many jobs it runs at once.
        slots: u32,
        /// Which queues it serves.
        serves: &'a Serves,
        /// Whether in the server's process.
        is_embedded: bool,
    },
    /// A worker sent a batch.
    Sent {
        /// From where.
        place: usize,
        /// As whom.
        worker: WorkerId,
        /// What it says.
        messages: &'a [FromWorker],
    },
    /// A batch reached a worker.
    Heard {
        /// Where.
        place: usize,
        /// The incarnation that hears it.
        worker: WorkerId,
        /// What it says.
        messages: &'a [ToWorker],
    },
    /// A job started to run.
    Started {
        /// Where.
        place: usize,
        /// The incarnation that runs it.
        worker: WorkerId,
        /// What it was given.
        assignment: &'a Assignment,
    },
    /// A running job was told to stop.
    Stopping {
        /// Where.
        place: usize,
        /// Which one.
        hold: Hold,
        /// Why.
        why: StopReason,
    },
    /// A worker's own deadline has passed: it has no right to run anything.
    PastDeadline {
        /// Where.
        place: usize,
    },
    /// Nothing of this job runs here any more.
    Ended {
        /// Where.
        place: usize,
        /// Which one.
        hold: Hold,
        /// How.
        how: ExecutionEnd,
    },
    /// A worker heard the server's word on a report of its own.
    Settled {
        /// Where.
        place: usize,
        /// On which job.
        hold: Hold,
        /// What it is.
        verdict: Verdict,
    },
    /// A worker's process was told to drain.
    Draining {
        /// Where.
        place: usize,
        /// The true moment at which its grace is over, by its own clock.
        until: Monotonic,
    },
    /// A worker's process stands still.
    Paused {
        /// Where.
        place: usize,
        /// What its jobs do meanwhile.
        jobs: Paused,
    },
    /// It goes on.
    Resumed {
        /// Where.
        place: usize,
    },
    /// A worker's process is gone, with all that ran in it.
    Crashed {
        /// Where.
        place: usize,
    },
    /// A worker's process ended by itself.
    Left {
        /// Where.
        place: usize,
    },
    /// Something is broken.
    Trouble {
        /// Where; `None` if it is the server or its store.
        place: Option<usize>,
        /// Until when.
        until: Monotonic,
    },
    /// Nothing breaks from now on.
    Healed,
    /// Nothing more will happen; the server's wall clock.
    Over(Wall),
}

/// How a run of a job ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExecutionEnd {
    /// It succeeded.
    Finished,
    /// It failed.
    Failed,
    /// It asked to be called later.
    Snoozed,
    /// It was stopped.
    Stopped,
    /// It ended with its process, or by the hand of a guardian.
    Killed,
}

/// Somebody who looks on.
pub trait Observer {
    /// Something was seen at this true moment.
    fn observe(&mut self, at: Monotonic, seen: Observed<'_>);

    /// Whether there is nothing more to look for.
    fn is_done(&self) -> bool {
        false
    }
}
