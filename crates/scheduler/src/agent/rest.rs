//! A worker on which jobs cannot be started takes none for a while.
//!
//! After a few jobs in a row that could not be started here, it wants none. After a wait it asks
//! for a single one, to see whether that can be started; if not, the next wait is twice as long.
//! Once that job has run for a while, the worker takes as many as it has slots for, and a job that
//! ends by itself ends all this.

use crate::planted::{Bug, planted};
use crate::time::{Duration, Monotonic};

/// This many jobs in a row that could not be started are too many.
const FAILURES_MAX: u32 = 3;

/// A job that has run for this long was probably started.
pub(super) const STARTED_AFTER: Duration = Duration::from_secs(1);

/// The first wait.
const WAIT_MIN: Duration = Duration::from_secs(1);

/// Whether a worker takes jobs.
#[derive(Default)]
pub(crate) struct Rest {
    /// Jobs in a row that could not be started.
    failures: u32,
    /// Set while it takes none.
    until: Option<Monotonic>,
    /// Whether a job has run for a while since the last that could not be started.
    has_started: bool,
}

impl Rest {
    /// A job could not be started. True if the worker takes none from now on.
    pub(crate) fn failed(&mut self, now: Monotonic, wait_max: Duration) -> bool {
        // Jobs that were taken before say nothing new.
        if self.until.is_some() {
            return false;
        }
        self.failures = self.failures.saturating_add(1);
        self.has_started = false;
        let Some(doublings) = self.failures.checked_sub(FAILURES_MAX) else {
            return false;
        };
        let wait = WAIT_MIN.saturating_mul(1 << doublings.min(30)).min(wait_max);
        self.until = Some(now.plus(wait));
        true
    }

    /// A job ended by itself.
    pub(crate) fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// Whether it takes a single job, to see whether that can be started.
    pub(crate) const fn is_probing(&self) -> bool {
        self.failures >= FAILURES_MAX && self.until.is_none() && !self.has_started
    }

    /// A job has run for a while.
    pub(crate) const fn has_started(&mut self) {
        self.has_started = true;
    }

    /// True if the wait is over now.
    pub(crate) fn is_over(&mut self, now: Monotonic) -> bool {
        let is_over = self.until.is_some_and(|until| until <= now);
        if is_over && !planted(Bug::RestWithoutEnd) {
            self.until = None;
            return true;
        }
        false
    }

    /// When the wait is over, if it takes no jobs.
    pub(crate) const fn until(&self) -> Option<Monotonic> {
        self.until
    }

    /// How many jobs to want instead of this many.
    pub(crate) fn bound(&self, want: u32) -> u32 {
        match self.until {
            Some(_) => 0,
            None if self.is_probing() => want.min(1),
            None => want,
        }
    }
}
