//! What if: a workload on a cluster where nothing breaks, and how long it takes.

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
    /// How many workers there are.
    pub workers: u32,
    /// How many jobs each of them runs at once.
    pub slots: u32,
    /// What an idle worker takes from a busy one.
    pub steal: Steal,
    /// How many jobs a worker holds beyond those that it runs.
    pub reserve: Reserve,
    /// The order in which ready jobs are taken.
    pub strategy: Strategy,
    /// How long a message is under way.
    pub delay: Duration,
    /// What is left to chance comes from here.
    pub seed: u64,
}

impl Default for WhatIfSetup {
    /// Four workers of one slot each, a network like that of one building, and else what workers and
    /// servers do by themselves, in the order in which [`ideal`] takes jobs.
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

/// How it went.
#[derive(Clone, PartialEq, Debug)]
pub struct WhatIfOutcome {
    /// When the last job ended.
    pub makespan: Duration,
    /// The share of all slots' time in which they ran jobs, from 0 to 1.
    pub utilisation: f64,
    /// Thefts that moved something.
    pub steals: u64,
    /// Jobs that moved.
    pub stolen: u64,
    /// From the moment a job could have started to the moment it did.
    pub waits: Waits,
    /// One for each worker.
    pub workers: Vec<WorkerShare>,
    /// One for each job; lanes are slots, worker by worker.
    pub bars: Vec<ChartBar>,
    /// One for each theft that moved something; lanes are the first of each worker.
    pub thefts: Vec<ChartTheft>,
}

/// How long jobs waited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waits {
    /// Half of them no longer than this.
    pub p50: Duration,
    /// 99 of 100 no longer than this.
    pub p99: Duration,
    /// None of them longer than this.
    pub max: Duration,
}

impl Waits {
    /// What these waits have in common, in whatever order they are.
    #[must_use]
    pub fn of(mut waits: Vec<Duration>) -> Self {
        waits.sort_unstable();
        let Some(&max) = waits.last() else {
            return Self::default();
        };
        // The nearest rank: a wait that really was.
        let at = |percent: usize| waits[(waits.len() * percent).div_ceil(100) - 1];
        Self { p50: at(50), p99: at(99), max }
    }
}

/// What one worker did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorkerShare {
    /// Jobs that it ran.
    pub jobs: u64,
    /// Time that its slots spent on them, together.
    pub busy: Duration,
    /// Jobs that it had from others.
    pub stolen: u64,
    /// Jobs that it gave to others.
    pub given: u64,
}

/// Plays the workload on that cluster.
#[must_use]
pub fn run(workload: &Workload, setup: &WhatIfSetup) -> WhatIfOutcome {
    cluster::run(workload, setup)
}
