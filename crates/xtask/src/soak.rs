//! `cargo xtask soak`: looks for bugs with fresh seeds, round after round, until the time is up or
//! a rule is broken. Each round has the simulator, then a scenario with real processes
//! (`processes`), then a fuzz target (`fuzz`). When the time is up, the load scenario follows.
//!
//! `simulation` has the simulator's arguments, and the simulator checks the rules. This file starts
//! the rounds and adds up their counts. Totals, and a run that broke a rule, go to standard output,
//! so that they can be saved to a file.

mod fuzz;
mod processes;

use std::fmt;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use self::fuzz::Fuzzer;
use self::processes::Processes;
use crate::{cargo, simulation};

/// Seeds of one round: well under a minute on two cores, so that the totals are printed often.
const SEEDS_PER_ROUND: u64 = 1_000;

pub(crate) fn run(root: &Path, minutes: NonZeroU32) -> Result<ExitCode> {
    let program = build(root)?;
    let mut processes = Processes::build(root, program.clone(), minutes)?;
    let mut fuzzer = Fuzzer::build(root)?;
    let first_seed = seed_of_now()?;
    let load_minutes = processes.load_minutes();
    eprintln!(
        "simulating from seed {first_seed} on, for {minutes} min; then {load_minutes} min of load"
    );

    let started = Instant::now();
    let time = Duration::from_secs(60 * u64::from(minutes.get()));
    let is_time_left = || started.elapsed() < time;
    let search = |seed| {
        let report = search(&program, root, seed)?;
        // A seed that breaks a rule is reported at once.
        if report.failure.is_none() && is_time_left() {
            processes.round(seed)?;
            println!("{processes}");
        }
        if let Some(fuzzer) = &mut fuzzer
            && report.failure.is_none()
            && is_time_left()
        {
            fuzzer.round()?;
            println!("{fuzzer}");
        }
        Ok(report)
    };
    let failure = soak(first_seed, search, is_time_left, |line| println!("{line}"))?;
    let Some(failure) = failure else {
        processes.load(first_seed)?;
        println!("{processes}");
        eprintln!("found no bug in {:.1} min", started.elapsed().as_secs_f64() / 60.0);
        return Ok(ExitCode::SUCCESS);
    };
    println!("{failure}");
    // Repeated at the end: the trace may have thousands of lines.
    let Failure { seed, rule, what, .. } = failure;
    bail!(
        "seed {seed} breaks {rule}: {what}\n  \
         help: see \"Searching for bugs\" in CONTRIBUTING.md for what to do with the run and its trace"
    )
}

/// Runs at least one round, then more for as long as there is time. The last round is finished even
/// if it ends late.
fn soak(
    first_seed: u64,
    mut search: impl FnMut(u64) -> Result<Report>,
    is_time_left: impl Fn() -> bool,
    mut show: impl FnMut(&Totals),
) -> Result<Option<Failure>> {
    let mut totals = Totals::default();
    let mut seed = first_seed;
    loop {
        let Report { totals: seen, failure } = search(seed)?;
        totals.add(&seen);
        show(&totals);
        if failure.is_some() || !is_time_left() {
            return Ok(failure);
        }
        seed += SEEDS_PER_ROUND;
    }
}

/// The sum of all rounds so far.
#[derive(Clone, Debug, Default, PartialEq)]
struct Totals {
    rounds: u64,
    seeds: u64,
    cluster_hours: f64,
    faults: u64,
    steals: u64,
    stale: u64,
}

/// A run that broke a rule, made small by the simulator.
#[derive(Clone, Debug, PartialEq)]
struct Failure {
    seed: u64,
    rule: String,
    what: String,
    run: String,
    trace: String,
}

/// The output of `filch simulate --json`. Only the fields that are used here are read.
#[derive(Clone, Debug, PartialEq)]
struct Report {
    totals: Totals,
    failure: Option<Failure>,
}

