//! The threads that run sync handlers: a pool of as many as there are slots.
//!
//! A handler may fork, spawn and wait there like any task of a pool. A thread that finds nothing to do
//! says so before it sleeps, and that is how the brain learns of it: nobody looks again and again.

use std::sync::Arc;
use std::time::Duration;

use filch_pool::{Pool, PoolBuilder};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// What the threads are called, with a number behind it.
const NAME: &str = "filch-worker";

pub(crate) struct Threads {
    /// There until it is closed.
    pool: Option<Pool>,
    runtime: Handle,
}

/// That a thread has found nothing to do since this was last looked at: however many say so, once.
#[derive(Clone, Default)]
pub(crate) struct Idle(Arc<Notify>);

impl Idle {
    /// Never waits.
    fn say(&self) {
        self.0.notify_one();
    }

    /// Waits until it is said.
    pub(crate) async fn said(&self) {
        self.0.notified().await;
    }
}

impl Threads {
    /// Needs a running tokio runtime. About a trace of which nothing is said the environment decides.
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
            // It brings nothing now: what comes of it is spawned, and that wakes a thread.
            false
        };
        let builder = Pool::builder().name(NAME).threads(threads).idle_hook(idle_hook);
        // Handlers may use what needs a runtime.
        let mut builder = builder.tokio(runtime.clone());
        if let Some(period) = trace {
            builder = builder.trace(period);
        }
        let pool = builder.build().unwrap_or_else(|error| {
            panic!("there are not enough threads to run {slots} jobs at once: {error}")
        });
        Self { pool: Some(pool), runtime }
    }

    /// Runs it some time soon.
    pub(crate) fn run(&self, handler: impl FnOnce() + Send + 'static) {
        self.pool.as_ref().expect("it is closed last").spawn_detached(handler);
    }

    /// Ends the threads when what they do is done.
    pub(crate) fn close(&mut self) -> Option<JoinHandle<()>> {
        let pool = self.pool.take()?;
        // Not here: a handler that takes its time must not hold up what waits.
        Some(self.runtime.spawn_blocking(move || drop(pool)))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        drop(self.close());
    }
}
