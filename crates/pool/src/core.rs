//! What the threads of one pool share.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::builder::Settings;
use crate::deterministic::Script;
use crate::events::PoolEventKind;
use crate::local::Local;
use crate::monitor::Monitor;
use crate::protocol::crew::Crew;
use crate::protocol::lineage::{self, Cause, Place};
use crate::protocol::reserve::Reserve;
use crate::protocol::sleep::Sleep;
use crate::protocol::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use crate::protocol::sync::atomic::{AtomicBool, AtomicUsize, fence};
use crate::protocol::sync::{self, Mutex, OnceLock, thread};
use crate::protocol::waiters::Waiters;
use crate::random::Random;
use crate::raw_task::Task;
use crate::reactor::{Reactor, Watch, Woken};
use crate::roster::Roster;
use crate::seat::Seat;
use crate::shared_queue::{Priority, SharedQueue};
use crate::steal::StealPolicy;
use crate::trace::Trace;
use crate::watch::Watchers;
use crate::{current, worker};

/// What is called when a worker has found nothing in this process; true if it has brought work.
pub(crate) type IdleHook = Box<dyn Fn() -> bool + Send + Sync>;

/// How long somebody looks at what is ready, about.
const MOMENT: Duration = Duration::from_micros(100);

pub(crate) struct Core {
    pub(crate) name: String,
    /// How many threads work at the same time.
    pub(crate) threads: usize,
    pub(crate) steal: StealPolicy,
    pub(crate) seed: u64,
    pub(crate) idle_hook: Option<IdleHook>,
    stack_size: Option<usize>,
    is_pinned: bool,
    #[cfg(feature = "tokio")]
    tokio: Option<tokio::runtime::Handle>,
    /// Those of the threads come first. They are made when somebody sits down for the first time.
    seats: Box<[OnceLock<Box<Seat>>]>,
    /// How many seats were ever taken.
    seats_used: CachePadded<AtomicUsize>,
    /// Seats beyond those of the threads that nobody sits on, and that were used before.
    seats_free: Mutex<Vec<usize>>,
    pub(crate) shared: SharedQueue,
    pub(crate) sleep: Sleep,
    pub(crate) waiters: Waiters,
    pub(crate) monitor: Monitor,
    pub(crate) reserve: Reserve,
    /// Made with the first future.
    roster: OnceLock<Roster>,
    /// Made with the first socket or timer.
    reactor: OnceLock<Arc<Reactor>>,
    is_closed: AtomicBool,
    crew: Crew<thread::JoinHandle<()>>,
    /// If no thread works here, but a seed decides what happens.
    pub(crate) script: OnceLock<Script>,
    pub(crate) trace: Trace,
    pub(crate) watchers: Arc<Watchers>,
    /// When it was made.
    pub(crate) begun: Instant,
    this: Weak<Core>,
}

impl Core {
    pub(crate) fn new(settings: Settings) -> Arc<Self> {
        let threads = settings.threads;
        let seats = Place::SEATS;
        let begun = Instant::now();
        Arc::new_cyclic(|this| Self {
            name: settings.name,
            threads,
            steal: settings.steal,
            seed: settings.seed,
            idle_hook: settings.idle_hook,
            stack_size: settings.stack_size,
            is_pinned: settings.is_pinned,
            #[cfg(feature = "tokio")]
            tokio: settings.tokio,
            seats: (0..seats).map(|_| OnceLock::new()).collect(),
            seats_used: CachePadded::new(AtomicUsize::new(threads)),
            seats_free: Mutex::new(Vec::new()),
            shared: SharedQueue::new(),
            sleep: Sleep::new(seats),
            waiters: Waiters::new(),
            monitor: Monitor::new(),
            reserve: Reserve::new(),
            roster: OnceLock::new(),
            reactor: OnceLock::new(),
            is_closed: AtomicBool::new(false),
            crew: Crew::new(),
            script: OnceLock::new(),
            trace: Trace::default(),
            watchers: Arc::new(Watchers::new(begun)),
            begun,
            this: Weak::clone(this),
        })
    }

    /// Starts the threads.
    pub(crate) fn start(&self) -> std::io::Result<()> {
        (0..self.threads).try_for_each(|index| self.start_thread(index).map(|_| ()))
    }

    /// Not if nobody would wait for it any more; says whether it was.
    pub(crate) fn start_thread(&self, index: usize) -> std::io::Result<bool> {
        let core = self.this().expect("who calls this has the core");
        let mut thread = thread::Builder::new().name(format!("{}-{index}", self.name));
        if let Some(bytes) = self.stack_size {
            thread = thread.stack_size(bytes);
        }
        let body = move || {
            if core.is_pinned {
                pin(index);
            }
            #[cfg(feature = "tokio")]
            let _entered = core.enter_tokio();
            worker::run(&core, index);
        };
        self.crew.start(|| thread.spawn(body))
    }