impl Totals {
    fn add(&mut self, other: &Self) {
        self.rounds += other.rounds;
        self.seeds += other.seeds;
        self.cluster_hours += other.cluster_hours;
        self.faults += other.faults;
        self.steals += other.steals;
        self.stale += other.stale;
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, seeds, cluster_hours, faults, steals, stale } = self;
        write!(
            formatter,
            "rounds {rounds}, seeds {seeds}, cluster-hours {cluster_hours:.1}, faults {faults}, \
             thefts {steals}, stale reports refused {stale}"
        )
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, rule, what, run, trace } = self;
        writeln!(formatter, "seed {seed} breaks {rule}: {what}")?;
        writeln!(formatter, "\n== the run, made small\n{}", run.trim_end())?;
        write!(formatter, "\n== its trace\n{}", trace.trim_end())
    }
}

impl Report {
    fn read(json: &str) -> Result<Self> {
        let document: Value = serde_json::from_str(json)?;
        let version = number(&document, "v")?;
        if version != 1 {
            bail!("unknown version {version} of the report (expected 1)");
        }
        let hours = document["cluster_hours"].as_f64();
        let totals = Totals {
            rounds: 1,
            seeds: number(&document, "seeds")?,
            cluster_hours: hours.context("`cluster_hours` is not a number")?,
            faults: number(&document, "faults")?,
            steals: number(&document, "steals")?,
            stale: number(&document, "stale")?,
        };
        let failure = match &document["failure"] {
            Value::Null => None,
            failure => Some(Failure::read(failure).context("`failure`")?),
        };
        Ok(Self { totals, failure })
    }
}

impl Failure {
    fn read(failure: &Value) -> Result<Self> {
        Ok(Self {
            seed: number(failure, "seed")?,
            rule: text(failure, "rule")?,
            what: text(failure, "what")?,
            run: text(failure, "run")?,
            trace: text(failure, "trace")?,
        })
    }
}

fn number(object: &Value, key: &str) -> Result<u64> {
    object[key].as_u64().with_context(|| format!("`{key}` is not a whole number"))
}

fn text(object: &Value, key: &str) -> Result<String> {
    Ok(object[key].as_str().with_context(|| format!("`{key}` is not a text"))?.to_owned())
}

/// Microseconds since 1970. They pass much faster than seeds are used up, so a later soak starts
/// behind all seeds of an earlier one.
fn seed_of_now() -> Result<u64> {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since_1970 = since_1970.context("the system clock is before 1970")?;
    u64::try_from(since_1970.as_micros()).context("the system clock is too far in the future")
}

/// One round of the simulator. Its progress and its errors go straight to the terminal.
fn search(program: &Path, root: &Path, first_seed: u64) -> Result<Report> {
    let arguments = simulation::search(first_seed, SEEDS_PER_ROUND);
    let repeat = format!("help: repeat it with `filch {arguments}`");
    let output = Command::new(program)
        .args(arguments.split(' '))
        .arg("--json")
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let status = output.status;
    let report = Report::read(&String::from_utf8_lossy(&output.stdout)).map_err(|error| {
        anyhow!("the simulator left no report that can be read ({status}; {error:#})\n  {repeat}")
    })?;
    if !status.success() && report.failure.is_none() {
        bail!("the simulator failed ({status}), but no rule was broken\n  {repeat}");
    }
    Ok(report)
}

/// Builds the simulator once. All rounds use this build, even if the sources change meanwhile.
fn build(root: &Path) -> Result<PathBuf> {
    let output = cargo()
        .args(["build", "--release", "--locked", "--package", "filch-cli"])
        // The target folder is the caller's choice, so cargo is asked where the program is.
        .args(["--message-format", "json-render-diagnostics"])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("the simulator cannot be built ({})", output.status);
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    program_in(&messages, "filch").context("cargo printed no path of `filch`")
}

