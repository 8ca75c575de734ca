//! The recruiter: callers with a moment to spare enlist, and a lottery decides which of them are
//! recruited.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::adaptive::Adaptive;
use crate::budget::{Budget, Reserved};
use crate::builder::{JobSpec, RecruiterBuilder, Timer, Work};
use crate::ending::Ending;
use crate::enlisted::EnlistCounter;
use crate::global::enlisted_before_setup;
use crate::job::{Clock, Duty, Slice};
use crate::lottery::Lottery;
use crate::stats::{Counts, JobStats, RecruiterStats};
use crate::statsd::StatsD;

/// The result of an enlist call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Enlisted<'r> {
    /// No job was drawn, or the slice gave up at once because of contention.
    Dismissed,
    /// A slice of this job did some work.
    Recruited {
        /// Its id.
        job: &'r str,
    },
    /// A slice of this job found nothing to do.
    NoWork {
        /// Its id.
        job: &'r str,
    },
    /// A slice of this job failed or panicked.
    Failed {
        /// Its id.
        job: &'r str,
    },
}

/// A set of side jobs, and the lottery that decides which enlist calls run a slice of one.
///
/// The set of jobs is fixed when the recruiter is built. A recruiter has no thread and shares no
/// state with other processes.
///
/// ```
/// use filch_recruit::{Duty, Enlisted, Rate, Recruiter};
///
/// let recruiter = Recruiter::builder().job("gc", Rate::ALL, |_: &mut _| Ok(Duty::Done)).build()?;
/// assert_eq!(recruiter.enlist(), Enlisted::Recruited { job: "gc" });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Recruiter {
    jobs: Box<[RegisteredJob]>,
    settings: Settings,
    counter: EnlistCounter,
}

/// What the builder has collected besides the jobs.
pub(crate) struct Settings {
    pub(crate) lottery: Lottery,
    pub(crate) slice: Duration,
    pub(crate) slice_max: Duration,
    /// `None` if the time is unbounded.
    pub(crate) budget: Option<Budget>,
    pub(crate) timer: Option<Timer>,
    pub(crate) statsd: Option<StatsD>,
    pub(crate) clock: Clock,
}

/// A job with its current rate and its counts.
struct RegisteredJob {
    spec: JobSpec,
    rate: Adaptive,
    counts: Counts,
}

impl fmt::Debug for Recruiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let jobs: Vec<&str> = self.jobs.iter().map(|job| job.spec.id.as_str()).collect();
        f.debug_struct("Recruiter").field("jobs", &jobs).finish_non_exhaustive()
    }
}

impl Recruiter {
    /// Starts to set up a recruiter.
    pub fn builder() -> RecruiterBuilder {
        RecruiterBuilder::default()
    }

