//! The bench of `recruit`: what it costs to be dismissed, and what the lotteries make of shares.
//!
//! This file lists the workloads; each has a file of its own. `sizes` says how much.

mod dismissed;
mod lotteries;
mod sizes;

use std::process::ExitCode;

use filch_benches::command::Bench;

use self::sizes::Sizes;

const BENCH: Bench<Sizes> = Bench {
    name: "recruit",
    workloads: &[("dismissed", dismissed::measure), ("lotteries", lotteries::measure)],
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
    fn every_workload_runs_and_its_figures_can_be_read() {
        BENCH.try_all(&Sizes::TINY);
    }
}
