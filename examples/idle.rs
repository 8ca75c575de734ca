//! Side-work in the idle moments of a pool: a cache whose entries expire, and no thread that cleans it.
//!
//! ```sh
//! cargo run -p filch-benches --example idle
//! ```
//!
//! The pool does not know the recruiter, nor the recruiter the pool: the program puts the one into the
//! other's hook. A thread that has found nothing to do enlists before it sleeps; now and then it is
//! recruited, and trims a little. Whoever brings work meanwhile finds the other threads as usual.

use std::collections::VecDeque;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use filch_pool::{Pool, scope};
use filch_recruit::{Contended, Duty, Rate, Recruiter, RecruiterStats, SideError, Slice};

/// How many entries one slice removes at most.
const LIMIT: usize = 100;

/// Entries by the moment at which they expire, the oldest first.
type Cache = Arc<Mutex<VecDeque<Instant>>>;

/// Removes a few entries that have expired. A lock that is held is a reason to go.
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

/// Tasks come in bursts, and each leaves an entry that expires at once; between two bursts the pool is
/// idle. Ends when nothing is left, and says what the recruits did.
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
            // It brings no tasks.
            false
        })
        .build()?;
    for _ in 0..20 {
        pool.install(|| {
            scope(|scope| {
                for _ in 0..100 {
                    scope.spawn(|_| {
                        cache.lock().expect("nobody panics with it").push_back(Instant::now());
                    });
                }
            });
        });
    }
    // Visitors with hardly anything to do: after each of them somebody is idle.
    while pool.install(|| !cache.lock().expect("nobody panics with it").is_empty()) {}
    // Whoever removed the last entry has then also been counted.
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
    fn idle_threads_leave_nothing() {
        let stats = run().expect("the set-up makes sense");
        let counts = &stats.jobs[0].counts;
        // Two thousand entries, at most a hundred by each.
        assert!(counts.recruited >= 20, "{stats:?}");
        assert!(stats.enlisted > counts.selected, "some are dismissed: {stats:?}");
    }
}
