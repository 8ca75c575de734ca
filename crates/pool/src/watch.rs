//! Watching a pool: its events as they happen.
//!
//! Only events that concern several workers are reported: exposed and stolen work, sleeping and
//! waking. Private forks happen millions of times per second, and are as cheap as a call because
//! they report nothing. The paths that do report cost much more than the check for watchers.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

pub use crate::events::PoolEventKind;
use crate::pool::Pool;
use crate::protocol::sync::atomic::AtomicUsize;
use crate::protocol::sync::atomic::Ordering::Relaxed;
use crate::protocol::sync::{self, Condvar, Mutex, MutexGuard};

/// How many events are buffered for a watcher before the oldest are dropped.
const CAPACITY: usize = 4096;

/// An event in a pool: see [`Pool::watch`].
///
/// ```
/// use filch_pool::{Pool, watch::PoolEventKind};
///
/// let pool = Pool::builder().threads(1).build()?;
/// let mut watch = pool.watch();
/// pool.spawn_detached(|| ());
/// let push = watch.find(|event| event.kind == PoolEventKind::Push).expect("a task was spawned");
/// assert_eq!(push.worker, None);
/// # Ok::<(), filch_pool::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolEvent {
    /// When it happened, since the pool was created. A watcher sees events in this order.
    pub at: Duration,
    /// The worker that caused it, by its index in
    /// [`PoolStats::workers`](crate::stats::PoolStats::workers); none if it came from outside the
    /// pool.
    pub worker: Option<usize>,
    /// What happened.
    pub kind: PoolEventKind,
}

/// The watchers of a pool.
pub(crate) struct Watchers {
    created: Instant,
    /// How many there are. Relaxed everywhere: a new watcher gets events from some moment on.
    count: AtomicUsize,
    rings: Mutex<Rings>,
}

#[derive(Default)]
struct Rings {
    rings: Vec<Arc<Ring>>,
    /// The pool has ended: there are no more events.
    are_over: bool,
}

/// The events that one watcher has not read yet.
struct Ring {
    capacity: usize,
    events: Mutex<Events>,
    arrived: Condvar,
}

#[derive(Default)]
struct Events {
    events: VecDeque<PoolEvent>,
    lost: u64,
    is_waited_for: bool,
    is_over: bool,
}

impl Watchers {
    pub(crate) fn new(created: Instant) -> Self {
        Self { created, count: AtomicUsize::new(0), rings: Mutex::default() }
    }

    /// Reports an event. Without watchers, this is one check.
    #[inline]
    pub(crate) fn notify(&self, worker: Option<usize>, kind: PoolEventKind) {
        if self.count.load(Relaxed) > 0 {
            self.notify_all(worker, kind);
        }
    }

    #[cold]
    #[inline(never)]
    fn notify_all(&self, worker: Option<usize>, kind: PoolEventKind) {
        let rings = sync::lock(&self.rings);
        // Under the lock, so that the order of events is the order of their times.
        let event = PoolEvent { at: self.created.elapsed(), worker, kind };
        rings.rings.iter().for_each(|ring| ring.push(event));
    }

    /// The pool has ended.
    pub(crate) fn finish(&self) {
        let mut rings = sync::lock(&self.rings);
        rings.are_over = true;
        rings.rings.iter().for_each(|ring| {
            sync::lock(&ring.events).is_over = true;
            ring.arrived.notify_all();
        });
    }

    fn subscribe(&self, capacity: usize) -> Arc<Ring> {
        let mut rings = sync::lock(&self.rings);
        let events = Events { is_over: rings.are_over, ..Events::default() };
        let capacity = capacity.max(1);
        let ring = Ring { capacity, events: Mutex::new(events), arrived: Condvar::new() };
        let ring = Arc::new(ring);
        rings.rings.push(Arc::clone(&ring));
        self.count.store(rings.rings.len(), Relaxed);
        ring
    }

    fn unsubscribe(&self, ring: &Arc<Ring>) {
        let mut rings = sync::lock(&self.rings);
        rings.rings.retain(|other| !Arc::ptr_eq(other, ring));
        self.count.store(rings.rings.len(), Relaxed);
    }
}

impl Ring {
    fn push(&self, event: PoolEvent) {
        let mut events = sync::lock(&self.events);
        if events.events.len() == self.capacity {
            events.events.pop_front();
            events.lost += 1;
        }
        events.events.push_back(event);
        if events.is_waited_for {
            self.arrived.notify_one();
        }
    }

