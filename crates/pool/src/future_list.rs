//! All futures of a pool that have not finished, wherever they wait.
//!
//! A future that waits is in no queue: only its wakers know it, and perhaps there are none. When
//! the pool is closed, it has to be dropped nevertheless, and its handle has to be notified. So
//! each future is listed here from its creation to its end. Each worker has its own shard to write
//! to, so that its lock is rarely contended.

use std::future::Future;
use std::pin::Pin;
use std::ptr;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use async_task::{FallibleTask, Runnable};
use crossbeam_utils::CachePadded;
use pin_project_lite::pin_project;

#[cfg(feature = "net")]
use crate::budget;
use crate::core::Core;
use crate::current;
use crate::local::Local;
use crate::protocol::sync::atomic::{AtomicBool, Ordering::Relaxed};
use crate::protocol::sync::{self, Mutex};
use crate::raw_task::Task;
use crate::shared_queue::Priority;
use crate::slots::Slots;

pub(crate) struct FutureList {
    /// One per thread, and the last one for all other callers.
    shards: Box<[Arc<Shard>]>,
}

/// Some of the futures of a pool, and their link to it.
struct Shard {
    /// Weak: a future that can still be woken from outside must not keep the pool's memory alive.
    core: Weak<Core>,
    /// Written under the lock.
    is_closed: AtomicBool,
    wakers: CachePadded<Mutex<Slots<Waker>>>,
}

impl FutureList {
    pub(crate) fn new(core: &Weak<Core>, threads: usize) -> Self {
        let shard = || {
            let wakers = CachePadded::new(Mutex::new(Slots::new()));
            Arc::new(Shard { core: Weak::clone(core), is_closed: AtomicBool::new(false), wakers })
        };
        Self { shards: (0..=threads).map(|_| shard()).collect() }
    }

    /// Adds a future. Returns the task that polls it first, or none if the pool is closed.
    pub(crate) fn insert<F>(
        &self,
        local: Option<&Local<'_>>,
        future: F,
    ) -> Option<(Runnable, FallibleTask<F::Output>)>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let outside = self.shards.len() - 1;
        let shard = &self.shards[local.map_or(outside, |local| local.index.min(outside))];
        let mut wakers = sync::lock(&shard.wakers);
        if shard.is_closed.load(Relaxed) {
            return None;
        }
        let listed =
            Listed { future, entry: Entry { shard: Arc::clone(shard), number: wakers.next() } };
        let home = Arc::clone(shard);
        let (runnable, task) = async_task::Builder::new()
            .propagate_panic(true)
            .spawn(|()| listed, move |runnable| home.schedule(runnable));
        wakers.insert(runnable.waker());
        Some((runnable, task.fallible()))
    }

    /// Whether there are any futures.
    pub(crate) fn has_any(&self) -> bool {
        self.shards.iter().any(|shard| !sync::lock(&shard.wakers).is_empty())
    }

    /// Wakes every future; as the pool is closed, that drops it.
    pub(crate) fn close(&self) {
        for shard in &self.shards {
            let mut wakers = sync::lock(&shard.wakers);
            shard.is_closed.store(true, Relaxed);
            let all: Vec<Waker> = wakers.drain().collect();
            drop(wakers);
            all.into_iter().for_each(Waker::wake);
        }
    }
}

impl Shard {
    /// Queues a future that was woken. If the pool is gone, this drops it. The monitor makes sure
    /// that it runs even if all workers are busy.
    fn schedule(&self, runnable: Runnable) {
        let task = Task::from_runnable(runnable);
        current::with(|local| match local {
            Some(local) if ptr::eq(local.core, self.core.as_ptr()) => {
                local.ready(task);
                local.core.monitor.keep_awake(local.core);
            }
            Some(_) | None => {
                if let Some(core) = self.core.upgrade() {
                    drop(core.submit(task, Priority::Normal));
                    core.monitor.keep_awake(&core);
                }
            }
        });
    }
}

/// Removes the future from its shard in the end.
struct Entry {
    shard: Arc<Shard>,
    number: usize,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let waker = {
            let mut wakers = sync::lock(&self.shard.wakers);
            if self.shard.is_closed.load(Relaxed) { None } else { wakers.remove(self.number) }
        };
        // Not under the lock: this may be the last reference to the future's memory.
        drop(waker);
    }
}

pin_project! {
    /// A future with its entry: in this order, so that it is listed as long as it exists.
    struct Listed<F> {
        #[pin]
        future: F,
        entry: Entry,
    }
}

impl<F: Future> Future for Listed<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        #[cfg(feature = "net")]
        let polled = budget::step(|| this.future.poll(context));
        #[cfg(not(feature = "net"))]
        let polled = this.future.poll(context);
        // The wake on closing had no effect if the future was in a queue at that time. Relaxed:
        // such a wake and the poll that took the future out of the queue are ordered by the
        // future's own state.
        if polled.is_pending() && this.entry.shard.is_closed.load(Relaxed) {
            context.waker().wake_by_ref();
        }
        polled
    }
}
