//! Futures that the threads of a pool drive.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use async_task::FallibleTask;

use crate::core::Core;
use crate::lost::Lost;
use crate::pool::Pool;
use crate::{current, global};

/// Drives a future on the pool that the calling thread belongs to; on any other thread, on the
/// [global one](crate::global). See [`Pool::spawn_future`].
///
/// ```
/// let sum = filch_pool::spawn_future(async { 1 + 2 });
/// assert_eq!(filch_pool::block_on(sum)?, 3);
/// # Ok::<(), filch_pool::Lost>(())
/// ```
pub fn spawn_future<F>(future: F) -> JoinHandle<F::Output>
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
    /// Drives a future on this pool's threads. Between two of its steps it is a task like any other,
    /// and it may fork.
    ///
    /// If the pool is closed before the future ends, the future is dropped, at the latest when the
    /// pool is.
    ///
    /// ```
    /// # use filch_pool::{Pool, block_on};
    /// let pool = Pool::builder().threads(2).build()?;
    /// let halves = pool.spawn_future(async { filch_pool::join(|| 20, || 22) });
    /// assert_eq!(block_on(halves)?, (20, 22));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spawn_future<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        spawn(self.core(), future)
    }
}

fn spawn<F>(core: &Core, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let enlisted = current::with(|local| {
        core.roster().enlist(local.filter(|local| local.is_of(core)), future)
    });
    let task = enlisted.map(|(runnable, task)| {
        runnable.schedule();
        task
    });
    JoinHandle { task }
}

/// A future that a pool drives: awaiting this gives what came of it.
///
/// Dropping the handle does not stop the future: nobody hears of it any more. To stop it, call
/// [`cancel`](Self::cancel) or [`abort`](Self::abort).
///
/// ```
/// # use filch_pool::{Lost, block_on, spawn_future};
/// let fine = spawn_future(async { 7 });
/// let broken = spawn_future(async { if true { panic!("no luck") } });
/// assert_eq!(block_on(fine)?, 7);
/// let lost = block_on(broken).unwrap_err();
/// assert_eq!(lost.message(), Some("no luck"));
/// # Ok::<(), Lost>(())
/// ```
#[must_use = "a future goes on without its handle, but nobody hears of its panic; `drop` it to say so"]
pub struct JoinHandle<T> {
    /// None if the pool was closed already when it was to be made.
    task: Option<FallibleTask<T>>,
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("is_finished", &self.is_finished()).finish()
    }
}

impl<T> JoinHandle<T> {
    /// Whether the future has ended, in whatever way.
    ///
    /// ```
    /// let handle = filch_pool::spawn_future(std::future::pending::<()>());
    /// assert!(!handle.is_finished());
    /// handle.abort();
    /// ```
    pub fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(FallibleTask::is_finished)
    }

    /// Stops the future at the point where it waits, and waits until it has been dropped. One that is
    /// being driven at this moment goes on to its next `.await` that has to wait.
    ///
    /// Nothing happens before this is awaited. If the future has ended nevertheless, its result is
    /// not lost; otherwise the answer is [`Lost::Cancelled`].
    ///
    /// ```
    /// # use filch_pool::{Lost, block_on, spawn_future};
    /// let endless = spawn_future(std::future::pending::<()>());
    /// assert!(matches!(block_on(endless.cancel()), Err(Lost::Cancelled)));
    /// ```
    pub async fn cancel(mut self) -> Result<T, Lost> {
        let Some(task) = self.task.take() else { return Err(Lost::Closed) };
        let mut cancelled = std::pin::pin!(task.cancel());
        std::future::poll_fn(|context| {
            outcome(|| cancelled.as_mut().poll(context), Lost::Cancelled)
        })
        .await
    }

    /// Stops the future as [`cancel`](Self::cancel) does, and does not wait: some thread of the pool
    /// drops it soon.
    ///
    /// ```
    /// let endless = filch_pool::spawn_future(std::future::pending::<()>());
    /// endless.abort();
    /// ```
    pub fn abort(mut self) {
        // What `async_task` does with a handle that is dropped.
        drop(self.task.take());
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, Lost>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(task) = &mut self.task else { return Poll::Ready(Err(Lost::Closed)) };
        outcome(|| Pin::new(task).poll(context), Lost::Closed)
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.detach();
        }
    }
}

/// What a look at a future's end brought. `async_task` passes a panic of the future on to whoever
/// looks; here it becomes a value. Without a result, the reason is the one given.
fn outcome<T>(look: impl FnOnce() -> Poll<Option<T>>, reason: Lost) -> Poll<Result<T, Lost>> {
    match catch_unwind(AssertUnwindSafe(look)) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(result)) => Poll::Ready(result.ok_or(reason)),
        Err(panic) => Poll::Ready(Err(Lost::Panicked(panic))),
    }
}
