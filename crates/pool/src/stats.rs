//! What a pool has done, and what it is doing: a picture of all its counters at one moment.
//!
//! The workers count always, on paths that cost more than the counting; this file only reads.
//! `trace` makes a line of it, `metrics` a page.

use std::time::Duration;

use crate::core::Core;
use crate::pool::Pool;
use crate::worker_shared::WorkerShared;

/// What a pool has done since it began, and what waits in it: see [`Pool::stats`].
///
/// Every number was true at some moment while the picture was taken, though not all at the very same
/// one: nobody is stopped for it.
///
/// ```
/// let pool = filch_pool::Pool::builder().threads(2).build()?;
/// pool.install(|| ());
/// let stats = pool.stats();
/// assert_eq!(stats.workers.len(), 2);
/// assert_eq!(stats.executed(), stats.workers.iter().map(|worker| worker.executed).sum());
/// # Ok::<(), filch_pool::BuildError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// How long the pool has been there.
    pub elapsed: Duration,
    /// The threads of the pool first, then guests and reserves, in the order in which they first
    /// came; also those that have left.
    pub workers: Vec<WorkerStats>,
    /// How many tasks wait in the shared queue.
    pub shared: usize,
    /// How many workers look for something to take from others, counting those just woken for that.
    pub searching: usize,
    /// How many workers sleep because they have found nothing.
    pub sleeping: usize,
}

/// What one worker has done since the pool began, and what waits there: see [`Pool::stats`].
///
/// ```
/// let pool = filch_pool::Pool::builder().threads(1).build()?;
/// pool.install(|| ());
/// // What a worker has run is counted before it runs.
/// assert_eq!(pool.stats().workers[0].executed, 1);
/// # Ok::<(), filch_pool::BuildError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerStats {
    /// What it does just now.
    pub state: WorkerState,
    /// Tasks and stolen forks that it ran. Forks that nobody stole are plain calls, and not counted.
    pub executed: u64,
    /// Its successful thefts.
    pub thefts: u64,
    /// Forks and tasks that these brought.
    pub stolen: u64,
    /// Forks and tasks that others took from it.
    pub stolen_from: u64,
    /// How often it gave up after having looked at all others, again and again.
    pub failed_thefts: u64,
    /// How often it went to sleep.
    pub parks: u64,
    /// How often it woke another.
    pub wakes: u64,
    /// Wakes for something that it did itself in the end.
    pub wasted_wakes: u64,
    /// Forks and tasks that it laid open for others to take.
    pub promotions: u64,
    /// Tasks that it moved to the shared queue because its own places were full.
    pub overflowed: u64,
    /// How often it looked for the next thing to do.
    pub ticks: u64,
    /// Forks that lie open.
    pub exposed_forks: usize,
    /// Tasks that lie open, with the one just made ready.
    pub exposed_tasks: usize,
}

/// What a worker does: see [`WorkerStats::state`].
///
/// ```
/// use filch_pool::{Pool, stats::WorkerState};
///
/// let pool = Pool::builder().threads(1).build()?;
/// let state = pool.install(|| pool.stats().workers[0].state);
/// assert_eq!(state, WorkerState::Working);
/// assert_eq!(state.to_string(), "working");
/// # Ok::<(), filch_pool::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WorkerState {
    /// It runs something, or is about to.
    Working,
    /// It looks for something to take from others.
    Searching,
    /// It sleeps until somebody brings work.
    Sleeping,
    /// It sleeps until a fork is done that another has taken from it.
    Waiting,
    /// There is no thread.
    Absent,
}

impl WorkerState {
    /// Every state.
    ///
    /// ```
    /// assert!(filch_pool::stats::WorkerState::ALL.contains(&filch_pool::stats::WorkerState::Sleeping));
    /// ```
    pub const ALL: [Self; 5] =
        [Self::Working, Self::Searching, Self::Sleeping, Self::Waiting, Self::Absent];

    /// Its name in metrics and messages.
    ///
    /// ```
    /// assert_eq!(filch_pool::stats::WorkerState::Searching.as_str(), "searching");
    /// ```
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Searching => "searching",
            Self::Sleeping => "sleeping",
            Self::Waiting => "waiting",
            Self::Absent => "absent",
        }
    }
}

impl std::fmt::Display for WorkerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl WorkerStats {
    fn of(core: &Core, index: usize, shared: &WorkerShared) -> Self {
        let counters = &shared.counters;
        let is_there = core.sleep.is_registered(index);
        Self {
            state: if is_there { shared.state() } else { WorkerState::Absent },
            executed: counters.executed.get(),
            thefts: counters.thefts.get(),
            stolen: counters.stolen.get(),
            stolen_from: counters.stolen_from.get(),
            failed_thefts: counters.failed_thefts.get(),
            parks: counters.parks.get(),
            wakes: counters.wakes.get(),
            wasted_wakes: counters.wasted_wakes.get(),
            promotions: counters.promotions.get(),
            overflowed: counters.overflowed.get(),
            ticks: counters.ticks.get(),
            exposed_forks: shared.forks.len(),
            exposed_tasks: shared.tasks.len() + usize::from(!shared.next.is_empty()),
        }
    }

    /// How many forks and tasks wait there, as far as others can know: a worker keeps its newest
    /// forks to itself, and does not even count them.
    ///
    /// ```
    /// let pool = filch_pool::Pool::builder().threads(1).build()?;
    /// let waiting = pool.install(|| {
    ///     (0..3).for_each(|_| pool.spawn_detached(|| ()));
    ///     pool.stats().workers[0].queued()
    /// });
    /// assert_eq!(waiting, 3);
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn queued(&self) -> usize {
        self.exposed_forks + self.exposed_tasks
    }
}

