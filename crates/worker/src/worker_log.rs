//! What a worker logs about its connection, its lease and the jobs that it stops.

use std::time::Duration;

use filch_api::id;
use filch_engine::worker::WorkerLog;
use filch_scheduler::agent::StopReason;

/// Logs an event of the engine.
pub(crate) fn write(log: WorkerLog) {
    match log {
        WorkerLog::Connected { worker, after: None } => {
            tracing::info!(worker = id::worker(worker), "connected to the server");
        }
        WorkerLog::Connected { worker, after: Some(after) } => {
            let (worker, seconds) = (id::worker(worker), after.as_secs());
            tracing::info!(worker, seconds, "connected again after {seconds} s");
        }
        WorkerLog::Disconnected { worker } => {
            let worker = id::worker(worker);
            tracing::warn!(worker, "disconnected from the server; reconnecting");
        }
        WorkerLog::Draining { running, waiting, grace } => tracing::info!(
            running,
            not_started = waiting,
            grace = span(grace),
            "draining: no new jobs; waiting for running jobs"
        ),
        WorkerLog::Resting { wait } => {
            let wait = span(wait);
            tracing::warn!(wait, "the last jobs could not be started here; taking none for {wait}");
        }
        WorkerLog::Replaced { before, worker } => {
            let (before, worker) = (id::worker(before), id::worker(worker));
            tracing::warn!(worker, before, "the lease has expired; continuing as a new worker");
        }
    }
}

/// Logs that a job is stopped.
pub(crate) fn stop(why: StopReason) {
    match why {
        StopReason::Fenced => tracing::warn!("fenced: stopping a job, because the lease expired"),
        StopReason::Drained => tracing::info!("draining: the grace period is over; stopping a job"),
        StopReason::Cancelled => tracing::debug!("stopping a job: it was cancelled or reassigned"),
        StopReason::TimedOut => tracing::debug!("stopping a job: it has timed out"),
    }
}

/// A span for a log line.
pub(crate) fn span(span: Duration) -> String {
    filch_api::span::write(span)
}