    pub(crate) fn new(
        jobs: impl Iterator<Item = (Adaptive, JobSpec)>,
        settings: Settings,
        seed: Option<u64>,
    ) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let register = |(rate, spec)| RegisteredJob { spec, rate, counts: Counts::default() };
        let jobs = jobs.map(register).collect();
        // Relaxed: it only counts.
        let counter = EnlistCounter::new(NUMBER.fetch_add(1, Relaxed), seed);
        Self { jobs, settings, counter }
    }

    /// Enlists the calling thread, which has a moment to spare. Almost always it is dismissed at
    /// once; otherwise it runs a slice of one job. An error or a panic of the job does not reach
    /// the caller.
    pub fn enlist(&self) -> Enlisted<'_> {
        match self.draw() {
            Some(drawn) => self.run(drawn),
            None => Enlisted::Dismissed,
        }
    }

    /// Enlists the calling async task: like [`Recruiter::enlist`], but also for async jobs. With a
    /// [timer](RecruiterBuilder::timer), the time that an async job can take is bounded.
    pub async fn enlist_async(&self) -> Enlisted<'_> {
        match self.draw() {
            Some(drawn) => self.run_async(drawn).await,
            None => Enlisted::Dismissed,
        }
    }

    /// Runs a slice of the job that was drawn, sync or async.
    pub(crate) async fn run_async(&self, drawn: DrawnJob) -> Enlisted<'_> {
        let job = &self.jobs[drawn.0];
        let Work::Async(work) = &job.spec.work else { return self.run(drawn) };
        let Some(reserved) = self.reserve(job) else { return Enlisted::Dismissed };
        let mut slice = self.begin_slice();
        let work = async { work.recruited(&mut slice).await };
        let timer = self.settings.timer.as_ref();
        let end = timer.map(|timer| async { timer(self.settings.slice_max).await });
        let ending = Ending::awaited(work, end).await;
        self.finish(job, reserved, slice.used(), ending)
    }

    /// Draws for one more enlist call: the job to run a slice of, if any. It takes no lock,
    /// allocates nothing, and writes nothing that another thread writes too.
    #[inline]
    pub(crate) fn draw(&self) -> Option<DrawnJob> {
        let drawn = self.counter.enlist(self.settings.lottery)?;
        let mut below = 0;
        self.jobs
            .iter()
            .position(|job| {
                below += job.rate.parts();
                drawn < below
            })
            .map(DrawnJob)
    }

    /// Runs a slice of the job that was drawn, unless it is async.
    pub(crate) fn run(&self, drawn: DrawnJob) -> Enlisted<'_> {
        let job = &self.jobs[drawn.0];
        let Work::Sync(work) = &job.spec.work else {
            self.skip_async(job);
            return Enlisted::Dismissed;
        };
        let Some(reserved) = self.reserve(job) else { return Enlisted::Dismissed };
        let mut slice = self.begin_slice();
        let ending = Ending::of(|| work.recruited(&mut slice));
        self.finish(job, reserved, slice.used(), ending)
    }

    fn begin_slice(&self) -> Slice {
        Slice::begin(self.settings.slice, self.settings.clock)
    }

    /// Whether the job that was drawn is async.
    #[cfg(feature = "tower")]
    pub(crate) fn is_async(&self, drawn: DrawnJob) -> bool {
        matches!(self.jobs[drawn.0].spec.work, Work::Async(_))
    }

    /// Counts the draw without running a slice, because too many slices are running already.
    #[cfg(feature = "tower")]
    pub(crate) fn skip(&self, drawn: DrawnJob) {
        let job = &self.jobs[drawn.0];
        job.counts.selected();
        self.count_over_budget(job);
    }

    /// An async job was drawn by a caller that cannot await.
    fn skip_async(&self, job: &RegisteredJob) {
        let id = job.spec.id.as_str();
        job.counts.selected();
        if job.counts.not_awaited() == 0 {
            tracing::warn!(job = id, "async side job skipped: enlist for it with `enlist_async`");
        }
        if let Some(statsd) = &self.settings.statsd {
            statsd.send_draw(id, "not_awaited");
        }
    }

    fn count_over_budget(&self, job: &RegisteredJob) {
        job.counts.over_budget();
        if let Some(statsd) = &self.settings.statsd {
            statsd.send_draw(&job.spec.id, "over_budget");
        }
    }

    /// Reserves the time for a slice, if the budget has any left.
    fn reserve(&self, job: &RegisteredJob) -> Option<Reserved<'_>> {
        job.counts.selected();
        let reserved = match &self.settings.budget {
            // The load function belongs to the host. If it panics, the host counts as busy.
            Some(budget) => {
                let now = (self.settings.clock)();
                catch_unwind(AssertUnwindSafe(|| budget.reserve(now))).unwrap_or(None)
            }
            None => Some(Reserved::unbounded()),
        };
        if reserved.is_none() {
            self.count_over_budget(job);
        }
        reserved
    }

    fn finish<'r>(
        &'r self,
        job: &'r RegisteredJob,
        reserved: Reserved<'_>,
        used: Duration,
        ending: Ending,
    ) -> Enlisted<'r> {
        let RegisteredJob { spec, rate, counts } = job;
        let job = spec.id.as_str();
        let slice_max = self.settings.slice_max;
        reserved.spend(used);
        let is_overrun = used > slice_max;
        let outcome = ending.outcome();
        counts.finished(outcome, used, is_overrun);
        let enlisted = match &ending {
            Ending::Done => {
                rate.learn(Duty::Done);
                Enlisted::Recruited { job }
            }
            Ending::NoWork => {
                rate.learn(Duty::NoWork);
                Enlisted::NoWork { job }
            }
            // The slice did not find out whether there is work, so the rate stays.
            Ending::Contended => Enlisted::Dismissed,
            Ending::Failed(error) => {
                tracing::warn!(job, error, ?used, "side job failed");
                Enlisted::Failed { job }
            }
            Ending::Panicked { message: panic, location } => {
                tracing::error!(job, panic, location, ?used, "side job panicked");
                Enlisted::Failed { job }
            }
        };
        if is_overrun {
            tracing::warn!(job, ?used, max = ?slice_max, "side job exceeded its maximum slice");
        }
        if let Some(statsd) = &self.settings.statsd {
            statsd.send_slice(job, outcome, used, is_overrun);
        }
        enlisted
    }

    /// The counts so far.
    pub fn stats(&self) -> RecruiterStats {
        let jobs = self.jobs.iter().map(|job| JobStats {
            id: job.spec.id.clone(),
            parts_per_million: job.rate.parts(),
            counts: job.counts.read(),
        });
        let enlisted_before_setup = enlisted_before_setup();
        let enlisted = self.counter.count();
        RecruiterStats { enlisted, enlisted_before_setup, jobs: jobs.collect() }
    }
}

/// The index of the job that was drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrawnJob(usize);
