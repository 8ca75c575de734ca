//! A test setup: two workers of a pool without threads, which the test holds up where it likes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use crate::builder::PoolBuilder;
use crate::core::Core;
use crate::current;
use crate::local::Local;
use crate::stats::WorkerState;

/// Waits for something that another thread does.
pub(crate) fn wait_until(is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "a worker sleeps that could help");
        thread::yield_now();
    }
}

pub(crate) struct TwoWorkers {
    core: Arc<Core>,
    /// How many leaves were started.
    leaves: AtomicUsize,
}

impl TwoWorkers {
    pub(crate) fn new() -> Self {
        let settings =
            PoolBuilder::default().threads(2).settings().expect("two threads are allowed");
        let core = Core::new(settings);
        core.monitor.disable();
        Self { core, leaves: AtomicUsize::new(0) }
    }

    /// `first` runs as worker 0, `other` as worker 1.
    pub(crate) fn run(
        &self,
        first: &(dyn Fn(&Local<'_>) + Sync),
        other: &(dyn Fn(&Local<'_>) + Sync),
    ) {
        thread::scope(|threads| {
            let parts = [(0, first), (1, other)].map(|(index, part)| {
                threads.spawn(move || {
                    let local = Local::new(&self.core, index);
                    self.core.sleep.register(index);
                    current::enter(&local, || part(&local));
                })
            });
            parts.into_iter().for_each(|part| part.join().expect("its part does not panic"));
        });
    }

    /// Two leaves that run in parallel, or never finish.
    pub(crate) fn run_two_leaves(&self) {
        let leaf = || {
            self.leaves.fetch_add(1, SeqCst);
            wait_until(|| self.leaves.load(SeqCst) == 2);
        };
        crate::join(leaf, leaf);
    }

    /// Returns when that worker is about to sleep until a stolen fork is done.
    pub(crate) fn until_waiting(&self, index: usize) {
        wait_until(|| self.core.worker(index).state() == WorkerState::Waiting);
    }
}
