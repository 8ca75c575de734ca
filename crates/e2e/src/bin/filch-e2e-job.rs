//! The command that jobs of the tests run.
//!
//! ```text
//! filch-e2e-job run RUNS MILLIS                            works for a while
//! filch-e2e-job until RUNS FILE                            works until this file exists
//! filch-e2e-job charge RUNS MILLIS LEDGER INVOICE          charges an invoice while it works
//! filch-e2e-job hold RUNS FILE LEDGER INVOICE              charges once this file exists
//! filch-e2e-job refuse RUNS MILLIS                         works for a while and fails
//! filch-e2e-job ship RUNS MILLIS LEDGER INVOICE            ships what an invoice was charged for
//! filch-e2e-job die-with-parent PARENT PROGRAM ARGUMENTS   starts a program that dies with PARENT
//! ```
//!
//! All but the last record their start and their end in the folder RUNS.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread::sleep;
use std::time::Duration;

use filch_e2e::ledger::{ChargeLedger, ChargeOutcome};
use filch_e2e::runs::{Execution, RunOutcome};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["run", runs, millis] => work(runs, || sleep(span(millis)), RunOutcome::Done),
        ["until", runs, file] => work(runs, || wait_for(file), RunOutcome::Done),
        ["charge", runs, millis, ledger, invoice] => {
            // If it is killed, it may have charged or not.
            let half = || sleep(span(millis) / 2);
            charge(runs, half, ledger, invoice, half)
        }
        ["hold", runs, file, ledger, invoice] => {
            charge(runs, || wait_for(file), ledger, invoice, || {})
        }
        ["refuse", runs, millis] => {
            eprintln!("this invoice cannot be charged");
            work(runs, || sleep(span(millis)), RunOutcome::Failed)
        }
        ["ship", runs, millis, ledger, invoice] => ship(runs, span(millis), ledger, invoice),
        ["die-with-parent", parent, program, ref arguments @ ..] => {
            die_with_parent(parent, program, arguments)
        }
        _ => {
            eprintln!("error: unknown command {words:?}");
            ExitCode::from(2)
        }
    }
}

fn span(millis: &str) -> Duration {
    Duration::from_millis(millis.parse().expect("a number of milliseconds"))
}

fn work(runs: &str, work: impl FnOnce(), outcome: RunOutcome) -> ExitCode {
    let execution = Execution::begin(Path::new(runs));
    work();
    end(execution, outcome)
}

fn end(execution: Execution, outcome: RunOutcome) -> ExitCode {
    execution.end(outcome);
    match outcome {
        RunOutcome::Done => ExitCode::SUCCESS,
        RunOutcome::Failed => ExitCode::FAILURE,
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
    let (execution, ledger) =
        (Execution::begin(Path::new(runs)), ChargeLedger::new(Path::new(ledger)));
    ledger.announce(invoice, execution.fence);
    before();
    let outcome = ledger.charge(invoice, execution.fence);
    after();
    match outcome {
        ChargeOutcome::Charged | ChargeOutcome::Before => end(execution, RunOutcome::Done),
        ChargeOutcome::Stale | ChargeOutcome::Twice | ChargeOutcome::Unpaid => {
            eprintln!("error: {invoice} was not charged: {outcome}");
            end(execution, RunOutcome::Failed)
        }
    }
}

fn ship(runs: &str, span: Duration, ledger: &str, invoice: &str) -> ExitCode {
    let execution = Execution::begin(Path::new(runs));
    let is_paid = ChargeLedger::new(Path::new(ledger)).is_paid(invoice, execution.fence);
    sleep(span);
    end(execution, if is_paid { RunOutcome::Done } else { RunOutcome::Failed })
}

/// The setting survives the change into another program.
fn die_with_parent(parent: &str, program: &str, arguments: &[&str]) -> ExitCode {
    set_parent_process_death_signal(Some(Signal::KILL))
        .expect("the kernel supports parent-death signals");
    let now = getppid().map(|pid| pid.as_raw_nonzero().to_string());
    if now.as_deref() != Some(parent) {
        // The parent died before this was set.
        return ExitCode::FAILURE;
    }
    let error = Command::new(program).args(arguments).exec();
    eprintln!("error: cannot execute {program}: {error}");
    ExitCode::from(127)
}
