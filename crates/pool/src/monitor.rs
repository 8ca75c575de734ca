//! A thread that looks after what the workers cannot see while they are busy.
//!
//! A worker whose wakes were wasted stays silent for a while. Should what it exposes be worth taking
//! after all, this thread notices that it lies there, and wakes somebody. It is started when a worker
//! first stays silent, and sleeps as long as none does.

use std::time::Duration;

use crate::core::Core;
use crate::protocol::sync::atomic::Ordering::{Relaxed, SeqCst};
use crate::protocol::sync::atomic::{AtomicBool, fence};
use crate::protocol::sync::{self, Mutex, thread};
use crate::starvation::Starvation;

/// How often it looks.
const PERIOD: Duration = Duration::from_millis(1);

/// After so many looks without a reason it sleeps.
const PATIENCE: u32 = 50;

/// The looks that it was spared by what it had slept before: if it was roused for nothing, it goes
/// back to sleep sooner.
const PATIENCE_AFTER_SLEEP: u32 = PATIENCE - 10;

pub(crate) struct Monitor {
    /// Somebody has exposed something and woken nobody.
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

    /// Something lies open, and nobody was told.
    pub(crate) fn request_check(&self, core: &Core) {
        // Relaxed: it is set until the monitor has looked.
        if self.is_check_requested.load(Relaxed) {
            return;
        }
        self.is_check_requested.store(true, SeqCst);
        if self.is_asleep.swap(false, SeqCst) {
            self.wake(core);
        }
    }

    /// Somebody waits for something that nobody looks after: it shall not sleep.
    pub(crate) fn keep_awake(&self, core: &Core) {
        // Between what waits, and the look whether it sleeps.
        fence(SeqCst);
        if self.is_asleep.load(SeqCst) && self.is_asleep.swap(false, SeqCst) {
            self.wake(core);
        }
    }

    /// It is never started: what nobody comes for stays where it is.
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
        // Without it, work is exposed late, not lost.
        *handle = thread.spawn(move || core.monitor.run(&core)).ok();
    }

    fn run(&self, core: &Core) {
        let mut view = View::default();
        let mut starvation = Starvation::default();
        let mut looks = 0;
        while !core.is_closed() {
            looks = if self.is_check_requested.swap(false, SeqCst) { 0 } else { looks + 1 };
            if view.is_left(core) {
                core.wake_one();
                core.call_waiters();
            }
            poll_io(core);
            starvation.check(core);
            let is_unattended = || core.reactor().is_some_and(|reactor| reactor.is_unattended());
            let is_idle = || !core.has_waiting() && !is_unattended() && !starvation.is_needed();
            if looks > PATIENCE && is_idle() {
                self.is_asleep.store(true, SeqCst);
                // Between saying so, and looking once more. Pairs with the one in `keep_awake`.
                fence(SeqCst);
                if !self.is_check_requested.load(SeqCst) && is_idle() && !core.is_closed() {
                    thread::park();
                }
                self.is_asleep.store(false, SeqCst);
                looks = PATIENCE_AFTER_SLEEP;
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

    /// Whether this thread is the monitor: somebody whom it wakes does what comes next.
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

/// If somebody waits and no worker sleeps within the poller, one is sent there; and if none sleeps at
/// all, nor has looked for a while, this looks.
fn poll_io(core: &Core) {
    let Some(reactor) = core.reactor().filter(|reactor| reactor.is_unattended()) else { return };
    if !core.send_to_poller()
        && let Some(woken) = reactor.poll_for_busy_workers()
    {
        woken.wake();
    }
}

/// What the monitor saw when it last looked.
#[derive(Default)]
struct View {
    was_exposed: bool,
    /// How many turns each worker had taken.
    turns: Vec<u64>,
}

impl View {
    /// Whether something has been left lying since the last look: what is exposed, or what a worker
    /// has made ready and not come to look at.
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
