//! Who searches, who sleeps, and who is woken when there is work.
//!
//! A wake costs more than four hundred forks, so it has to be worth it: nobody is woken while
//! somebody searches, and a woken worker counts as searching from the moment it is called, so that
//! a burst of work wakes one and not all. That one wakes the next, if it leaves anything behind.
//!
//! No wake is lost. Who brings work first makes it visible, then looks whether somebody sleeps; who
//! goes to sleep first says so, then looks at all queues once more. Between the two steps of each
//! stands a fence, so at least one of them sees the other.

use crossbeam_utils::CachePadded;

use super::sync::atomic::AtomicU64;
use super::sync::atomic::Ordering::SeqCst;
use super::sync::{self, Mutex, Thread, thread};

/// How many sleep: the upper half of the word. How many search: the lower.
const SLEEPER: u64 = 1 << 32;
const SEARCHER: u64 = 1;

pub(crate) struct Sleep {
    counts: CachePadded<AtomicU64>,
    /// Who sleeps, by worker, longest first. The counts change under this lock where sleepers are concerned.
    sleepers: Mutex<Vec<usize>>,
    threads: Box<[ThreadSlot]>,
}

/// The thread that sits on a worker, if any.
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

    /// The calling thread is the one to wake for this seat.
    pub(crate) fn register(&self, worker: usize) {
        *sync::lock(&self.threads[worker].0) = Some(thread::current());
    }

    /// Nobody sits there any more.
    pub(crate) fn unregister(&self, worker: usize) {
        *sync::lock(&self.threads[worker].0) = None;
    }

    /// Whether a thread sits there.
    pub(crate) fn is_registered(&self, worker: usize) -> bool {
        sync::lock(&self.threads[worker].0).is_some()
    }

    /// Whether one more may search, of so many workers: at most half of them do.
    #[must_use]
    pub(crate) fn start_searching(&self, workers: usize) -> bool {
        let counts = self.counts.load(SeqCst);
        if 2 * searching(counts) >= workers as u64 {
            return false;
        }
        self.counts.fetch_add(SEARCHER, SeqCst);
        true
    }

    /// One who searched has found something; true if nobody else searches now. Then all queues have
    /// to be looked at once more: who has brought work meanwhile has relied on the search.
    #[must_use]
    pub(crate) fn stop_searching(&self) -> bool {
        let is_last = searching(self.counts.fetch_sub(SEARCHER, SeqCst)) == 1;
        if is_last {
            // Pairs with the one in `wake_one`.
            sync::fence();
        }
        is_last
    }

    /// This seat is about to sleep. All queues have to be looked at once more after this.
    pub(crate) fn announce_sleep(&self, worker: usize, searched: bool) {
        let mut sleepers = sync::lock(&self.sleepers);
        sleepers.push(worker);
        let less = if searched { SEARCHER } else { 0 };
        self.counts.fetch_add(SLEEPER - less, SeqCst);
        drop(sleepers);
        // Pairs with the ones in `wake_one` and in whoever brings work without a wake.
        sync::fence();
    }

    /// This seat does not sleep after all, or any more. It searches from now on: it was called to, or it has
    /// seen something that nobody else was told of.
    pub(crate) fn end_sleep(&self, worker: usize) {
        let mut sleepers = sync::lock(&self.sleepers);
        if let Some(at) = sleepers.iter().position(|sleeper| *sleeper == worker) {
            sleepers.remove(at);
            self.counts.fetch_sub(SLEEPER - SEARCHER, SeqCst);
        }
    }

    /// Whether this seat was called since it lay down.
    pub(crate) fn is_woken(&self, worker: usize) -> bool {
        !sync::lock(&self.sleepers).contains(&worker)
    }

    /// One who sleeps, the last to lie down.
    pub(crate) fn last_sleeper(&self) -> Option<usize> {
        sync::lock(&self.sleepers).last().copied()
    }

    /// Work was made visible: one who sleeps is woken, unless somebody searches. Says whom.
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

    /// The thread on this seat goes on, whatever it sleeps for.
    pub(crate) fn unpark(&self, worker: usize) {
        let thread = sync::lock(&self.threads[worker].0).clone();
        if let Some(thread) = thread {
            thread.unpark();
        }
    }

    /// Whether anybody sleeps or searches, about.
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
