//! How many threads wait, how many reserves work in their place, and who sits on the bench.

use super::sync::atomic::AtomicUsize;
use super::sync::atomic::Ordering::SeqCst;
use super::sync::{self, Mutex};

/// The most reserves of one pool. If more threads than this wait, the pool has fewer that compute.
const RESERVES_MAX: usize = 256;

pub(crate) struct Reserve {
    /// How many threads wait now.
    wanted: AtomicUsize,
    /// How many reserves work. Changes under the lock.
    active: AtomicUsize,
    bench: Mutex<Bench>,
}

#[derive(Default)]
struct Bench {
    /// Seats of those who sit there.
    seats: Vec<usize>,
    /// How many reserves there are altogether.
    count: usize,
}

impl Reserve {
    pub(crate) fn new() -> Self {
        Self {
            wanted: AtomicUsize::new(0),
            active: AtomicUsize::new(0),
            bench: Mutex::new(Bench::default()),
        }
    }

    /// One more thread waits. If one who sits on the bench is to come, says who: it has to be woken. If
    /// nobody sits there, `start` may start one more, and says whether it has.
    #[must_use]
    pub(crate) fn call(&self, start: impl FnOnce() -> bool) -> Option<usize> {
        self.wanted.fetch_add(1, SeqCst);
        let mut bench = sync::lock(&self.bench);
        // As many as are wanted by now: who comes to the lock first need not be who came first.
        if self.active.load(SeqCst) >= self.wanted.load(SeqCst) {
            return None;
        }
        let called = bench.seats.pop();
        if called.is_some() {
            self.active.fetch_add(1, SeqCst);
        } else if bench.count < RESERVES_MAX && start() {
            bench.count += 1;
            self.active.fetch_add(1, SeqCst);
        }
        called
    }

    /// So many fewer are needed.
    pub(crate) fn dismiss(&self, count: usize) {
        self.wanted.fetch_sub(count, SeqCst);
    }

    /// Whether there is one reserve too many.
    pub(crate) fn is_surplus(&self) -> bool {
        self.active.load(SeqCst) > self.wanted.load(SeqCst)
    }

    /// The reserve on this seat sits down on the bench, if it is one too many; says whether it does.
    #[must_use]
    pub(crate) fn sit_down(&self, seat: usize) -> bool {
        let mut bench = sync::lock(&self.bench);
        // Once more, under the lock: who was not called before is called from here on.
        if sync::looks_again() && !self.is_surplus() {
            return false;
        }
        self.active.fetch_sub(1, SeqCst);
        bench.seats.push(seat);
        true
    }

    /// Whether the reserve on this seat sits on the bench.
    pub(crate) fn sits(&self, seat: usize) -> bool {
        sync::lock(&self.bench).seats.contains(&seat)
    }

    /// How many reserves work.
    #[cfg(all(test, loom))]
    pub(crate) fn active(&self) -> usize {
        self.active.load(SeqCst)
    }
}
