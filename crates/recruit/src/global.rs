//! The process-wide recruiter.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::builder::{RecruiterBuilder, SetupError};
use crate::recruiter::{Enlisted, Recruiter};

static RECRUITER: OnceLock<Recruiter> = OnceLock::new();
static BEFORE_SETUP: AtomicU64 = AtomicU64::new(0);

impl RecruiterBuilder {
    /// Builds the process-wide recruiter.
    ///
    /// # Errors
    /// If it was already built, or if [`RecruiterBuilder::build`] fails.
    pub fn build_global(self) -> Result<&'static Recruiter, SetupError> {
        let recruiter = self.build()?;
        RECRUITER.set(recruiter).map_err(|_| SetupError::AlreadyBuilt)?;
        Ok(RECRUITER.get().expect("it was set just now"))
    }
}

/// Enlists the calling thread with the process-wide recruiter. If there is none yet, the caller is
/// dismissed and the call is [counted](enlisted_before_setup).
pub fn enlist() -> Enlisted<'static> {
    match RECRUITER.get() {
        Some(recruiter) => recruiter.enlist(),
        None => before_setup(),
    }
}

fn before_setup() -> Enlisted<'static> {
    BEFORE_SETUP.fetch_add(1, Relaxed);
    Enlisted::Dismissed
}

/// Enlists the calling async task with the process-wide recruiter: like [`enlist`], but also for
/// async jobs.
pub async fn enlist_async() -> Enlisted<'static> {
    match RECRUITER.get() {
        Some(recruiter) => recruiter.enlist_async().await,
        None => before_setup(),
    }
}

/// The process-wide recruiter, if it has been built.
pub fn global() -> Option<&'static Recruiter> {
    RECRUITER.get()
}

/// How many calls enlisted before the process-wide recruiter was built. If it is not 0, build the
/// recruiter earlier.
pub fn enlisted_before_setup() -> u64 {
    BEFORE_SETUP.load(Relaxed)
}
