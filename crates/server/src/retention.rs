//! What the shell adds to retention, which the engine decides on (`filch_engine::server`): a
//! recruiter that picks idle moments of the server for slices, within a budget, and statistics.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use filch_engine::server::{RetentionJob, RetentionTotals, SliceOutcome};
use filch_recruit::{AsyncSideJob, Duty, Rate, Recruiter, SideFuture, Slice};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use crate::clock::Clock;

/// When the server does its side-work, which is retention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SideWork {
    /// Every few commits, and in idle moments of the server.
    #[default]
    InIdleMoments,
    /// Every few commits only.
    WithCommitsOnly,
}

/// An idle moment that was picked for a slice.
pub(crate) struct Moment {
    pub(crate) job: RetentionJob,
    /// When the slice should end.
    pub(crate) until: Instant,
    /// Receives how the slice ended.
    pub(crate) done: oneshot::Sender<SliceOutcome>,
}

/// How many rows a slice in an idle moment looks at.
pub(crate) const RECRUITED_ROWS: usize = 500;

/// The share of its time that the server may spend on slices in idle moments.
pub(crate) const IDLE_SPARE: f64 = 0.2;

/// How long a slice in an idle moment should last, and how long it may.
const SLICE: Duration = Duration::from_millis(20);
const SLICE_MAX: Duration = Duration::from_millis(100);

/// The name of slices that follow commits: they run whichever job is due.
const DUE: &str = "due";

/// Purged jobs are logged at most this often.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// The recruiter for idle moments, and counts of all slices.
pub(crate) struct Retention {
    side_work: SideWork,
    period: Duration,
    clock: Clock,
    /// For idle moments of the server.
    idle: Recruiter,
    turns: Slices,
    report: Mutex<Report>,
}

/// What the last slice has left behind.
#[derive(Default)]
struct Report {
    totals: RetentionTotals,
    /// Since when the oldest job that can be purged has been overdue, or when it will be, in
    /// milliseconds of the monotonic clock.
    overdue_since: Option<i64>,
    /// When purged jobs were last logged, and how many there were by then.
    logged: (Option<Instant>, u64),
}

/// Slices that follow commits.
#[derive(Default)]
struct Slices {
    done: AtomicU64,
    no_work: AtomicU64,
    failed: AtomicU64,
    nanos: AtomicU64,
}

/// Statistics of slices of one job, by what starts them.
pub(crate) struct Row {
    pub(crate) job: String,
    pub(crate) place: Place,
    pub(crate) rate: Option<f64>,
    /// The lowest and the highest rate, if it adapts.
    pub(crate) bounds: Option<(Rate, Rate)>,
    pub(crate) enlisted: u64,
    pub(crate) selected: u64,
    pub(crate) recruited: u64,
    pub(crate) no_work: u64,
    pub(crate) failed: u64,
    pub(crate) overrun: u64,
    pub(crate) over_budget: u64,
    pub(crate) time: Duration,
}

/// What starts a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Every few commits.
    Commits,
    /// An idle moment of the server.
    Idle,
}

impl Retention {
    pub(crate) fn new(
        side_work: SideWork,
        period: Duration,
        clock: Clock,
        moments: &UnboundedSender<Moment>,
    ) -> Self {
        let mut idle = Recruiter::builder().budget(SLICE, SLICE_MAX).time_share(IDLE_SPARE);
        for job in RetentionJob::ALL {
            let (least, most) = rates(job);
            let recruited = Recruited { moments: moments.clone(), job };
            idle = idle.async_job(name(job), most, recruited).adaptive(least, most);
        }
        let idle = idle.build().expect("few jobs with small rates");
        let (turns, report) = (Slices::default(), Mutex::default());
        Self { side_work, period, clock, idle, turns, report }
    }

    pub(crate) fn uses_idle_moments(&self) -> bool {
        self.side_work == SideWork::InIdleMoments
    }

    /// An idle moment: the lottery decides whether it is picked.
    pub(crate) async fn enlist(&self) {
        self.idle.enlist_async().await;
    }

    /// A slice that followed commits has ended.
    pub(crate) fn count_turn(&self, outcome: SliceOutcome, took: Duration) {
        let count = match outcome {
            SliceOutcome::Done => &self.turns.done,
            SliceOutcome::NoWork => &self.turns.no_work,
            SliceOutcome::Failed => &self.turns.failed,
        };
        count.fetch_add(1, Relaxed);
        self.turns.nanos.fetch_add(took.as_nanos() as u64, Relaxed);
    }

