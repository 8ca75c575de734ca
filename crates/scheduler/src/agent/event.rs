//! Everything that can happen to an `agent`, and everything it can cause.

use alloc::vec::Vec;

use crate::id::{Hold, MessageNo, SessionNo, WorkerId};
use crate::message::{Assignment, Ending, FromWorker, ToWorker};
use crate::time::Duration;

/// What can happen.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum AgentEvent {
    /// A connection to the server stands.
    Connected,
    /// The connection broke, or could not be made.
    Disconnected,
    /// A batch of messages came.
    Received {
        /// In which session.
        session: SessionNo,
        /// The batch's number in that session.
        number: MessageNo,
        /// What it says, in order.
        messages: Vec<ToWorker>,
    },
    /// An attempt is over: nothing of it runs any more.
    Ended {
        /// Which one.
        hold: Hold,
        /// How it ended: finished, failed, snoozed, or stopped before it ended by itself. The agent
        /// decides what a stop is reported as.
        ending: Ending,
    },
    /// A running job says how far it has come.
    Progressed {
        /// Which one.
        hold: Hold,
        /// From 0 to 100.
        percent: u8,
    },
    /// A thread that runs jobs has found nothing to do.
    Idle,
    /// Start nothing more, hand back what has not started, and leave when the rest is done or the
    /// grace is over.
    Drain {
        /// How long running jobs may take.
        grace: Duration,
    },
    /// Time has passed.
    Tick,
}

/// What an `agent` causes. The shell performs these in order and never waits in between.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum AgentEffect {
    /// Connect to the server after this wait, then say [`AgentEvent::Connected`].
    Connect {
        /// By chance, so that many workers do not come back at once.
        wait: Duration,
    },
    /// Close this session's connection. Nobody need say [`AgentEvent::Disconnected`] of it.
    Disconnect {
        /// Which one.
        session: SessionNo,
    },
    /// Send a batch in this session.
    Send {
        /// Who speaks.
        worker: WorkerId,
        /// In which session.
        session: SessionNo,
        /// The batch's number in that session.
        number: MessageNo,
        /// What to say, in order.
        messages: Vec<FromWorker>,
    },
    /// Run this job, and say [`AgentEvent::Ended`] when it is over.
    Start(Assignment),
    /// Stop this job, and say [`AgentEvent::Ended`] when nothing of it runs any more.
    Stop {
        /// Which one.
        hold: Hold,
        /// Why.
        why: StopReason,
    },
    /// The server has answered for this job; what was kept for its report can go.
    Answered {
        /// Which one.
        hold: Hold,
        /// What it said.
        verdict: Verdict,
    },
    /// Everything is done and said: the worker can end.
    Leave,
}

/// Why a running job is stopped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StopReason {
    /// Somebody does not want it any more, or it belongs to another worker by now.
    Cancelled,
    /// It took longer than it may.
    TimedOut,
    /// The worker drains, and the grace is over.
    Drained,
    /// The worker's right to own jobs has run out, or was never known.
    Fenced,
}

/// What the server said to a report.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// It is stored.
    Accepted,
    /// It came too late: the job has changed hands.
    Refused,
}
