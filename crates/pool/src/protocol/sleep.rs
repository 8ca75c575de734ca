//! The sleep protocol: which workers search, which ones sleep, and which one is woken for new work.
//!
//! A wake costs the waking thread several microseconds, more than four hundred forks, so it has to
//! be worthwhile. No worker is woken while another searches. A woken worker counts as searching
//! from the moment it is woken, so that a burst of work wakes one worker and not all. The last
//! searching worker to find something wakes the next one, if there is anything left. A worker whose
//! wakes were wasted, because it did the work itself in the end, wakes no one for a while, twice as
//! long each time (`local`); the monitor wakes a worker if the exposed work is left lying after
//! all.
//!
//! No wake is lost. A thread that adds work first makes it visible, then checks for sleeping
//! workers. A worker that goes to sleep first announces it, then checks all queues once more. A
//! sequentially consistent fence stands between the two steps of each, so at least one of them sees
//! the other. loom tries every interleaving of these steps, and finds the lost wake if the fences
//! are left out.

use crossbeam_utils::CachePadded;

use super::sync::atomic::AtomicU64;
use super::sync::atomic::Ordering::SeqCst;
use super::sync::{self, Mutex, Thread, thread};

/// How many sleep: the upper half of the word. How many search: the lower half.
const SLEEPER: u64 = 1 << 32;
const SEARCHER: u64 = 1;

pub(crate) struct Sleep {
    counts: CachePadded<AtomicU64>,
    /// The sleeping workers, longest first. The number of sleepers changes under this lock.
    sleepers: Mutex<Vec<usize>>,
    threads: Box<[ThreadSlot]>,
}

/// The thread of a worker slot, if any.
struct ThreadSlot(Mutex<Option<Thread>>);

fn searching(counts: u64) -> u64 {
    counts & (SLEEPER - 1)
}

fn sleeping(counts: u64) -> u64 {
    counts / SLEEPER
}

impl Sleep {
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            counts: CachePadded::new(AtomicU64::new(0)),
            sleepers: Mutex::new(Vec::with_capacity(workers)),
            threads: (0..workers).map(|_| ThreadSlot(Mutex::new(None))).collect(),
        }
    }

    /// Registers the calling thread as the one to wake for this worker.
    pub(crate) fn register(&self, worker: usize) {
        *sync::lock(&self.threads[worker].0) = Some(thread::current());
    }

    /// The worker has no thread any more.
    pub(crate) fn unregister(&self, worker: usize) {
        *sync::lock(&self.threads[worker].0) = None;
    }

    /// Whether the worker has a thread.
    pub(crate) fn is_registered(&self, worker: usize) -> bool {
        sync::lock(&self.threads[worker].0).is_some()
    }

    /// Starts searching, if fewer than half of the workers do; returns whether it did.
    #[must_use]
    pub(crate) fn start_searching(&self, workers: usize) -> bool {
        let counts = self.counts.load(SeqCst);
        if 2 * searching(counts) >= workers as u64 {
            return false;
        }
        self.counts.fetch_add(SEARCHER, SeqCst);
        true
    }

    /// A searching worker has found something; true if no other worker searches now. Then all
    /// queues have to be checked once more: a thread that added work meanwhile has relied on the
    /// search.
    #[must_use]
    pub(crate) fn stop_searching(&self) -> bool {
        let is_last = searching(self.counts.fetch_sub(SEARCHER, SeqCst)) == 1;
        if is_last {
            // Pairs with the one in `wake_one`.
            sync::fence();
        }
        is_last
    }

    /// This worker is about to sleep. All queues have to be checked once more after this.
    pub(crate) fn announce_sleep(&self, worker: usize, searched: bool) {
        let mut sleepers = sync::lock(&self.sleepers);
        sleepers.push(worker);
        let less = if searched { SEARCHER } else { 0 };
        self.counts.fetch_add(SLEEPER - less, SeqCst);
        drop(sleepers);
        // Pairs with the ones in `wake_one` and in threads that add work without waking.
        sync::fence();
    }

    /// This worker does not sleep after all, or any more. It searches from now on: it was woken for
    /// that, or it has seen work for which no other worker was woken.
    pub(crate) fn end_sleep(&self, worker: usize) {
        let mut sleepers = sync::lock(&self.sleepers);
        if let Some(at) = sleepers.iter().position(|sleeper| *sleeper == worker) {
            sleepers.remove(at);
            self.counts.fetch_sub(SLEEPER - SEARCHER, SeqCst);
        }
    }

    /// Whether this worker was woken since it announced its sleep.
    pub(crate) fn is_woken(&self, worker: usize) -> bool {
        !sync::lock(&self.sleepers).contains(&worker)
    }

    /// The sleeping worker that was the last to go to sleep.
    pub(crate) fn last_sleeper(&self) -> Option<usize> {
        sync::lock(&self.sleepers).last().copied()
    }

    /// Work was made visible: wakes a sleeping worker, unless another searches. Returns which one.
    pub(crate) fn wake_one(&self) -> Option<usize> {
        // Pairs with the ones in `announce_sleep` and `stop_searching`.
        sync::fence();
        if !self.wants_waking() {
            return None;
        }
        let mut sleepers = sync::lock(&self.sleepers);
        if !self.wants_waking() {
            return None;
        }
        let worker = sleepers.pop()?;
        self.counts.fetch_sub(SLEEPER - SEARCHER, SeqCst);
        drop(sleepers);
        self.unpark(worker);
        Some(worker)
    }

    fn wants_waking(&self) -> bool {
        let counts = self.counts.load(SeqCst);
        searching(counts) == 0 && sleeping(counts) > 0
    }

    /// Wakes the thread of this worker, for any reason.
    pub(crate) fn unpark(&self, worker: usize) {
        let thread = sync::lock(&self.threads[worker].0).clone();
        if let Some(thread) = thread {
            thread.unpark();
        }
    }

    /// Approximately whether any worker sleeps or searches.
    pub(crate) fn has_idle(&self) -> bool {
        self.counts.load(SeqCst) != 0
    }

    pub(crate) fn searchers(&self) -> usize {
        searching(self.counts.load(SeqCst)) as usize
    }

    pub(crate) fn sleepers(&self) -> usize {
        sleeping(self.counts.load(SeqCst)) as usize
    }
}
