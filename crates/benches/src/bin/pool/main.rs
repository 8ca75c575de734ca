//! The bench of `pool`: what forks, tasks and wakes cost, compared with other pools.
//!
//! This file lists the workloads; each has its own file. `fork` lets one recursive workload run on
//! every rival, `pools` creates the rivals, and `sizes` defines how much is measured.

mod baselines;
mod comparison;
mod demo;
mod ends;
mod fib;
mod fork;
mod futures;
mod graph;
mod idle;
mod leaves;
mod lopsided;
mod pools;
mod seen;
mod single;
mod sizes;
mod sparse;
mod spawns;
mod tally;
mod thefts;
mod timing;
mod tree;
mod uniform;
mod uts;
mod wake;
mod work;

use std::process::ExitCode;

use filch_benches::command::Bench;

use self::sizes::Sizes;

const BENCH: Bench<Sizes> = Bench {
    name: "pool",
    workloads: &[
        ("fib", fib::measure),
        ("tree", tree::measure),
        ("uts", uts::measure),
        ("spawns", spawns::measure),
        ("futures", futures::measure),
        ("wake", wake::measure),
        ("sparse", sparse::measure),
        ("leaves", leaves::measure),
        ("idle", idle::measure),
        ("seen", seen::measure),
        ("lopsided", lopsided::measure),
        ("graph", graph::measure),
        ("uniform", uniform::measure),
        ("single", single::measure),
        ("demo", demo::measure),
        ("thefts", thefts::measure),
        ("ends", ends::measure),
    ],
    full: Sizes::FULL,
    quick: Sizes::QUICK,
};

fn main() -> ExitCode {
    BENCH.run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_runs_and_its_figures_are_numbers() {
        BENCH.try_all(&Sizes::TINY);
    }
}
