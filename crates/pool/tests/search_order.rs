//! The order in which real workers look for work, as seen from outside.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use filch_pool::{
    Pool, StealPolicy,
    stats::WorkerState,
    task::{Priority, spawn_detached},
};

#[derive(Clone, Default)]
struct Journal(Arc<Mutex<Vec<String>>>);

impl Journal {
    fn write(&self, name: &str) -> impl FnOnce() + Send + use<> {
        let (journal, name) = (Arc::clone(&self.0), name.to_owned());
        move || journal.lock().unwrap().push(name)
    }

    fn read(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

fn wait_until(pool: &Pool, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", pool.trace_line());
        thread::yield_now();
    }
}

fn settle(pool: &Pool) {
    let threads = pool.threads();
    wait_until(pool, || {
        let stats = pool.stats();
        stats.sleeping == threads && stats.in_state(WorkerState::Sleeping) == threads
    });
}

/// The index of the calling worker.
fn worker() -> usize {
    thread::current().name().unwrap().rsplit_once('-').unwrap().1.parse().unwrap()
}

/// A worker that is kept busy until it is released.
struct Kept {
    worker: usize,
    go: mpsc::Sender<()>,
}

/// Keeps one worker busy, after it has run `first`.
fn keep(pool: &Pool, first: impl FnOnce() + Send + 'static) -> Kept {
    let (go, gate) = mpsc::channel();
    let (sender, receiver) = mpsc::channel();
    pool.spawn_detached(move || {
        first();
        sender.send(worker()).unwrap();
        gate.recv().unwrap();
    });
    Kept { worker: receiver.recv().unwrap(), go }
}

#[test]
fn one_worker_takes_high_priority_next_own_shared_and_low_priority_in_this_order() {
    let (pool, journal) = (Pool::builder().threads(1).build().unwrap(), Journal::default());
    let (own, next) = (journal.write("own"), journal.write("next"));
    let kept = keep(&pool, || {
        spawn_detached(own);
        spawn_detached(next);
    });
    // None of the next turns is one at which the shared queue comes first.
    assert!(pool.stats().ticks() < 50);
    drop(pool.task().priority(Priority::Low).spawn(journal.write("not urgent")));
    pool.spawn_detached(journal.write("shared"));
    drop(pool.task().priority(Priority::High).spawn(journal.write("urgent")));
    kept.go.send(()).unwrap();
    wait_until(&pool, || journal.read().len() == 5);
    assert_eq!(journal.read(), ["urgent", "next", "own", "shared", "not urgent"]);
}

/// One worker has 128 exposed tasks and is busy; the other steals them when it has nothing else.
fn steal_from_a_busy_one(steal: StealPolicy) -> (Vec<String>, u64) {
    let pool = Pool::builder().threads(2).steal(steal).build().unwrap();
    let journal = Journal::default();
    // Both are busy, so that nothing is stolen during preparation.
    let first = keep(&pool, || ());
    let many = journal.clone();
    let second = keep(&pool, move || {
        (0..129).for_each(|number| spawn_detached(many.write(&format!("other's {number}"))));
    });
    assert_ne!(first.worker, second.worker);
    assert_eq!(pool.stats().workers[second.worker].exposed_tasks, 128 + 1);
    let before = pool.stats().stolen();
    pool.spawn_detached(journal.write("shared"));
    first.go.send(()).unwrap();
    wait_until(&pool, || journal.read().len() > 128);
    let (read, stats) = (journal.read(), pool.stats());
    let stolen = stats.stolen() - before;
    assert_eq!(stats.workers[second.worker].stolen_from, stolen);
    second.go.send(()).unwrap();
    (read, stolen)
}

#[test]
fn stolen_tasks_come_after_the_shared_queue_oldest_first() {
    for steal in [StealPolicy::One, StealPolicy::Half] {
        let (read, stolen) = steal_from_a_busy_one(steal);
        let oldest = (0..128).map(|number| format!("other's {number}"));
        let expected: Vec<_> = std::iter::once("shared".to_owned()).chain(oldest).collect();
        assert_eq!(read[..129], expected);
        // Perhaps also the task that was spawned last.
        assert!((128..=129).contains(&stolen), "{stolen}");
    }
}

#[test]
fn a_task_from_outside_runs_within_61_turns_of_endless_others() {
    struct Forever {
        pool: Arc<Pool>,
        runs: AtomicU64,
        /// At one moment, a thread outside spawns a task while the worker takes no turn.
        ask: mpsc::Sender<u64>,
        answer: Mutex<mpsc::Receiver<()>>,
    }
    fn again(this: Arc<Forever>) {
        match this.runs.fetch_add(1, SeqCst) {
            1000 => {
                this.ask.send(this.pool.stats().ticks()).unwrap();
                this.answer.lock().unwrap().recv().unwrap();
            }
            1_000_000.. => return,
            _ => (),
        }
        spawn_detached(move || again(this));
    }
    let pool = Arc::new(Pool::builder().threads(1).build().unwrap());
    let ((ask, asked), (answer, answered)) = (mpsc::channel(), mpsc::channel());
    let (runs, answer_from) = (AtomicU64::new(0), Mutex::new(answered));
    let this = Forever { pool: Arc::clone(&pool), runs, ask, answer: answer_from };
    let this = Arc::new(this);
    // From inside, so that the shared queue is empty.
    pool.install(|| {
        for _ in 0..2 {
            let this = Arc::clone(&this);
            spawn_detached(move || again(this));
        }
    });
    let before = asked.recv().unwrap();
    let (sender, receiver) = mpsc::channel();
    let inside = Arc::clone(&pool);
    pool.spawn_detached(move || sender.send(inside.stats().ticks()).unwrap());
    answer.send(()).unwrap();
    let after = receiver.recv().unwrap();
    assert!((1..=61).contains(&(after - before)), "{} turns", after - before);
    // Ends the tasks, and the pool with them.
    this.runs.store(1_000_000, SeqCst);
}

#[test]
fn a_worker_runs_its_own_tasks_or_stolen_ones() {
    let pool = Pool::builder().threads(3).build().unwrap();
    settle(&pool);
    for _ in 0..50 {
        let before = pool.stats();
        // So few that none overflows to the shared queue.
        let spawner = pool.install(|| {
            (0..200).for_each(|_| {
                spawn_detached(|| (0..500).for_each(|_| std::hint::spin_loop()));
            });
            worker()
        });
        settle(&pool);
        let after = pool.stats();
        assert_eq!(after.overflowed(), 0);
        assert_eq!(after.executed() - before.executed(), 201);
        for (index, (after, before)) in after.workers.iter().zip(&before.workers).enumerate() {
            let given = if index == spawner { 201 } else { 0 };
            let stolen = after.stolen - before.stolen;
            let lost = after.stolen_from - before.stolen_from;
            assert_eq!(after.executed - before.executed, given + stolen - lost, "worker {index}");
        }
    }
}
