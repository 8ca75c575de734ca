//! Those who have a moment to spare enlist; a lottery decides whether they are recruited.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::adaptive::Adaptive;
use crate::budget::{Budget, Reserved};
use crate::builder::{Post, RecruiterBuilder, Timer, Work};
use crate::ending::Ending;
use crate::enlisted::Tally;
use crate::global::enlisted_before_setup;
use crate::job::{Duty, Slice};
use crate::lottery::Lottery;
use crate::stats::{Counts, JobStats, RecruiterStats};
use crate::statsd::StatsD;

/// What became of one who enlisted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Enlisted<'r> {
    /// Nothing was wanted, or what was begun was given up at once because somebody else was at it.
    Dismissed,
    /// A slice of this job was done.
    Recruited {
        /// Its id.
        job: &'r str,
    },
    /// A slice of this job was begun, and there was nothing to do.
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

/// Jobs that want a little time now and then, and a lottery among those who can spare it.
///
/// It is complete when it is built, and does not change afterwards. It knows nothing about other
/// processes, and has no thread of its own.
///
/// ```
/// use filch_recruit::{Duty, Enlisted, Rate, Recruiter};
///
/// let recruiter = Recruiter::builder().job("gc", Rate::ALL, |_: &mut _| Ok(Duty::Done)).build()?;
/// assert_eq!(recruiter.enlist(), Enlisted::Recruited { job: "gc" });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Recruiter {
    places: Box<[Place]>,
    lottery: Lottery,
    slice: Duration,
    slice_max: Duration,
    budget: Option<Budget>,
    timer: Option<Timer>,
    statsd: Option<StatsD>,
    tally: Tally,
}

/// A job in its place.
struct Place {
    post: Post,
    /// What it wants now.
    rate: Adaptive,
    counts: Counts,
}

impl fmt::Debug for Recruiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let jobs: Vec<&str> = self.places.iter().map(|place| place.post.id.as_str()).collect();
        f.debug_struct("Recruiter").field("jobs", &jobs).finish_non_exhaustive()
    }
}

impl Recruiter {
    /// Begins to set one up.
    pub fn builder() -> RecruiterBuilder {
        RecruiterBuilder::default()
    }

