//! Long leaves run in parallel, wherever they are forked: the leaves here wait for one another, and
//! would never finish one after the other.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use filch_pool::{Pool, for_each, join, scope, stats::WorkerState};

/// How long leaves wait until it is clear that the others are not running.
const LONG: Duration = Duration::from_secs(60);

/// A barrier for that many leaves.
struct Meeting {
    expected: usize,
    there: AtomicUsize,
}

impl Meeting {
    fn of(expected: usize) -> Self {
        Self { expected, there: AtomicUsize::new(0) }
    }

    fn wait(&self) {
        self.there.fetch_add(1, SeqCst);
        let begin = Instant::now();
        while self.there.load(SeqCst) < self.expected {
            assert!(begin.elapsed() < LONG, "a leaf waits for one that was not started");
            thread::yield_now();
        }
    }

    fn end(self) {
        assert_eq!(self.there.into_inner(), self.expected, "every leaf was done, once");
    }
}

fn pool(threads: usize) -> Pool {
    Pool::builder().threads(threads).build().expect("threads can be started")
}

/// Waits until only that many workers are awake: then the others have requested work.
fn rest(pool: &Pool, awake: usize) {
    let begin = Instant::now();
    let sleeping = || {
        let stats = pool.stats();
        stats.workers.iter().filter(|worker| worker.state == WorkerState::Sleeping).count()
    };
    while sleeping() + awake < pool.threads() {
        assert!(begin.elapsed() < LONG, "a worker that has nothing to do goes to sleep");
        thread::yield_now();
    }
}

/// Two leaves, as `shape` forks them, in a pool that has slept before: from outside, on an external
/// thread that entered the pool, after many small forks, and repeatedly.
fn check(shape: impl Fn(&Meeting) + Sync) {
    let pool = pool(2);
    let meet = |awake: usize| {
        rest(&pool, awake);
        let meeting = Meeting::of(2);
        shape(&meeting);
        meeting.end();
    };
    for round in 0..20 {
        pool.install(|| meet(1));
        pool.enter(|| meet(0));
        pool.install(|| {
            for _ in 0..10 * round {
                join(|| (), || ());
            }
            meet(1);
            meet(1);
        });
    }
    pool.install(|| {
        for _ in 0..100 {
            join(|| (), || ());
            rest(&pool, 1);
        }
        meet(1);
    });
}

#[test]
fn leaves_of_the_first_fork() {
    check(|meeting| {
        join(|| meeting.wait(), || meeting.wait());
    });
}

#[test]
fn leaves_within_the_first_half_of_other_forks() {
    fn within(depth: u32, meeting: &Meeting) {
        if depth == 0 {
            join(|| meeting.wait(), || meeting.wait());
        } else {
            join(|| within(depth - 1, meeting), || ());
        }
    }
    for depth in 1..=6 {
        check(|meeting| within(depth, meeting));
    }
}

#[test]
fn leaves_within_the_second_half_of_other_forks() {
    fn within(depth: u32, meeting: &Meeting) {
        if depth == 0 {
            join(|| meeting.wait(), || meeting.wait());
        } else {
            join(|| (), || within(depth - 1, meeting));
        }
    }
    for depth in 1..=6 {
        check(|meeting| within(depth, meeting));
    }
}

#[test]
fn leaves_after_other_forks() {
    check(|meeting| {
        join(|| (), || ());
        join(|| meeting.wait(), || meeting.wait());
        join(|| (), || ());
    });
}

#[test]
fn two_items_of_a_loop() {
    check(|meeting| for_each(0..2_usize, |_| meeting.wait()));
}

#[test]
fn two_tasks_of_a_scope() {
    check(|meeting| {
        scope(|s| {
            s.spawn(|_| meeting.wait());
            s.spawn(|_| meeting.wait());
        });
    });
}

/// The owner of the scope has nothing to do but wait, and so steals the helper's forks.
#[test]
fn leaves_forked_by_a_task_of_a_scope_on_another_worker() {
    let pool = pool(2);
    for _ in 0..50 {
        let (begun, meeting) = (Meeting::of(2), Meeting::of(2));
        pool.install(|| {
            scope(|s| {
                s.spawn(|_| {
                    begun.wait();
                    join(|| meeting.wait(), || meeting.wait());
                });
                begun.wait();
            });
        });
        meeting.end();
    }
}

