//! How a recruiter is set up: completely, before the first caller enlists.

use std::fmt;
use std::pin::Pin;
use std::time::{Duration, Instant};

use crate::adaptive::Adaptive;
use crate::budget::Budget;
use crate::job::{AsyncSideJob, Clock, SideJob};
use crate::lottery::Lottery;
use crate::rate::Rate;
use crate::recruiter::{Recruiter, Settings};
use crate::statsd::StatsD;

/// Default target and maximum duration of a slice.
const SLICE: Duration = Duration::from_millis(20);
const SLICE_MAX: Duration = Duration::from_millis(50);

/// Default fraction of time that may go into side-work.
const TIME_SHARE: f64 = 0.02;

/// Sets up a [`Recruiter`]: see [`Recruiter::builder`].
#[must_use]
pub struct RecruiterBuilder {
    jobs: Vec<JobSpec>,
    lottery: Lottery,
    slice: Duration,
    slice_max: Duration,
    /// `None` if the time is unbounded.
    time_share: Option<f64>,
    load: Option<Load>,
    timer: Option<Timer>,
    /// Whether `adaptive` was called before there was a job it could apply to.
    has_bounds_without_job: bool,
    statsd: Option<StatsD>,
    clock: Clock,
    seed: Option<u64>,
}

/// How busy the host is, from 0 to 1.
pub(crate) type Load = Box<dyn Fn() -> f64 + Send + Sync>;

/// Returns a future that completes after the given time.
pub(crate) type Timer =
    Box<dyn Fn(Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// A job and its rate.
pub(crate) struct JobSpec {
    pub(crate) id: String,
    pub(crate) rate: Rate,
    /// The lowest and the highest rate, if the rate is adaptive.
    pub(crate) bounds: Option<(Rate, Rate)>,
    pub(crate) work: Work,
}

pub(crate) enum Work {
    Sync(Box<dyn SideJob>),
    Async(Box<dyn AsyncSideJob>),
}

/// Why a recruiter could not be set up.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SetupError {
    /// A job has an empty name.
    EmptyId,
    /// Two jobs have the same name.
    DuplicateId(String),
    /// The rates of all jobs add up to more than 1.
    RatesTooHigh {
        /// Their sum, in parts per million.
        parts_per_million: u64,
    },
    /// The rate of this job is outside its own bounds.
    OutOfBounds(String),
    /// `adaptive` was called before any job was added.
    NoJobToAdapt,
    /// A slice has no time, or its target is longer than its maximum.
    BadSlice {
        /// The target duration.
        slice: Duration,
        /// The maximum duration.
        max: Duration,
    },
    /// The time share is not a number from 0 to 1.
    BadTimeShare(f64),
    /// `load` has no effect together with `unbounded`.
    LoadWithoutBudget,
    /// The process-wide recruiter has already been built.
    AlreadyBuilt,
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyId => f.write_str("a side job has an empty name: its statistics need one"),
            Self::DuplicateId(id) => write!(f, "two side jobs are named `{id}`: rename one"),
            Self::RatesTooHigh { parts_per_million } => write!(
                f,
                "the rates add up to {}, which is more than 1: lower some of them",
                *parts_per_million as f64 / f64::from(Rate::WHOLE)
            ),
            Self::OutOfBounds(id) => {
                write!(f, "the rate of `{id}` is outside its adaptive bounds: change either")
            }
            Self::NoJobToAdapt => f.write_str(
                "`adaptive` applies to the job added last, but no job was added yet: add it first",
            ),
            Self::LoadWithoutBudget => f.write_str(
                "`load` lowers the time share, but `unbounded` removes it: use only one of them",
            ),
            Self::BadSlice { slice, max } => write!(
                f,
                "invalid slice: the target {slice:?} must be more than zero and at most the maximum \
                 {max:?}"
            ),
            Self::BadTimeShare(part) => {
                write!(f, "invalid time share {part}: use a number from 0 to 1, such as 0.02")
            }
            Self::AlreadyBuilt => f.write_str(
                "the recruiter of this process was already built: build it once, at program start",
            ),
        }
    }
}

impl std::error::Error for SetupError {}

impl Default for RecruiterBuilder {
    fn default() -> Self {
        Self {
            jobs: Vec::new(),
            lottery: Lottery::default(),
            slice: SLICE,
            slice_max: SLICE_MAX,
            time_share: Some(TIME_SHARE),
            load: None,
            timer: None,
            has_bounds_without_job: false,
            statsd: None,
            clock: Instant::now,
            seed: None,
        }
    }
}

impl fmt::Debug for RecruiterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let jobs: Vec<&str> = self.jobs.iter().map(|job| job.id.as_str()).collect();
        f.debug_struct("RecruiterBuilder").field("jobs", &jobs).finish_non_exhaustive()
    }
}

impl RecruiterBuilder {
    /// Adds a job that needs this fraction of all enlist calls.
    pub fn job(self, id: impl Into<String>, rate: Rate, job: impl SideJob + 'static) -> Self {
        self.add(JobSpec { id: id.into(), rate, bounds: None, work: Work::Sync(Box::new(job)) })
    }

