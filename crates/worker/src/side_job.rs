//! Side jobs: work of your own program that a worker does in slices while it is idle.
//!
//! Expired cache entries have to be removed some time, counters have to be rolled up, but never at
//! the expense of jobs. A side job asks for a share of the worker's idle moments. In such a moment
//! the worker's recruiter ([`filch_recruit`]) draws which side job gets a slice, if any. Slices run
//! on a thread that may block, one at a time, and all of them together take at most 2 % of the
//! time.
//!
//! ```
//! use filch_worker::handler::{Handlers, Outcome};
//! use filch_worker::side_job::{Duty, Rate, Slice};
//!
//! let expire = |slice: &mut Slice| {
//!     while !slice.out_of_time() {
//!         // Remove a few entries that have expired. If there are none left:
//!         return Ok(Duty::NoWork);
//!     }
//!     Ok(Duty::Done)
//! };
//! let handlers = Handlers::new()
//!     .sync("resize", |_| Outcome::Finished(None))
//!     .side_job("expire cache", Rate::new(0.05)?, expire);
//! # drop(handlers);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Work that *must* happen belongs in a job: a worker that is never idle does no side jobs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use filch_recruit::{Duty, Rate, SideError, SideJob, Slice};
use filch_recruit::{Enlisted, Recruiter};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinHandle;

use crate::shell::Happened;

/// After a slice that did something, the next idle moment comes this soon.
const MOMENTS_EVERY: Duration = Duration::from_millis(10);

/// Runs side jobs in idle moments.
pub(crate) struct SideWork {
    recruiter: Arc<Recruiter>,
    is_running: Arc<AtomicBool>,
    /// When the next idle moment is wanted, if it is wanted soon.
    next: Option<Instant>,
    slice: Option<JoinHandle<()>>,
}

impl SideWork {
    pub(crate) fn new(recruiter: Arc<Recruiter>) -> Self {
        Self { recruiter, is_running: Arc::default(), next: None, slice: None }
    }

    /// The worker is idle: perhaps a slice begins. It reports its end if it did something.
    pub(crate) fn idle_moment(&mut self, happened: &UnboundedSender<Happened>) {
        let is_early = self.next.is_some_and(|next| Instant::now() < next);
        if is_early || self.is_running.swap(true, Ordering::AcqRel) {
            return;
        }
        self.next = None;
        let (recruiter, is_running) = (Arc::clone(&self.recruiter), Arc::clone(&self.is_running));
        let happened = happened.clone();
        self.slice = Some(tokio::task::spawn_blocking(move || {
            let has_worked = matches!(recruiter.enlist(), Enlisted::Recruited { .. });
            is_running.store(false, Ordering::Release);
            if has_worked {
                let _ = happened.send(Happened::SideWorkDone);
            }
        }));
    }

    /// A slice has done something, so there may be more to do.
    pub(crate) fn done(&mut self) {
        self.next = Some(Instant::now() + MOMENTS_EVERY);
    }

    /// How long until the next idle moment is wanted, if it is wanted soon.
    pub(crate) fn wait(&self) -> Option<Duration> {
        self.next.map(|next| next.saturating_duration_since(Instant::now()))
    }

    /// Waits for the slice that runs, if there is one.
    pub(crate) async fn close(&mut self) {
        if let Some(slice) = self.slice.take() {
            // The recruiter catches the panics of side jobs.
            let _ = slice.await;
        }
    }
}