    /// The calling thread belongs to tokio's runtime as well, if there is one, as long as this is kept.
    #[cfg(feature = "tokio")]
    pub(crate) fn enter_tokio(&self) -> Option<tokio::runtime::EnterGuard<'_>> {
        self.tokio.as_ref().map(tokio::runtime::Handle::enter)
    }

    /// The core, to be kept by a thread; none if it is about to go.
    pub(crate) fn this(&self) -> Option<Arc<Self>> {
        self.this.upgrade()
    }

    /// Who decides what happens on the calling thread, if nobody else works here.
    pub(crate) fn script(&self) -> Option<&Script> {
        self.script.get().filter(|script| script.is_here())
    }

    /// What others see of that worker.
    pub(crate) fn seat(&self, index: usize) -> &Seat {
        self.seats[index].get_or_init(|| Box::new(Seat::new()))
    }

    /// How many seats there are to look at.
    pub(crate) fn seats(&self) -> usize {
        // Relaxed: a seat that is seen late is looked at late; before sleeping, a fence stands between.
        self.seats_used.load(Relaxed)
    }

    /// Whether nobody could steal.
    pub(crate) fn is_alone(&self) -> bool {
        self.seats() == 1
    }

    /// A seat beyond those of the threads, if there is one left.
    pub(crate) fn take_seat(&self) -> Option<usize> {
        let mut free = sync::lock(&self.seats_free);
        free.pop().or_else(|| {
            let next = self.seats();
            (next < self.seats.len()).then(|| {
                self.seats_used.store(next + 1, SeqCst);
                next
            })
        })
    }

    pub(crate) fn free_seat(&self, index: usize) {
        sync::lock(&self.seats_free).push(index);
    }

    /// Every seat but that one: first any of them, equally likely, then on in steps that reach all.
    pub(crate) fn others(
        &self,
        index: usize,
        random: &Random,
    ) -> impl Iterator<Item = usize> + use<> {
        let seats = self.seats();
        let others = seats - 1;
        let mut offset = random.below(others);
        let mut step = 1 + random.below(others);
        while common_divisor(step, others) > 1 {
            step = step % others + 1;
        }
        (0..others).map(move |_| {
            offset = (offset + step) % others;
            (index + 1 + offset) % seats
        })
    }

    /// Everybody is asked to expose something.
    pub(crate) fn ask_all(&self) {
        (0..self.seats()).for_each(|index| self.seat(index).ask());
    }

    /// Whether there is anything that a worker could take.
    pub(crate) fn is_exposed(&self) -> bool {
        !self.shared.is_empty() || (0..self.seats()).any(|index| self.seat(index).is_exposed())
    }

    /// Whether there is no reason to be awake.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.is_exposed() && !self.is_closed()
    }

    /// Whether a worker has a task that it has just made ready.
    pub(crate) fn has_next(&self) -> bool {
        (0..self.seats()).any(|index| !self.seat(index).next.is_empty())
    }

    /// Whether any task has not been begun, wherever it lies.
    pub(crate) fn has_waiting(&self) -> bool {
        self.is_exposed() || self.has_next()
    }

    /// Whether any future has not ended.
    pub(crate) fn has_futures(&self) -> bool {
        self.roster.get().is_some_and(Roster::has_any)
    }

    /// Something was made visible: wakes one worker, if that helps.
    pub(crate) fn wake_one(&self) -> bool {
        let seat = self.sleep.wake_one();
        if let (Some(seat), Some(reactor)) = (seat, self.reactor()) {
            reactor.unwatch(seat);
        }
        seat.is_some()
    }

    /// Whether anybody sleeps, searches or waits, about.
    pub(crate) fn is_anybody_idle(&self) -> bool {
        self.sleep.is_anybody_idle() || !self.waiters.is_empty()
    }

    /// Whether what is done on that seat, as far as it lies open, is a part of what somebody waits for.
    pub(crate) fn descends(&self, place: Option<Place>, cause: Cause) -> bool {
        lineage::descends(|seat| &self.seat(seat).lineage, place, cause)
    }

    /// Something lies open on that seat, behind a fence: one who waits for what it is a part of is woken,
    /// unless it has forks of its own, so that it would not take any.
    pub(crate) fn call_waiter(&self, seat: usize) {
        if self.waiters.is_empty() {
            return;
        }
        let place = self.seat(seat).lineage.place();
        let is_free = |waiter: usize| self.seat(waiter).forks.is_empty();
        let may_take = |waiter, cause| is_free(waiter) && self.descends(place, cause);
        if let Some(waiter) = self.waiters.call(may_take) {
            self.unpark(waiter);
        }
    }

    /// Something may lie open anywhere that nobody else was told of: see [`Core::call_waiter`].
    pub(crate) fn call_waiters(&self) {
        if !self.waiters.is_empty() {
            let is_open = |seat: &usize| !self.seat(*seat).forks.is_empty();
            (0..self.seats()).filter(is_open).for_each(|seat| self.call_waiter(seat));
        }
    }

    pub(crate) fn unpark(&self, seat: usize) {
        self.sleep.unpark(seat);
        if let Some(reactor) = self.reactor() {
            reactor.unwatch(seat);
        }
    }

    /// Sleeps until called, until the pool is closed, or until something is ready: that is to be
    /// woken once this worker is up.
    pub(crate) fn park(&self, local: &Local<'_>) -> Woken {
        while !self.sleep.is_called(local.index) && !self.is_closed() {
            let reactor = self.reactor().filter(|reactor| reactor.is_wanted());
            match reactor.map(|reactor| reactor.watch(self, local.index)) {
                None | Some(Watch::Taken) => thread::park(),
                Some(Watch::Busy) => thread::park_timeout(MOMENT),
                Some(Watch::Over(woken)) if woken.is_empty() => {}
                Some(Watch::Over(woken)) => return woken,
            }
        }
        Woken::default()
    }

    /// I/O that is ready, and timers that are due.
    pub(crate) fn poll(&self, local: &Local<'_>) -> Option<Task> {
        local.deliver(self.reactor()?.glance()?);
        local.pop_task()
    }

    /// Of those who sleep, one shall sleep within the poller; false if nobody sleeps.
    pub(crate) fn send_to_watch(&self) -> bool {
        let seat = self.sleep.last();
        if let Some(seat) = seat {
            self.sleep.unpark(seat);
        }
        seat.is_some()
    }

    /// The sockets and timers that are waited for, if there ever were any.
    pub(crate) fn reactor(&self) -> Option<&Arc<Reactor>> {
        self.reactor.get()
    }

    #[cfg(feature = "net")]
    pub(crate) fn make_reactor(&self) -> std::io::Result<&Arc<Reactor>> {
        if let Some(reactor) = self.reactor() {
            return Ok(reactor);
        }
        let made = Arc::new(Reactor::new(Weak::clone(&self.this), self.name.clone())?);
        let reactor = self.reactor.get_or_init(|| made);
        // Pairs with the one in `close`: that sees the reactor, or we see that it is closed.
        fence(SeqCst);
        if self.is_closed() {
            reactor.close();
        }
        Ok(reactor)
    }

    /// Takes a task in, at the best place: it is handed back if the pool is closed.
    pub(crate) fn submit(&self, task: Task, priority: Priority) -> Result<(), Task> {
        current::with(|local| match local {
            Some(local) if priority == Priority::Normal && local.is_of(self) => {
                local.spawn(task);
                Ok(())
            }
            Some(_) | None => {
                self.shared.push(task, priority)?;
                let worker = local.filter(|local| local.is_of(self)).map(|local| local.index);
                self.watchers.tell(worker, PoolEventKind::Push);
                self.wake_one();
                Ok(())
            }
        })
    }

    /// The futures that have not ended.
    pub(crate) fn roster(&self) -> &Roster {
        self.roster.get_or_init(|| Roster::new(&self.this, self.threads))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Acquire)
    }

    /// Takes nothing any more, and ends the threads when they have ended what they do.
    pub(crate) fn close(&self) {
        if self.is_closed.swap(true, SeqCst) {
            return;
        }
        // First, as what is dropped further down may be anything.
        (0..self.seats()).for_each(|index| self.unpark(index));
        self.monitor.stop();
        // Pairs with the one in `make_reactor`.
        fence(SeqCst);
        if let Some(reactor) = self.reactor() {
            reactor.close();
        }
        self.shared.close();
        self.roster().close();
    }

    /// Waits for the threads, except for the one that calls this.
    pub(crate) fn join(&self) {
        let me = thread::current().id();
        for handle in self.crew.close() {
            if handle.thread().id() != me {
                // A worker passes no panic on; if one came through nevertheless, it was reported.
                let _ = handle.join();
            }
        }
        self.monitor.join();
        self.trace.finish();
        self.watchers.finish();
    }
}

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// Keeps the calling thread on one core, counted round; where that cannot be, it goes where it likes.
fn pin(index: usize) {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    if let Some(core) = index.checked_rem(cores.len()).map(|at| cores[at]) {
        let mut one = CpuSet::new();
        one.set(core);
        let _ = sched_setaffinity(None, &one);
    }
}
