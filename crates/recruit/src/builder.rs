//! How a recruiter is set up: completely, before anybody enlists.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use crate::adaptive::Adaptive;
use crate::budget::Budget;
use crate::job::{AsyncSideJob, SideJob};
use crate::lottery::Lottery;
use crate::rate::Rate;
use crate::recruiter::Recruiter;
use crate::statsd::StatsD;

/// How long a slice should last, and how long it may, if nothing else is said.
const SLICE: Duration = Duration::from_millis(20);
const SLICE_MAX: Duration = Duration::from_millis(50);

/// Which part of the time goes into side-work at most, if nothing else is said.
const TIME_SHARE: f64 = 0.02;

/// What a recruiter is to be like: see [`Recruiter::builder`].
#[must_use]
pub struct RecruiterBuilder {
    posts: Vec<Post>,
    lottery: Lottery,
    slice: Duration,
    slice_max: Duration,
    /// None if there is no bound.
    time_share: Option<f64>,
    load: Option<Load>,
    timer: Option<Timer>,
    /// Whether bounds were given before there was a job to have them.
    has_loose_bounds: bool,
    statsd: Option<StatsD>,
}

/// How busy the host is, from 0 to 1.
pub(crate) type Load = Box<dyn Fn() -> f64 + Send + Sync>;

/// What is over when so much time has passed.
pub(crate) type Timer =
    Box<dyn Fn(Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// A job, and what it wants.
pub(crate) struct Post {
    pub(crate) id: String,
    pub(crate) rate: Rate,
    /// The least and the most that it wants, if that changes.
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
    /// A job without a name.
    EmptyId,
    /// Two jobs of the same name.
    DuplicateId(String),
    /// The jobs together want more than everybody.
    RatesTooHigh {
        /// Parts of a million that they want together.
        parts_per_million: u64,
    },
    /// The rate of a job lies outside of its own bounds.
    OutOfBounds(String),
    /// Bounds of a rate, before there was a job that could have them.
    NoJobToAdapt,
    /// A slice that has no time, or more than it may have.
    BadSlice {
        /// How long it should last.
        slice: Duration,
        /// How long it may last.
        max: Duration,
    },
    /// A part of the time that is none.
    BadTimeShare(f64),
    /// A load that nothing depends on, for the time spent is unbounded.
    LoadWithoutBudget,
    /// There is a recruiter of this process already.
    AlreadyBuilt,
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyId => f.write_str("a side job needs a name: it is what statistics call it"),
            Self::DuplicateId(id) => write!(f, "there are two side jobs called `{id}`: rename one"),
            Self::RatesTooHigh { parts_per_million } => write!(
                f,
                "the rates add up to {}, but nobody is recruited for more than one job: lower some",
                *parts_per_million as f64 / f64::from(Rate::WHOLE)
            ),
            Self::OutOfBounds(id) => {
                write!(f, "the rate of `{id}` does not lie between its bounds: move one of them")
            }
            Self::NoJobToAdapt => {
                f.write_str("`adaptive` is about the job added last, and there is none yet: add it first")
            }
            Self::LoadWithoutBudget => f.write_str(
                "`load` lowers what can be spared, and `unbounded` is without end: leave one of them out",
            ),
            Self::BadSlice { slice, max } => write!(
                f,
                "a slice of {slice:?}, of {max:?} at most, makes no sense: it needs some time, and not \
                 more than it may have"
            ),
            Self::BadTimeShare(part) => write!(f, "{part} is no part of the time: say 0.02 for 2 %"),
            Self::AlreadyBuilt => f.write_str(
                "this process has its recruiter already: set it up once, at the start of the program",
            ),
        }
    }
}

impl std::error::Error for SetupError {}

impl Default for RecruiterBuilder {
    fn default() -> Self {
        Self {
            posts: Vec::new(),
            lottery: Lottery::default(),
            slice: SLICE,
            slice_max: SLICE_MAX,
            time_share: Some(TIME_SHARE),
            load: None,
            timer: None,
            has_loose_bounds: false,
            statsd: None,
        }
    }
}

impl fmt::Debug for RecruiterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let jobs: Vec<&str> = self.posts.iter().map(|post| post.id.as_str()).collect();
        f.debug_struct("RecruiterBuilder").field("jobs", &jobs).finish_non_exhaustive()
    }
}

impl RecruiterBuilder {
    /// Adds a job that wants this part of those who enlist.
    pub fn job(self, id: impl Into<String>, rate: Rate, job: impl SideJob + 'static) -> Self {
        self.post(Post { id: id.into(), rate, bounds: None, work: Work::Sync(Box::new(job)) })
    }

