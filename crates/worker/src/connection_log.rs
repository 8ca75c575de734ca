//! Logs of a worker's connection: when it is established, when it breaks, and for how long it was
//! down.

use std::time::Duration;

use filch_scheduler::id::WorkerId;
use filch_scheduler::time::Monotonic;

/// What was last logged of the connection.
#[derive(Debug, Default)]
pub(crate) enum ConnectionLog {
    /// There was no connection yet.
    #[default]
    Fresh,
    Connected,
    Disconnected {
        since: Monotonic,
    },
}

impl ConnectionLog {
    /// The server has answered.
    pub(crate) fn connected(&mut self, worker: WorkerId, now: Monotonic) {
        let id = filch_api::id::worker(worker);
        match self {
            Self::Connected => return,
            Self::Fresh => tracing::info!(worker = id, "connected to the server"),
            Self::Disconnected { since } => {
                let seconds = now.since(*since).as_secs();
                tracing::info!(worker = id, seconds, "connected again after {seconds} s");
            }
        }
        *self = Self::Connected;
    }

    /// The connection is over.
    pub(crate) fn disconnected(&mut self, worker: WorkerId, now: Monotonic) {
        if matches!(self, Self::Connected) {
            let id = filch_api::id::worker(worker);
            tracing::warn!(worker = id, "disconnected from the server; reconnecting");
            *self = Self::Disconnected { since: now };
        }
    }
}

/// A span for a log line.
pub(crate) fn span(span: Duration) -> String {
    filch_api::span::write(span)
}
