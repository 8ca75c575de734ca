//! Tasks: closures that run some time, with a name, a priority, a token and a result.

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

/// What a task is to be like: see [`Pool::task`].
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

/// What the task that calls this is called: the name it was given, or the place in the source where
/// it was spawned.
pub fn current_name() -> Option<String> {
    CURRENT.with_borrow(|name| {
        name.as_ref().map(|name| match name {
            Name::Given(name) => name.to_string(),
            Name::Place(place) => place.to_string(),
        })
    })
}

impl TaskBuilder<'_> {
    /// What it is called; if not said, after the place where it is spawned.
    pub fn name(mut self, name: impl AsRef<str>) -> Self {
        self.name = Name::Given(Arc::from(name.as_ref()));
        self
    }

    /// How urgent it is.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// It does not begin if this token was cancelled by then.
    pub fn token(mut self, token: &CancelToken) -> Self {
        self.token = Some(token.clone());
        self
    }

    /// Runs `f` some time.
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
    // If the pool is closed, the promise is dropped with the task, and says so.
    drop(core.submit(Task::new(body), priority));
    handle
}

impl Pool {
    /// Runs `f` some time. On a thread of this pool it is the next thing this thread does, unless
    /// another takes it before; from outside it waits its turn.
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

    /// Describes a task to be spawned.
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

    /// Runs `f` some time, and says nothing about it: the cheapest way. A panic ends there. If the
    /// pool is closed, `f` is dropped.
    pub fn spawn_detached(&self, f: impl FnOnce() + Send + 'static) {
        drop(self.core().submit(Task::new(f), Priority::Normal));
    }
}

/// [`Pool::spawn`] in the pool that the calling thread belongs to, or in the global one.
#[track_caller]
pub fn spawn<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> TaskHandle<T> {
    let place = Name::Place(Location::caller());
    here(|core| start(core, place, Priority::Normal, CancelToken::new(), f))
}

/// [`Pool::spawn_detached`] in the pool that the calling thread belongs to, or in the global one.
pub fn spawn_detached(f: impl FnOnce() + Send + 'static) {
    here(|core| drop(core.submit(Task::new(f), Priority::Normal)));
}

/// The pool that the calling thread belongs to, or the global one.
pub(crate) fn here<R>(f: impl FnOnce(&Core) -> R) -> R {
    current::with(|local| match local {
        Some(local) => f(local.core),
        None => f(global::pool().core()),
    })
}
