//! What the threads of one pool share.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::builder::Settings;
use crate::deterministic::Script;
use crate::events::PoolEventKind;
use crate::future_list::FutureList;
use crate::local::Local;
use crate::monitor::Monitor;
use crate::protocol::ancestry::{self, WaitTarget, WorkId};
use crate::protocol::join_set::JoinSet;
use crate::protocol::reserve::Reserve;
use crate::protocol::sleep::Sleep;
use crate::protocol::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use crate::protocol::sync::atomic::{AtomicBool, AtomicUsize, fence};
use crate::protocol::sync::{self, Mutex, OnceLock, thread};
use crate::protocol::waiters::Waiters;
use crate::random::Random;
use crate::raw_task::Task;
use crate::reactor::{PollerSleep, Reactor, Woken};
use crate::shared_queue::{Priority, SharedQueue};
use crate::steal::StealPolicy;
use crate::trace::Trace;
use crate::watch::Watchers;
use crate::worker_shared::WorkerShared;
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
    workers: Box<[OnceLock<Box<WorkerShared>>]>,
    /// How many seats were ever taken.
    slots_used: CachePadded<AtomicUsize>,
    /// Seats beyond those of the threads that nobody sits on, and that were used before.
    slots_free: Mutex<Vec<usize>>,
    pub(crate) shared_queue: SharedQueue,
    pub(crate) sleep: Sleep,
    pub(crate) waiters: Waiters,
    pub(crate) monitor: Monitor,
    pub(crate) reserve: Reserve,
    /// Made with the first future.
    futures: OnceLock<FutureList>,
    /// Made with the first socket or timer.
    reactor: OnceLock<Arc<Reactor>>,
    is_closed: AtomicBool,
    started_threads: JoinSet<thread::JoinHandle<()>>,
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
        let slots = WorkId::WORKERS_MAX;
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
            workers: (0..slots).map(|_| OnceLock::new()).collect(),
            slots_used: CachePadded::new(AtomicUsize::new(threads)),
            slots_free: Mutex::new(Vec::new()),
            shared_queue: SharedQueue::new(),
            sleep: Sleep::new(slots),
            waiters: Waiters::new(),
            monitor: Monitor::new(),
            reserve: Reserve::new(),
            futures: OnceLock::new(),
            reactor: OnceLock::new(),
            is_closed: AtomicBool::new(false),
            started_threads: JoinSet::new(),
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
        self.started_threads.start(|| thread.spawn(body))
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
    pub(crate) fn worker(&self, index: usize) -> &WorkerShared {
        self.workers[index].get_or_init(|| Box::new(WorkerShared::new()))
    }

    /// How many seats there are to look at.
    pub(crate) fn worker_count(&self) -> usize {
        // Relaxed: a seat that is seen late is looked at late; before sleeping, a fence stands between.
        self.slots_used.load(Relaxed)
    }

    /// Whether nobody could steal.
    pub(crate) fn is_alone(&self) -> bool {
        self.worker_count() == 1
    }

    /// A seat beyond those of the threads, if there is one left.
    pub(crate) fn take_slot(&self) -> Option<usize> {
        let mut free = sync::lock(&self.slots_free);
        free.pop().or_else(|| {
            let next = self.worker_count();
            (next < self.workers.len()).then(|| {
                self.slots_used.store(next + 1, SeqCst);
                next
            })
        })
    }

    pub(crate) fn free_slot(&self, index: usize) {
        sync::lock(&self.slots_free).push(index);
    }

    /// Every seat but that one: first any of them, equally likely, then on in steps that reach all.
    pub(crate) fn others(
        &self,
        index: usize,
        random: &Random,
    ) -> impl Iterator<Item = usize> + use<> {
        let count = self.worker_count();
        let others = count - 1;
        let mut offset = random.below(others);
        let mut step = 1 + random.below(others);
        while common_divisor(step, others) > 1 {
            step = step % others + 1;
        }
        (0..others).map(move |_| {
            offset = (offset + step) % others;
            (index + 1 + offset) % count
        })
    }

    /// Everybody is asked to expose something.
    pub(crate) fn request_work_from_all(&self) {
        (0..self.worker_count()).for_each(|index| self.worker(index).request_work());
    }

    /// Whether there is anything that a worker could take.
    pub(crate) fn is_exposed(&self) -> bool {
        !self.shared_queue.is_empty()
            || (0..self.worker_count()).any(|index| self.worker(index).is_exposed())
    }

    /// Whether there is no reason to be awake.
    pub(crate) fn is_quiet(&self) -> bool {
        !self.is_exposed() && !self.is_closed()
    }

    /// Whether a worker has a task that it has just made ready.
    pub(crate) fn has_next(&self) -> bool {
        (0..self.worker_count()).any(|index| !self.worker(index).next.is_empty())
    }

    /// Whether any task has not been begun, wherever it lies.
    pub(crate) fn has_waiting(&self) -> bool {
        self.is_exposed() || self.has_next()
    }

    /// Whether any future has not ended.
    pub(crate) fn has_futures(&self) -> bool {
        self.futures.get().is_some_and(FutureList::has_any)
    }

    /// Something was made visible: wakes one worker, if that helps.
    pub(crate) fn wake_one(&self) -> bool {
        let worker = self.sleep.wake_one();
        if let (Some(worker), Some(reactor)) = (worker, self.reactor()) {
            reactor.interrupt(worker);
        }
        worker.is_some()
    }

    /// Whether anybody sleeps, searches or waits, about.
    pub(crate) fn has_idle(&self) -> bool {
        self.sleep.has_idle() || !self.waiters.is_empty()
    }

    /// Whether what is done on that worker, as far as it lies open, is a part of what somebody waits for.
    pub(crate) fn descends(&self, work: Option<WorkId>, target: WaitTarget) -> bool {
        ancestry::descends(|worker| &self.worker(worker).ancestry, work, target)
    }

    /// Something lies open on that worker, behind a fence: one who waits for what it is a part of is woken,
    /// unless it has forks of its own, so that it would not take any.
    pub(crate) fn call_waiter(&self, worker: usize) {
        if self.waiters.is_empty() {
            return;
        }
        let work = self.worker(worker).ancestry.current();
        let is_free = |waiter: usize| self.worker(waiter).forks.is_empty();
        let may_take = |waiter, target| is_free(waiter) && self.descends(work, target);
        if let Some(waiter) = self.waiters.call(may_take) {
            self.unpark(waiter);
        }
    }

    /// Something may lie open anywhere that nobody else was told of: see [`Core::call_waiter`].
    pub(crate) fn call_waiters(&self) {
        if !self.waiters.is_empty() {
            let is_open = |worker: &usize| !self.worker(*worker).forks.is_empty();
            (0..self.worker_count()).filter(is_open).for_each(|worker| self.call_waiter(worker));
        }
    }

    pub(crate) fn unpark(&self, worker: usize) {
        self.sleep.unpark(worker);
        if let Some(reactor) = self.reactor() {
            reactor.interrupt(worker);
        }
    }

    /// Sleeps until called, until the pool is closed, or until something is ready: that is to be
    /// woken once this worker is up.
    pub(crate) fn park(&self, local: &Local<'_>) -> Woken {
        while !self.sleep.is_woken(local.index) && !self.is_closed() {
            let reactor = self.reactor().filter(|reactor| reactor.is_wanted());
            match reactor.map(|reactor| reactor.sleep_in_poller(self, local.index)) {
                None | Some(PollerSleep::Taken) => thread::park(),
                Some(PollerSleep::Busy) => thread::park_timeout(MOMENT),
                Some(PollerSleep::Done(woken)) if woken.is_empty() => {}
                Some(PollerSleep::Done(woken)) => return woken,
            }
        }
        Woken::default()
    }

    /// I/O that is ready, and timers that are due.
    pub(crate) fn poll(&self, local: &Local<'_>) -> Option<Task> {
        local.deliver(self.reactor()?.poll_in_passing()?);
        local.pop_task()
    }

    /// Of those who sleep, one shall sleep within the poller; false if nobody sleeps.
    pub(crate) fn send_to_poller(&self) -> bool {
        let worker = self.sleep.last_sleeper();
        if let Some(worker) = worker {
            self.sleep.unpark(worker);
        }
        worker.is_some()
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

    /// Takes a task in, at the best work: it is handed back if the pool is closed.
    pub(crate) fn submit(&self, task: Task, priority: Priority) -> Result<(), Task> {
        current::with(|local| match local {
            Some(local) if priority == Priority::Normal && local.is_of(self) => {
                local.spawn(task);
                Ok(())
            }
            Some(_) | None => {
                self.shared_queue.push(task, priority)?;
                let worker = local.filter(|local| local.is_of(self)).map(|local| local.index);
                self.watchers.notify(worker, PoolEventKind::Push);
                self.wake_one();
                Ok(())
            }
        })
    }

    /// The futures that have not ended.
    pub(crate) fn futures(&self) -> &FutureList {
        self.futures.get_or_init(|| FutureList::new(&self.this, self.threads))
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
        (0..self.worker_count()).for_each(|index| self.unpark(index));
        self.monitor.stop();
        // Pairs with the one in `make_reactor`.
        fence(SeqCst);
        if let Some(reactor) = self.reactor() {
            reactor.close();
        }
        self.shared_queue.close();
        self.futures().close();
    }

    /// Waits for the threads, except for the one that calls this.
    pub(crate) fn join(&self) {
        let me = thread::current().id();
        for handle in self.started_threads.close() {
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
