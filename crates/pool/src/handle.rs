//! The result of a task, for whoever wants it.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::blocking::blocking;
use crate::cancel::CancelToken;
use crate::deterministic;
use crate::lost::Lost;
use crate::protocol::outcome::Outcome;

/// A task that was spawned: wait for it, await it, or cancel it. Dropping this lets it go on alone.
#[must_use = "dropping it lets the task go on alone; `spawn_detached` says so"]
pub struct Handle<T> {
    outcome: Arc<Outcome<Result<T, Lost>>>,
    token: CancelToken,
}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("is_finished", &self.is_finished()).finish_non_exhaustive()
    }
}

/// The other end: dropping it unused says that the task was dropped.
pub(crate) struct Promise<T>(Arc<Outcome<Result<T, Lost>>>);

pub(crate) fn pair<T>(token: CancelToken) -> (Promise<T>, Handle<T>) {
    let outcome = Arc::new(Outcome::new());
    (Promise(Arc::clone(&outcome)), Handle { outcome, token })
}

impl<T> Promise<T> {
    pub(crate) fn keep(self, result: Result<T, Lost>) {
        self.0.settle(result);
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.0.settle(Err(Lost::Closed));
    }
}

impl<T> Handle<T> {
    /// Waits until the task has ended. A thread of a pool that waits here lets another take its place,
    /// so this never stops a pool.
    ///
    /// # Errors
    /// If the task panicked, was cancelled, or was dropped with its pool.
    pub fn wait(self) -> Result<T, Lost> {
        deterministic::wait(|| self.is_finished());
        if self.is_finished() {
            return self.outcome.take();
        }
        blocking(|| self.outcome.wait());
        self.outcome.take()
    }

    /// Whether the task has ended, in whatever way.
    pub fn is_finished(&self) -> bool {
        self.outcome.is_settled()
    }

    /// If the task has not begun, it does not begin; if it runs, it [can see](crate::is_cancelled)
    /// that it is no longer wanted.
    pub fn cancel(&self) {
        self.token.cancel();
    }
}

impl<T> Future for Handle<T> {
    type Output = Result<T, Lost>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.outcome.poll(context.waker())
    }
}
