//! End-to-end tests of the program `filch`: real processes, killed, stopped and started again.
//!
//! The tests themselves stand under `tests/`. Here is what they are made of: [`program`] finds what is
//! tested, [`process`] starts processes and sees to it that none outlives its test, [`stage`] makes
//! servers and workers out of them, [`until`] waits for what can be observed, [`random`] chooses.
//!
//! What jobs do is written down outside filch, by the program that they run
//! (`src/bin/filch-e2e-job.rs`): [`runs`] is who ran when, [`ledger`] is who was charged.
//!
//! Everything here panics where it cannot go on: a test that cannot go on has failed.

pub mod ledger;
pub mod process;
pub mod program;
pub mod random;
pub mod runs;
pub mod stage;
pub mod until;

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Microseconds since the machine was started: one clock for all its processes.
#[must_use]
pub fn since_boot() -> u64 {
    let now = Duration::try_from(clock_gettime(ClockId::Boottime));
    now.expect("time since boot is not negative").as_micros() as u64
}
