//! What `/metrics` shows: what was counted as it happened (`crate::metrics`), and what is looked at when
//! somebody asks. The fullest queues are shown on their own, the others together.

use axum::extract::State as Given;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use filch_scheduler::dispatch::{Counters, Dispatch, QueueView};

use super::extract::{Nothing, Params};
use super::{Failure, State};
use crate::metrics::OTHERS;
use crate::metrics::page::Page;
use crate::retention::Retention;

/// Queues that are shown on their own: the fullest.
const QUEUES_MAX: usize = 200;

/// What is looked at when somebody asks.
struct Seen {
    jobs: usize,
    counters: Counters,
    /// The fullest queues, and what the others have together.
    queues: Vec<QueueView>,
    others: (usize, u64),
    /// Connected, disconnected, draining.
    workers: [u64; 3],
    slots: u64,
    held: u64,
}

impl Seen {
    fn look(dispatch: &Dispatch) -> Self {
        let mut queues: Vec<QueueView> = dispatch.queue_views().collect();
        queues.sort_by_key(|view| std::cmp::Reverse(view.ready + view.owned as usize));
        let beyond = queues.split_off(queues.len().min(QUEUES_MAX));
        let others = beyond.iter().fold((0, 0), |(ready, owned), view| {
            (ready + view.ready, owned + u64::from(view.owned))
        });
        let (mut workers, mut slots, mut held) = ([0; 3], 0, 0);
        for view in dispatch.worker_views() {
            let index = match (view.draining, view.connected) {
                (false, true) => 0,
                (false, false) => 1,
                (true, _) => 2,
            };
            workers[index] += 1;
            slots += u64::from(view.slots);
            held += view.held as u64;
        }
        let (jobs, counters) = (dispatch.job_count(), dispatch.counters());
        Self { jobs, counters, queues, others, workers, slots, held }
    }

    fn write(&self, page: &mut Page) {
        page.one("filch_jobs", "gauge", "Jobs that have not ended.", self.jobs);
        let name = "filch_queue_depth";
        page.describe(name, "gauge", "Jobs that are ready, and jobs that workers own.");
        for view in &self.queues {
            let queue = view.settings.queue.as_str();
            page.sample(name, &[("queue", queue), ("state", "queued")], view.ready);
            page.sample(name, &[("queue", queue), ("state", "owned")], view.owned);
        }
        if self.others != (0, 0) {
            page.sample(name, &[("queue", OTHERS), ("state", "queued")], self.others.0);
            page.sample(name, &[("queue", OTHERS), ("state", "owned")], self.others.1);
        }
        page.describe("filch_workers", "gauge", "Workers whose lease has not run out.");
        for (count, state) in self.workers.iter().zip(["connected", "disconnected", "draining"]) {
            page.sample("filch_workers", &[("state", state)], count);
        }
        page.one("filch_worker_slots", "gauge", "Jobs that they can run at once.", self.slots);
        page.one("filch_worker_jobs", "gauge", "Jobs that they hold.", self.held);
        let counters = &self.counters;
        let name = "filch_steals_total";
        page.describe(name, "counter", "Questions for others' jobs: moved some, or brought none.");
        page.sample(name, &[("result", "moved")], counters.steals);
        page.sample(name, &[("result", "empty")], counters.steals_empty);
        for (name, help, count) in [
            ("filch_jobs_claimed_total", "Jobs taken from queues by workers.", counters.claimed),
            ("filch_jobs_stolen_total", "Jobs moved by thefts.", counters.stolen),
            ("filch_leases_lost_total", "Workers whose lease ran out.", counters.lost),
            ("filch_reports_stale_total", "Words that came too late.", counters.stale),
            ("filch_batches_repeated_total", "Batches that came before.", counters.repeated),
            ("filch_sessions_hung_up_total", "Sessions that made no sense.", counters.hung_up),
            ("filch_messages_gone_total", "Words of unknown workers.", counters.gone),
        ] {
            page.one(name, "counter", help, count);
        }
    }
}

/// What was forgotten, and what should have been; slices that followed commits, and those of recruits.
fn retention(page: &mut Page, retention: &Retention) {
    let found = retention.found();
    let help = "Ended jobs that were forgotten after their time.";
    page.one("filch_purged_total", "counter", help, found.jobs_purged);
    let name = "filch_trimmed_total";
    page.describe(name, "counter", "Old history of which no job is kept.");
    for (what, count) in [("lease_rows", found.lease_rows_trimmed), ("notes", found.notes_trimmed)]
    {
        page.sample(name, &[("what", what)], count);
    }
    let help = "For how long the oldest job has been overdue that should have been forgotten; 0 without one.";
    let overdue = retention.overdue().unwrap_or_default().as_secs_f64();
    page.one("filch_overdue_seconds", "gauge", help, overdue);
    let turns = retention.turns();
    let name = "filch_commit_slices_total";
    page.describe(name, "counter", "Slices of side-work that followed commits.");
    let outcomes =
        [("recruited", turns.recruited), ("no_work", turns.no_work), ("failed", turns.failed)];
    for (outcome, count) in outcomes {
        page.sample(name, &[("outcome", outcome)], count);
    }
    let help = "How long they took together.";
    page.one("filch_commit_slice_seconds_total", "counter", help, turns.time.as_secs_f64());
    page.0 += &retention.metrics();
}

/// Metrics
///
/// In the text form that Prometheus reads.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "metrics",
    tag = "server",
    responses((status = 200, body = String, content_type = "text/plain"))
)]
pub(crate) async fn show(
    Given(state): Given<State>,
    Params(Nothing {}): Params<Nothing>,
) -> Result<Response, Failure> {
    let seen = state.doorbell.look(|dispatch, _| Seen::look(dispatch)).await?;
    let mut page = Page::default();
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    page.describe("filch_info", "gauge", "The program.");
    page.sample("filch_info", &version, 1);
    seen.write(&mut page);
    let deputies = state.deputies.count();
    page.one("filch_http_workers", "gauge", "Workers that come over plain HTTP.", deputies);
    let syncs = state.store.sync_count();
    page.one("filch_syncs_total", "counter", "Times that the disk was made to hold on.", syncs);
    state.metrics.write(&mut page);
    retention(&mut page, &state.retention);
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((kind, page.0).into_response())
}
