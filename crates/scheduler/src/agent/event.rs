//! The events and effects of an `agent`.

use alloc::vec::Vec;

use crate::id::{Hold, MessageNo, SessionNo, WorkerId};
use crate::message::{Assignment, FromWorker, Report, ToWorker};
use crate::time::Duration;

/// An event for an `agent`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum AgentEvent {
    /// A connection to the server was made.
    Connected,
    /// The connection broke, or could not be made.
    Disconnected,
    /// A batch of messages came.
    Received {
        /// The session that it belongs to.
        session: SessionNo,
        /// The batch's number in that session.
        number: MessageNo,
        /// The messages, in order.
        messages: Vec<ToWorker>,
    },
    /// An attempt ended, and nothing of it runs any more.
    ///
    /// It finished, failed, snoozed, or was stopped before it ended by itself. The agent decides
    /// what a stop is reported as.
    Ended(Report),
    /// A running job reported its progress.
    Progressed {
        /// Which one.
        hold: Hold,
        /// From 0 to 100.
        percent: u8,
    },
    /// A thread that runs jobs is idle.
    Idle,
    /// Graceful shutdown: start nothing more, hand back jobs that have not started, and leave when
    /// the rest is done or the grace period is over.
    Drain {
        /// How long running jobs may take.
        grace: Duration,
    },
    /// Time has passed.
    Tick,
}

/// An effect of an `agent`. The shell performs effects in order and never waits in between.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum AgentEffect {
    /// Connect to the server after this wait, then send [`AgentEvent::Connected`].
    Connect {
        /// Random, so that many workers do not reconnect at once.
        wait: Duration,
    },
    /// Close this session's connection. No [`AgentEvent::Disconnected`] is needed for it.
    Disconnect {
        /// Which one.
        session: SessionNo,
    },
    /// Send a batch in this session.
    Send {
        /// The incarnation that sends it.
        worker: WorkerId,
        /// In which session.
        session: SessionNo,
        /// The batch's number in that session.
        number: MessageNo,
        /// The messages, in order.
        messages: Vec<FromWorker>,
    },
    /// Run this job, and send [`AgentEvent::Ended`] when it is over.
    Start(Assignment),
    /// Stop this job, and send [`AgentEvent::Ended`] when nothing of it runs any more.
    Stop {
        /// Which one.
        hold: Hold,
        /// Why.
        why: StopReason,
    },
    /// The server answered the report of this job.
    Answered {
        /// Which one.
        hold: Hold,
        /// The answer.
        verdict: Verdict,
    },
    /// The worker can end.
    Leave,
}

/// Why a running job is stopped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StopReason {
    /// It was cancelled, or another worker owns it now.
    Cancelled,
    /// It exceeded its timeout.
    TimedOut,
    /// The worker is shutting down, and the grace period is over.
    Drained,
    /// The worker fenced itself: it may no longer own jobs.
    Fenced,
}

/// The server's answer to a report.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    /// It is durable.
    Accepted,
    /// It came too late: the job has changed hands.
    Refused,
}
