//! Side jobs in the idle moments of a pool: a cache whose entries expire, without a cleaner thread.
//!
//! ```sh
//! cargo run -p filch-benches --example idle
//! ```
//!
//! The pool and the recruiter do not depend on each other: the program calls the recruiter in the
//! pool's idle hook. A thread that has found no task enlists before it sleeps. Now and then it is
//! recruited and removes a few entries. The other threads run new tasks as usual.

use std::collections::VecDeque;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use filch_pool::{Pool, scope};
use filch_recruit::{Contended, Duty, Rate, Recruiter, RecruiterStats, SideError, Slice};

/// The most entries that one slice removes.
const LIMIT: usize = 100;

/// The expiry times of the entries, the oldest first.
type Cache = Arc<Mutex<VecDeque<Instant>>>;

/// Removes a few expired entries. If the lock is held, it gives up.
fn trim(cache: &Cache, slice: &Slice) -> Result<Duty, SideError> {
    let mut entries = cache.try_lock().map_err(|_| Contended)?;
    let now = Instant::now();
    let mut duty = Duty::NoWork;
    for _ in 0..LIMIT {
        if slice.out_of_time() || entries.front().is_none_or(|expiry| *expiry > now) {
            break;
        }
        entries.pop_front();
        duty = Duty::Done;
    }
    Ok(duty)
}

/// Tasks come in bursts, and each adds an entry that expires at once. Between two bursts the pool
/// is idle. Returns the statistics when no entry is left.
fn run() -> Result<RecruiterStats, Box<dyn Error>> {
    let cache = Cache::default();
    let trimmed = Arc::clone(&cache);
    let recruiter = Recruiter::builder()
        .job("trim", Rate::new(0.5)?, move |slice: &mut Slice| trim(&trimmed, slice))
        .budget(Duration::from_millis(1), Duration::from_millis(5))
        .build()?;
    let recruiter = Arc::new(recruiter);
    let idle = Arc::clone(&recruiter);
    let pool = Pool::builder()
        .threads(2)
        .idle_hook(move || {
            idle.enlist();
            // It added no tasks.
            false
        })
        .build()?;
    for _ in 0..20 {
        pool.install(|| {
            scope(|scope| {
                for _ in 0..100 {
                    scope.spawn(|_| {
                        cache
                            .lock()
                            .expect("no code panics with the lock")
                            .push_back(Instant::now());
                    });
                }
            });
        });
    }
    // Tiny tasks: after each of them a thread is idle.
    while pool.install(|| !cache.lock().expect("no code panics with the lock").is_empty()) {}
    // After this, the slice that removed the last entry has been counted.
    drop(pool);
    Ok(recruiter.stats())
}

fn main() -> Result<(), Box<dyn Error>> {
    print!("{}", run()?.metrics());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_threads_remove_all_expired_entries() {
        let stats = run().expect("valid set-up");
        let counts = &stats.jobs[0].counts;
        // Two thousand entries, at most a hundred per slice.
        assert!(counts.recruited >= 20, "{stats:?}");
        assert!(stats.enlisted > counts.selected, "some calls are dismissed: {stats:?}");
    }
}
