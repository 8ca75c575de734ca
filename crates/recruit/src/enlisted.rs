//! How many have enlisted, and what each thread draws: each writes its own numbers only.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::lottery::{Lottery, Sequence};

/// Those of one recruiter.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Which recruiter it is, among all of this process.
    number: u64,
    threads: Mutex<Threads>,
}

#[derive(Debug, Default)]
struct Threads {
    counts: Vec<Arc<Count>>,
    /// What threads counted that have ended.
    ended: u64,
}

/// What one thread counts, far enough from all others that no two write to one cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicU64);

/// What a thread has for one recruiter.
struct Own {
    number: u64,
    sequence: Sequence,
    count: Arc<Count>,
}

thread_local! {
    static OWN: RefCell<Vec<Own>> = const { RefCell::new(Vec::new()) };
}

impl Tally {
    pub(crate) fn new(number: u64) -> Self {
        Self { number, threads: Mutex::default() }
    }

    /// One more has enlisted: what is drawn for it; nothing, if its thread is about to end.
    #[inline]
    pub(crate) fn enlist(&self, lottery: Lottery) -> Option<u32> {
        OWN.try_with(|own| {
            if let Some(own) = own.borrow().iter().find(|own| own.number == self.number) {
                return own.enlist(lottery);
            }
            let new = self.welcome();
            let drawn = new.enlist(lottery);
            let mut own = own.borrow_mut();
            // Of recruiters that are gone, nobody else holds the count.
            own.retain(|other| Arc::strong_count(&other.count) > 1);
            own.push(new);
            drawn
        })
        .ok()
    }

    /// A thread enlists for the first time.
    #[cold]
    fn welcome(&self) -> Own {
        let count = Arc::<Count>::default();
        let mut threads = self.lock();
        let ended: u64 = threads
            .counts
            .extract_if(.., |count| Arc::strong_count(count) == 1)
            .map(|count| count.0.load(Relaxed))
            .sum();
        threads.ended += ended;
        threads.counts.push(Arc::clone(&count));
        Own { number: self.number, sequence: Sequence::new(), count }
    }

    pub(crate) fn count(&self) -> u64 {
        let threads = self.lock();
        threads.ended + threads.counts.iter().map(|count| count.0.load(Relaxed)).sum::<u64>()
    }

    fn lock(&self) -> MutexGuard<'_, Threads> {
        // Nothing panics while it is held.
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Own {
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
    fn who_comes_again_needs_no_lock() {
        let tally = Arc::new(Tally::new(u64::MAX));
        let (tell, told) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        let theirs = Arc::clone(&tally);
        std::thread::spawn(move || {
            for _ in 0..2 {
                let drawn = theirs.enlist(Lottery::Weyl);
                tell.send(drawn.is_some()).expect("somebody listens");
                // The other has the lock by now, or has gone.
                let _ = gone.recv();
            }
        });
        let next = || told.recv_timeout(Duration::from_secs(60)).expect("it does not wait");
        assert!(next());
        let held = tally.lock();
        go.send(()).expect("it waits");
        assert!(next());
        drop(held);
        assert_eq!(tally.count(), 2);
    }
}
