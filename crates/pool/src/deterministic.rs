//! Deterministic tests: one thread plays a pool of several workers, and a seed chooses the
//! schedule.
//!
//! Wherever a real worker would check for requests from others (at every fork, every spawn and
//! every [`interleave`]), the seed decides: continue, expose something, or let another worker take
//! something and run it to its end, on top of the stack. So a worker that is on the stack is busy,
//! and every schedule is one that could have happened in a real pool, one step at a time.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::builder::PoolBuilder;
use crate::core::Core;
use crate::current;
use crate::fork::Stolen;
use crate::local::Local;
use crate::pool::Pool;
use crate::protocol::sync::{self, Mutex, thread};
use crate::random::Random;
use crate::worker::Work;

/// Runs `body` on the calling thread, as a worker of a pool without threads, and then all tasks
/// that it spawned. The seed chooses what happens when, and on which of the `workers`. The same
/// seed gives the same schedule, provided that the code under test is deterministic itself.
///
/// Run a test with many seeds to see many interleavings; a seed that fails will fail again. If
/// `body` panics, the seed and the schedule are printed, and the panic continues.
///
/// Everything that forks, spawns or waits through this crate takes part: [`join`](crate::join),
/// [`scope`](crate::scope()), [`for_each`](crate::for_each), [`spawn`](crate::spawn()) and its
/// handles. Other workers run only there and in [`interleave`], and they finish what they start. So
/// a lock that is held at such a point must not be needed by other work, or the thread waits for
/// itself. Real time, sockets and other pools are not replayed: futures that still wait for them at
/// the end are dropped.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
/// use filch_pool::{deterministic::{self, interleave}, task::spawn_detached};
///
/// // Two tasks want to do something once. There is a gap between the look and the deed.
/// let times_done = |seed| {
///     let times = Arc::new(AtomicU32::new(0));
///     let (_, schedule) = deterministic::run(seed, 2, |_pool| {
///         for _ in 0..2 {
///             let times = Arc::clone(&times);
///             spawn_detached(move || {
///                 if times.load(SeqCst) == 0 {
///                     interleave();
///                     times.fetch_add(1, SeqCst);
///                 }
///             });
///         }
///     });
///     (times.load(SeqCst), schedule)
/// };
/// let seed = (0..200).find(|seed| times_done(*seed).0 > 1).expect("some order shows it");
/// assert_eq!(times_done(seed), times_done(seed));
/// println!("{}", times_done(seed).1);
/// ```
///
/// # Panics
/// If `body` panics, or if `workers` is zero or more than [`PoolBuilder::THREADS_MAX`].
pub fn run<R>(seed: u64, workers: usize, body: impl FnOnce(&Pool) -> R) -> (R, Schedule) {
    assert!(
        (1..=PoolBuilder::THREADS_MAX).contains(&workers),
        "a deterministic pool has from 1 to {} workers, not {workers}",
        PoolBuilder::THREADS_MAX
    );
    let settings =
        PoolBuilder::default().threads(workers).name("deterministic").seed(seed).settings();
    let pool = Pool::new(Core::new(settings.expect("the number of workers was checked")));
    let core = pool.core();
    let script = core.script.get_or_init(|| Script::new(seed, workers));
    (0..workers).for_each(|worker| core.sleep.register(worker));
    let outcome = catch_unwind(AssertUnwindSafe(|| script.first(core, || body(&pool))));
    while script.step(core) {}
    let schedule = script.schedule();
    drop(pool);
    match outcome {
        Ok(value) => (value, schedule),
        Err(panic) => {
            eprintln!(
                "note: `deterministic::run` with seed {seed} and {workers} workers: {schedule}"
            );
            resume_unwind(panic)
        }
    }
}

/// In deterministic mode, a point at which other workers may run; elsewhere this does nothing. Put
/// it where a test should consider that something happens in between.
///
/// ```
/// filch_pool::deterministic::interleave();
/// ```
pub fn interleave() {
    current::with(|local| {
        if let Some(local) = local
            && let Some(script) = local.core.script()
        {
            script.point(local);
        }
    });
}

