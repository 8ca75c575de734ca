//! The reactor: sockets and timers that futures of a pool wait for. It is created with the first
//! one.
//!
//! It has no thread. Its poller is polled by:
//!
//! - a worker that has nothing else to do (step 4 of the search order), and any other once in 61
//!   turns; one at a time.
//! - a worker that would sleep: it sleeps *in the poller* instead, until the first timer is due.
//!   There is at most one such worker, called the watcher; the others sleep as usual.
//! - the monitor: if futures wait and there is no watcher, it sends a sleeping worker to the
//!   poller. If all workers are busy, and none has polled for a while, it polls itself.
//!
//! # No wake is lost
//!
//! *Waking the watcher.* It sleeps in the poller, so unparking its thread is not enough: the poller
//! has to be notified too. The watcher takes the lock on the poller, then announces that it is the
//! watcher, then checks whether it was woken or the pool was closed, then sleeps. A thread that
//! wakes it first removes it from the list of sleepers (or closes the pool), then checks whether it
//! is the watcher, and if so notifies the poller. A fence stands between the two steps of each, so
//! either the watcher sees the wake, or the waking thread sees the watcher. A notification lasts
//! until a wait in the poller ends, and no other thread can wait there while the watcher has the
//! lock.
//!
//! *A new first timer.* The thread that adds it stores when it is due, then checks for a watcher,
//! and if there is one notifies the poller. The watcher announces itself, then reads when the first
//! timer is due. Again with a fence each.
//!
//! *A socket.* The operating system makes sure that a new interest is seen by a wait that has
//! already started.
//!
//! *No watcher.* A thread that starts to wait, and a watcher that leaves the poller while others
//! wait, then checks whether the monitor sleeps, and wakes it. The monitor announces that it
//! sleeps, then checks for unattended waits.

use std::collections::HashMap;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use polling::{Events, Poller};

use crate::core::Core;
use crate::current;
use crate::deadlines::{Deadline, Deadlines};
use crate::protocol::sync::atomic::Ordering::{Relaxed, SeqCst};
use crate::protocol::sync::atomic::{AtomicU64, AtomicUsize, fence};
use crate::protocol::sync::{self, Mutex, MutexGuard};
use crate::source::Source;

/// How many events one system call returns at most.
const EVENTS: NonZeroUsize = NonZeroUsize::new(128).expect("not zero");

/// A poll costs microseconds: workers poll at most once in this time.
const APART: Duration = Duration::from_micros(50);

/// If no worker has polled for this long, the monitor does.
const NEGLECTED: Duration = Duration::from_millis(10);

/// If a timer is this late, the monitor polls too. Not sooner: two threads that wake futures at
/// once would mix up their order.
const LATE: Duration = Duration::from_millis(2);

/// No timer waits.
const NEVER: u64 = u64::MAX;

pub(crate) struct Reactor {
    core: Weak<Core>,
    name: String,
    created: Instant,
    poller: Poller,
    /// The lock on the poller.
    events: Mutex<Events>,
    sources: Mutex<Sources>,
    timers: Mutex<Timers>,
    /// How many timers wait, and how many sides of sources that a future waits for.
    waiting: CachePadded<AtomicUsize>,
    /// When the first timer is due, in nanoseconds since the start. Written under the lock of the
    /// timers.
    due: AtomicU64,
    /// When the last poll was, likewise.
    polled: AtomicU64,
    /// The watcher, counted from one; zero if there is none.
    watcher: AtomicUsize,
}

#[derive(Default)]
struct Sources {
    by_key: HashMap<usize, Arc<Source>>,
    made: usize,
    is_closed: bool,
}

#[derive(Default)]
struct Timers {
    deadlines: Deadlines,
    is_closed: bool,
}

/// The result of an attempt to sleep in the poller.
pub(crate) enum PollerSleep {
    /// It has slept, and these wakers are to be called.
    Done(Woken),
    /// Another worker is the watcher.
    Taken,
    /// Another thread is polling, and will be gone in a moment.
    Busy,
}

/// The wakers of futures whose I/O is ready.
#[must_use]
#[derive(Default)]
pub(crate) struct Woken(Vec<Waker>);

impl Woken {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Calls them, in order.
    pub(crate) fn wake(self) {
        for waker in self.0 {
            // A waker may run any code. Its panic was reported.
            drop(catch_unwind(AssertUnwindSafe(|| waker.wake())));
        }
    }
}

impl Reactor {
    pub(crate) fn new(core: Weak<Core>, name: String) -> io::Result<Self> {
        Ok(Self {
            core,
            name,
            created: Instant::now(),
            poller: Poller::new()?,
            events: Mutex::new(Events::with_capacity(EVENTS)),
            sources: Mutex::default(),
            timers: Mutex::default(),
            waiting: CachePadded::new(AtomicUsize::new(0)),
            due: AtomicU64::new(NEVER),
            polled: AtomicU64::new(0),
            watcher: AtomicUsize::new(0),
        })
    }

