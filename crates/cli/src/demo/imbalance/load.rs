//! One run: all tasks are put on worker 0 of a pool, and the others steal.

use std::hint::black_box;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use filch_pool::{Pool, StealPolicy};

/// What every task adds: the numbers below this one.
pub(super) const ADDITIONS: u64 = 1_000_000;

const SUM: u64 = ADDITIONS * (ADDITIONS - 1) / 2;

/// What the threads are called, with a number behind it.
const NAME: &str = "imbalance";

/// How the run is.
#[derive(Clone, Copy)]
pub(super) struct Setup {
    pub(super) workers: usize,
    pub(super) tasks: u64,
    pub(super) steal: StealPolicy,
    /// How often the schedule trace has a line.
    pub(super) period: Duration,
}

/// What came of it.
pub(super) struct Run {
    /// How many tasks each worker ran.
    pub(super) shares: Vec<u64>,
    pub(super) thefts: u64,
    /// Tasks that these moved.
    pub(super) stolen: u64,
    /// Tasks that worker 0 had no room for, and that all took from the shared queue.
    pub(super) overflowed: u64,
    pub(super) makespan: Duration,
}

/// How long one task takes alone: the shortest of a few times.
pub(super) fn alone() -> Duration {
    let time = |_| {
        let began = Instant::now();
        add();
        began.elapsed()
    };
    (0..5).map(time).min().unwrap_or_default()
}

fn add() -> u64 {
    // Every sum could be looked at, so every addition is made.
    (0..ADDITIONS).fold(0, |sum, number| black_box(sum + number))
}

/// Runs it, and says the lines of the schedule trace as they come.
pub(super) fn run(setup: Setup, mut line: impl FnMut(String) -> Result<()>) -> Result<Run> {
    let Setup { workers, tasks, steal, period } = setup;
    let pool = Pool::builder().name(NAME).threads(workers).steal(steal).build()?;
    let (go, sums) = seat(&pool, workers, tasks);
    // Every thread has had its place, and nothing else has been put anywhere.
    let before = pool.stats();
    let began = Instant::now();
    go.send(()).expect("worker 0 waits for it");
    let mut due = began + period;
    let mut done = 0;
    while done < tasks {
        match sums.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(sum) => {
                ensure!(sum == SUM, "a task came to {sum}, not to {SUM}: this machine cannot add");
                done += 1;
            }
            Err(RecvTimeoutError::Timeout) => {
                line(pool.trace_line())?;
                due = Instant::now() + period;
            }
            Err(RecvTimeoutError::Disconnected) => bail!("{} tasks were lost", tasks - done),
        }
    }
    let makespan = began.elapsed();
    let after = pool.stats();
    line(after.trace_line())?;
    let each = after.workers.iter().zip(&before.workers);
    Ok(Run {
        shares: each.map(|(after, before)| after.executed - before.executed).collect(),
        thefts: after.thefts() - before.thefts(),
        stolen: after.stolen() - before.stolen(),
        overflowed: after.overflowed() - before.overflowed(),
        makespan,
    })
}

/// Gives every thread something that ends when all have it, so that the one that spawns the tasks is worker
/// 0. It does so once it is told to; then the sums come.
fn seat(pool: &Pool, workers: usize, tasks: u64) -> (Sender<()>, Receiver<u64>) {
    let (go, told) = channel();
    let (sum, sums) = channel();
    let order = Arc::new(Mutex::new(Some((told, sum))));
    let all = Arc::new(Barrier::new(workers + 1));
    for _ in 0..workers {
        let (order, all) = (Arc::clone(&order), Arc::clone(&all));
        pool.spawn_detached(move || {
            all.wait();
            let is_first = std::thread::current().name() == Some(&format!("{NAME}-0"));
            let order = is_first.then(|| order.lock().expect("nobody panics with it").take());
            if let Some((told, sum)) = order.flatten()
                && told.recv() == Ok(())
            {
                spawn(tasks, &sum);
            }
        });
    }
    all.wait();
    (go, sums)
}

fn spawn(tasks: u64, sum: &Sender<u64>) {
    for _ in 0..tasks {
        let sum = sum.clone();
        filch_pool::task::spawn_detached(move || {
            // Nobody listens if another sum was wrong.
            let _ = sum.send(add());
        });
    }
}
