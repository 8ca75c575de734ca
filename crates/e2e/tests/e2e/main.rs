//! The program `filch` as its users run it: processes on a machine, some of which die.
//!
//! These tests run in parallel, and none depends on how fast or how loaded the machine is: each
//! waits for the events it means, and asserts what holds in every history. Tests that measure are
//! in `tests/soak`.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod clock;
mod double_billing;
mod drain;
mod fence;
mod full;
mod idle;
mod kills;
mod lease;
mod limits;
mod malformed;
mod partitions;
mod points;
mod power;
mod run;
mod steal;
mod suspended;
mod sync;
mod two_machines;
mod zombies;

use filch_e2e::test_env::TestEnv;

/// How many malformed requests and frames are sent; a soak sends more, and measures the server's
/// memory.
const MALFORMED: u64 = 10_000;
const IS_SOAK: bool = false;

fn test_env() -> TestEnv {
    TestEnv::new(env!("CARGO_BIN_EXE_filch-e2e-job"))
}
