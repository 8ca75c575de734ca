//! Deterministic mode: the same seed gives the same schedule, many seeds give many, and all work is
//! done.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

use filch_pool::{
    deterministic::{self, Schedule, interleave},
    for_each, join, scope, spawn,
    task::{Priority, TaskHandle, spawn_detached},
};

/// What was done, in order.
type Journal = Arc<Mutex<Vec<String>>>;

/// Uses everything: forks, scopes, loops, tasks, priorities and handles.
fn run(seed: u64, workers: usize) -> (Vec<String>, Schedule) {
    let journal = Journal::default();
    let write = |text: String| journal.lock().unwrap().push(text);
    let task = |name: &'static str| {
        let journal = Arc::clone(&journal);
        move || {
            interleave();
            journal.lock().unwrap().push(name.to_owned());
        }
    };
    let (sum, schedule) = deterministic::run(seed, workers, |pool| {
        spawn_detached(task("first"));
        pool.spawn_detached(task("second"));
        let third = spawn(task("third"));
        drop(pool.task().priority(Priority::Low).spawn(task("low")));
        drop(pool.task().priority(Priority::High).spawn(task("high")));
        let sum = fib(6, &write);
        scope(|s| {
            for number in 0..3 {
                s.spawn(move |s| {
                    write(format!("scope {number}"));
                    s.spawn(move |_| write(format!("inner {number}")));
                });
            }
        });
        third.wait().unwrap();
        for_each(0..4_u32, |number| write(format!("item {number}")));
        sum
    });
    assert_eq!(sum, 8);
    let journal = Arc::try_unwrap(journal).expect("all tasks are gone").into_inner().unwrap();
    (journal, schedule)
}

fn fib(n: u32, write: &(impl Fn(String) + Sync)) -> u32 {
    if n < 2 {
        return n;
    }
    let (a, b) = join(|| fib(n - 1, write), || fib(n - 2, write));
    write(format!("fib {n}"));
    a + b
}

#[test]
fn a_seed_repeats_its_schedule_and_all_work_is_done_once() {
    let mut schedules = BTreeSet::new();
    let mut orders = BTreeSet::new();
    let expected = {
        let mut journal = run(0, 1).0;
        journal.sort();
        journal
    };
    assert_eq!(expected.len(), 5 + 12 + 6 + 4);
    for seed in 0..1000 {
        let (journal, schedule) = run(seed, 3);
        assert_eq!((&journal, &schedule), (&run(seed, 3).0, &run(seed, 3).1), "seed {seed}");
        assert_eq!((schedule.seed(), schedule.workers()), (seed, 3));
        let mut sorted = journal.clone();
        sorted.sort();
        assert_eq!(sorted, expected, "seed {seed}");
        schedules.insert(schedule.to_string());
        orders.insert(journal);
    }
    assert!(schedules.len() > 990, "{} schedules of 1,000 seeds", schedules.len());
    assert!(orders.len() > 900, "{} orders of 1,000 seeds", orders.len());
}

#[test]
fn one_worker_is_enough() {
    let schedules: BTreeSet<_> = (0..50).map(|seed| run(seed, 1).1.to_string()).collect();
    assert!(schedules.len() > 1);
    assert!(schedules.iter().all(|schedule| !schedule.contains("w1")));
}

/// Which half of a join starts first, and on which worker.
#[test]
fn the_second_half_of_a_join_runs_before_within_or_after_the_first() {
    let orders: BTreeSet<_> = (0..100)
        .map(|seed| {
            let journal = Mutex::new(String::new());
            let write = |letter| journal.lock().unwrap().push(letter);
            let first = || {
                write('a');
                interleave();
                write('A');
            };
            deterministic::run(seed, 2, |_pool| join(first, || write('b')));
            journal.into_inner().unwrap()
        })
        .collect();
    assert_eq!(orders.into_iter().collect::<Vec<_>>(), ["aAb", "abA", "baA"]);
}

/// How often two tasks do what should be done once: one checks, the other comes in between, both
/// act.
fn times_done(seed: u64) -> (u32, Schedule) {
    let (is_done, times) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let ((), schedule) = deterministic::run(seed, 3, |_pool| {
        for _ in 0..2 {
            let (is_done, times) = (Arc::clone(&is_done), Arc::clone(&times));
            spawn_detached(move || {
                if !is_done.load(SeqCst) {
                    let (one, two) = join(|| 1, || 2);
                    is_done.store(true, SeqCst);
                    times.fetch_add(two - one, SeqCst);
                }
            });
        }
    });
    (times.load(SeqCst), schedule)
}

#[test]
fn a_race_is_found_by_some_seed_and_replayed() {
    let seed = (0..200).find(|seed| times_done(*seed).0 == 2).expect("found within 200 seeds");
    let (times, schedule) = times_done(seed);
    assert_eq!((times, &schedule), (times_done(seed).0, &times_done(seed).1));
    assert!((0..200).any(|seed| times_done(seed).0 == 1), "and not by every seed");
}

#[test]
fn a_schedule_is_readable() {
    let text = (0..200)
        .map(|seed| times_done(seed).1.to_string())
        .find(|text| text.contains("exposes 1; w1 steals a fork of w0; w1 ends"));
    assert!(text.is_some());
}

#[test]
fn a_panic_of_the_body_is_passed_on_when_all_tasks_have_run() {
    let ran = Arc::new(AtomicU32::new(0));
    for seed in 0..20 {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            deterministic::run(seed, 2, |_pool| {
                let ran = Arc::clone(&ran);
                spawn_detached(move || _ = ran.fetch_add(1, SeqCst));
                join(|| (), || std::panic::resume_unwind(Box::new("planned")));
            })
        }));
        assert_eq!(outcome.unwrap_err().downcast_ref(), Some(&"planned"));
    }
    assert_eq!(ran.load(SeqCst), 20);
}

#[test]
fn waiting_for_oneself_panics_instead_of_hanging() {
    let message = |seed| {
        let message = Arc::new(Mutex::new(None));
        deterministic::run(seed, 2, |_pool| {
            let own = Arc::new(Mutex::new(None::<TaskHandle<()>>));
            let (taken, message) = (Arc::clone(&own), Arc::clone(&message));
            let task = spawn(move || {
                // Only if it does not run before it has its own handle.
                let Some(own) = taken.lock().unwrap().take() else { return };
                let panic = catch_unwind(AssertUnwindSafe(|| own.wait())).unwrap_err();
                *message.lock().unwrap() = panic.downcast_ref::<String>().cloned();
            });
            *own.lock().unwrap() = Some(task);
        });
        message.lock().unwrap().take()
    };
    let text = (0..50).find_map(message).unwrap();
    assert!(text.starts_with("deadlock: "), "{text}");
}

#[test]
fn bad_worker_counts_are_rejected() {
    for workers in [0, filch_pool::PoolBuilder::THREADS_MAX + 1] {
        let panic = catch_unwind(|| deterministic::run(0, workers, |_pool| ())).unwrap_err();
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(text.contains(&format!("not {workers}")), "{text}");
    }
}

#[test]
fn another_thread_may_enter_the_pool() {
    for seed in 0..20 {
        let (sum, _) = deterministic::run(seed, 3, |pool| {
            thread::scope(|threads| {
                let entered = threads.spawn(|| pool.enter(|| fib(10, &drop::<String>)));
                fib(10, &drop::<String>) + entered.join().unwrap()
            })
        });
        assert_eq!(sum, 110);
    }
}
