//! All futures of a pool that have not ended, wherever they wait.
//!
//! A future that waits lies in no queue: only its wakers know of it, and perhaps there are none. When
//! the pool is closed it has to be dropped nevertheless, and whoever awaits it has to be told. So
//! each is listed here from its making to its end. Each worker has a list of its own to write to,
//! whose lock is seldom wanted by two at once.

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
    /// One for each thread, and the last for all who come from elsewhere.
    shards: Box<[Arc<Shard>]>,
}

/// Some of the futures of a pool, which know it from here.
struct Shard {
    /// Weak: a future that somebody outside can still wake must not keep the pool's memory.
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

    /// Takes a future in, and says how it is run for the first time; none if the pool is closed.
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

    /// Every future is woken and, as the pool is closed, dropped.
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
    /// Brings a future that was woken to where a worker finds it. If there is none any more, this
    /// drops it. The monitor sees to it that it is run though all workers may be busy.
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

/// Strikes the future off the shard in the end.
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
        // Not under the lock: it may be the last that holds the future's memory.
        drop(waker);
    }
}

pin_project! {
    /// A future with its entry: in this order, so that it is listed as long as it is there.
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
        // Its wake at the closing went for nothing if it lay in a queue at that time. Relaxed: such a
        // wake and the step that took the future out of the queue are ordered, by the future's state.
        if polled.is_pending() && this.entry.shard.is_closed.load(Relaxed) {
            context.waker().wake_by_ref();
        }
        polled
    }
}
