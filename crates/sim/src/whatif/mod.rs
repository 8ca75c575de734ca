//! Measures a workload on a simulated cluster without faults.

pub mod chart;
mod cluster;
pub mod ideal;
pub mod workload;

use filch_scheduler::agent;
pub use filch_scheduler::agent::Reserve;
pub use filch_scheduler::dispatch::Steal;
pub use filch_scheduler::record::{DEFAULT_AGING, Strategy};
use filch_scheduler::time::Duration;

use self::chart::{ChartBar, ChartTheft};
use self::workload::Workload;

/// The cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WhatIfSetup {
    /// The number of workers.
    pub workers: u32,
    /// How many jobs each of them runs at once.
    pub slots: u32,
    /// How much an idle worker steals from a busy one.
    pub steal: Steal,
    /// How many jobs a worker holds beyond those that it runs.
    pub reserve: Reserve,
    /// The order in which ready jobs are claimed.
    pub strategy: Strategy,
    /// The delay of every message.
    pub delay: Duration,
    /// The seed of random choices.
    pub seed: u64,
}

impl Default for WhatIfSetup {
    /// Four workers with one slot each, the delay of a local network, and the defaults of workers
    /// and servers, with jobs in the order in which [`ideal`] takes them.
    fn default() -> Self {
        Self {
            workers: 4,
            slots: 1,
            steal: Steal::default(),
            reserve: agent::AgentConfig::default().reserve,
            strategy: Strategy::Fifo,
            delay: Duration::from_micros(200),
            seed: 1,
        }
    }
}

/// The result of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct WhatIfOutcome {
    /// When the last job ended.
    pub makespan: Duration,
    /// The share of the slots' time in which they ran jobs, from 0 to 1.
    pub utilisation: f64,
    /// Steals that moved at least one job.
    pub steals: u64,
    /// Stolen jobs.
    pub stolen: u64,
    /// The times from when a job could have started to its start.
    pub waits: Waits,
    /// One for each worker.
    pub workers: Vec<WorkerShare>,
    /// One for each job; lanes are slots, worker by worker.
    pub bars: Vec<ChartBar>,
    /// One for each steal that moved at least one job; lanes are the first of each worker.
    pub thefts: Vec<ChartTheft>,
}

/// How long jobs waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waits {
    /// The median.
    pub p50: Duration,
    /// The 99th percentile.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
}

impl Waits {
    /// The percentiles of these waits, which may be in any order.
    #[must_use]
    pub fn of(mut waits: Vec<Duration>) -> Self {
        waits.sort_unstable();
        let Some(&max) = waits.last() else {
            return Self::default();
        };
        // The nearest rank: an actual wait.
        let at = |percent: usize| waits[(waits.len() * percent).div_ceil(100) - 1];
        Self { p50: at(50), p99: at(99), max }
    }
}

/// What one worker did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorkerShare {
    /// Jobs that it ran.
    pub jobs: u64,
    /// The total time that its slots spent on them.
    pub busy: Duration,
    /// Jobs that it stole.
    pub stolen: u64,
    /// Jobs that were stolen from it.
    pub given: u64,
}

/// Runs the workload on this cluster.
#[must_use]
pub fn run(workload: &Workload, setup: &WhatIfSetup) -> WhatIfOutcome {
    cluster::run(workload, setup)
}