/// In deterministic mode, lets other workers run until `is_over`.
///
/// # Panics
/// If there is no work left that could make it so.
pub(crate) fn wait(is_over: impl Fn() -> bool) {
    current::with(|local| {
        let Some(local) = local else { return };
        if let Some(script) = local.core.script()
            && !is_over()
        {
            script.wait(local, &is_over);
            assert!(
                is_over(),
                "deadlock: this waits for a task that has not finished, and nothing else can \
                 run. Schedule: {}",
                script.schedule()
            );
        }
    });
}

/// The schedule of a deterministic [run](run()): the choices that were made, in order.
///
/// ```
/// let (sum, schedule) = filch_pool::deterministic::run(7, 3, |_pool| filch_pool::join(|| 1, || 2));
/// assert_eq!(sum, (1, 2));
/// assert_eq!((schedule.seed(), schedule.workers()), (7, 3));
/// // Such as `w0 exposes 1; w2 steals a fork of w0; w2 ends`.
/// println!("{schedule}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Schedule {
    seed: u64,
    workers: usize,
    steps: Vec<Step>,
}

impl Schedule {
    /// The seed of the run.
    ///
    /// ```
    /// assert_eq!(filch_pool::deterministic::run(7, 2, |_pool| ()).1.seed(), 7);
    /// ```
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The number of workers.
    ///
    /// ```
    /// assert_eq!(filch_pool::deterministic::run(7, 2, |_pool| ()).1.workers(), 2);
    /// ```
    pub fn workers(&self) -> usize {
        self.workers
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.steps.iter().enumerate() {
            let before = if index == 0 { "" } else { "; " };
            write!(f, "{before}{step}")?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Step {
    worker: usize,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum What {
    /// It exposed that many forks.
    Expose(usize),
    /// It starts something from there.
    Begin(Source),
    /// It has finished what it started.
    End,
    /// It waits, and others run meanwhile.
    Wait,
}

/// Where a worker can find work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Source {
    Next,
    Own,
    Shared,
    ForkOf(usize),
    TasksOf(usize),
    NextOf(usize),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "w{} ", self.worker)?;
        match self.what {
            What::Expose(count) => write!(f, "exposes {count}"),
            What::Begin(Source::Next) => f.write_str("runs its next task"),
            What::Begin(Source::Own) => f.write_str("runs its oldest task"),
            What::Begin(Source::Shared) => f.write_str("runs a shared task"),
            What::Begin(Source::ForkOf(victim)) => write!(f, "steals a fork of w{victim}"),
            What::Begin(Source::TasksOf(victim)) => write!(f, "steals tasks of w{victim}"),
            What::Begin(Source::NextOf(victim)) => write!(f, "steals the next task of w{victim}"),
            What::End => f.write_str("ends"),
            What::Wait => f.write_str("waits"),
        }
    }
}

/// Decides what happens, in a pool without threads.
pub(crate) struct Script {
    /// The one thread that plays all workers. Other threads may enter the pool, and behave as
    /// usual.
    thread: thread::ThreadId,
    state: Mutex<ScriptState>,
}

struct ScriptState {
    random: Random,
    /// Which workers are on the stack and do not wait.
    are_busy: Vec<bool>,
    schedule: Schedule,
}

impl Script {
    fn new(seed: u64, workers: usize) -> Self {
        let state = ScriptState {
            random: Random::new(seed),
            are_busy: vec![false; workers],
            schedule: Schedule { seed, workers, steps: Vec::new() },
        };
        Self { thread: thread::current().id(), state: Mutex::new(state) }
    }

    /// Whether the calling thread is the one that plays the workers.
    pub(crate) fn is_here(&self) -> bool {
        thread::current().id() == self.thread
    }

    fn below(&self, bound: usize) -> usize {
        sync::lock(&self.state).random.below(bound)
    }

    fn log(&self, worker: usize, what: What) {
        sync::lock(&self.state).schedule.steps.push(Step { worker, what });
    }

