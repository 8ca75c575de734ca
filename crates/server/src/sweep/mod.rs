//! Side-work of the server, a slice at a time: forgetting what ended long ago, and trimming the history that is
//! left of it.
//!
//! Nobody sleeps and looks again. A slice is done every few commits while anything is overdue, which is how
//! it happens at all; in addition by idle moments of the server that a lottery picks, and for idle workers
//! that have won theirs, both within a budget. One slice is under way at a time. What it finds is proposed
//! to the brain, which decides by commit.
//!
//! The files next door: `chores` what a slice does, `turns` how many commits are followed by one.

mod chores;
mod turns;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use filch_recruit::{AsyncSideJob, Duty, Rate, Recruiter, RecruiterStats, SideFuture, Slice};
use filch_scheduler::dispatch::Event;
use filch_scheduler::time::Now;
use filch_store::{PurgeCause, Store};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use self::chores::{CHORES, Chores, Most};
pub(crate) use self::chores::{Chore, Found};
use self::turns::RECRUITED_JOBS;
pub(crate) use self::turns::Turns;
use crate::clock::Clock;

/// When side-work is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SideWork {
    /// Every few commits, and in idle moments of the server and of its workers.
    #[default]
    InIdleMoments,
    /// Every few commits only.
    WithCommitsOnly,
}

/// Something that the brain is to decide upon.
pub(crate) struct Proposal {
    pub(crate) event: Event,
    /// Why jobs are to be purged.
    pub(crate) cause: Option<PurgeCause>,
    /// How much was cleared away, once that is durable.
    pub(crate) decided: oneshot::Sender<u64>,
}

/// What part of its time the server may spend on slices that idle moments, and that workers, bring about.
pub(crate) const IDLE_SPARE: f64 = 0.2;
pub(crate) const SWEEP_SPARE: f64 = 0.1;

/// How long such a slice should last, and how long it may.
const SLICE: Duration = Duration::from_millis(20);
const SLICE_MAX: Duration = Duration::from_millis(100);

/// The one side job of a worker's sweep: whatever is due.
const SWEEP: &str = "sweep";

/// An idle server has a moment to spare this often, while there is anything that it could be spared for.
const MOMENTS_EVERY: Duration = Duration::from_millis(10);

/// Does side-work, and counts it.
pub(crate) struct Sweeper {
    side_work: SideWork,
    chores: Arc<Chores>,
    /// For idle moments of the server.
    idle: Recruiter,
    /// For workers that have a moment: the lottery was theirs, the budget is ours.
    sweeps: Recruiter,
    asked: AtomicU64,
    turns: Slices,
}

/// Slices that nobody was recruited for.
#[derive(Default)]
struct Slices {
    done: AtomicU64,
    no_work: AtomicU64,
    failed: AtomicU64,
    nanos: AtomicU64,
}

/// What is known of slices of one kind.
pub(crate) struct Row {
    pub(crate) job: String,
    pub(crate) place: Place,
    pub(crate) rate: Option<f64>,
    /// The least and the most that the rate can be, if it changes.
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

/// What brings a slice about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Every few commits.
    Commits,
    /// An idle moment of the server.
    Idle,
    /// An idle moment of a worker.
    Workers,
}

impl Sweeper {
    pub(crate) fn new(
        side_work: SideWork,
        store: Arc<dyn Store>,
        clock: Clock,
        retention: Duration,
        proposals: UnboundedSender<Proposal>,
    ) -> Self {
        let chores = Arc::new(Chores::new(store, clock, retention, proposals));
        let mut idle = Recruiter::builder().budget(SLICE, SLICE_MAX).time_share(IDLE_SPARE);
        for chore in CHORES {
            let job = Recruited { chores: Arc::clone(&chores), chore: Some(chore) };
            let (least, most) = chore.rates();
            idle = idle.async_job(chore.name(), most, job).adaptive(least, most);
        }
        let job = Recruited { chores: Arc::clone(&chores), chore: None };
        let sweeps = Recruiter::builder().budget(SLICE, SLICE_MAX).time_share(SWEEP_SPARE);
        Self {
            side_work,
            chores,
            idle: idle.build().expect("few jobs with small rates"),
            sweeps: sweeps.async_job(SWEEP, Rate::ALL, job).build().expect("one job"),
            asked: AtomicU64::new(0),
            turns: Slices::default(),
        }
    }

    /// A commit was handed over: perhaps it is the turn of a slice. Must be called within a runtime.
    pub(crate) fn after_commit(self: &Arc<Self>, turns: &mut Turns, now: Now) {
        if !turns.has_come() || !self.chores.may_begin(now) || self.chores.is_resting(now) {
            return;
        }
        let sweeper = Arc::clone(self);
        // What came in has to go out, however long it takes; a rest follows.
        let most = Most { rows: turns.take(), until: None };
        tokio::spawn(async move { sweeper.take_turn(most).await });
    }

