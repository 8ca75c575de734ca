//! How many calls have enlisted, and the sequence that each thread draws from. Each thread writes
//! only its own numbers.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::lottery::{Lottery, Sequence};

/// Counts the enlist calls of one recruiter.
#[derive(Debug)]
pub(crate) struct EnlistCounter {
    /// Identifies the recruiter within this process.
    number: u64,
    seed: Option<u64>,
    threads: Mutex<Threads>,
}

#[derive(Debug, Default)]
struct Threads {
    counts: Vec<Arc<Count>>,
    /// How many threads have ever enlisted.
    registered: u64,
    /// The counts of threads that have ended.
    ended: u64,
}

/// The count of one thread, aligned so that no two threads write to the same cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicU64);

/// The state of one thread for one recruiter.
struct ThreadState {
    number: u64,
    sequence: Sequence,
    count: Arc<Count>,
}

thread_local! {
    static STATES: RefCell<Vec<ThreadState>> = const { RefCell::new(Vec::new()) };
}

impl EnlistCounter {
    pub(crate) fn new(number: u64, seed: Option<u64>) -> Self {
        Self { number, seed, threads: Mutex::default() }
    }

    /// Counts one more enlist call and draws for it. Returns `None` if its thread is about to end.
    #[inline]
    pub(crate) fn enlist(&self, lottery: Lottery) -> Option<u32> {
        STATES
            .try_with(|states| {
                let known = |state: &&ThreadState| state.number == self.number;
                if let Some(state) = states.borrow().iter().find(known) {
                    return state.enlist(lottery);
                }
                let new = self.register_thread();
                let drawn = new.enlist(lottery);
                let mut states = states.borrow_mut();
                // If a recruiter was dropped, nothing else holds its count.
                states.retain(|other| Arc::strong_count(&other.count) > 1);
                states.push(new);
                drawn
            })
            .ok()
    }

    /// Called when a thread enlists for the first time.
    #[cold]
    fn register_thread(&self) -> ThreadState {
        let count = Arc::<Count>::default();
        let mut threads = self.lock();
        let ended: u64 = threads
            .counts
            .extract_if(.., |count| Arc::strong_count(count) == 1)
            .map(|count| count.0.load(Relaxed))
            .sum();
        threads.ended += ended;
        threads.counts.push(Arc::clone(&count));
        let sequence = match self.seed {
            Some(seed) => Sequence::from_seed(seed, threads.registered),
            None => Sequence::new(),
        };
        threads.registered += 1;
        ThreadState { number: self.number, sequence, count }
    }

    pub(crate) fn count(&self) -> u64 {
        let threads = self.lock();
        threads.ended + threads.counts.iter().map(|count| count.0.load(Relaxed)).sum::<u64>()
    }

    fn lock(&self) -> MutexGuard<'_, Threads> {
        // No code panics while it holds the lock.
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ThreadState {
    #[inline]
    fn enlist(&self, lottery: Lottery) -> u32 {
        // Only this thread writes it.
        let Count(count) = &*self.count;
        count.store(count.load(Relaxed) + 1, Relaxed);
        self.sequence.draw(lottery)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_the_first_call_of_a_thread_takes_the_lock() {
        let counter = Arc::new(EnlistCounter::new(u64::MAX, None));
        let (result, results) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        let other = Arc::clone(&counter);
        std::thread::spawn(move || {
            for _ in 0..2 {
                let drawn = other.enlist(Lottery::Weyl);
                result.send(drawn.is_some()).expect("the test receives");
                // By now the test holds the lock, or has ended.
                let _ = gone.recv();
            }
        });
        let next = || results.recv_timeout(Duration::from_secs(60)).expect("it does not wait");
        assert!(next());
        let held = counter.lock();
        go.send(()).expect("the thread waits");
        assert!(next());
        drop(held);
        assert_eq!(counter.count(), 2);
    }

    #[test]
    fn the_same_seed_draws_the_same_numbers() {
        let draws = |number, seed| -> Vec<Option<u32>> {
            let counter = EnlistCounter::new(number, Some(seed));
            (0..10).map(|_| counter.enlist(Lottery::Random)).collect()
        };
        assert_eq!(draws(u64::MAX - 1, 7), draws(u64::MAX - 2, 7));
        assert_ne!(draws(u64::MAX - 3, 7), draws(u64::MAX - 4, 8));
    }
}