    /// Adds a job that awaits. Only who enlists by [`Recruiter::enlist_async`] is recruited for it; if others
    /// are drawn, that is counted, and told once. Give it a [timer](Self::timer), or it may take for ever.
    pub fn async_job(
        self,
        id: impl Into<String>,
        rate: Rate,
        job: impl AsyncSideJob + 'static,
    ) -> Self {
        self.post(Post { id: id.into(), rate, bounds: None, work: Work::Async(Box::new(job)) })
    }

    fn post(mut self, post: Post) -> Self {
        self.posts.push(post);
        self
    }

    /// The job added last wants more when its slices find work, and less when they do not, but never
    /// less than `min` and never more than `max`.
    pub fn adaptive(mut self, min: Rate, max: Rate) -> Self {
        match self.posts.last_mut() {
            Some(post) => post.bounds = Some((min, max)),
            None => self.has_loose_bounds = true,
        }
        self
    }

    /// How it is decided who is recruited.
    pub fn lottery(mut self, lottery: Lottery) -> Self {
        self.lottery = lottery;
        self
    }

    /// How long a slice should last, and how long it may: what takes longer is counted as overrun. If
    /// not said, 20 and 50 milliseconds.
    pub fn budget(mut self, slice: Duration, max: Duration) -> Self {
        self.slice = slice;
        self.slice_max = max;
        self
    }

    /// Which part of the time of this process may go into side-work at all, over its threads together: 2 %
    /// if not said.
    pub fn time_share(mut self, part: f64) -> Self {
        self.time_share = Some(part);
        self
    }

    /// Everybody who is drawn does a slice, however much time that is: for slices that cost next to nothing,
    /// and where something else bounds them.
    pub fn unbounded(mut self) -> Self {
        self.time_share = None;
        self
    }

    /// How busy the host is, from 0 to 1: the busier, the less of [what it can spare](Self::time_share) it
    /// can. It is asked when somebody was drawn.
    pub fn load(mut self, load: impl Fn() -> f64 + Send + Sync + 'static) -> Self {
        self.load = Some(Box::new(load));
        self
    }

    /// What to wait for so long, such as `tokio::time::sleep`: a job that awaits, and has not come to an end when
    /// its slice [may not last longer](Self::budget), is then thrown away, and has failed. Without it, who
    /// enlists waits for such a job however long it takes.
    pub fn timer<F>(mut self, sleep: impl Fn(Duration) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.timer = Some(Box::new(move |span| Box::pin(sleep(span))));
        self
    }

    /// Where each slice is told, as it ends.
    pub fn statsd(mut self, statsd: StatsD) -> Self {
        self.statsd = Some(statsd);
        self
    }

    /// Completes the set-up.
    ///
    /// # Errors
    /// If something in it makes no sense; see [`SetupError`].
    pub fn build(self) -> Result<Recruiter, SetupError> {
        self.check_posts()?;
        let (slice, max) = (self.slice, self.slice_max);
        if slice.is_zero() || slice > max {
            return Err(SetupError::BadSlice { slice, max });
        }
        let budget = match self.time_share {
            Some(part) if !(0.0..=1.0).contains(&part) => {
                return Err(SetupError::BadTimeShare(part));
            }
            Some(part) => Some(Budget::new(part, max, self.load)),
            None if self.load.is_some() => return Err(SetupError::LoadWithoutBudget),
            None => None,
        };
        let posts =
            self.posts.into_iter().map(|post| (Adaptive::new(post.rate, post.bounds), post));
        Ok(Recruiter::new(posts, self.lottery, slice, max, budget, self.timer, self.statsd))
    }

    fn check_posts(&self) -> Result<(), SetupError> {
        if self.has_loose_bounds {
            return Err(SetupError::NoJobToAdapt);
        }
        let mut sum = 0;
        for (index, post) in self.posts.iter().enumerate() {
            if post.id.is_empty() {
                return Err(SetupError::EmptyId);
            }
            if self.posts[..index].iter().any(|other| other.id == post.id) {
                return Err(SetupError::DuplicateId(post.id.clone()));
            }
            let most = match post.bounds {
                Some((min, max)) if !(min..=max).contains(&post.rate) => {
                    return Err(SetupError::OutOfBounds(post.id.clone()));
                }
                Some((_, max)) => max,
                None => post.rate,
            };
            sum += u64::from(most.parts_per_million());
        }
        if sum > u64::from(Rate::WHOLE) {
            return Err(SetupError::RatesTooHigh { parts_per_million: sum });
        }
        Ok(())
    }
}
