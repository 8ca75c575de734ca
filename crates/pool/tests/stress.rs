//! Many tasks, forks and scopes at once, from all sides, with panics, cancellation and closing in
//! the middle: each runs at most once, and each is dropped exactly once.
//!
//! All waiting is for a condition, and all counting uses atomics, so that ThreadSanitizer sees the
//! order.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

use filch_pool::{
    Pool, StealPolicy, block_on, join, scope,
    task::{CancelToken, Priority},
};

fn pool(threads: usize) -> Pool {
    pool_that(threads, StealPolicy::Half)
}

fn pool_that(threads: usize, steal: StealPolicy) -> Pool {
    Pool::builder()
        .threads(threads)
        .steal(steal)
        .seed(threads as u64)
        .build()
        .expect("threads can be started")
}

/// How often each of a number of entries was run and dropped.
struct Ledger {
    runs: Vec<AtomicUsize>,
    drops: Vec<AtomicUsize>,
}

/// One of them.
struct Entry {
    ledger: Arc<Ledger>,
    number: usize,
}

impl Ledger {
    fn new(entries: usize) -> Arc<Self> {
        let zeros = || (0..entries).map(|_| AtomicUsize::new(0)).collect();
        Arc::new(Self { runs: zeros(), drops: zeros() })
    }

    fn entry(self: &Arc<Self>, number: usize) -> Entry {
        Entry { ledger: Arc::clone(self), number }
    }

    fn counts(of: &[AtomicUsize]) -> Vec<usize> {
        of.iter().map(|count| count.load(SeqCst)).collect()
    }

    /// Checks that all were dropped once, and run at most once. Returns how many were run.
    fn audit(&self) -> usize {
        let odd = |count: &&AtomicUsize| count.load(SeqCst) != 1;
        assert_eq!(self.drops.iter().filter(odd).count(), 0, "each is dropped once");
        let runs = Self::counts(&self.runs);
        assert!(runs.iter().all(|runs| *runs <= 1), "none is run twice");
        runs.iter().sum()
    }
}

impl Entry {
    /// What the task does: every seventh panics.
    fn run(self) {
        self.ledger.runs[self.number].fetch_add(1, SeqCst);
        if self.number.is_multiple_of(7) {
            resume_unwind(Box::new("planned"));
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.ledger.drops[self.number].fetch_add(1, SeqCst);
    }
}

#[test]
fn every_task_from_outside_runs_once() {
    for threads in 1..5 {
        let pool = pool(threads);
        let ledger = Ledger::new(4000);
        thread::scope(|threads| {
            for quarter in 0..4 {
                let (pool, ledger) = (&pool, &ledger);
                threads.spawn(move || {
                    for number in (quarter..4000).step_by(4) {
                        let entry = ledger.entry(number);
                        match number % 3 {
                            0 => pool.spawn_detached(|| entry.run()),
                            1 => drop(pool.task().priority(Priority::High).spawn(|| entry.run())),
                            _ => drop(pool.task().priority(Priority::Low).spawn(|| entry.run())),
                        }
                    }
                });
            }
        });
        // Installed closures come in no particular order, so wait for every task.
        while Ledger::counts(&ledger.drops).iter().sum::<usize>() < 4000 {
            thread::yield_now();
        }
        drop(pool);
        assert_eq!(ledger.audit(), 4000, "{threads} threads");
    }
}

/// A tree of tasks: each spawns those below it.
fn grow(pool: &Arc<Pool>, ledger: &Arc<Ledger>, number: usize) {
    for child in [2 * number + 1, 2 * number + 2] {
        if child < ledger.runs.len() {
            let (pool, ledger) = (Arc::clone(pool), Arc::clone(ledger));
            let again = Arc::clone(&pool);
            pool.spawn_detached(move || {
                let entry = ledger.entry(child);
                grow(&again, &ledger, child);
                drop(again);
                entry.run();
            });
        }
    }
}

#[test]
fn every_task_of_a_tree_runs_once() {
    for threads in 1..5 {
        for steal in [StealPolicy::One, StealPolicy::Half] {
            let pool = Arc::new(pool_that(threads, steal));
            let ledger = Ledger::new(5000);
            ledger.entry(0).ledger.runs[0].fetch_add(1, SeqCst);
            grow(&pool, &ledger, 0);
            while Ledger::counts(&ledger.drops).iter().sum::<usize>() < 5000 {
                thread::yield_now();
            }
            assert_eq!(ledger.audit(), 5000, "{threads} threads, {steal:?}");
        }
    }
}

/// The pool is dropped after some of the tasks have run.
#[test]
fn a_pool_dropped_in_the_middle_drops_every_task_once() {
    for threads in 1..4 {
        for round in 0..60 {
            let pool = pool(threads);
            let ledger = Ledger::new(1500);
            let from_inside: Vec<Entry> = (0..500).map(|number| ledger.entry(number)).collect();
            pool.spawn_detached(move || {
                for entry in from_inside {
                    filch_pool::task::spawn_detached(move || entry.run());
                }
            });
            for number in 500..1000 {
                let entry = ledger.entry(number);
                pool.spawn_detached(move || {
                    join(|| (), || entry.run());
                });
            }
            let handles: Vec<_> = (1000..1500)
                .map(|number| {
                    let entry = ledger.entry(number);
                    pool.spawn(move || entry.run())
                })
                .collect();
            while Ledger::counts(&ledger.runs).iter().sum::<usize>() < round * 20 {
                thread::yield_now();
            }
            drop(pool);
            ledger.audit();
            // Waiting for them returns.
            handles.into_iter().for_each(|handle| drop(handle.wait()));
        }
    }
}

#[test]
fn several_threads_close_the_pool_while_tasks_are_spawned() {
    for threads in 1..4 {
        for _ in 0..30 {
            let pool = pool(threads);
            let ledger = Ledger::new(900);
            thread::scope(|threads| {
                for third in 0..3 {
                    let (pool, ledger) = (&pool, &ledger);
                    threads.spawn(move || {
                        for number in (third..900).step_by(3) {
                            let entry = ledger.entry(number);
                            pool.spawn_detached(|| entry.run());
                            if number > 450 {
                                pool.close();
                            }
                        }
                    });
                }
            });
            drop(pool);
            ledger.audit();
        }
    }
}

#[test]
fn scopes_within_scopes_with_panics_and_cancelling() {
    for threads in 1..5 {
        let pool = pool(threads);
        for round in 0..50_usize {
            let ledger = Ledger::new(300);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                pool.install(|| {
                    scope(|outer| {
                        for group in 0..10 {
                            let ledger = &ledger;
                            let entries: Vec<Entry> =
                                (0..30).map(|n| ledger.entry(group * 30 + n)).collect();
                            outer.spawn(move |_| {
                                scope(|inner| {
                                    for entry in entries {
                                        let number = entry.number;
                                        inner.spawn(move |inner| {
                                            if number == round {
                                                inner.cancel();
                                            }
                                            join(|| (), || entry.run());
                                        });
                                    }
                                });
                            });
                        }
                    });
                });
            }));
            assert!(outcome.is_err(), "some panic");
            assert!(ledger.audit() >= 270, "at most one inner scope was cancelled");
        }
    }
}

