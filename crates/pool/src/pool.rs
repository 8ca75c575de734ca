//! A pool, and ways into it.

use std::fmt;
use std::sync::Arc;

use crate::builder::PoolBuilder;
use crate::core::Core;
use crate::protocol::sync::thread;
use crate::{current, install};

/// Threads that steal work from one another.
///
/// Dropping it closes it, and waits for what its threads are doing, unless one of them drops it; tasks that
/// nobody has begun are dropped.
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
    /// Describes a pool to be made.
    pub fn builder() -> PoolBuilder {
        PoolBuilder::default()
    }

    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// How many threads work at the same time.
    pub fn threads(&self) -> usize {
        self.core.threads
    }

    /// Whether the calling thread is one of this pool's.
    pub fn is_current(&self) -> bool {
        current::with(|local| local.is_some_and(|local| local.is_of(&self.core)))
    }

    /// Calls `f` on a thread of this pool, and waits for it: whatever `f` forks and spawns stays in
    /// the pool. On a thread of this pool it is a plain call.
    ///
    /// # Panics
    /// If `f` does, or if the pool is closed before `f` begins.
    pub fn install<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        if self.is_current() {
            return f();
        }
        install::install(&self.core, f)
    }

    /// Calls `f` on the calling thread, which is a worker of this pool meanwhile: others steal from it
    /// what it forks and spawns, and it waits for nobody in order to begin. If there is no seat left,
    /// this is [`Pool::install`]; on a thread of this pool it is a plain call.
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

    /// Takes nothing any more. What is being done is finished; tasks that nobody has begun are
    /// dropped, and whoever waits for one is told.
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
        // A thread of its own cannot wait for the others: one of them may wait for it. So another one does,
        // and tells who watches; if there can be no other, they are not told.
        let core = Arc::clone(&self.core);
        let thread = thread::Builder::new().name(format!("{}-end", core.name));
        let _ = thread.spawn(move || core.join());
    }
}