/// While a worker waits for a scope, its forks are not out of reach: a third worker runs them.
#[test]
fn leaves_forked_by_a_worker_that_waits_for_a_scope() {
    let pool = pool(3);
    for _ in 0..50 {
        let (begun, meeting) = (Meeting::of(2), Meeting::of(2));
        let waits = || {
            scope(|s| {
                s.spawn(|_| {
                    begun.wait();
                    meeting.wait();
                });
                begun.wait();
            });
        };
        pool.install(|| join(waits, || meeting.wait()));
        meeting.end();
    }
}

#[test]
fn leaves_forked_by_a_task() {
    let pool = pool(2);
    for _ in 0..50 {
        let spawned = pool.spawn(|| {
            let meeting = Meeting::of(2);
            join(|| meeting.wait(), || meeting.wait());
            meeting.end();
        });
        spawned.wait().expect("it does not panic");
    }
}

/// Ways to fork that many leaves.
const SHAPES: [fn(usize, &Meeting); 3] = [
    |leaves, meeting| halves(leaves, meeting),
    |leaves, meeting| one_by_one(leaves, meeting),
    |leaves, meeting| the_rest_elsewhere(leaves, meeting),
];

fn halves(leaves: usize, meeting: &Meeting) {
    if leaves == 1 {
        meeting.wait();
    } else {
        join(|| halves(leaves / 2, meeting), || halves(leaves - leaves / 2, meeting));
    }
}

fn one_by_one(leaves: usize, meeting: &Meeting) {
    if leaves == 1 {
        meeting.wait();
    } else {
        join(|| one_by_one(leaves - 1, meeting), || meeting.wait());
    }
}

fn the_rest_elsewhere(leaves: usize, meeting: &Meeting) {
    if leaves == 1 {
        meeting.wait();
    } else {
        join(|| meeting.wait(), || the_rest_elsewhere(leaves - 1, meeting));
    }
}

#[test]
fn as_many_leaves_as_there_are_workers() {
    for threads in 2..=8 {
        let pool = pool(threads);
        for shape in SHAPES {
            for _ in 0..20 {
                rest(&pool, 0);
                let meeting = Meeting::of(threads);
                pool.install(|| shape(threads, &meeting));
                meeting.end();
            }
        }
    }
}

/// The worker that forked the short ones waits for thieves that wait for thieves, and all of them
/// are needed in the end. No more forks than are exposed at once: see `WINDOW`.
#[test]
fn as_many_leaves_as_there_are_workers_after_short_forks() {
    fn after(short: usize, then: &(dyn Fn() + Sync)) {
        match short {
            0 => then(),
            short => drop(join(|| (), || after(short - 1, then))),
        }
    }
    fn before(short: usize, then: &(dyn Fn() + Sync)) {
        match short {
            0 => then(),
            short => drop(join(|| before(short - 1, then), || ())),
        }
    }
    for threads in 3..=6 {
        let pool = pool(threads);
        for shape in SHAPES {
            for short in (0..6).cycle().take(60) {
                rest(&pool, 0);
                let meeting = Meeting::of(threads);
                let leaves = || after(short, &|| shape(threads, &meeting));
                pool.install(|| before(short.min(2), &leaves));
                meeting.end();
            }
        }
    }
}

/// A worker that waits for a scope while its own fork is stolen helps from then on.
#[test]
fn leaves_forked_by_a_task_of_a_scope_while_the_owners_fork_is_stolen() {
    let pool = pool(3);
    for _ in 0..50 {
        let (begun, meeting) = (Meeting::of(2), Meeting::of(3));
        let waits = || {
            scope(|s| {
                s.spawn(|_| {
                    begun.wait();
                    join(|| meeting.wait(), || meeting.wait());
                });
                begun.wait();
            });
        };
        pool.install(|| join(waits, || meeting.wait()));
        meeting.end();
    }
}
