//! `cargo xtask test`: everything that CI checks, step by step, with the time of each step at the
//! end.
//!
//! It stops at the first step that fails; with the variable `CI` set, later steps still run, so
//! that one run reports every failure. `steps` lists the commands; the last step is `tidy`, which
//! runs in this process. Steps with their own target folders run beside the main steps. With
//! `--repeat`, only the tests are run, several times, perhaps beside load.

mod load;
mod steps;

use std::fmt;
use std::num::NonZeroU32;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use self::load::Load;
pub(crate) use self::load::be_busy;
use self::steps::Step;
use crate::{needs, target_folder, tidy};

/// The command of the processes that make up the load. It is not for people, and not in the help.
pub(crate) const BUSY: &str = "busy";

/// How often the tests are repeated, and whether other processes keep all cores busy meanwhile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Repeat {
    pub rounds: NonZeroU32,
    pub beside_load: bool,
}

pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    steps::require("fmt", "rustfmt")?;
    steps::require("clippy", "clippy")?;
    needs::install()?;
    let runner = steps::find_runner();
    let target = target_folder(root)?;
    let first = steps::first(runner);
    let mut main = steps::main(runner, cores()?, steps::find_first_seed(root), &target);
    main.extend(steps::has_deny().then(steps::deny));
    let mut beside = steps::beside(&target);
    beside.extend(steps::has_sanitizer().then(|| steps::sanitizer(&target)));

    let times = Times::new(first.len() + main.len() + beside.len() + 1);
    let goes_on = steps::goes_on_after_failure();
    if !take_all(&times, &first, goes_on, |step| step.perform(root)) {
        return times.finish();
    }
    let has_passed = thread::scope(|scope| {
        let beside_main = || take_all(&times, &beside, goes_on, |step| step.perform_beside(root));
        let beside_main = scope.spawn(beside_main);
        let has_passed = take_all(&times, &main, goes_on, |step| step.perform(root));
        let has_beside_passed = beside_main.join().expect("a step fails without a panic");
        has_passed && has_beside_passed
    });
    if has_passed {
        let _ = times.take("tidy", &"cargo xtask tidy", || check_tidiness(root));
    }
    times.finish()
}

/// Runs steps in order; false if one of them or of those beside them has failed and the others are
/// therefore not run.
fn take_all(
    times: &Times,
    steps: &[Step],
    goes_on: bool,
    perform: impl Fn(&Step) -> Result<()>,
) -> bool {
    for step in steps {
        if !goes_on && times.has_failures() {
            return false;
        }
        let _ = times.take(step.name, step, || perform(step));
    }
    goes_on || !times.has_failures()
}

/// Builds the tests once, then runs the same tests again and again.
pub(crate) fn repeat(root: &Path, repeat: Repeat) -> Result<ExitCode> {
    needs::install()?;
    let runner = steps::find_runner();
    let steps = steps::repeatable(runner, cores()?, &target_folder(root)?);
    steps::build(runner).perform(root)?;

    let _load = repeat.beside_load.then(Load::start).transpose()?;
    let started = Instant::now();
    let mut failures = 0;
    let mut lines = Vec::new();
    for round in 1..=repeat.rounds.get() {
        eprintln!("== round {round} of {}", repeat.rounds);
        let times = Times::new(steps.len());
        take_all(&times, &steps, true, |step| step.perform(root));
        failures += usize::from(times.has_failures());
        lines.push(format!("round {round}: {}", times.in_order()));
        eprintln!("{}", lines[lines.len() - 1]);
    }
    let beside = if repeat.beside_load { ", all cores kept busy by other processes" } else { "" };
    eprintln!("\n{}", lines.join("\n"));
    eprintln!("{} rounds in {}{beside}", repeat.rounds, minutes(started.elapsed()));
    if failures > 0 {
        bail!("{failures} of {} rounds failed", repeat.rounds);
    }
    Ok(ExitCode::SUCCESS)
}

fn check_tidiness(root: &Path) -> Result<()> {
    if tidy::run(root, &[])? != ExitCode::SUCCESS {
        bail!("step `tidy` failed\n  help: repeat it with `cargo xtask tidy`");
    }
    Ok(())
}

/// How many cores there are.
fn cores() -> Result<usize> {
    Ok(thread::available_parallelism().context("cannot count the cores")?.get())
}

/// How long each step took, and which of them failed.
struct Times {
    count: usize,
    started: Instant,
    taken: Mutex<Vec<Taken>>,
    /// How many steps were started.
    begun: AtomicUsize,
}