    pub(crate) fn new(
        posts: impl Iterator<Item = (Adaptive, Post)>,
        lottery: Lottery,
        slice: Duration,
        slice_max: Duration,
        budget: Option<Budget>,
        timer: Option<Timer>,
        statsd: Option<StatsD>,
    ) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let place = |(rate, post)| Place { post, rate, counts: Counts::default() };
        let places = posts.map(place).collect();
        // Counts, and guards nothing.
        let tally = Tally::new(NUMBER.fetch_add(1, Relaxed));
        Self { places, lottery, slice, slice_max, budget, timer, statsd, tally }
    }

    /// The calling thread has a moment to spare. Mostly it is dismissed at once; otherwise it does a
    /// slice of one job. Whatever happens there, this returns.
    pub fn enlist(&self) -> Enlisted<'_> {
        match self.draw() {
            Some(drawn) => self.serve(drawn),
            None => Enlisted::Dismissed,
        }
    }

    /// The calling task has a moment to spare: as [`Recruiter::enlist`], for jobs of both kinds. For how long a
    /// job that awaits can keep it is bounded if there is a [timer](RecruiterBuilder::timer).
    pub async fn enlist_async(&self) -> Enlisted<'_> {
        match self.draw() {
            Some(drawn) => self.serve_async(drawn).await,
            None => Enlisted::Dismissed,
        }
    }

    /// Does a slice of the job that was drawn, of either kind.
    pub(crate) async fn serve_async(&self, drawn: Drawn) -> Enlisted<'_> {
        let place = &self.places[drawn.0];
        let Work::Async(job) = &place.post.work else { return self.serve(drawn) };
        let Some(reserved) = self.afford(place) else { return Enlisted::Dismissed };
        let mut slice = Slice::new(self.slice);
        let work = async { job.recruited(&mut slice).await };
        let end = self.timer.as_ref().map(|timer| async { timer(self.slice_max).await });
        let ending = Ending::awaited(work, end).await;
        self.close(place, reserved, slice.used(), ending)
    }

    /// Which job one more who enlists is drawn for, if any. No lock, no allocation, and nothing is
    /// written that another thread writes, too.
    #[inline]
    pub(crate) fn draw(&self) -> Option<Drawn> {
        let drawn = self.tally.enlist(self.lottery)?;
        let mut below = 0;
        self.places
            .iter()
            .position(|place| {
                below += place.rate.parts();
                drawn < below
            })
            .map(Drawn)
    }

    /// Does a slice of the job that was drawn.
    pub(crate) fn serve(&self, drawn: Drawn) -> Enlisted<'_> {
        let place = &self.places[drawn.0];
        let Work::Sync(job) = &place.post.work else {
            self.pass_over(place);
            return Enlisted::Dismissed;
        };
        let Some(reserved) = self.afford(place) else { return Enlisted::Dismissed };
        let mut slice = Slice::new(self.slice);
        let ending = Ending::of(|| job.recruited(&mut slice));
        self.close(place, reserved, slice.used(), ending)
    }

    /// Whether what was drawn is a job that awaits.
    #[cfg(feature = "tower")]
    pub(crate) fn awaits(&self, drawn: Drawn) -> bool {
        matches!(self.places[drawn.0].post.work, Work::Async(_))
    }

    /// What was drawn is not done: nobody has room for it.
    #[cfg(feature = "tower")]
    pub(crate) fn forgo(&self, drawn: Drawn) {
        let place = &self.places[drawn.0];
        place.counts.selected();
        self.deny(place);
    }

    /// Who was drawn for a job that awaits cannot await.
    fn pass_over(&self, place: &Place) {
        let job = place.post.id.as_str();
        place.counts.selected();
        if place.counts.not_awaited() == 0 {
            tracing::warn!(job, "this side job awaits: enlist for it by `enlist_async`");
        }
        if let Some(statsd) = &self.statsd {
            statsd.tell_draw(job, "not_awaited");
        }
    }

    /// Who was drawn has no time for it.
    fn deny(&self, place: &Place) {
        place.counts.over_budget();
        if let Some(statsd) = &self.statsd {
            statsd.tell_draw(&place.post.id, "over_budget");
        }
    }

    /// The time for a slice, if there is any left.
    fn afford(&self, place: &Place) -> Option<Reserved<'_>> {
        place.counts.selected();
        let reserved = match &self.budget {
            // The load is the host's own; should it panic, it is busy.
            Some(budget) => {
                catch_unwind(AssertUnwindSafe(|| budget.reserve(Instant::now()))).unwrap_or(None)
            }
            None => Some(Reserved::unbounded()),
        };
        if reserved.is_none() {
            self.deny(place);
        }
        reserved
    }

    fn close<'r>(
        &'r self,
        place: &'r Place,
        reserved: Reserved<'_>,
        used: Duration,
        ending: Ending,
    ) -> Enlisted<'r> {
        let job = place.post.id.as_str();
        reserved.spend(used);
        let is_overrun = used > self.slice_max;
        let outcome = ending.outcome();
        place.counts.closed(outcome, used, is_overrun);
        let enlisted = match &ending {
            Ending::Done => {
                place.rate.learn(Duty::Done);
                Enlisted::Recruited { job }
            }
            Ending::NoWork => {
                place.rate.learn(Duty::NoWork);
                Enlisted::NoWork { job }
            }
            // Whether there is work is not known.
            Ending::Contended => Enlisted::Dismissed,
            Ending::Failed(error) => {
                tracing::warn!(job, error, ?used, "a slice of side-work failed");
                Enlisted::Failed { job }
            }
            Ending::Panicked { message: panic, place } => {
                tracing::error!(job, panic, place, ?used, "a slice of side-work panicked");
                Enlisted::Failed { job }
            }
        };
        if is_overrun {
            tracing::warn!(job, ?used, max = ?self.slice_max, "a slice of side-work took too long");
        }
        if let Some(statsd) = &self.statsd {
            statsd.tell_slice(job, outcome, used, is_overrun);
        }
        enlisted
    }

    /// What has happened so far.
    pub fn stats(&self) -> RecruiterStats {
        let jobs = self.places.iter().map(|place| JobStats {
            id: place.post.id.clone(),
            parts_per_million: place.rate.parts(),
            counts: place.counts.read(),
        });
        let enlisted_before_setup = enlisted_before_setup();
        RecruiterStats { enlisted: self.tally.count(), enlisted_before_setup, jobs: jobs.collect() }
    }
}

/// The number of a job that somebody was drawn for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drawn(usize);
