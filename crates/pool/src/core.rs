//! The state that all threads of one pool share.

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

/// Called when a worker has found nothing in this process; true if it has spawned work.
pub(crate) type IdleHook = Box<dyn Fn() -> bool + Send + Sync>;

/// About how long a poll for ready I/O takes.
const POLL_TIME: Duration = Duration::from_micros(100);

pub(crate) struct Core {
    pub(crate) name: String,
    /// How many threads run at the same time.
    pub(crate) threads: usize,
    pub(crate) steal: StealPolicy,
    pub(crate) seed: u64,
    pub(crate) idle_hook: Option<IdleHook>,
    stack_size: Option<usize>,
    is_pinned: bool,
    #[cfg(feature = "tokio")]
    tokio: Option<tokio::runtime::Handle>,
    /// The pool's own threads come first. Each is created when its slot is first used.
    workers: Box<[OnceLock<Box<WorkerShared>>]>,
    /// How many slots were ever used.
    slots_used: CachePadded<AtomicUsize>,
    /// Slots beyond those of the pool's own threads that were used before and are free now.
    slots_free: Mutex<Vec<usize>>,
    pub(crate) shared_queue: SharedQueue,
    pub(crate) sleep: Sleep,
    pub(crate) waiters: Waiters,
    pub(crate) monitor: Monitor,
    pub(crate) reserve: Reserve,
    /// Created with the first future.
    futures: OnceLock<FutureList>,
    /// Created with the first socket or timer.
    reactor: OnceLock<Arc<Reactor>>,
    is_closed: AtomicBool,
    started_threads: JoinSet<thread::JoinHandle<()>>,
    /// Set in deterministic mode: no threads run, and a seed decides what happens.
    pub(crate) script: OnceLock<Script>,
    pub(crate) trace: Trace,
    pub(crate) watchers: Arc<Watchers>,
    /// When the pool was created.
    pub(crate) created: Instant,
    this: Weak<Core>,
}

