//! The reactor: sockets and timers that futures of a pool wait for. It is made when the first is.
//!
//! Nobody's thread is spent on it. Who looks for what is ready, or due:
//!
//! - A worker that has nothing else to do, in passing (rung 4 of the ladder), and any other once in
//!   many turns; one at a time.
//! - A worker that would sleep *watches* instead: it sleeps within the poller, until the first timer.
//!   There is one watcher at most; the others sleep as they always do.
//! - If nobody watches though somebody waits, the monitor sends a sleeping worker to watch. If all
//!   are busy, and none has looked for a while, it looks itself.
//!
//! # No wake is lost
//!
//! *Work for the watcher.* It sleeps within the poller, so unparking its thread is not enough: the
//! poller is notified too. The watcher takes the right to look, then writes down that it watches,
//! then looks whether it was called, or the pool closed, then sleeps. Who calls it first takes it
//! off the list of sleepers (or closes the pool), then looks whether it watches, and if so notifies.
//! Fences stand between the two steps of each; so the watcher sees the call, or its caller sees
//! that it watches. A notification lasts until a wait within the poller ends, and nobody else can wait
//! there while the watcher has the right to look.
//!
//! *A new timer that is the first.* Who adds it writes down when it is due, then looks whether somebody
//! watches, and if so notifies. The watcher writes down that it watches, then reads when the first is
//! due. Again a fence each.
//!
//! *A socket.* The system itself sees to it that a new interest is seen by a wait that has begun.
//!
//! *Nobody watches.* Who begins to wait, and the watcher that gets up while others wait, then looks
//! whether the monitor sleeps, and rouses it. The monitor says that it sleeps, then looks whether anybody
//! waits unwatched.

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

/// How many events the system tells at once.
const EVENTS: NonZeroUsize = NonZeroUsize::new(128).expect("not zero");

/// A look costs microseconds: in passing there is one at most in this time.
const APART: Duration = Duration::from_micros(50);

/// When nobody has looked for so long, the monitor does.
const NEGLECTED: Duration = Duration::from_millis(10);

/// When a timer is so late, the monitor looks too. Not sooner: two who wake at once mix up the order.
const LATE: Duration = Duration::from_millis(2);

/// No timer waits.
const NEVER: u64 = u64::MAX;

pub(crate) struct Reactor {
    core: Weak<Core>,
    name: String,
    begun: Instant,
    poller: Poller,
    /// The right to look.
    events: Mutex<Events>,
    sources: Mutex<Sources>,
    timers: Mutex<Timers>,
    /// How many timers wait, and sides of sources that somebody waits for.
    waiting: CachePadded<AtomicUsize>,
    /// When the first timer is due, in nanoseconds since the beginning. Written under the lock of the timers.
    due: AtomicU64,
    /// When somebody looked last, likewise.
    polled: AtomicU64,
    /// The seat of the watcher, counted from one; zero if nobody watches.
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

/// What came of the wish to watch.
pub(crate) enum PollerSleep {
    /// It has watched, and these are to be woken.
    Done(Woken),
    /// Somebody else does.
    Taken,
    /// Somebody looks just now, and will be gone in a moment.
    Busy,
}

/// Whose wait has ended.
#[must_use]
#[derive(Default)]
pub(crate) struct Woken(Vec<Waker>);

impl Woken {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Wakes them, in order.
    pub(crate) fn wake(self) {
        for waker in self.0 {
            // It may be anybody's code. What it panics with was reported.
            drop(catch_unwind(AssertUnwindSafe(|| waker.wake())));
        }
    }
}

impl Reactor {
    pub(crate) fn new(core: Weak<Core>, name: String) -> io::Result<Self> {
        Ok(Self {
            core,
            name,
            begun: Instant::now(),
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

    /// Why nothing can be waited for any more.
    pub(crate) fn closed(&self) -> io::Error {
        let name = &self.name;
        io::Error::other(format!("the pool `{name}`, which watched this socket, is closed"))
    }

    /// Whether anybody waits for something.
    pub(crate) fn is_wanted(&self) -> bool {
        self.waiting.load(SeqCst) > 0
    }

    /// Whether somebody waits, and no thread sleeps within the poller.
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
        nanoseconds(at.saturating_duration_since(self.begun))
    }

    /// A look in passing, unless there was one just now, or somebody watches.
    pub(crate) fn poll_in_passing(&self) -> Option<Woken> {
        self.is_unattended().then(|| self.poll_if_due(APART, Duration::ZERO)).flatten()
    }

    /// The look of the monitor, for workers that are all busy.
    pub(crate) fn poll_for_busy_workers(&self) -> Option<Woken> {
        self.poll_if_due(NEGLECTED, LATE)
    }

    /// Looks if the last one who did was that long ago, or a timer is so late.
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

    /// The worker on that worker, which lies on the list of sleepers, sleeps within the poller until it
    /// is called, or something is ready.
    pub(crate) fn sleep_in_poller(&self, core: &Core, worker: usize) -> PollerSleep {
        let Ok(mut events) = self.events.try_lock() else {
            return if self.watcher.load(SeqCst) == 0 {
                PollerSleep::Busy
            } else {
                PollerSleep::Taken
            };
        };
        self.watcher.store(worker + 1, SeqCst);
        // Between saying that we watch, and looking for calls and timers.
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

    /// The worker on that seat was called: if it sleeps within the poller, it is woken there.
    pub(crate) fn interrupt(&self, worker: usize) {
        // Between the call, and looking whether it watches.
        fence(SeqCst);
        if self.watcher.load(SeqCst) == worker + 1 {
            self.notify();
        }
    }

    fn notify(&self) {
        self.poller.notify().expect("a number can be added to an event counter");
    }

    /// How long until the first timer is due; none if there is none.
    fn until_due(&self) -> Option<Duration> {
        let due = self.due.load(SeqCst);
        let now = self.clock(Instant::now());
        (due != NEVER).then(|| Duration::from_nanos(due.saturating_sub(now)))
    }

    fn poll(&self, events: &mut MutexGuard<'_, Events>, timeout: Option<Duration>) -> Woken {
        events.clear();
        self.poller.wait(events, timeout).expect("a poller of ours can be waited for");
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

    /// Somebody waits from now on; if that is for the first timer, the watcher has to know.
    pub(crate) fn announce(&self, is_first_timer: bool) {
        // Between writing down what is waited for, and looking for who watches.
        fence(SeqCst);
        if self.watcher.load(SeqCst) != 0 {
            if is_first_timer {
                self.notify();
            }
            return;
        }
        current::with(|local| match local {
            // It looks itself when it has nothing else to do.
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

    /// Wakes at that time; none if the pool is closed.
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

    /// Wakes another instead; false if that timer is over.
    pub(crate) fn renew_timer(&self, deadline: Deadline, waker: &Waker) -> bool {
        let mut timers = sync::lock(&self.timers);
        let Some(there) = timers.deadlines.get_mut(deadline) else { return false };
        let old = (!there.will_wake(waker)).then(|| std::mem::replace(there, waker.clone()));
        drop(timers);
        // Not under the lock: it may be the last that holds something.
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

    /// A number for a file that is to be watched.
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

    /// That file is not watched any more.
    pub(crate) fn unregister(&self, key: usize) {
        let source = sync::lock(&self.sources).by_key.remove(&key);
        drop(source);
    }

    /// Nothing is watched any more: whoever waits is told.
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

/// Less than never, however long it is.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NEVER).min(NEVER - 1)
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;

    /// Writes down in which order they were woken.
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
            // All numbers below a thousand, in no order.
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
