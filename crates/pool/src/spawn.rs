//! Spawning tasks: closures with a name, a priority, a cancellation token and a result.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;

use crate::cancel::{self, CancelToken};
use crate::core::Core;
use crate::handle::{self, TaskHandle};
use crate::pool::Pool;
use crate::raw_task::Task;
use crate::shared_queue::Priority;
use crate::task_error::TaskError;
use crate::{current, global};

/// Configures and spawns a task: see [`Pool::task`].
#[must_use]
#[derive(Debug)]
pub struct TaskBuilder<'p> {
    pool: &'p Pool,
    name: Name,
    priority: Priority,
    token: Option<CancelToken>,
}

#[derive(Clone, Debug)]
enum Name {
    Given(Arc<str>),
    Place(&'static Location<'static>),
}

thread_local! {
    static CURRENT: RefCell<Option<Name>> = const { RefCell::new(None) };
}

/// The name of the calling task: the one it was given, or the source location where it was spawned.
/// None outside of a task.
pub fn current_name() -> Option<String> {
    CURRENT.with_borrow(|name| {
        name.as_ref().map(|name| match name {
            Name::Given(name) => name.to_string(),
            Name::Place(place) => place.to_string(),
        })
    })
}

impl TaskBuilder<'_> {
    /// The name of the task. Default: the source location where it is spawned.
    pub fn name(mut self, name: impl AsRef<str>) -> Self {
        self.name = Name::Given(Arc::from(name.as_ref()));
        self
    }

    /// The priority of the task.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// A cancellation token: the task does not start if the token is cancelled by then.
    pub fn token(mut self, token: &CancelToken) -> Self {
        self.token = Some(token.clone());
        self
    }

    /// Spawns the task.
    pub fn spawn<T: Send + 'static>(self, f: impl FnOnce() -> T + Send + 'static) -> TaskHandle<T> {
        let token = self.token.map_or_else(CancelToken::new, |token| token.child());
        start(self.pool.core(), self.name, self.priority, token, f)
    }
}

fn start<T: Send + 'static>(
    core: &Core,
    name: Name,
    priority: Priority,
    token: CancelToken,
    f: impl FnOnce() -> T + Send + 'static,
) -> TaskHandle<T> {
    let (promise, handle) = handle::pair(token.clone());
    let body = move || {
        if token.is_cancelled() {
            drop(f);
            promise.keep(Err(TaskError::Cancelled));
            return;
        }
        let before = CURRENT.replace(Some(name));
        let result = catch_unwind(AssertUnwindSafe(|| cancel::with_token(&token, f)));
        CURRENT.set(before);
        promise.keep(result.map_err(TaskError::Panicked));
    };
    // If the pool is closed, the promise is dropped with the task, which reports that.
    drop(core.submit(Task::new(body), priority));
    handle
}

impl Pool {
    /// Spawns a task. On a thread of this pool, it is the next task of this thread, unless another
    /// thread steals it; from outside, it goes to the shared queue.
    ///
    /// ```
    /// let pool = filch_pool::Pool::builder().threads(2).build()?;
    /// let handle = pool.spawn(|| 6 * 7);
    /// assert_eq!(handle.wait()?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn spawn<T: Send + 'static>(
        &self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> TaskHandle<T> {
        let place = Name::Place(Location::caller());
        start(self.core(), place, Priority::Normal, CancelToken::new(), f)
    }

    /// Configures a task.
    ///
    /// ```
    /// use filch_pool::{Pool, task::Priority};
    ///
    /// let pool = Pool::builder().threads(1).build()?;
    /// let task = pool.task().name("nightly report").priority(Priority::Low);
    /// let name = task.spawn(filch_pool::task::current_name).wait()?;
    /// assert_eq!(name.as_deref(), Some("nightly report"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn task(&self) -> TaskBuilder<'_> {
        let name = Name::Place(Location::caller());
        TaskBuilder { pool: self, name, priority: Priority::Normal, token: None }
    }

    /// Spawns a task without a handle, which is the cheapest way. A panic in it is caught and
    /// dropped. If the pool is closed, `f` is dropped.
    pub fn spawn_detached(&self, f: impl FnOnce() + Send + 'static) {
        drop(self.core().submit(Task::new(f), Priority::Normal));
    }
}

/// [`Pool::spawn`] in the pool that the calling thread belongs to, or in the global pool.
#[track_caller]
pub fn spawn<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> TaskHandle<T> {
    let place = Name::Place(Location::caller());
    here(|core| start(core, place, Priority::Normal, CancelToken::new(), f))
}

/// [`Pool::spawn_detached`] in the pool that the calling thread belongs to, or in the global pool.
pub fn spawn_detached(f: impl FnOnce() + Send + 'static) {
    here(|core| drop(core.submit(Task::new(f), Priority::Normal)));
}

/// Calls `f` with the pool that the calling thread belongs to, or with the global pool.
pub(crate) fn here<R>(f: impl FnOnce(&Core) -> R) -> R {
    current::with(|local| match local {
        Some(local) => f(local.core),
        None => f(global::pool().core()),
    })
}