    /// The oldest event, as soon as there is one, but not later than `until`.
    fn pop(&self, until: Option<Instant>) -> Option<PoolEvent> {
        let mut events = sync::lock(&self.events);
        while events.events.is_empty() && !events.is_over {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                break;
            }
            events.is_waited_for = true;
            events = self.wait(events, left);
            events.is_waited_for = false;
        }
        events.events.pop_front()
    }

    fn wait<'a>(
        &self,
        events: MutexGuard<'a, Events>,
        left: Option<Duration>,
    ) -> MutexGuard<'a, Events> {
        match left {
            Some(left) => {
                self.arrived.wait_timeout(events, left).unwrap_or_else(PoisonError::into_inner).0
            }
            None => self.arrived.wait(events).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// The events of a pool, oldest first: see [`Pool::watch`].
///
/// As an iterator, it waits for the next event, and ends when the pool has been dropped and all
/// events were read. Dropping it unsubscribes.
///
/// ```
/// use filch_pool::{Pool, watch::PoolEventKind};
///
/// let pool = Pool::builder().threads(2).build()?;
/// let watch = pool.watch();
/// pool.install(|| ());
/// drop(pool);
/// assert!(watch.into_iter().any(|event| event.kind == PoolEventKind::Push));
/// # Ok::<(), filch_pool::BuildError>(())
/// ```
#[must_use = "dropping it ends the watch"]
pub struct Watch {
    watchers: Arc<Watchers>,
    ring: Arc<Ring>,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("lost", &self.lost()).finish_non_exhaustive()
    }
}

impl Watch {
    /// The next event, if there is one already.
    ///
    /// ```
    /// let pool = filch_pool::Pool::builder().threads(1).build()?;
    /// let watch = pool.watch();
    /// pool.spawn_detached(|| ());
    /// assert!(watch.try_next().is_some());
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn try_next(&self) -> Option<PoolEvent> {
        sync::lock(&self.ring.events).events.pop_front()
    }

    /// The next event, if it comes within that time; none at once if the pool has ended.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let pool = filch_pool::Pool::builder().threads(1).build()?;
    /// let watch = pool.watch();
    /// pool.spawn_detached(|| ());
    /// assert!(watch.next_within(Duration::from_secs(10)).is_some());
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn next_within(&self, time: Duration) -> Option<PoolEvent> {
        // A deadline that cannot be represented never comes.
        self.ring.pop(Instant::now().checked_add(time))
    }

    /// How many events were dropped because they were not read in time.
    ///
    /// ```
    /// let pool = filch_pool::Pool::builder().threads(1).build()?;
    /// let watch = pool.watch_last(1);
    /// (0..3).for_each(|_| pool.spawn_detached(|| ()));
    /// assert!(watch.lost() >= 2);
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn lost(&self) -> u64 {
        sync::lock(&self.ring.events).lost
    }
}

impl Iterator for Watch {
    type Item = PoolEvent;

    fn next(&mut self) -> Option<PoolEvent> {
        self.ring.pop(None)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.watchers.unsubscribe(&self.ring);
    }
}

impl Pool {
    /// Subscribes to the events of this pool from now on. The newest few thousand are buffered;
    /// those that were dropped are [counted](Watch::lost).
    ///
    /// There may be several watchers, and each gets all events. Without watchers, this has no
    /// measurable cost.
    ///
    /// ```
    /// use filch_pool::{Pool, watch::PoolEventKind};
    ///
    /// let pool = Pool::builder().threads(2).build()?;
    /// let watch = pool.watch();
    /// pool.install(|| filch_pool::join(|| (), || ()));
    /// drop(pool);
    /// for event in watch {
    ///     if let PoolEventKind::Steal { from, to, count } = event.kind {
    ///         println!("after {:?}: {to} took {count} from {from}", event.at);
    ///     }
    /// }
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn watch(&self) -> Watch {
        self.watch_last(CAPACITY)
    }

    /// Like [`Pool::watch`], but buffers that many events, at least one.
    ///
    /// ```
    /// let pool = filch_pool::Pool::builder().threads(1).build()?;
    /// let watch = pool.watch_last(100_000);
    /// assert_eq!(watch.lost(), 0);
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn watch_last(&self, events: usize) -> Watch {
        let watchers = Arc::clone(&self.core().watchers);
        let ring = watchers.subscribe(events);
        Watch { watchers, ring }
    }
}
