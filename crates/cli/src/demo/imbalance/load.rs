//! One run: all tasks start on worker 0 of a pool, and the other workers steal them.

use std::hint::black_box;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use filch_pool::{Pool, StealPolicy};

/// Each task adds the numbers below this one.
pub(super) const ADDITIONS: u64 = 1_000_000;

const SUM: u64 = ADDITIONS * (ADDITIONS - 1) / 2;

/// The prefix of the thread names.
const NAME: &str = "imbalance";

/// The parameters of the run.
#[derive(Clone, Copy)]
pub(super) struct Setup {
    pub(super) workers: usize,
    pub(super) tasks: u64,
    pub(super) steal: StealPolicy,
    /// The interval of the scheduler trace.
    pub(super) period: Duration,
}

/// The result of a run.
pub(super) struct Run {
    /// The number of tasks each worker ran.
    pub(super) shares: Vec<u64>,
    pub(super) steals: u64,
    /// Tasks that were stolen.
    pub(super) stolen: u64,
    /// Tasks that did not fit into the deque of worker 0 and went through the shared queue.
    pub(super) overflowed: u64,
    pub(super) makespan: Duration,
}

/// The time of one task alone: the minimum of five runs.
pub(super) fn alone() -> Duration {
    let time = |_| {
        let began = Instant::now();
        add();
        began.elapsed()
    };
    (0..5).map(time).min().unwrap_or_default()
}

fn add() -> u64 {
    // `black_box` keeps the compiler from skipping additions.
    (0..ADDITIONS).fold(0, |sum, number| black_box(sum + number))
}

/// Runs the tasks, and passes on the lines of the scheduler trace.
pub(super) fn run(setup: Setup, mut line: impl FnMut(String) -> Result<()>) -> Result<Run> {
    let Setup { workers, tasks, steal, period } = setup;
    let pool = Pool::builder().name(NAME).threads(workers).steal(steal).build()?;
    let (go, sums) = occupy(&pool, workers, tasks);
    // All threads have started, and the pool has no other tasks.
    let before = pool.stats();
    let began = Instant::now();
    go.send(()).expect("worker 0 is waiting");
    let mut due = began + period;
    let mut done = 0;
    while done < tasks {
        match sums.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(sum) => {
                ensure!(
                    sum == SUM,
                    "a task returned {sum} instead of {SUM}: the machine computes wrongly"
                );
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
        steals: after.steals() - before.steals(),
        stolen: after.stolen() - before.stolen(),
        overflowed: after.overflowed() - before.overflowed(),
        makespan,
    })
}

/// Occupies every thread until all have started, so that worker 0 is known and spawns the tasks. It
/// waits for a message on the returned sender; the sums arrive on the receiver.
fn occupy(pool: &Pool, workers: usize, tasks: u64) -> (Sender<()>, Receiver<u64>) {
    let (go, start) = channel();
    let (sum, sums) = channel();
    let order = Arc::new(Mutex::new(Some((start, sum))));
    let all = Arc::new(Barrier::new(workers + 1));
    for _ in 0..workers {
        let (order, all) = (Arc::clone(&order), Arc::clone(&all));
        pool.spawn_detached(move || {
            all.wait();
            let is_first = std::thread::current().name() == Some(&format!("{NAME}-0"));
            let order = is_first
                .then(|| order.lock().expect("no thread panics while it holds this lock").take());
            if let Some((start, sum)) = order.flatten()
                && start.recv() == Ok(())
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
            // The receiver is gone if another sum was wrong.
            let _ = sum.send(add());
        });
    }
}