    pub(crate) fn poller(&self) -> &Poller {
        &self.poller
    }

    /// The error of a wait on a closed pool.
    pub(crate) fn closed(&self) -> io::Error {
        let name = &self.name;
        io::Error::other(format!("the pool `{name}`, which watches this socket, is closed"))
    }

    /// Whether any future waits for I/O or a timer.
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiting.load(SeqCst) > 0
    }

    /// Whether a future waits and no worker sleeps in the poller.
    pub(crate) fn is_unattended(&self) -> bool {
        self.is_wanted() && self.watcher.load(SeqCst) == 0
    }

    pub(crate) fn add_waiting(&self, count: usize) {
        self.waiting.fetch_add(count, SeqCst);
    }

    pub(crate) fn remove_waiting(&self, count: usize) {
        self.waiting.fetch_sub(count, SeqCst);
    }

    fn clock(&self, at: Instant) -> u64 {
        nanoseconds(at.saturating_duration_since(self.created))
    }

    /// Polls, unless the last poll was just now, or there is a watcher.
    pub(crate) fn poll_in_passing(&self) -> Option<Woken> {
        self.is_unattended().then(|| self.poll_if_due(APART, Duration::ZERO)).flatten()
    }

    /// Polls for the monitor, while all workers are busy.
    pub(crate) fn poll_for_busy_workers(&self) -> Option<Woken> {
        self.poll_if_due(NEGLECTED, LATE)
    }

    /// Polls if the last poll was `apart` ago, or a timer is `late`.
    fn poll_if_due(&self, apart: Duration, late: Duration) -> Option<Woken> {
        let now = Instant::now();
        let is_apart =
            self.clock(now) >= self.polled.load(Relaxed).saturating_add(nanoseconds(apart));
        let is_late = self.clock(now) >= self.due.load(Relaxed).saturating_add(nanoseconds(late));
        if !is_apart && !is_late {
            return None;
        }
        let mut events = self.events.try_lock().ok()?;
        let woken = self.poll(&mut events, Some(Duration::ZERO));
        Some(woken)
    }

    /// The worker, which is on the list of sleepers, sleeps in the poller until it is woken or I/O
    /// is ready.
    pub(crate) fn sleep_in_poller(&self, core: &Core, worker: usize) -> PollerSleep {
        let Ok(mut events) = self.events.try_lock() else {
            return if self.watcher.load(SeqCst) == 0 {
                PollerSleep::Busy
            } else {
                PollerSleep::Taken
            };
        };
        self.watcher.store(worker + 1, SeqCst);
        // Between announcing the watcher, and checking for wakes and timers.
        fence(SeqCst);
        let mut woken = Woken::default();
        if !core.sleep.is_woken(worker) && !core.is_closed() {
            woken = self.poll(&mut events, self.until_due());
        }
        self.watcher.store(0, SeqCst);
        drop(events);
        if self.is_wanted() {
            core.monitor.keep_awake(core);
        }
        PollerSleep::Done(woken)
    }

    /// The worker was woken: if it sleeps in the poller, it is interrupted there.
    pub(crate) fn interrupt(&self, worker: usize) {
        // Between the wake, and the check whether it is the watcher.
        fence(SeqCst);
        if self.watcher.load(SeqCst) == worker + 1 {
            self.notify();
        }
    }

    fn notify(&self) {
        self.poller.notify().expect("notifying our own poller cannot fail");
    }

    /// The time until the first timer is due; none if there is no timer.
    fn until_due(&self) -> Option<Duration> {
        let due = self.due.load(SeqCst);
        let now = self.clock(Instant::now());
        (due != NEVER).then(|| Duration::from_nanos(due.saturating_sub(now)))
    }

    fn poll(&self, events: &mut MutexGuard<'_, Events>, timeout: Option<Duration>) -> Woken {
        events.clear();
        self.poller.wait(events, timeout).expect("waiting on our own poller cannot fail");
        let now = Instant::now();
        let mut ready = Vec::new();
        self.take_due(now, &mut ready);
        for event in events.iter() {
            let source = sync::lock(&self.sources).by_key.get(&event.key).cloned();
            if let Some(source) = source {
                self.remove_waiting(source.fire(&self.poller, event, &mut ready));
            }
        }
        self.polled.store(self.clock(now), Relaxed);
        Woken(ready)
    }

    fn take_due(&self, now: Instant, ready: &mut Vec<Waker>) {
        if self.due.load(Relaxed) > self.clock(now) {
            return;
        }
        let mut timers = sync::lock(&self.timers);
        self.remove_waiting(timers.deadlines.take_due(now, ready));
        self.write_due(&timers);
    }

    fn write_due(&self, timers: &Timers) {
        let due = timers.deadlines.first().map_or(NEVER, |first| self.clock(first));
        self.due.store(due, SeqCst);
    }

    /// A future starts to wait. If that is for the first timer, the watcher has to know.
    pub(crate) fn announce(&self, is_first_timer: bool) {
        // Between storing what is waited for, and the check for a watcher.
        fence(SeqCst);
        if self.watcher.load(SeqCst) != 0 {
            if is_first_timer {
                self.notify();
            }
            return;
        }
        current::with(|local| match local {
            // It polls when it has nothing else to do.
            Some(local) if ptr::eq(local.core, self.core.as_ptr()) => {
                local.core.monitor.keep_awake(local.core);
            }
            Some(_) | None => {
                if let Some(core) = self.core.upgrade() {
                    core.send_to_poller();
                    core.monitor.keep_awake(&core);
                }
            }
        });
    }

    /// Calls the waker at that time; none if the pool is closed.
    pub(crate) fn add_timer(&self, at: Instant, waker: Waker) -> Option<Deadline> {
        let mut timers = sync::lock(&self.timers);
        if timers.is_closed {
            return None;
        }
        let is_first = timers.deadlines.first().is_none_or(|first| at < first);
        let deadline = timers.deadlines.insert(at, waker);
        self.add_waiting(1);
        self.write_due(&timers);
        drop(timers);
        self.announce(is_first);
        Some(deadline)
    }

    /// Replaces the waker; false if the timer has ended.
    pub(crate) fn renew_timer(&self, deadline: Deadline, waker: &Waker) -> bool {
        let mut timers = sync::lock(&self.timers);
        let Some(there) = timers.deadlines.get_mut(deadline) else { return false };
        let old = (!there.will_wake(waker)).then(|| std::mem::replace(there, waker.clone()));
        drop(timers);
        // Not under the lock: dropping a waker may run any code.
        drop(old);
        true
    }

    pub(crate) fn remove_timer(&self, deadline: Deadline) {
        let mut timers = sync::lock(&self.timers);
        let waker = timers.deadlines.remove(deadline);
        if waker.is_some() {
            self.remove_waiting(1);
            self.write_due(&timers);
        }
        drop(timers);
        drop(waker);
    }

    #[cfg(test)]
    pub(crate) fn timers(&self) -> usize {
        sync::lock(&self.timers).deadlines.len()
    }

    /// Registers a file descriptor under a new key.
    pub(crate) fn register(&self, fd: RawFd) -> io::Result<Arc<Source>> {
        let mut sources = sync::lock(&self.sources);
        if sources.is_closed {
            return Err(self.closed());
        }
        sources.made += 1;
        let key = sources.made;
        let source = Arc::new(Source::new(key, fd));
        sources.by_key.insert(key, Arc::clone(&source));
        Ok(source)
    }

    /// Unregisters a file descriptor.
    pub(crate) fn unregister(&self, key: usize) {
        let source = sync::lock(&self.sources).by_key.remove(&key);
        drop(source);
    }

    /// Closes the reactor: all waiting futures are woken, and find that it is closed.
    pub(crate) fn close(&self) {
        let mut ready = Vec::new();
        let mut timers = sync::lock(&self.timers);
        timers.is_closed = true;
        ready.extend(timers.deadlines.take_all());
        drop(timers);
        let mut sources = sync::lock(&self.sources);
        sources.is_closed = true;
        let all = std::mem::take(&mut sources.by_key);
        drop(sources);
        all.into_values().for_each(|source| source.close(&mut ready));
        Woken(ready).wake();
    }
}

/// Always less than `NEVER`.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NEVER).min(NEVER - 1)
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;

    /// Records the order in which they were woken.
    struct Record {
        rank: u32,
        order: Arc<Mutex<Vec<u32>>>,
    }

    impl Wake for Record {
        fn wake(self: Arc<Self>) {
            sync::lock(&self.order).push(self.rank);
        }
    }

    #[test]
    fn a_thousand_timers_are_woken_in_order() {
        let reactor = Reactor::new(Weak::new(), "test".to_owned()).unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let begun = Instant::now();
        for n in 0..1000 {
            // All numbers below a thousand, shuffled.
            let rank = n * 387 % 1000;
            let record = Record { rank, order: Arc::clone(&order) };
            let at = begun + Duration::from_micros(50) * rank;
            reactor.add_timer(at, Waker::from(Arc::new(record))).unwrap();
        }
        while reactor.is_wanted() {
            let mut events = reactor.events.lock().unwrap();
            reactor.poll(&mut events, reactor.until_due()).wake();
        }
        assert!(begun.elapsed() >= Duration::from_micros(50) * 999);
        assert_eq!(*sync::lock(&order), (0..1000).collect::<Vec<_>>());
    }
}
