//! The monitor thread, which checks after what busy workers cannot see.
//!
//! A worker whose wakes were wasted wakes no others for a while. If the work that it exposes is
//! left lying after all, this thread notices and wakes a worker. It also polls I/O when all workers
//! are busy, and relieves starving futures (`starvation`). It is started when first needed, and
//! sleeps while there is nothing to look after.

use std::time::Duration;

use crate::core::Core;
use crate::protocol::sync::atomic::Ordering::{Relaxed, SeqCst};
use crate::protocol::sync::atomic::{AtomicBool, fence};
use crate::protocol::sync::{self, Mutex, thread};
use crate::starvation::Starvation;

/// How often it checks.
const PERIOD: Duration = Duration::from_millis(1);

/// After this many checks without a reason it sleeps.
const PATIENCE: u32 = 50;

/// How many of these checks are skipped after a sleep: if it was woken for nothing, it goes back to
/// sleep sooner.
const PATIENCE_AFTER_SLEEP: u32 = PATIENCE - 10;

pub(crate) struct Monitor {
    /// A worker has exposed something without waking another.
    is_check_requested: AtomicBool,
    /// It sleeps, or was never started.
    is_asleep: AtomicBool,
    handle: Mutex<Option<thread::JoinHandle<()>>>,
}

impl Monitor {
    pub(crate) fn new() -> Self {
        Self {
            is_check_requested: AtomicBool::new(false),
            is_asleep: AtomicBool::new(true),
            handle: Mutex::new(None),
        }
    }

    /// Something is exposed, and no worker was woken for it.
    pub(crate) fn request_check(&self, core: &Core) {
        // Relaxed: it stays set until the monitor has checked.
        if self.is_check_requested.load(Relaxed) {
            return;
        }
        self.is_check_requested.store(true, SeqCst);
        if self.is_asleep.swap(false, SeqCst) {
            self.wake(core);
        }
    }

    /// Something waits that no worker checks after, so the monitor must not sleep.
    pub(crate) fn keep_awake(&self, core: &Core) {
        // Stands between what waits, and the check whether the monitor sleeps.
        fence(SeqCst);
        if self.is_asleep.load(SeqCst) && self.is_asleep.swap(false, SeqCst) {
            self.wake(core);
        }
    }

    /// Prevents it from ever starting, so that exposed work stays where it is.
    #[cfg(test)]
    pub(crate) fn disable(&self) {
        self.is_asleep.store(false, SeqCst);
    }

    #[cold]
    fn wake(&self, core: &Core) {
        let mut handle = sync::lock(&self.handle);
        if let Some(handle) = &*handle {
            handle.thread().unpark();
            return;
        }
        if core.is_closed() {
            return;
        }
        let Some(core) = core.this() else { return };
        let thread = thread::Builder::new().name(format!("{}-monitor", core.name));
        // Without the monitor, work is found late, but not lost.
        *handle = thread.spawn(move || core.monitor.run(&core)).ok();
    }

    fn run(&self, core: &Core) {
        let mut view = View::default();
        let mut starvation = Starvation::default();
        let mut checks = 0;
        while !core.is_closed() {
            checks = if self.is_check_requested.swap(false, SeqCst) { 0 } else { checks + 1 };
            if view.is_left(core) {
                core.wake_one();
                core.call_waiters();
            }
            poll_io(core);
            starvation.check(core);
            let is_unattended = || core.reactor().is_some_and(|reactor| reactor.is_unattended());
            let is_idle = || !core.has_waiting() && !is_unattended() && !starvation.is_needed();
            if checks > PATIENCE && is_idle() {
                self.is_asleep.store(true, SeqCst);
                // Between announcing the sleep and checking once more. Pairs with the one in
                // `keep_awake`.
                fence(SeqCst);
                if !self.is_check_requested.load(SeqCst) && is_idle() && !core.is_closed() {
                    thread::park();
                }
                self.is_asleep.store(false, SeqCst);
                checks = PATIENCE_AFTER_SLEEP;
            } else {
                thread::park_timeout(PERIOD);
            }
        }
    }

    pub(crate) fn stop(&self) {
        if let Some(handle) = &*sync::lock(&self.handle) {
            handle.thread().unpark();
        }
    }

    /// Whether this thread is the monitor: a waker that it calls may run any code.
    pub(crate) fn is_current(&self) -> bool {
        let me = thread::current().id();
        sync::lock(&self.handle).as_ref().is_some_and(|handle| handle.thread().id() == me)
    }

    pub(crate) fn join(&self) {
        let handle = sync::lock(&self.handle).take();
        if let Some(handle) = handle {
            let _ = handle.join();
        }
    }
}

/// If a future waits for I/O and no worker sleeps in the poller, sends one there. If none sleeps at
/// all, and none has polled for a while, polls.
fn poll_io(core: &Core) {
    let Some(reactor) = core.reactor().filter(|reactor| reactor.is_unattended()) else { return };
    if !core.send_to_poller()
        && let Some(woken) = reactor.poll_for_busy_workers()
    {
        woken.wake();
    }
}

/// What the monitor saw at its last check.
#[derive(Default)]
struct View {
    was_exposed: bool,
    /// How many turns each worker had taken.
    turns: Vec<u64>,
}

impl View {
    /// Whether something has been left lying since the last check: exposed work, or a task in the
    /// `next` slot of a worker that has taken no turn.
    fn is_left(&mut self, core: &Core) -> bool {
        let is_exposed = core.is_exposed();
        let mut is_left = self.was_exposed && is_exposed;
        self.was_exposed = is_exposed;
        self.turns.resize(core.worker_count(), u64::MAX);
        for (index, before) in self.turns.iter_mut().enumerate() {
            let shared = core.worker(index);
            let turns = shared.counters.ticks.get();
            is_left |= *before == turns && !shared.next.is_empty();
            *before = turns;
        }
        is_left
    }
}