#[test]
fn cancelled_tasks_are_dropped_once_and_the_others_run() {
    for threads in 1..4 {
        let pool = pool(threads);
        for _ in 0..20 {
            let ledger = Ledger::new(600);
            let tokens = [CancelToken::new(), CancelToken::new()];
            let handles: Vec<_> = (0..600)
                .map(|number| {
                    let entry = ledger.entry(number);
                    if number == 300 {
                        tokens[1].cancel();
                    }
                    pool.task().token(&tokens[number % 2]).spawn(|| entry.run())
                })
                .collect();
            handles.into_iter().for_each(|handle| drop(handle.wait()));
            let ran = ledger.audit();
            assert!((300..=450).contains(&ran), "{ran} were run");
        }
    }
}

#[test]
fn futures_and_forks_together() {
    for threads in 1..4 {
        let pool = pool(threads);
        let ledger = Ledger::new(500);
        let handles: Vec<_> = (0..500)
            .map(|number| {
                let entry = ledger.entry(number);
                pool.spawn_future(async move {
                    let inner = filch_pool::spawn_future(async { join(|| 1, || 2) });
                    assert_eq!(inner.await.expect("it runs"), (1, 2));
                    entry.run();
                })
            })
            .collect();
        handles.into_iter().for_each(|handle| drop(block_on(handle)));
        assert_eq!(ledger.audit(), 500);
    }
}