    /// Adds an async job. Only callers of [`Recruiter::enlist_async`] are recruited for it. If
    /// another caller is drawn, that is counted, and logged once. Set a [timer](Self::timer), or
    /// the job may take forever.
    pub fn async_job(
        self,
        id: impl Into<String>,
        rate: Rate,
        job: impl AsyncSideJob + 'static,
    ) -> Self {
        self.add(JobSpec { id: id.into(), rate, bounds: None, work: Work::Async(Box::new(job)) })
    }

    fn add(mut self, job: JobSpec) -> Self {
        self.jobs.push(job);
        self
    }

    /// Makes the rate of the job added last adaptive: it rises when slices find work and falls when
    /// they find none, between `min` and `max`.
    pub fn adaptive(mut self, min: Rate, max: Rate) -> Self {
        match self.jobs.last_mut() {
            Some(job) => job.bounds = Some((min, max)),
            None => self.has_bounds_without_job = true,
        }
        self
    }

    /// How the lottery draws.
    pub fn lottery(mut self, lottery: Lottery) -> Self {
        self.lottery = lottery;
        self
    }

    /// The target and the maximum duration of a slice; longer slices are counted as overruns. The
    /// defaults are 20 and 50 milliseconds.
    pub fn budget(mut self, slice: Duration, max: Duration) -> Self {
        self.slice = slice;
        self.slice_max = max;
        self
    }

    /// The fraction of this process's time that may go into side-work, summed over its threads. The
    /// default is 0.02, that is 2 %.
    pub fn time_share(mut self, part: f64) -> Self {
        self.time_share = Some(part);
        self
    }

    /// Removes the bound on time: every caller that is drawn runs a slice. Use it for slices that
    /// cost next to nothing, or where something else bounds them.
    pub fn unbounded(mut self) -> Self {
        self.time_share = None;
        self
    }

    /// How busy the host is, from 0 to 1: the busier, the smaller the
    /// [time share](Self::time_share). It is called each time a caller is drawn.
    pub fn load(mut self, load: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        self.load = Some(Box::new(load));
        self
    }

    /// The sleep function of your async runtime, such as `tokio::time::sleep`. An async job that is
    /// still running at the [maximum duration](Self::budget) of its slice is then dropped and
    /// counted as failed. Without a timer, the caller waits for as long as the job takes.
    pub fn timer<F>(mut self, sleep: impl Fn(Duration) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.timer = Some(Box::new(move |span| Box::pin(sleep(span))));
        self
    }

    /// Sends the result of each slice to a StatsD server.
    pub fn statsd(mut self, statsd: StatsD) -> Self {
        self.statsd = Some(statsd);
        self
    }

    /// The clock that times slices and the budget, instead of [`Instant::now`]. It is meant for
    /// tests.
    pub fn clock(mut self, now: fn() -> Instant) -> Self {
        self.clock = now;
        self
    }

    /// Makes the lottery reproducible: the n-th thread that enlists always draws the same sequence.
    /// It is meant for tests; processes with the same seed are recruited at the same moments.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Completes the set-up.
    ///
    /// # Errors
    /// If the settings contradict each other; see [`SetupError`].
    pub fn build(self) -> Result<Recruiter, SetupError> {
        self.check_jobs()?;
        let (slice, max) = (self.slice, self.slice_max);
        if slice.is_zero() || slice > max {
            return Err(SetupError::BadSlice { slice, max });
        }
        let budget = match self.time_share {
            Some(part) if !(0.0..=1.0).contains(&part) => {
                return Err(SetupError::BadTimeShare(part));
            }
            Some(part) => Some(Budget::new(part, max, self.load, self.clock)),
            None if self.load.is_some() => return Err(SetupError::LoadWithoutBudget),
            None => None,
        };
        let jobs = self.jobs.into_iter().map(|job| (Adaptive::new(job.rate, job.bounds), job));
        let settings = Settings {
            lottery: self.lottery,
            slice,
            slice_max: max,
            budget,
            timer: self.timer,
            statsd: self.statsd,
            clock: self.clock,
        };
        Ok(Recruiter::new(jobs, settings, self.seed))
    }

    fn check_jobs(&self) -> Result<(), SetupError> {
        if self.has_bounds_without_job {
            return Err(SetupError::NoJobToAdapt);
        }
        let mut sum = 0;
        for (index, job) in self.jobs.iter().enumerate() {
            if job.id.is_empty() {
                return Err(SetupError::EmptyId);
            }
            if self.jobs[..index].iter().any(|other| other.id == job.id) {
                return Err(SetupError::DuplicateId(job.id.clone()));
            }
            let most = match job.bounds {
                Some((min, max)) if !(min..=max).contains(&job.rate) => {
                    return Err(SetupError::OutOfBounds(job.id.clone()));
                }
                Some((_, max)) => max,
                None => job.rate,
            };
            sum += u64::from(most.parts_per_million());
        }
        if sum > u64::from(Rate::WHOLE) {
            return Err(SetupError::RatesTooHigh { parts_per_million: sum });
        }
        Ok(())
    }
}
