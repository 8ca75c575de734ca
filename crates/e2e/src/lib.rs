//! End-to-end tests of the program `filch`: real processes, killed, suspended and restarted.
//!
//! The tests themselves are under `tests/`. This library has their parts: [`program`] finds the
//! program under test, [`process`] starts processes and makes sure that none outlives its test,
//! [`test_env`] makes servers and workers out of them, [`proxy`] disturbs their connections,
//! [`until`] waits for conditions, [`jobs`] asks the API about jobs, [`random`] draws random
//! numbers, [`faults`] decides how many faults are enough. [`machine`] simulates two machines,
//! [`idle_workers`] runs many workers in one process.
//!
//! Disk and clock: [`shim`] builds the libraries that are preloaded into a program, [`disk`]
//! computes what a power cut leaves of its files, [`strace`] kills it at an exact call,
//! [`small_disk`] is a disk that fills up.
//!
//! What jobs do is recorded outside filch, by the program that they run
//! (`src/bin/filch-e2e-job.rs`): [`runs`] has their executions, [`ledger`] what they charged.
//! [`client_log`] records what the server has confirmed to clients, [`constraints`] what the test
//! has configured. In the end [`check`] compares all of it, and the store, with the simulator's
//! rules: as one [`job_history`] per job and, for limits that all jobs of a queue share, in
//! [`queue_runs`].
//!
//! Everything here panics if it cannot go on: the test has failed then.

pub mod check;
pub mod client_log;
pub mod constraints;
pub mod disk;
pub mod faults;
pub mod idle_workers;
pub mod job_history;
pub mod jobs;
pub mod ledger;
pub mod machine;
pub mod process;
pub mod program;
pub mod proxy;
pub mod queue_runs;
pub mod random;
pub mod runs;
pub mod shim;
pub mod small_disk;
pub mod strace;
pub mod test_env;
pub mod until;

use std::time::{Duration, SystemTime};

use filch_scheduler::time::Wall;
use rustix::time::{ClockId, clock_gettime};

/// Microseconds since boot: one clock for all processes of the machine.
#[must_use]
pub fn since_boot() -> u64 {
    let now = Duration::try_from(clock_gettime(ClockId::Boottime));
    now.expect("time since boot is not negative").as_micros() as u64
}

/// The wall clock, as this process sees it.
///
/// # Panics
/// If it is before 1970.
#[must_use]
pub fn wall() -> Wall {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Wall(now.expect("it is after 1970").as_millis() as u64)
}