/// The path of the program of this name, according to cargo's messages.
fn program_in(messages: &str, name: &str) -> Option<PathBuf> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = messages.filter(|message| message["target"]["name"] == name);
    programs.find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    const JSON: &str = r#"{"v": 1, "seeds": 1000, "cluster_hours": 170.25, "steps": 5, "faults": 40,
        "jobs": 6, "starts": 7, "steals": 30, "stolen": 8, "stale": 20, "lost": 9, "violations": 0,
        "failure": null}"#;

    const FAILURE: &str = r#"{"seed": 18446744073709551615, "rule": "S2", "what": "two owners",
        "run": "run seed 7\n", "trace": "dispatch lease 10s\n\n0s    tick\n"}"#;

    fn passed() -> Report {
        Report::read(JSON).unwrap()
    }

    fn failed() -> Report {
        Report::read(&JSON.replace("null", FAILURE)).unwrap()
    }

    #[test]
    fn rounds_use_fresh_seeds_until_the_time_is_up() {
        let seeds = RefCell::new(Vec::new());
        let search = |seed| {
            seeds.borrow_mut().push(seed);
            Ok(passed())
        };
        let mut shown = Vec::new();
        let show = |totals: &Totals| shown.push(totals.to_string());
        let failure = soak(7, search, || seeds.borrow().len() < 2, show).unwrap();
        assert_eq!(failure, None);
        assert_eq!(*seeds.borrow(), [7, 1_007]);
        let expected = [
            "rounds 1, seeds 1000, cluster-hours 170.2, faults 40, thefts 30, \
             stale reports refused 20",
            "rounds 2, seeds 2000, cluster-hours 340.5, faults 80, thefts 60, \
             stale reports refused 40",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn the_first_violation_ends_the_soak() {
        let rounds = Cell::new(0);
        let search = |_| {
            rounds.set(rounds.get() + 1);
            Ok(if rounds.get() == 3 { failed() } else { passed() })
        };
        let failure = soak(1, search, || true, |_| {}).unwrap().expect("the third round fails");
        assert_eq!(rounds.get(), 3);
        let expected = "\
seed 18446744073709551615 breaks S2: two owners

== the run, made small
run seed 7

== its trace
dispatch lease 10s

0s    tick";
        assert_eq!(failure.to_string(), expected);
    }

    #[test]
    fn a_round_without_a_report_ends_the_soak() {
        let error = soak(1, |_| bail!("no report"), || true, |_| {}).unwrap_err();
        assert_eq!(error.to_string(), "no report");
    }

    #[test]
    fn an_unreadable_report_names_the_bad_field() {
        let json = JSON.replace("null", FAILURE);
        for (from, to, complaint) in [
            ("\"v\": 1", "\"v\": 2", "unknown version 2"),
            ("\"seeds\": 1000", "\"seeds\": -1", "`seeds` is not a whole number"),
            ("170.25", "\"long\"", "`cluster_hours` is not a number"),
            ("\"rule\": \"S2\"", "\"rule\": 2", "`failure`: `rule` is not a text"),
            ("}}", "", "EOF while parsing"),
        ] {
            let error = Report::read(&json.replace(from, to)).unwrap_err();
            let error = format!("{error:#}");
            assert!(error.contains(complaint), "{error}");
        }
    }

    #[test]
    fn the_program_is_found_in_the_messages_of_cargo() {
        let messages = r#"
{"reason":"compiler-artifact","target":{"name":"filch_sim"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"build-script-build"},"executable":"/t/build"}
not JSON
{"reason":"compiler-artifact","target":{"name":"filch"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"filch"},"executable":"/t/release/filch"}
{"reason":"build-finished","success":true}
"#;
        assert_eq!(program_in(messages, "filch"), Some(PathBuf::from("/t/release/filch")));
        assert_eq!(program_in("", "filch"), None);
    }

    #[test]
    fn a_program_without_a_report_is_named_with_its_command() {
        let error = search(Path::new("no-such-program"), Path::new("."), 1).unwrap_err();
        assert_eq!(error.to_string(), "cannot start no-such-program");
        // Cargo has no such command, and prints that on standard error only.
        let cargo = cargo().get_program().to_owned();
        let error = search(Path::new(&cargo), Path::new("."), 1).unwrap_err().to_string();
        assert!(
            error.starts_with("the simulator left no report that can be read (exit"),
            "{error}"
        );
        assert!(error.contains("repeat it with `filch simulate --seeds 1..1000 "), "{error}");
    }
}