    fn set_busy(&self, worker: usize, is_busy: bool) {
        // An external thread has no entry here.
        if let Some(busy) = sync::lock(&self.state).are_busy.get_mut(worker) {
            *busy = is_busy;
        }
    }

    fn schedule(&self) -> Schedule {
        sync::lock(&self.state).schedule.clone()
    }

    /// Runs `body` as the first worker.
    fn first<R>(&self, core: &Core, body: impl FnOnce() -> R) -> R {
        struct Leave<'a, 'c>(&'a Script, &'a Local<'c>);
        impl Drop for Leave<'_, '_> {
            fn drop(&mut self) {
                self.0.set_busy(self.1.index, false);
            }
        }
        let local = Local::new(core, 0);
        self.set_busy(0, true);
        let _leave = Leave(self, &local);
        current::enter(&local, body)
    }

    /// The worker on top of the stack reaches a point of choice: it exposes something, or others
    /// run, until it continues.
    pub(crate) fn point(&self, local: &Local<'_>) {
        loop {
            match self.below(3) {
                0 => return,
                1 => {
                    let count = local.promote();
                    if count > 0 {
                        self.log(local.index, What::Expose(count));
                    }
                }
                _ => {
                    self.step(local.core);
                }
            }
        }
    }

    /// This worker waits: others run until `is_over`, or until there is nothing left to run.
    pub(crate) fn wait(&self, local: &Local<'_>, is_over: impl Fn() -> bool) {
        self.log(local.index, What::Wait);
        while local.promote() > 0 {}
        self.set_busy(local.index, false);
        while !is_over() && self.step(local.core) {}
        self.set_busy(local.index, true);
    }

    /// A free worker takes something and runs it to its end; false if there is nothing.
    fn step(&self, core: &Core) -> bool {
        let are_busy = sync::lock(&self.state).are_busy.clone();
        let free = (0..are_busy.len()).filter(|worker| !are_busy[*worker]);
        let choices: Vec<_> = free
            .flat_map(|worker| sources(core, worker).map(move |source| (worker, source)))
            .collect();
        if choices.is_empty() {
            return false;
        }
        let (worker, source) = choices[self.below(choices.len())];
        let local = Local::new(core, worker);
        let Some(work) = self.take(&local, source) else { return false };
        self.log(worker, What::Begin(source));
        self.set_busy(worker, true);
        current::enter(&local, || local.execute(work));
        self.set_busy(worker, false);
        self.log(worker, What::End);
        true
    }

    fn take(&self, local: &Local<'_>, source: Source) -> Option<Work> {
        let task = match source {
            Source::Next => local.shared.next.take(),
            Source::Own => local.shared.tasks.pop(),
            Source::Shared => local.core.shared_queue.pop_any(self.below(2) == 0),
            Source::ForkOf(victim) => {
                return Stolen::take(local, victim, |_| true).map(Work::Fork);
            }
            Source::TasksOf(victim) => local.steal_tasks(victim),
            Source::NextOf(victim) => {
                let task = local.core.worker(victim).next.take();
                if task.is_some() {
                    local.count_theft(victim, 1);
                }
                task
            }
        };
        task.map(Work::Task)
    }
}

/// Where that worker would find work.
fn sources(core: &Core, worker: usize) -> impl Iterator<Item = Source> {
    let shared = core.worker(worker);
    let own = [
        (!shared.next.is_empty()).then_some(Source::Next),
        (!shared.tasks.is_empty()).then_some(Source::Own),
        (!core.shared_queue.is_empty()).then_some(Source::Shared),
    ];
    let of = move |victim: usize| {
        let shared = core.worker(victim);
        let is_other = victim != worker;
        [
            // Its own forks too: if this worker is on the stack, it waits, and another plays its
            // part.
            (!shared.forks.is_empty()).then_some(Source::ForkOf(victim)),
            (is_other && !shared.tasks.is_empty()).then_some(Source::TasksOf(victim)),
            (is_other && !shared.next.is_empty()).then_some(Source::NextOf(victim)),
        ]
    };
    own.into_iter().chain((0..core.worker_count()).flat_map(of)).flatten()
}
