//! The state of an exposed fork: whether it is done, and whether its owner sleeps until then.

use super::sync::atomic::AtomicU64;
use super::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

const DONE: u64 = 1;
const OWNER_SLEEPS: u64 = 2;

/// A whole word: a fork is written in words, and a byte among them costs more than the seven it
/// saves.
pub(crate) struct Latch(AtomicU64);

impl Latch {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(crate) fn is_done(&self) -> bool {
        // Acquire: pairs with `done`, so that its result is seen.
        self.0.load(Acquire) & DONE != 0
    }

    /// The owner announces that it sleeps and must be woken. False if the fork is already done.
    #[must_use]
    pub(crate) fn sleep(&self) -> bool {
        self.0.fetch_or(OWNER_SLEEPS, AcqRel) & DONE == 0
    }

    /// The owner is awake again.
    pub(crate) fn wake(&self) {
        self.0.fetch_and(!OWNER_SLEEPS, Relaxed);
    }

    /// Marks it done; true if the owner must be woken. After this the latch may be gone.
    #[must_use]
    pub(crate) fn done(&self) -> bool {
        // Release: a thread that sees this sees the result. Acquire: nothing that follows is moved
        // before it.
        self.0.swap(DONE, AcqRel) & OWNER_SLEEPS != 0
    }
}
