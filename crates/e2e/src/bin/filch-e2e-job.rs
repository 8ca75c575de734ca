//! What the jobs of the tests run.
//!
//! ```text
//! filch-e2e-job run RUNS MILLIS                      works for a while
//! filch-e2e-job until RUNS FILE                      works until there is such a file
//! filch-e2e-job charge RUNS MILLIS LEDGER INVOICE    charges an invoice in the middle of its work
//! filch-e2e-job hold RUNS FILE LEDGER INVOICE        charges an invoice once there is such a file
//! filch-e2e-job refuse RUNS MILLIS                   works for a while and fails
//! filch-e2e-job ship RUNS MILLIS LEDGER INVOICE      ships what an invoice was charged for
//! filch-e2e-job leash PARENT PROGRAM ARGUMENTS       becomes a program that dies with its parent
//! ```
//!
//! Each but the last writes its start and its end into the folder RUNS.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread::sleep;
use std::time::Duration;

use filch_e2e::ledger::{Ledger, Verdict};
use filch_e2e::runs::{Execution, Outcome};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["run", runs, millis] => work(runs, || sleep(span(millis)), Outcome::Done),
        ["until", runs, file] => work(runs, || wait_for(file), Outcome::Done),
        ["charge", runs, millis, ledger, invoice] => {
            // Who is killed may have charged or not.
            let half = || sleep(span(millis) / 2);
            charge(runs, half, ledger, invoice, half)
        }
        ["hold", runs, file, ledger, invoice] => {
            charge(runs, || wait_for(file), ledger, invoice, || {})
        }
        ["refuse", runs, millis] => {
            eprintln!("this invoice cannot be charged");
            work(runs, || sleep(span(millis)), Outcome::Failed)
        }
        ["ship", runs, millis, ledger, invoice] => ship(runs, span(millis), ledger, invoice),
        ["leash", parent, program, ref arguments @ ..] => leash(parent, program, arguments),
        _ => {
            eprintln!("error: the tests do not know {words:?}");
            ExitCode::from(2)
        }
    }
}

fn span(millis: &str) -> Duration {
    Duration::from_millis(millis.parse().expect("a number of milliseconds"))
}

fn work(runs: &str, work: impl FnOnce(), outcome: Outcome) -> ExitCode {
    let execution = Execution::begin(Path::new(runs));
    work();
    end(execution, outcome)
}

fn end(execution: Execution, outcome: Outcome) -> ExitCode {
    execution.end(outcome);
    match outcome {
        Outcome::Done => ExitCode::SUCCESS,
        Outcome::Failed => ExitCode::FAILURE,
    }
}

fn wait_for(file: &str) {
    while !Path::new(file).exists() {
        sleep(Duration::from_millis(2));
    }
}

fn charge(
    runs: &str,
    before: impl FnOnce(),
    ledger: &str,
    invoice: &str,
    after: impl FnOnce(),
) -> ExitCode {
    let (execution, ledger) = (Execution::begin(Path::new(runs)), Ledger::new(Path::new(ledger)));
    ledger.announce(invoice, execution.fence);
    before();
    let verdict = ledger.charge(invoice, execution.fence);
    after();
    match verdict {
        Verdict::Charged | Verdict::Before => end(execution, Outcome::Done),
        Verdict::Stale | Verdict::Twice | Verdict::Unpaid => {
            eprintln!("error: {invoice} was not charged: {verdict}");
            end(execution, Outcome::Failed)
        }
    }
}

fn ship(runs: &str, span: Duration, ledger: &str, invoice: &str) -> ExitCode {
    let execution = Execution::begin(Path::new(runs));
    let is_paid = Ledger::new(Path::new(ledger)).is_paid(invoice, execution.fence);
    sleep(span);
    end(execution, if is_paid { Outcome::Done } else { Outcome::Failed })
}

/// The wish to die with the parent outlasts the change into another program.
fn leash(parent: &str, program: &str, arguments: &[&str]) -> ExitCode {
    set_parent_process_death_signal(Some(Signal::KILL)).expect("the system knows of leashes");
    let now = getppid().map(|pid| pid.as_raw_nonzero().to_string());
    if now.as_deref() != Some(parent) {
        // It died before it could be asked to take us with it.
        return ExitCode::FAILURE;
    }
    let error = Command::new(program).args(arguments).exec();
    eprintln!("error: cannot execute {program}: {error}");
    ExitCode::from(127)
}
