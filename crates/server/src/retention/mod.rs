//! Retention: purging jobs that ended long ago, and trimming the history that is left of them, a
//! slice at a time.
//!
//! No task sleeps and polls. While anything is overdue, a slice follows every few commits; this
//! alone guarantees that retention keeps up. In addition, idle moments of the server that a lottery
//! picks run slices within a budget. One slice runs at a time. It proposes what it found to the
//! scheduler, which decides by commit.
//!
//! `jobs` is what a slice does, `turns` counts the commits between slices.

mod jobs;
mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use filch_recruit::{AsyncSideJob, Duty, Rate, Recruiter, SideFuture, Slice};
use filch_scheduler::dispatch::DispatchEvent;
use filch_scheduler::time::Now;
use filch_store::{PurgeCause, Store};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

pub(crate) use self::jobs::Found;
use self::jobs::{JOBS, RetentionJob, RetentionJobs, SliceBounds};
use self::turns::RECRUITED_JOBS;
pub(crate) use self::turns::Turns;
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

/// Something for the scheduler to decide.
pub(crate) struct Proposal {
    pub(crate) event: DispatchEvent,
    /// Why jobs should be purged.
    pub(crate) cause: Option<PurgeCause>,
    /// Receives the number of removed rows, once their removal is durable.
    pub(crate) decided: oneshot::Sender<u64>,
}

/// The share of its time that the server may spend on slices in idle moments.
pub(crate) const IDLE_SPARE: f64 = 0.2;

/// How long a slice in an idle moment should last, and how long it may.
const SLICE: Duration = Duration::from_millis(20);
const SLICE_MAX: Duration = Duration::from_millis(100);

/// The name of slices that follow commits: they run whichever job is due.
const DUE: &str = "due";

/// While a job of retention is due, an idle server has an idle moment this often.
const MOMENTS_EVERY: Duration = Duration::from_millis(10);

/// Runs slices of retention, and counts them.
pub(crate) struct Retention {
    side_work: SideWork,
    jobs: Arc<RetentionJobs>,
    /// For idle moments of the server.
    idle: Recruiter,
    turns: Slices,
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
        store: Arc<dyn Store>,
        clock: Clock,
        retention: Duration,
        proposals: UnboundedSender<Proposal>,
    ) -> Self {
        let jobs = Arc::new(RetentionJobs::new(store, clock, retention, proposals));
        let mut idle = Recruiter::builder().budget(SLICE, SLICE_MAX).time_share(IDLE_SPARE);
        for job in JOBS {
            let (least, most) = job.rates();
            let recruited = Recruited { jobs: Arc::clone(&jobs), job };
            idle = idle.async_job(job.name(), most, recruited).adaptive(least, most);
        }
        let idle = idle.build().expect("few jobs with small rates");
        Self { side_work, jobs, idle, turns: Slices::default() }
    }

    /// Called after a commit was handed over; starts a slice if enough commits were made since the
    /// last one. Must be called within a runtime.
    pub(crate) fn after_commit(self: &Arc<Self>, turns: &mut Turns, now: Now) {
        if !turns.has_come() || !self.jobs.may_begin(now) || self.jobs.is_resting(now) {
            return;
        }
        let retention = Arc::clone(self);
        // Retention must keep up with new jobs, so there is no time limit; a pause follows the
        // slice.
        let bounds = SliceBounds { rows: turns.take(), until: None };
        tokio::spawn(async move { retention.take_turn(bounds).await });
    }

    async fn take_turn(&self, bounds: SliceBounds) {
        let began = std::time::Instant::now();
        let count = match self.jobs.run_due(bounds).await {
            Ok(Duty::Done) => &self.turns.done,
            Ok(Duty::NoWork) => &self.turns.no_work,
            // It is logged. If the store is broken, the scheduler's next read or commit fails too.
            Err(_) => &self.turns.failed,
        };
        count.fetch_add(1, Relaxed);
        self.turns.nanos.fetch_add(began.elapsed().as_nanos() as u64, Relaxed);
    }

    /// Called when no request waits for the scheduler; the recruiter decides whether a slice runs.
    /// Must be called within a runtime.
    pub(crate) fn idle_moment(self: &Arc<Self>, now: Now) {
        if self.uses_idle_moments() && self.jobs.may_begin(now) {
            let retention = Arc::clone(self);
            tokio::spawn(async move { _ = retention.idle.enlist_async().await });
        }
    }

    /// When the next idle moment is wanted, if any is.
    pub(crate) fn next_moment(&self, now: Now) -> Option<Duration> {
        (self.uses_idle_moments() && self.jobs.are_due(now)).then_some(MOMENTS_EVERY)
    }

    fn uses_idle_moments(&self) -> bool {
        self.side_work == SideWork::InIdleMoments
    }

    /// How long ended jobs are kept.
    pub(crate) fn period(&self) -> Duration {
        self.jobs.retention()
    }

    /// For how long the oldest job that can be purged has been overdue, if there is one, as of the
    /// last look.
    pub(crate) fn overdue(&self) -> Option<Duration> {
        self.jobs.overdue()
    }

    /// Totals of all slices.
    pub(crate) fn found(&self) -> Found {
        self.jobs.found()
    }

    /// Statistics of all slices, by what started them and their job.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let stats = self.idle.stats();
        let idle = stats.jobs.iter().map(|job| Row {
            job: job.id.clone(),
            place: Place::Idle,
            rate: Some(f64::from(job.parts_per_million) / 1e6),
            bounds: JOBS.iter().find(|known| known.name() == job.id).map(|known| known.rates()),
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

/// A slice of one job in an idle moment.
struct Recruited {
    jobs: Arc<RetentionJobs>,
    job: RetentionJob,
}

impl AsyncSideJob for Recruited {
    fn recruited<'a>(&'a self, slice: &'a mut Slice) -> SideFuture<'a> {
        let bounds = SliceBounds { rows: RECRUITED_JOBS, until: Some(slice.deadline()) };
        Box::pin(self.jobs.slice(self.job, bounds))
    }
}
