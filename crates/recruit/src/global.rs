//! The recruiter of this process.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::builder::{RecruiterBuilder, SetupError};
use crate::recruiter::{Enlisted, Recruiter};

static RECRUITER: OnceLock<Recruiter> = OnceLock::new();
static TOO_EARLY: AtomicU64 = AtomicU64::new(0);

impl RecruiterBuilder {
    /// Completes the set-up of the recruiter of this process.
    ///
    /// # Errors
    /// If there is one already, or if [`RecruiterBuilder::build`] fails.
    pub fn build_global(self) -> Result<&'static Recruiter, SetupError> {
        let recruiter = self.build()?;
        RECRUITER.set(recruiter).map_err(|_| SetupError::AlreadyBuilt)?;
        Ok(RECRUITER.get().expect("it was set just now"))
    }
}

/// The calling thread has a moment to spare for the recruiter of this process. If there is none yet,
/// it is dismissed, and that is [counted](enlisted_before_setup).
pub fn enlist() -> Enlisted<'static> {
    match RECRUITER.get() {
        Some(recruiter) => recruiter.enlist(),
        None => too_early(),
    }
}

fn too_early() -> Enlisted<'static> {
    TOO_EARLY.fetch_add(1, Relaxed);
    Enlisted::Dismissed
}

/// The calling task has a moment to spare for the recruiter of this process: as [`enlist`], for jobs of both
/// kinds.
pub async fn enlist_async() -> Enlisted<'static> {
    match RECRUITER.get() {
        Some(recruiter) => recruiter.enlist_async().await,
        None => too_early(),
    }
}

/// The recruiter of this process, if it is set up.
pub fn global() -> Option<&'static Recruiter> {
    RECRUITER.get()
}

/// How many have enlisted before there was a recruiter: the set-up belongs before them.
pub fn enlisted_before_setup() -> u64 {
    TOO_EARLY.load(Relaxed)
}
