//! The bench of `recruit`: the cost of a dismissed call, and the evenness of the lotteries.
//!
//! This file lists the workloads; each has its own file. `sizes` defines how much is measured.

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
    fn every_workload_runs_and_its_figures_are_numbers() {
        BENCH.try_all(&Sizes::TINY);
    }
}
