//! Tests that measure: memory, latency, CPU time. `cargo xtask soak` runs them, one at a time; no
//! other command does, because their results depend on what else the machine does.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod idle;
mod load;
#[path = "../e2e/malformed/mod.rs"]
mod malformed;

use filch_e2e::test_env::TestEnv;

/// How many malformed requests and frames are sent.
const MALFORMED: u64 = 100_000;
const IS_SOAK: bool = true;

fn test_env() -> TestEnv {
    TestEnv::measuring(env!("CARGO_BIN_EXE_filch-e2e-job"))
}