    /// After a slice: publishes what the engine knows, and logs how many jobs were purged, at most
    /// once a minute.
    pub(crate) fn publish(&self, totals: RetentionTotals, overdue_since: Option<i64>) {
        let mut report = self.report();
        (report.totals, report.overdue_since) = (totals, overdue_since);
        let (at, before) = report.logged;
        let total = totals.jobs_purged;
        if total > before && at.is_none_or(|at| at.elapsed() >= LOG_EVERY) {
            tracing::info!(jobs = total - before, "retention: purged jobs that ended long ago");
            report.logged = (Some(Instant::now()), total);
        }
    }

    fn report(&self) -> std::sync::MutexGuard<'_, Report> {
        self.report.lock().expect("no panic while it is locked")
    }

    /// How long ended jobs are kept.
    pub(crate) const fn period(&self) -> Duration {
        self.period
    }

    /// For how long the oldest job that can be purged has been overdue, if there is one, as of the
    /// last look.
    pub(crate) fn overdue(&self) -> Option<Duration> {
        let now = (self.clock.now().monotonic.0 / 1_000).cast_signed();
        let millis = now - self.report().overdue_since?;
        u64::try_from(millis).ok().map(Duration::from_millis)
    }

    /// Totals of all slices.
    pub(crate) fn found(&self) -> RetentionTotals {
        self.report().totals
    }

    /// Statistics of all slices, by what started them and their job.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let stats = self.idle.stats();
        let idle = stats.jobs.iter().map(|job| Row {
            job: job.id.clone(),
            place: Place::Idle,
            rate: Some(f64::from(job.parts_per_million) / 1e6),
            bounds: RetentionJob::ALL.into_iter().find(|it| name(*it) == job.id).map(rates),
            enlisted: stats.enlisted,
            selected: job.counts.selected,
            recruited: job.counts.recruited,
            no_work: job.counts.no_work,
            failed: job.counts.failed + job.counts.panicked,
            overrun: job.counts.overrun,
            over_budget: job.counts.over_budget,
            time: job.counts.time,
        });
        std::iter::once(self.turns()).chain(idle).collect()
    }

    /// Statistics of the slices that follow commits.
    pub(crate) fn turns(&self) -> Row {
        let [recruited, no_work, failed, nanos] =
            [&self.turns.done, &self.turns.no_work, &self.turns.failed, &self.turns.nanos]
                .map(|count| count.load(Relaxed));
        let slices = recruited + no_work + failed;
        Row {
            job: DUE.to_owned(),
            place: Place::Commits,
            rate: None,
            bounds: None,
            enlisted: slices,
            selected: slices,
            recruited,
            no_work,
            failed,
            overrun: 0,
            over_budget: 0,
            time: Duration::from_nanos(nanos),
        }
    }

    /// Statistics of the slices in idle moments, as text for Prometheus.
    pub(crate) fn metrics(&self) -> String {
        self.idle.stats().metrics()
    }
}

/// The name of a job in statistics.
pub(crate) const fn name(job: RetentionJob) -> &'static str {
    match job {
        RetentionJob::Purge => "retention",
        RetentionJob::Trim => "trimming",
    }
}

/// The least and the largest share of idle moments that a job gets.
fn rates(job: RetentionJob) -> (Rate, Rate) {
    let (least, most) = match job {
        RetentionJob::Purge => (50_000, 500_000),
        RetentionJob::Trim => (10_000, 250_000),
    };
    (Rate::per_million(least), Rate::per_million(most))
}

/// A slice of one job in an idle moment.
struct Recruited {
    moments: UnboundedSender<Moment>,
    job: RetentionJob,
}

impl AsyncSideJob for Recruited {
    fn recruited<'a>(&'a self, slice: &'a mut Slice) -> SideFuture<'a> {
        Box::pin(async move {
            let (done, ended) = oneshot::channel();
            let moment = Moment { job: self.job, until: slice.deadline(), done };
            self.moments.send(moment).map_err(|_| "the server is stopping")?;
            match ended.await? {
                SliceOutcome::Done => Ok(Duty::Done),
                SliceOutcome::NoWork => Ok(Duty::NoWork),
                SliceOutcome::Failed => Err("the store could not be read".into()),
            }
        })
    }
}
