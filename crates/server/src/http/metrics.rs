//! `/metrics`: metrics that were counted as things happened (`crate::metrics`), and metrics that
//! are computed on request. The longest queues are shown separately, the others together.

use axum::extract::State as Given;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use filch_metrics::{MetricKind, MetricsPage};
use filch_scheduler::dispatch::{Counters, Dispatch, QueueView};

use super::extract::{Nothing, Params};
use super::{Failure, State};
use crate::metrics::OTHERS;
use crate::retention::Retention;

/// How many queues are shown separately: the longest.
const QUEUES_MAX: usize = 200;

/// Metrics that are computed on request.
struct Seen {
    jobs: usize,
    counters: Counters,
    /// The longest queues, and the sums of the others.
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

    fn write(&self, page: &mut MetricsPage) {
        page.single("filch_jobs", MetricKind::Gauge, "Jobs that have not ended.", self.jobs);
        let name = "filch_queue_depth";
        page.describe(
            name,
            MetricKind::Gauge,
            "Jobs in a queue: queued (ready to run), and owned by workers.",
        );
        for view in &self.queues {
            let queue = view.settings.queue.as_str();
            page.sample(name, &[("queue", queue), ("state", "queued")], view.ready);
            page.sample(name, &[("queue", queue), ("state", "owned")], view.owned);
        }
        if self.others != (0, 0) {
            page.sample(name, &[("queue", OTHERS), ("state", "queued")], self.others.0);
            page.sample(name, &[("queue", OTHERS), ("state", "owned")], self.others.1);
        }
        page.describe("filch_workers", MetricKind::Gauge, "Workers whose lease has not expired.");
        for (count, state) in self.workers.iter().zip(["connected", "disconnected", "draining"]) {
            page.sample("filch_workers", &[("state", state)], count);
        }
        page.single(
            "filch_worker_slots",
            MetricKind::Gauge,
            "Slots of all workers: how many jobs they can run at once.",
            self.slots,
        );
        page.single("filch_worker_jobs", MetricKind::Gauge, "Jobs that workers hold.", self.held);
        let counters = &self.counters;
        let name = "filch_steals_total";
        page.describe(
            name,
            MetricKind::Counter,
            "Attempts to steal jobs from another worker, by result.",
        );
        page.sample(name, &[("result", "moved")], counters.steals);
        page.sample(name, &[("result", "empty")], counters.steals_empty);
        for (name, help, count) in [
            ("filch_jobs_claimed_total", "Jobs taken from queues by workers.", counters.claimed),
            ("filch_jobs_stolen_total", "Jobs moved by stealing.", counters.stolen),
            ("filch_leases_lost_total", "Workers whose lease expired.", counters.lost),
            (
                "filch_reports_stale_total",
                "Reports with a stale fencing token, refused.",
                counters.stale,
            ),
            (
                "filch_batches_repeated_total",
                "Batches from workers that were received more than once.",
                counters.repeated,
            ),
            (
                "filch_sessions_hung_up_total",
                "Sessions that the server closed because of protocol errors.",
                counters.hung_up,
            ),
            (
                "filch_messages_gone_total",
                "Messages from unknown or expired workers.",
                counters.gone,
            ),
        ] {
            page.single(name, MetricKind::Counter, help, count);
        }
    }
}

/// Metrics of retention.
fn retention(page: &mut MetricsPage, retention: &Retention) {
    let found = retention.found();
    let help = "Jobs purged by retention.";
    page.single("filch_purged_total", MetricKind::Counter, help, found.jobs_purged);
    let name = "filch_trimmed_total";
    page.describe(name, MetricKind::Counter, "Rows of old history that retention removed.");
    for (what, count) in [("lease_rows", found.lease_rows_trimmed), ("notes", found.notes_trimmed)]
    {
        page.sample(name, &[("what", what)], count);
    }
    let help = "How long the oldest job that retention should have purged has been overdue; 0 if there is none.";
    let overdue = retention.overdue().unwrap_or_default().as_secs_f64();
    page.single("filch_overdue_seconds", MetricKind::Gauge, help, overdue);
    let turns = retention.turns();
    let name = "filch_commit_slices_total";
    page.describe(
        name,
        MetricKind::Counter,
        "Slices of retention that followed commits, by outcome.",
    );
    let outcomes =
        [("recruited", turns.recruited), ("no_work", turns.no_work), ("failed", turns.failed)];
    for (outcome, count) in outcomes {
        page.sample(name, &[("outcome", outcome)], count);
    }
    let help = "Total time of the slices that followed commits.";
    page.single(
        "filch_commit_slice_seconds_total",
        MetricKind::Counter,
        help,
        turns.time.as_secs_f64(),
    );
    page.append(&retention.metrics());
}

/// Metrics
///
/// In the text format of Prometheus.
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
    let seen = state.handle.look(|dispatch, _| Seen::look(dispatch)).await?;
    let mut page = MetricsPage::default();
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    page.describe("filch_info", MetricKind::Gauge, "The version of the server.");
    page.sample("filch_info", &version, 1);
    seen.write(&mut page);
    let syncs = state.store.status().syncs;
    page.single("filch_syncs_total", MetricKind::Counter, "Number of disk syncs.", syncs);
    state.metrics.write(&mut page);
    retention(&mut page, &state.retention);
    let kind = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((kind, page.into_text()).into_response())
}