#[derive(Clone)]
struct Taken {
    name: &'static str,
    time: Duration,
    is_failure: bool,
}

impl Times {
    fn new(count: usize) -> Self {
        let begun = AtomicUsize::new(0);
        Self { count, started: Instant::now(), taken: Mutex::default(), begun }
    }

    /// Runs a step, and prints how it went.
    fn take(
        &self,
        name: &'static str,
        command: &dyn fmt::Display,
        perform: impl FnOnce() -> Result<()>,
    ) -> Result<(), ()> {
        let number = self.begun.fetch_add(1, Relaxed) + 1;
        eprintln!("[{number}/{}] {name}: {command}", self.count);
        let started = Instant::now();
        let result = perform();
        let time = started.elapsed();
        match &result {
            Ok(()) => eprintln!("      {name} passed in {:.1} s", time.as_secs_f64()),
            Err(failure) => eprintln!("error: {failure:#}"),
        }
        self.lock().push(Taken { name, time, is_failure: result.is_err() });
        result.map_err(drop)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Taken>> {
        self.taken.lock().expect("no step panics while it holds the lock")
    }

    fn has_failures(&self) -> bool {
        self.lock().iter().any(|step| step.is_failure)
    }

    /// Prints the times, and fails if a step has failed.
    fn finish(&self) -> Result<ExitCode> {
        eprintln!("\n{self}{:>9.1} s  in all", self.started.elapsed().as_secs_f64());
        let taken = self.lock();
        let failures: Vec<&str> =
            taken.iter().filter(|step| step.is_failure).map(|step| step.name).collect();
        if !failures.is_empty() {
            let left = match self.count - taken.len() {
                0 => String::new(),
                left => format!("; {left} were not run"),
            };
            bail!(
                "{} of {} steps failed: {}{left}",
                failures.len(),
                self.count,
                failures.join(", ")
            );
        }
        eprintln!("all {} steps passed", self.count);
        Ok(ExitCode::SUCCESS)
    }

    /// On one line, in the order in which the steps ended.
    fn in_order(&self) -> String {
        let taken = self.lock();
        let steps: Vec<String> = taken.iter().map(ToString::to_string).collect();
        let sum = taken.iter().map(|step| step.time).sum();
        format!("{} in {}", steps.join(", "), minutes(sum))
    }
}

/// One line per step, the longest first.
impl fmt::Display for Times {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.lock().clone();
        sorted.sort_by_key(|step| std::cmp::Reverse(step.time));
        for step in sorted {
            let failed = if step.is_failure { " (failed)" } else { "" };
            writeln!(formatter, "{:>9.1} s  {}{failed}", step.time.as_secs_f64(), step.name)?;
        }
        Ok(())
    }
}

impl fmt::Display for Taken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.is_failure { "failed" } else { "passed" };
        write!(formatter, "{} {how} ({:.1} s)", self.name, self.time.as_secs_f64())
    }
}

fn minutes(time: Duration) -> String {
    format!("{:.1} min", time.as_secs_f64() / 60.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times() -> Times {
        let taken = |name, seconds, is_failure| {
            let time = Duration::from_secs(seconds);
            Taken { name, time, is_failure }
        };
        let times = Times::new(4);
        times.lock().extend([taken("format", 2, false), taken("tests", 100, true)]);
        times
    }

    #[test]
    fn times_are_sorted_with_the_longest_first() {
        let expected = "    \
    100.0 s  tests (failed)
      2.0 s  format
";
        assert_eq!(times().to_string(), expected);
    }

    #[test]
    fn failures_are_counted_and_named() {
        let error = times().finish().unwrap_err().to_string();
        assert_eq!(error, "1 of 4 steps failed: tests; 2 were not run");
    }

    #[test]
    fn a_round_is_one_line() {
        let expected = "format passed (2.0 s), tests failed (100.0 s) in 1.7 min";
        assert_eq!(times().in_order(), expected);
    }

    #[test]
    fn a_failing_step_is_recorded_with_its_time() {
        let times = Times::new(1);
        assert!(times.take("tests", &"command", || bail!("no")).is_err());
        assert!(times.has_failures());
        assert_eq!(times.lock().len(), 1);
    }

    #[test]
    fn steps_stop_at_the_first_failure_except_on_ci() {
        let steps = steps::first(steps::Runner::Cargo);
        let fail = |_: &Step| bail!("no");
        for (goes_on, run) in [(false, 1), (true, steps.len())] {
            let times = Times::new(steps.len());
            assert_eq!(take_all(&times, &steps, goes_on, fail), goes_on);
            assert_eq!(times.lock().len(), run);
        }
    }
}
