//! The threads that run sync handlers: a pool with one thread per slot.
//!
//! A handler may fork, spawn and wait there like any task of a pool. An idle thread notifies the
//! worker before it sleeps, so the worker does not poll.

use std::sync::Arc;
use std::time::Duration;

use filch_pool::{Pool, PoolBuilder};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// The name of the threads; a number is appended.
const NAME: &str = "filch-worker";

pub(crate) struct Threads {
    /// `None` once it is closed.
    pool: Option<Pool>,
    runtime: Handle,
}

/// Notifies that a thread is idle; several notifications count as one.
#[derive(Clone, Default)]
pub(crate) struct Idle(Arc<Notify>);

impl Idle {
    /// Never waits.
    fn say(&self) {
        self.0.notify_one();
    }

    /// Waits for a notification.
    pub(crate) async fn said(&self) {
        self.0.notified().await;
    }
}

impl Threads {
    /// Needs a running tokio runtime. Without `trace`, the environment decides about a trace.
    ///
    /// # Panics
    /// If a thread cannot be started.
    pub(crate) fn start(slots: u32, trace: Option<Duration>, idle: Idle) -> Self {
        // If there are more slots, the rest wait until a thread is free.
        let most = PoolBuilder::THREADS_MAX;
        let threads = usize::try_from(slots).unwrap_or(most).clamp(1, most);
        let runtime = Handle::current();
        let idle_hook = move || {
            idle.say();
            // There is no task yet; if the worker gets a job, it is spawned later and wakes a
            // thread.
            false
        };
        let builder = Pool::builder().name(NAME).threads(threads).idle_hook(idle_hook);
        // Handlers may use things that need a tokio runtime.
        let mut builder = builder.tokio(runtime.clone());
        if let Some(period) = trace {
            builder = builder.trace(period);
        }
        let pool = builder
            .build()
            .unwrap_or_else(|error| panic!("cannot start threads for {slots} slots: {error}"));
        Self { pool: Some(pool), runtime }
    }

    /// Runs a handler as soon as a thread is free.
    pub(crate) fn run(&self, handler: impl FnOnce() + Send + 'static) {
        self.pool.as_ref().expect("it is closed last").spawn_detached(handler);
    }

    /// Ends the threads after their current work.
    pub(crate) fn close(&mut self) -> Option<JoinHandle<()>> {
        let pool = self.pool.take()?;
        // Not on this thread: a slow handler must not block the runtime.
        Some(self.runtime.spawn_blocking(move || drop(pool)))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        drop(self.close());
    }
}