impl PoolStats {
    pub(crate) fn of(core: &Core) -> Self {
        let workers =
            (0..core.worker_count()).map(|index| WorkerStats::of(core, index, core.worker(index)));
        Self {
            elapsed: core.begun.elapsed(),
            workers: workers.collect(),
            shared: core.shared_queue.len(),
            searching: core.sleep.searchers(),
            sleeping: core.sleep.sleepers(),
        }
    }

    fn sum(&self, of: impl Fn(&WorkerStats) -> u64) -> u64 {
        self.workers.iter().map(of).sum()
    }

    /// Tasks and stolen forks that were run.
    ///
    /// ```
    /// let pool = filch_pool::Pool::builder().threads(1).build()?;
    /// (0..3).for_each(|_| pool.install(|| ()));
    /// assert_eq!(pool.stats().executed(), 3);
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn executed(&self) -> u64 {
        self.sum(|worker| worker.executed)
    }

    /// Successful thefts.
    ///
    /// ```
    /// let pool = filch_pool::Pool::builder().threads(1).build()?;
    /// pool.install(|| ());
    /// // There is nobody to steal from.
    /// assert_eq!(pool.stats().thefts(), 0);
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn thefts(&self) -> u64 {
        self.sum(|worker| worker.thefts)
    }

    /// Forks and tasks that were stolen.
    ///
    /// ```
    /// let pool = filch_pool::Pool::builder().threads(2).build()?;
    /// let stats = pool.stats();
    /// assert!(stats.stolen() >= stats.thefts());
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn stolen(&self) -> u64 {
        self.sum(|worker| worker.stolen)
    }

    /// How often a worker looked at all others in vain.
    ///
    /// ```
    /// let pool = filch_pool::Pool::builder().threads(1).build()?;
    /// // There is nobody to look at.
    /// assert_eq!(pool.stats().failed_thefts(), 0);
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn failed_thefts(&self) -> u64 {
        self.sum(|worker| worker.failed_thefts)
    }

    /// How often a worker went to sleep.
    ///
    /// ```
    /// let pool = filch_pool::Pool::builder().threads(1).build()?;
    /// let stats = pool.stats();
    /// assert!(stats.parks() <= stats.ticks());
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn parks(&self) -> u64 {
        self.sum(|worker| worker.parks)
    }

    /// How often a worker woke another.
    ///
    /// ```
    /// let pool = filch_pool::Pool::builder().threads(1).build()?;
    /// pool.install(|| ());
    /// // There is nobody to wake.
    /// assert_eq!(pool.stats().wakes(), 0);
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn wakes(&self) -> u64 {
        self.sum(|worker| worker.wakes)
    }

    /// Wakes for something that the worker did itself in the end.
    ///
    /// ```
    /// let pool = filch_pool::Pool::builder().threads(2).build()?;
    /// let stats = pool.stats();
    /// assert!(stats.wasted_wakes() <= stats.wakes());
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn wasted_wakes(&self) -> u64 {
        self.sum(|worker| worker.wasted_wakes)
    }

    /// Forks and tasks that were laid open for others to take.
    ///
    /// ```
    /// let pool = filch_pool::Pool::builder().threads(1).build()?;
    /// pool.install(|| filch_pool::join(|| (), || ()));
    /// // Nobody could take anything, so nothing was laid open.
    /// assert_eq!(pool.stats().promotions(), 0);
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn promotions(&self) -> u64 {
        self.sum(|worker| worker.promotions)
    }

    /// Tasks that were moved to the shared queue because a worker's own places were full.
    ///
    /// ```
    /// let pool = filch_pool::Pool::builder().threads(1).build()?;
    /// pool.install(|| (0..1000).for_each(|_| pool.spawn_detached(|| ())));
    /// assert!(pool.stats().overflowed() > 0);
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn overflowed(&self) -> u64 {
        self.sum(|worker| worker.overflowed)
    }

    /// How often a worker looked for the next thing to do.
    ///
    /// ```
    /// let pool = filch_pool::Pool::builder().threads(1).build()?;
    /// pool.install(|| ());
    /// assert!(pool.stats().ticks() >= pool.stats().executed());
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn ticks(&self) -> u64 {
        self.sum(|worker| worker.ticks)
    }

    /// How many forks and tasks wait, in the shared queue and at all workers.
    ///
    /// ```
    /// let pool = filch_pool::Pool::builder().threads(1).build()?;
    /// let stats = pool.install(|| {
    ///     (0..3).for_each(|_| pool.spawn_detached(|| ()));
    ///     pool.stats()
    /// });
    /// assert_eq!(stats.queued(), 3);
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn queued(&self) -> usize {
        self.shared + self.workers.iter().map(WorkerStats::queued).sum::<usize>()
    }

    /// How many workers are in that state.
    ///
    /// ```
    /// use filch_pool::{Pool, stats::WorkerState};
    ///
    /// let pool = Pool::builder().threads(1).build()?;
    /// let stats = pool.install(|| pool.stats());
    /// assert_eq!(stats.in_state(WorkerState::Working), 1);
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn in_state(&self, state: WorkerState) -> usize {
        self.workers.iter().filter(|worker| worker.state == state).count()
    }
}

impl Pool {
    /// What this pool has done since it began, and what waits in it.
    ///
    /// The counting is always on; asking costs a few reads for each worker.
    ///
    /// ```
    /// let pool = filch_pool::Pool::builder().threads(2).build()?;
    /// pool.install(|| filch_pool::join(|| (), || ()));
    /// let stats = pool.stats();
    /// println!("{} run, {} stolen by {} thefts", stats.executed(), stats.stolen(), stats.thefts());
    /// assert!(stats.executed() >= 1);
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn stats(&self) -> PoolStats {
        PoolStats::of(self.core())
    }
}
