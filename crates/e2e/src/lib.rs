//! End-to-end tests of the program `filch`: real processes, killed, stopped and started again.
//!
//! The tests themselves stand under `tests/`. Here is what they are made of: [`program`] finds what is
//! tested, [`process`] starts processes and sees to it that none outlives its test, [`stage`] makes
//! servers and workers out of them, [`wire`] lies between them and can be cut, [`until`] waits for what
//! can be observed, [`random`] chooses, [`faults`] says how often.
//! [`machine`] is two machines where there is one, [`crowd`] is many workers in one process.
//!
//! What is done to the disk and the clock: [`shim`] is preloaded into a program, [`disk`] tells what a
//! power cut leaves of its files, [`trace`] ends it at an exact point, [`small`] is a disk that fills up.
//!
//! What jobs do is written down outside filch, by the program that they run
//! (`src/bin/filch-e2e-job.rs`): [`runs`] is who ran when, [`ledger`] is who was charged. [`clients`] is what
//! clients were told, [`terms`] what was set before. In the end [`judge`] holds all of it, and what is stored,
//! against the simulator's rules, as one [`story`] per job and, for what all jobs of a queue share, in [`limits`].
//!
//! Everything here panics where it cannot go on: a test that cannot go on has failed.

pub mod clients;
pub mod crowd;
pub mod disk;
pub mod faults;
pub mod judge;
pub mod ledger;
pub mod limits;
pub mod machine;
pub mod process;
pub mod program;
pub mod random;
pub mod runs;
pub mod shim;
pub mod small;
pub mod stage;
pub mod story;
pub mod terms;
pub mod trace;
pub mod until;
pub mod wire;

use std::time::{Duration, SystemTime};

use filch_scheduler::time::Wall;
use rustix::time::{ClockId, clock_gettime};

/// Microseconds since the machine was started: one clock for all its processes.
#[must_use]
pub fn since_boot() -> u64 {
    let now = Duration::try_from(clock_gettime(ClockId::Boottime));
    now.expect("time since boot is not negative").as_micros() as u64
}

/// The time of day, as this process is told it.
///
/// # Panics
/// If it is before 1970.
#[must_use]
pub fn wall() -> Wall {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Wall(now.expect("it is after 1970").as_millis() as u64)
}