    async fn take_turn(&self, most: Most) {
        let began = std::time::Instant::now();
        let count = match self.chores.whatever_is_due(most).await {
            Ok(Duty::Done) => &self.turns.done,
            Ok(Duty::NoWork) => &self.turns.no_work,
            // If the store cannot be read, the brain meets the same trouble, and says so.
            Err(_) => &self.turns.failed,
        };
        count.fetch_add(1, Relaxed);
        self.turns.nanos.fetch_add(began.elapsed().as_nanos() as u64, Relaxed);
    }

    /// Nothing waits for the brain: who has a moment to spare enlists. Must be called within a runtime.
    pub(crate) fn idle_moment(self: &Arc<Self>, now: Now) {
        if self.has_recruits() && self.chores.may_begin(now) {
            let sweeper = Arc::clone(self);
            tokio::spawn(async move { _ = sweeper.idle.enlist_async().await });
        }
    }

    /// When the next moment to spare is wanted, should there be one, and nothing else happen before.
    pub(crate) fn next_moment(&self, now: Now) -> Option<Duration> {
        (self.has_recruits() && self.chores.are_due(now)).then_some(MOMENTS_EVERY)
    }

    fn has_recruits(&self) -> bool {
        self.side_work == SideWork::InIdleMoments
    }

    /// A worker has offered its moment. Must be called within a runtime.
    pub(crate) fn asked(self: &Arc<Self>, now: Now) {
        self.asked.fetch_add(1, Relaxed);
        if self.has_recruits() && self.chores.may_begin(now) {
            let sweeper = Arc::clone(self);
            tokio::spawn(async move { _ = sweeper.sweeps.enlist_async().await });
        }
    }

    /// How long ended jobs are kept.
    pub(crate) fn retention(&self) -> Duration {
        self.chores.retention()
    }

    /// For how long the oldest job has been overdue that nobody needs, if there was one when somebody last
    /// looked.
    pub(crate) fn overdue(&self) -> Option<Duration> {
        self.chores.overdue()
    }

    /// What slices have found.
    pub(crate) fn found(&self) -> Found {
        self.chores.found()
    }

    /// How many moments workers have offered.
    pub(crate) fn offered(&self) -> u64 {
        self.asked.load(Relaxed)
    }

    /// All slices, by what brought them about and what they were for.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let of = |stats: &RecruiterStats, place| {
            let rows = stats.jobs.iter().map(|job| Row {
                job: job.id.clone(),
                place,
                rate: Some(f64::from(job.parts_per_million) / 1e6),
                bounds: CHORES
                    .iter()
                    .find(|chore| chore.name() == job.id)
                    .map(|chore| chore.rates()),
                enlisted: stats.enlisted,
                selected: job.counts.selected,
                recruited: job.counts.recruited,
                no_work: job.counts.no_work,
                failed: job.counts.failed + job.counts.panicked,
                overrun: job.counts.overrun,
                over_budget: job.counts.over_budget,
                time: job.counts.time,
            });
            rows.collect::<Vec<_>>()
        };
        let mut rows = vec![self.turns()];
        rows.extend(of(&self.idle.stats(), Place::Idle));
        rows.extend(of(&self.sweeps.stats(), Place::Workers));
        rows
    }

    /// The slices that followed commits.
    pub(crate) fn turns(&self) -> Row {
        let [recruited, no_work, failed, nanos] =
            [&self.turns.done, &self.turns.no_work, &self.turns.failed, &self.turns.nanos]
                .map(|count| count.load(Relaxed));
        let slices = recruited + no_work + failed;
        Row {
            job: SWEEP.to_owned(),
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

    /// What recruits did, as text for Prometheus.
    pub(crate) fn metrics(&self) -> String {
        let mut stats = self.idle.stats();
        let sweeps = self.sweeps.stats();
        stats.enlisted += sweeps.enlisted;
        stats.jobs.extend(sweeps.jobs);
        stats.metrics()
    }
}

/// A slice that somebody is recruited for: of this chore, or of whatever is due.
struct Recruited {
    chores: Arc<Chores>,
    chore: Option<Chore>,
}

impl AsyncSideJob for Recruited {
    fn recruited<'a>(&'a self, slice: &'a mut Slice) -> SideFuture<'a> {
        let most = Most { rows: RECRUITED_JOBS, until: Some(slice.deadline()) };
        Box::pin(async move {
            match self.chore {
                Some(chore) => self.chores.slice(chore, most).await,
                None => self.chores.whatever_is_due(most).await,
            }
        })
    }
}
