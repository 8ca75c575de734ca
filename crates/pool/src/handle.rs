//! The handle of a task, which receives its result.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::blocking::blocking;
use crate::cancel::CancelToken;
use crate::deterministic;
use crate::protocol::outcome::Outcome;
use crate::task_error::TaskError;

/// A task that was spawned: wait for it, await it, or cancel it. Dropping the handle detaches the
/// task.
#[must_use = "dropping it detaches the task; `spawn_detached` does that explicitly"]
pub struct TaskHandle<T> {
    outcome: Arc<Outcome<Result<T, TaskError>>>,
    token: CancelToken,
}

impl<T> fmt::Debug for TaskHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskHandle")
            .field("is_finished", &self.is_finished())
            .finish_non_exhaustive()
    }
}

/// The sending end. Dropping it unused reports that the task was dropped.
pub(crate) struct Promise<T>(Arc<Outcome<Result<T, TaskError>>>);

pub(crate) fn pair<T>(token: CancelToken) -> (Promise<T>, TaskHandle<T>) {
    let outcome = Arc::new(Outcome::new());
    (Promise(Arc::clone(&outcome)), TaskHandle { outcome, token })
}

impl<T> Promise<T> {
    pub(crate) fn keep(self, result: Result<T, TaskError>) {
        self.0.settle(result);
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        self.0.settle(Err(TaskError::Closed));
    }
}

impl<T> TaskHandle<T> {
    /// Waits until the task has finished. On a thread of a pool, another thread takes its place
    /// meanwhile, so waiting never blocks a pool.
    ///
    /// # Errors
    /// If the task panicked, was cancelled, or was dropped with its pool.
    pub fn wait(self) -> Result<T, TaskError> {
        deterministic::wait(|| self.is_finished());
        if self.is_finished() {
            return self.outcome.take();
        }
        blocking(|| self.outcome.wait());
        self.outcome.take()
    }

    /// Whether the task has finished, in any way.
    pub fn is_finished(&self) -> bool {
        self.outcome.is_settled()
    }

    /// Cancels the task. If it has not started, it never will; if it is running, it [can
    /// check](crate::task::is_cancelled) that it was cancelled.
    pub fn cancel(&self) {
        self.token.cancel();
    }
}

impl<T> Future for TaskHandle<T> {
    type Output = Result<T, TaskError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.outcome.poll(context.waker())
    }
}
