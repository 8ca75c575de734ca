//! A pool, and how to run code in it.

use std::fmt;
use std::sync::Arc;

use crate::builder::PoolBuilder;
use crate::core::Core;
use crate::protocol::sync::thread;
use crate::{current, install};

/// A pool of threads that steal work from one another.
///
/// Dropping it closes it and joins its threads, unless one of them drops it. Tasks that have not
/// started are dropped.
pub struct Pool {
    core: Arc<Core>,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = self.core.threads;
        f.debug_struct("Pool").field("name", &self.core.name).field("threads", &threads).finish()
    }
}

impl Pool {
    /// Configures a new pool.
    pub fn builder() -> PoolBuilder {
        PoolBuilder::default()
    }

    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// How many threads run at the same time.
    pub fn threads(&self) -> usize {
        self.core.threads
    }

    /// Whether the calling thread is a worker of this pool.
    pub fn is_current(&self) -> bool {
        current::with(|local| local.is_some_and(|local| local.is_of(&self.core)))
    }

    /// Calls `f` on a thread of this pool and waits for it. Everything that `f` forks and spawns
    /// stays in the pool. On a thread of this pool, it is a plain call.
    ///
    /// # Panics
    /// If `f` panics, or if the pool is closed before `f` starts.
    pub fn install<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        if self.is_current() {
            return f();
        }
        install::install(&self.core, f)
    }

    /// Calls `f` on the calling thread, which becomes a worker of this pool meanwhile: others steal
    /// what it forks and spawns, and it starts at once. If there is no free slot, this is
    /// [`Pool::install`]; on a thread of this pool, it is a plain call.
    ///
    /// ```
    /// let pool = filch_pool::Pool::builder().threads(2).build()?;
    /// let caller = std::thread::current().id();
    /// assert_eq!(pool.enter(|| std::thread::current().id()), caller);
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn enter<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        if self.is_current() {
            return f();
        }
        match self.core.take_slot() {
            Some(worker) => install::enter(&self.core, worker, f),
            None => install::install(&self.core, f),
        }
    }

    /// Closes the pool: it accepts no more work. Running tasks finish. Tasks that have not started
    /// are dropped, and their handles report [`TaskError::Closed`](crate::task::TaskError::Closed).
    pub fn close(&self) {
        self.core.close();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.core.close();
        let is_own =
            self.is_current() || self.core.monitor.is_current() || self.core.trace.is_current();
        if !is_own {
            return self.core.join();
        }
        // One of its own threads cannot join the others, which may wait for it. So another thread
        // does, and then notifies the watchers. If no thread can be started, they are not notified.
        let core = Arc::clone(&self.core);
        let thread = thread::Builder::new().name(format!("{}-end", core.name));
        let _ = thread.spawn(move || core.join());
    }
}
