//! Statistics: a snapshot of all counters of a pool.
//!
//! The workers always count, on paths that cost more than counting; this module only reads. `trace`
//! prints a snapshot as a line, `metrics` as Prometheus text.

use std::time::Duration;

use crate::core::Core;
use crate::pool::Pool;
use crate::worker_shared::WorkerShared;

/// A snapshot of a pool's counters and queues: see [`Pool::stats`].
///
/// Every number was true at some moment while the snapshot was taken, but not all at the same one:
/// no worker is stopped for it.
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
    /// How long the pool has existed.
    pub elapsed: Duration,
    /// The pool's own threads first, then external threads that entered it and reserves, in the
    /// order in which they first came; also those that have left.
    pub workers: Vec<WorkerStats>,
    /// How many tasks are in the shared queue.
    pub shared: usize,
    /// How many workers search for work to steal, including those just woken for that.
    pub searching: usize,
    /// How many workers sleep because they have found nothing.
    pub sleeping: usize,
}

/// The counters and queues of one worker: see [`Pool::stats`].
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
    /// What it is doing now.
    pub state: WorkerState,
    /// Tasks and stolen forks that it ran. Forks that were not stolen are plain calls, and not
    /// counted.
    pub executed: u64,
    /// Its successful steals.
    pub steals: u64,
    /// Forks and tasks that these steals moved.
    pub stolen: u64,
    /// Forks and tasks that others stole from it.
    pub stolen_from: u64,
    /// How often it gave up after searching all other workers repeatedly.
    pub failed_steals: u64,
    /// How often it went to sleep.
    pub parks: u64,
    /// How often it woke another worker.
    pub wakes: u64,
    /// Wakes for work that it ended up doing itself.
    pub wasted_wakes: u64,
    /// Forks and tasks that it exposed to thieves.
    pub promotions: u64,
    /// Tasks that it moved to the shared queue because its own queue was full.
    pub overflowed: u64,
    /// Turns: how often it looked for its next work.
    pub ticks: u64,
    /// Forks that are exposed now.
    pub exposed_forks: usize,
    /// Tasks that are queued here now, including the one in the `next` slot.
    pub exposed_tasks: usize,
}

/// What a worker is doing: see [`WorkerStats::state`].
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
    /// It searches for work to steal.
    Searching,
    /// It sleeps until there is new work.
    Sleeping,
    /// It sleeps until a fork that was stolen from it is done.
    Waiting,
    /// The slot has no thread.
    Absent,
}

impl WorkerState {
    /// Every state.
    ///
    /// ```
    /// use filch_pool::stats::WorkerState;
    ///
    /// assert!(WorkerState::ALL.contains(&WorkerState::Sleeping));
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
            steals: counters.steals.get(),
            stolen: counters.stolen.get(),
            stolen_from: counters.stolen_from.get(),
            failed_steals: counters.failed_steals.get(),
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

    /// How many forks and tasks are queued here, as far as others can see: a worker does not count
    /// its private forks.
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
            elapsed: core.created.elapsed(),
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

    /// Successful steals.
    ///
    /// ```
    /// let pool = filch_pool::Pool::builder().threads(1).build()?;
    /// pool.install(|| ());
    /// // There is no other worker to steal from.
    /// assert_eq!(pool.stats().steals(), 0);
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn steals(&self) -> u64 {
        self.sum(|worker| worker.steals)
    }

    /// Forks and tasks that were stolen.
    ///
    /// ```
    /// let pool = filch_pool::Pool::builder().threads(2).build()?;
    /// let stats = pool.stats();
    /// assert!(stats.stolen() >= stats.steals());
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn stolen(&self) -> u64 {
        self.sum(|worker| worker.stolen)
    }

    /// How often a worker searched all others in vain.
    ///
    /// ```
    /// let pool = filch_pool::Pool::builder().threads(1).build()?;
    /// // There is no other worker to search.
    /// assert_eq!(pool.stats().failed_steals(), 0);
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn failed_steals(&self) -> u64 {
        self.sum(|worker| worker.failed_steals)
    }

    /// Number of times a worker went to sleep.
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
    /// // There is no other worker to wake.
    /// assert_eq!(pool.stats().wakes(), 0);
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn wakes(&self) -> u64 {
        self.sum(|worker| worker.wakes)
    }

    /// Wakes for work that the worker ended up doing itself.
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

    /// Forks and tasks that were exposed to thieves.
    ///
    /// ```
    /// let pool = filch_pool::Pool::builder().threads(1).build()?;
    /// pool.install(|| filch_pool::join(|| (), || ()));
    /// // No worker could steal, so nothing was exposed.
    /// assert_eq!(pool.stats().promotions(), 0);
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn promotions(&self) -> u64 {
        self.sum(|worker| worker.promotions)
    }

    /// Tasks that were moved to the shared queue because a worker's own queue was full.
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

    /// Turns: how often a worker looked for its next work.
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

    /// How many forks and tasks are queued, in the shared queue and at all workers.
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
    /// Takes a snapshot of the pool's counters and queues.
    ///
    /// Counting is always on; a snapshot costs a few reads per worker.
    ///
    /// ```
    /// let pool = filch_pool::Pool::builder().threads(2).build()?;
    /// pool.install(|| filch_pool::join(|| (), || ()));
    /// let stats = pool.stats();
    /// println!("{} run, {} stolen by {} steals", stats.executed(), stats.stolen(), stats.steals());
    /// assert!(stats.executed() >= 1);
    /// # Ok::<(), filch_pool::BuildError>(())
    /// ```
    pub fn stats(&self) -> PoolStats {
        PoolStats::of(self.core())
    }
}