impl Core {
    pub(crate) fn new(settings: Settings) -> Arc<Self> {
        let threads = settings.threads;
        let slots = WorkId::WORKERS_MAX;
        let created = Instant::now();
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
            watchers: Arc::new(Watchers::new(created)),
            created,
            this: Weak::clone(this),
        })
    }

    /// Starts the threads.
    pub(crate) fn start(&self) -> std::io::Result<()> {
        (0..self.threads).try_for_each(|index| self.start_thread(index).map(|_| ()))
    }

    /// Starts a thread for that slot, unless the pool is closed and would not join it. Returns
    /// whether it was started.
    pub(crate) fn start_thread(&self, index: usize) -> std::io::Result<bool> {
        let core = self.this().expect("the caller has the core");
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

    /// While the guard lives, the calling thread is in the context of the tokio runtime, if there
    /// is one.
    #[cfg(feature = "tokio")]
    pub(crate) fn enter_tokio(&self) -> Option<tokio::runtime::EnterGuard<'_>> {
        self.tokio.as_ref().map(tokio::runtime::Handle::enter)
    }

    /// The core, for a thread to keep; none if it is about to be dropped.
    pub(crate) fn this(&self) -> Option<Arc<Self>> {
        self.this.upgrade()
    }

    /// The script that decides what happens on the calling thread, in deterministic mode.
    pub(crate) fn script(&self) -> Option<&Script> {
        self.script.get().filter(|script| script.is_here())
    }

    /// The shared state of that worker.
    pub(crate) fn worker(&self, index: usize) -> &WorkerShared {
        self.workers[index].get_or_init(|| Box::new(WorkerShared::new()))
    }

    /// How many worker slots are in use or were used.
    pub(crate) fn worker_count(&self) -> usize {
        // Relaxed: a slot that is seen late is searched late; before sleeping, a fence stands in
        // between.
        self.slots_used.load(Relaxed)
    }

    /// Whether there is only one worker, so that none could steal.
    pub(crate) fn is_alone(&self) -> bool {
        self.worker_count() == 1
    }

    /// A slot beyond those of the pool's own threads, if one is left.
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

    /// Every other worker: first any of them, equally likely, then the others in steps that reach
    /// all.
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

    /// Requests work from every worker.
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

    /// Whether any worker has a task in its `next` slot.
    pub(crate) fn has_next(&self) -> bool {
        (0..self.worker_count()).any(|index| !self.worker(index).next.is_empty())
    }

    /// Whether any task has not been started, wherever it is queued.
    pub(crate) fn has_waiting(&self) -> bool {
        self.is_exposed() || self.has_next()
    }

    /// Whether any future has not finished.
    pub(crate) fn has_futures(&self) -> bool {
        self.futures.get().is_some_and(FutureList::has_any)
    }

    /// Work was made visible: wakes one worker, unless another is already searching.
    pub(crate) fn wake_one(&self) -> bool {
        let worker = self.sleep.wake_one();
        if let (Some(worker), Some(reactor)) = (worker, self.reactor()) {
            reactor.interrupt(worker);
        }
        worker.is_some()
    }

    /// Approximately whether any worker sleeps, searches or waits.
    pub(crate) fn has_idle(&self) -> bool {
        self.sleep.has_idle() || !self.waiters.is_empty()
    }

    /// Whether the forks that a worker exposes while it executes `work` are parts of the target
    /// that another worker waits for.
    pub(crate) fn descends(&self, work: Option<WorkId>, target: WaitTarget) -> bool {
        ancestry::descends(|worker| &self.worker(worker).ancestry, work, target)
    }

    /// That worker has exposed forks, before a fence: wakes one worker that waits for what they are
    /// a part of, unless it has forks itself and so would not take any.
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

    /// Forks may be exposed anywhere without a waiting worker having been woken for them: see
    /// [`Core::call_waiter`].
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

    /// Sleeps until woken, until the pool is closed, or until I/O is ready; the caller wakes the
    /// returned wakers once it has stopped sleeping.
    pub(crate) fn park(&self, local: &Local<'_>) -> Woken {
        while !self.sleep.is_woken(local.index) && !self.is_closed() {
            let reactor = self.reactor().filter(|reactor| reactor.is_wanted());
            match reactor.map(|reactor| reactor.sleep_in_poller(self, local.index)) {
                None | Some(PollerSleep::Taken) => thread::park(),
                Some(PollerSleep::Busy) => thread::park_timeout(POLL_TIME),
                Some(PollerSleep::Done(woken)) if woken.is_empty() => {}
                Some(PollerSleep::Done(woken)) => return woken,
            }
        }
        Woken::default()
    }

    /// Polls for I/O that is ready and timers that are due.
    pub(crate) fn poll(&self, local: &Local<'_>) -> Option<Task> {
        local.deliver(self.reactor()?.poll_in_passing()?);
        local.pop_task()
    }

    /// Sends one of the sleeping workers to sleep in the poller; false if no worker sleeps.
    pub(crate) fn send_to_poller(&self) -> bool {
        let worker = self.sleep.last_sleeper();
        if let Some(worker) = worker {
            self.sleep.unpark(worker);
        }
        worker.is_some()
    }

    /// The reactor, if a socket or timer was ever used.
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
        // Pairs with the one in `close`: either `close` sees the reactor, or we see that the pool
        // is closed.
        fence(SeqCst);
        if self.is_closed() {
            reactor.close();
        }
        Ok(reactor)
    }

    /// Queues a task in the best place. It is handed back if the pool is closed.
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

    /// The futures that have not finished.
    pub(crate) fn futures(&self) -> &FutureList {
        self.futures.get_or_init(|| FutureList::new(&self.this, self.threads))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Acquire)
    }

    /// Closes the pool: it accepts nothing any more, and its threads end when they have finished
    /// their current work.
    pub(crate) fn close(&self) {
        if self.is_closed.swap(true, SeqCst) {
            return;
        }
        // First, because the tasks dropped below may run any code in their destructors.
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

    /// Joins the threads, except for the calling one.
    pub(crate) fn join(&self) {
        let me = thread::current().id();
        for handle in self.started_threads.close() {
            if handle.thread().id() != me {
                // A worker catches panics; if one got through nevertheless, it was reported.
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

/// Pins the calling thread to one of the allowed cores, by index. If that fails, it stays unpinned.
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