/// Each task holds a lock while it joins: a thread that ran any other task while it waits would
/// need a lock that it holds itself.
#[test]
fn a_lock_held_across_a_join_never_hangs() {
    fn tree(depth: usize) -> usize {
        if depth == 0 {
            return 1;
        }
        let (a, b) = join(|| tree(depth - 1), || tree(depth - 1));
        a + b
    }
    for threads in 1..5 {
        let pool = Arc::new(pool(threads));
        let lock = Arc::new(Mutex::new(()));
        let total = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..300)
            .map(|_| {
                let (lock, total) = (Arc::clone(&lock), Arc::clone(&total));
                pool.spawn(move || {
                    let _held = lock.lock().expect("nothing panics under it");
                    total.fetch_add(tree(9), SeqCst);
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| task.wait().expect("it runs"));
        assert_eq!(total.load(SeqCst), 300 * 512);
    }
}

/// The same with scopes, and with forks that each hold their own lock below.
#[test]
fn locks_held_across_scopes_and_deeper_joins_never_hang() {
    fn tree(locks: &[Mutex<()>], depth: usize) -> usize {
        let Some(lock) = locks.get(depth) else { return 1 };
        // Held by at most one task at each depth, and always locked from the top down.
        let _guard = lock.lock().expect("nothing panics under it");
        let count = AtomicUsize::new(0);
        scope(|s| {
            for _ in 0..2 {
                s.spawn(|_| {
                    let (a, b) = join(|| 1, || 1);
                    count.fetch_add(a + b, SeqCst);
                });
            }
        });
        let (a, b) = join(|| tree(locks, depth + 1), || count.load(SeqCst));
        a + b
    }
    for threads in 1..5 {
        let pool = pool(threads);
        let locks = Arc::new([const { Mutex::new(()) }; 5]);
        let tasks: Vec<_> = (0..200)
            .map(|_| {
                let locks = Arc::clone(&locks);
                pool.spawn(move || tree(&*locks, 0))
            })
            .collect();
        for task in tasks {
            assert_eq!(task.wait().expect("it runs"), 1 + 5 * 4);
        }
    }
}

#[test]
fn installs_within_installs_and_across_pools() {
    fn back_and_forth(pools: &[Pool; 2], left: usize) -> usize {
        if left == 0 {
            return 0;
        }
        let (there, here) = join(
            || pools[left % 2].install(|| back_and_forth(pools, left - 1)),
            || pools[0].install(|| pools[0].install(|| 1)),
        );
        there + here
    }
    for threads in 1..4 {
        let pools = [pool(threads), pool(1)];
        thread::scope(|threads| {
            for _ in 0..3 {
                threads.spawn(|| assert_eq!(back_and_forth(&pools, 40), 40));
            }
        });
    }
}

#[test]
fn the_first_of_two_panics_wins_and_both_closures_are_dropped() {
    for threads in 1..4 {
        let pool = pool(threads);
        for round in 0..3000 {
            let ledger = Ledger::new(2);
            let (a, b) = (ledger.entry(0), ledger.entry(1));
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                pool.install(move || {
                    join(
                        move || {
                            let _a = a;
                            if round % 3 != 1 {
                                resume_unwind(Box::new("a"));
                            }
                        },
                        move || {
                            let _b = b;
                            if round % 3 != 0 {
                                resume_unwind(Box::new("b"));
                            }
                        },
                    )
                })
            }));
            let panic = outcome.expect_err("one of them panics");
            let expected = if round % 3 == 1 { "b" } else { "a" };
            assert_eq!(panic.downcast_ref(), Some(&expected), "{threads} threads");
            assert_eq!(Ledger::counts(&ledger.drops), [1, 1]);
        }
    }
}

/// The second half is certainly stolen, because the first waits for it.
#[test]
fn the_first_of_two_panics_wins_if_the_second_was_stolen() {
    let pool = pool(2);
    for round in 0..200 {
        let ledger = Ledger::new(2);
        let (a, b) = (ledger.entry(0), ledger.entry(1));
        let begun = AtomicBool::new(false);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            pool.install(|| {
                join(
                    || {
                        let _a = a;
                        while !begun.load(SeqCst) {
                            thread::yield_now();
                        }
                        resume_unwind(Box::new("a"));
                    },
                    || {
                        let _b = b;
                        begun.store(true, SeqCst);
                        if round % 2 == 0 {
                            resume_unwind(Box::new("b"));
                        }
                    },
                )
            })
        }));
        let panic = outcome.map(|((), ())| ()).expect_err("one of them panics");
        assert_eq!(panic.downcast_ref(), Some(&"a"));
        assert_eq!(Ledger::counts(&ledger.drops), [1, 1]);
    }
}

/// Deeper than a worker has room for forks, with thieves and without.
#[test]
fn forks_deeper_than_there_is_room() {
    fn deep(left: usize, ledger: &Arc<Ledger>) -> usize {
        let Some(left) = left.checked_sub(1) else { return 0 };
        let entry = ledger.entry(left);
        let (below, here) = join(
            || deep(left, ledger),
            || {
                entry.ledger.runs[entry.number].fetch_add(1, SeqCst);
                1
            },
        );
        drop(entry);
        below + here
    }
    for threads in 1..5 {
        let pool = Pool::builder()
            .threads(threads)
            .stack_size(64 << 20)
            .build()
            .expect("threads can be started");
        for _ in 0..5 {
            let ledger = Ledger::new(6000);
            assert_eq!(pool.install(|| deep(6000, &ledger)), 6000);
            assert_eq!(ledger.audit(), 6000);
        }
    }
}

#[test]
fn forks_from_outside_of_any_pool() {
    fn fib(n: u64) -> u64 {
        if n < 2 {
            return n;
        }
        let (a, b) = join(|| fib(n - 1), || fib(n - 2));
        a + b
    }
    thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| assert_eq!(fib(16), 987));
        }
    });
}

#[test]
fn external_threads_enter_and_leave_while_others_work() {
    let pool = pool(2);
    let ledger = Ledger::new(3200);
    thread::scope(|threads| {
        for external in 0..8 {
            let (pool, ledger) = (&pool, &ledger);
            threads.spawn(move || {
                for round in 0..100 {
                    let (a, b) = pool.enter(|| {
                        for part in 0..4 {
                            let entry = ledger.entry(external * 400 + round * 4 + part);
                            filch_pool::task::spawn_detached(|| entry.run());
                        }
                        join(|| round, || external)
                    });
                    assert_eq!((a, b), (round, external));
                }
            });
        }
    });
    while Ledger::counts(&ledger.drops).iter().sum::<usize>() < 3200 {
        thread::yield_now();
    }
    assert_eq!(ledger.audit(), 3200);
}
