//! Futures that run on the threads of a pool.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use async_task::FallibleTask;

use crate::core::Core;
use crate::pool::Pool;
use crate::task_error::TaskError;
use crate::{current, global};

/// Runs a future on the pool that the calling thread belongs to; on any other thread, on the
/// [global pool](crate::Pool::global). See [`Pool::spawn_future`].
///
/// ```
/// let sum = filch_pool::spawn_future(async { 1 + 2 });
/// assert_eq!(filch_pool::block_on(sum)?, 3);
/// # Ok::<(), filch_pool::task::TaskError>(())
/// ```
pub fn spawn_future<F>(future: F) -> FutureHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    current::with(|local| match local {
        Some(local) => spawn(local.core, future),
        None => spawn(global::pool().core(), future),
    })
}

impl Pool {
    /// Runs a future on this pool's threads. Each poll is a task like any other, and it may fork.
    ///
    /// If the pool is closed before the future has finished, the future is dropped, at the latest
    /// when the pool is.
    ///
    /// ```
    /// # use filch_pool::{Pool, block_on};
    /// let pool = Pool::builder().threads(2).build()?;
    /// let halves = pool.spawn_future(async { filch_pool::join(|| 20, || 22) });
    /// assert_eq!(block_on(halves)?, (20, 22));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spawn_future<F>(&self, future: F) -> FutureHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        spawn(self.core(), future)
    }
}

fn spawn<F>(core: &Core, future: F) -> FutureHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let inserted = current::with(|local| {
        core.futures().insert(local.filter(|local| local.is_of(core)), future)
    });
    let task = inserted.map(|(runnable, task)| {
        runnable.schedule();
        task
    });
    FutureHandle { task }
}

/// A future that runs on a pool: awaiting this returns its result.
///
/// Dropping the handle does not stop the future, but its result is lost. To stop it, call
/// [`cancel`](Self::cancel) or [`abort`](Self::abort).
///
/// ```
/// # use filch_pool::{block_on, spawn_future, task::TaskError};
/// let fine = spawn_future(async { 7 });
/// let broken = spawn_future(async { if true { panic!("no luck") } });
/// assert_eq!(block_on(fine)?, 7);
/// let lost = block_on(broken).unwrap_err();
/// assert_eq!(lost.message(), Some("no luck"));
/// # Ok::<(), TaskError>(())
/// ```
#[must_use = "without its handle the future runs on, but its panic is lost; `drop` it to detach it"]
pub struct FutureHandle<T> {
    /// None if the pool was already closed when the future was spawned.
    task: Option<FallibleTask<T>>,
}

impl<T> fmt::Debug for FutureHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FutureHandle").field("is_finished", &self.is_finished()).finish()
    }
}

impl<T> FutureHandle<T> {
    /// Whether the future has finished, in any way.
    ///
    /// ```
    /// let handle = filch_pool::spawn_future(std::future::pending::<()>());
    /// assert!(!handle.is_finished());
    /// handle.abort();
    /// ```
    pub fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(FallibleTask::is_finished)
    }

    /// Stops the future at the point where it waits, and returns once it has been dropped. A future
    /// that is being polled at this moment continues to its next `.await` that has to wait.
    ///
    /// Nothing happens before this is awaited. If the future has finished nevertheless, its result
    /// is returned; otherwise the result is [`TaskError::Cancelled`].
    ///
    /// ```
    /// # use filch_pool::{block_on, spawn_future, task::TaskError};
    /// let endless = spawn_future(std::future::pending::<()>());
    /// assert!(matches!(block_on(endless.cancel()), Err(TaskError::Cancelled)));
    /// ```
    pub async fn cancel(mut self) -> Result<T, TaskError> {
        let Some(task) = self.task.take() else { return Err(TaskError::Closed) };
        let mut cancelled = std::pin::pin!(task.cancel());
        std::future::poll_fn(|context| {
            outcome(|| cancelled.as_mut().poll(context), TaskError::Cancelled)
        })
        .await
    }

    /// Stops the future as [`cancel`](Self::cancel) does, without waiting: a thread of the pool
    /// drops it soon.
    ///
    /// ```
    /// let endless = filch_pool::spawn_future(std::future::pending::<()>());
    /// endless.abort();
    /// ```
    pub fn abort(mut self) {
        // This is how `async_task` treats a dropped handle.
        drop(self.task.take());
    }
}

impl<T> Future for FutureHandle<T> {
    type Output = Result<T, TaskError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(task) = &mut self.task else { return Poll::Ready(Err(TaskError::Closed)) };
        outcome(|| Pin::new(task).poll(context), TaskError::Closed)
    }
}

impl<T> Drop for FutureHandle<T> {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.detach();
        }
    }
}

/// The result of polling for the end of a future. `async_task` resumes the future's panic in the
/// caller; here it becomes a value. Without a result, the error is `reason`.
fn outcome<T>(
    look: impl FnOnce() -> Poll<Option<T>>,
    reason: TaskError,
) -> Poll<Result<T, TaskError>> {
    match catch_unwind(AssertUnwindSafe(look)) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(result)) => Poll::Ready(result.ok_or(reason)),
        Err(panic) => Poll::Ready(Err(TaskError::Panicked(panic))),
    }
}
