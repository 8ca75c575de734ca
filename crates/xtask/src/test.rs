//! What CI runs: a list of steps, in order, up to the first that fails.
//!
//! Each step is one cargo command that a person can repeat by hand; the last is `tidy`, which runs in
//! this process. What is built for release comes after what is quicker to fail. No step is allowed to
//! rewrite what it should check, whatever the caller's environment asks for, and the target folder
//! stays the caller's choice.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{cargo, needs, simulation, tidy};

/// Variables that make a test tool accept, rewrite or repeat instead of judge.
const LENIENT_VARIABLES: &[&str] = &[
    "FILCH_BLESS",
    "INSTA_FORCE_PASS",
    "INSTA_FORCE_UPDATE",
    "INSTA_FORCE_UPDATE_SNAPSHOTS",
    "NEXTEST_RETRIES",
    "SNAPSHOTS",
    "TRYBUILD",
    "TRYCMD",
    "UPDATE_EXPECT",
];

/// How many seeds every change is hunted through.
const SEEDS: u64 = 2_000;

/// What is behind the feature `planted`, which no crate enables: it is built and checked only when
/// asked for, in steps of its own.
const PLANTED: &str = "-p filch-scheduler -p filch-sim \
                       --features filch-scheduler/planted,filch-sim/planted";

/// How many inputs the fuzzer tries on every change: enough to see that the targets work, no hunt.
const FUZZ_RUNS: u32 = 50_000;

/// One command and what it is called when it fails.
struct Step {
    name: &'static str,
    toolchain: Toolchain,
    variable: Option<(&'static str, String)>,
    /// As they are typed: with a space between them, and none within.
    arguments: String,
}

/// Whose cargo it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Toolchain {
    /// The caller's.
    Own,
    /// Fuzzing needs a sanitizer, which only a nightly compiler has.
    Nightly,
}

/// Which program runs the tests that are not doc tests.
#[derive(Clone, Copy)]
enum Runner {
    Nextest,
    Cargo,
}

pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    require("fmt", "rustfmt")?;
    require("clippy", "clippy")?;
    needs::install()?;
    let runner = find_runner();

    let started = Instant::now();
    let mut steps = steps(runner, find_first_seed(root), &target_folder(root)?);
    steps.extend(find_fuzzer().then(fuzz));
    let count = steps.len() + 1;
    for (index, step) in steps.iter().enumerate() {
        announce(index + 1, count, step.name, step);
        let step_started = Instant::now();
        perform(step, root)?;
        finished(step.name, step_started.elapsed());
    }

    announce(count, count, "tidy", &"cargo xtask tidy");
    let step_started = Instant::now();
    if tidy::run(root)? != ExitCode::SUCCESS {
        bail!("step `tidy` failed\n  help: repeat it with `cargo xtask tidy`");
    }
    finished("tidy", step_started.elapsed());

    eprintln!("all {count} steps passed in {:.1} s", started.elapsed().as_secs_f64());
    Ok(ExitCode::SUCCESS)
}

fn steps(runner: Runner, first_seed: u64, target: &Path) -> Vec<Step> {
    let step = |name, arguments: &str| {
        let arguments = arguments.to_owned();
        Step { name, toolchain: Toolchain::Own, variable: None, arguments }
    };
    let (tests, planted) = match runner {
        Runner::Nextest => ("nextest run --workspace --exclude filch-e2e", "nextest run"),
        // `--tests` is every target with tests, units of libraries and programs included; it leaves
        // out the doc tests, which have their own step.
        Runner::Cargo => ("test --workspace --exclude filch-e2e --tests", "test"),
    };
    let hunt = simulation::hunt(first_seed, SEEDS);
    vec![
        step("format", "fmt --all --check"),
        step("lints", "clippy --workspace --all-targets --locked -- -D warnings"),
        step("lints, planted", &format!("clippy --locked {PLANTED} --all-targets -- -D warnings")),
        step("tests", &format!("{tests} --locked")),
        step("doc tests", "test --workspace --doc --locked"),
        Step {
            variable: Some(("RUSTDOCFLAGS", "-D warnings".to_owned())),
            ..step("docs", "doc --workspace --no-deps --locked")
        },
        step("planted bugs", &format!("{planted} --release --locked {PLANTED} --test planted")),
        step("simulation", &format!("run --release --locked --package filch-cli -- {hunt}")),
        // With the program that the step before has built.
        Step {
            variable: Some(("FILCH_BINARY", program(target).display().to_string())),
            ..step("end to end", &format!("{planted} --release --locked --package filch-e2e"))
        },
    ]
}

/// Where the program lies that is built for release.
fn program(target: &Path) -> PathBuf {
    target.join("release").join("filch")
}

/// Where cargo puts what it builds.
fn target_folder(root: &Path) -> Result<PathBuf> {
    let output = cargo()
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .context("cannot start cargo")?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)
        .context("cargo does not say where it puts what it builds")?;
    let folder = metadata["target_directory"].as_str();
    Ok(folder.context("cargo does not say where it puts what it builds")?.into())
}

fn fuzz() -> Step {
    let arguments = format!(
        "fuzz run node -- -runs={FUZZ_RUNS} -max_len=4096 -dict=fuzz/node.dict \
         -rss_limit_mb=512 -verbosity=0"
    );
    Step { name: "fuzz", toolchain: Toolchain::Nightly, variable: None, arguments }
}

fn perform(step: &Step, root: &Path) -> Result<()> {
    let status = step.command(root).status().context("cannot start cargo")?;
    if !status.success() {
        bail!("step `{}` failed ({status})\n  help: repeat it with `{step}`", step.name);
    }
    Ok(())
}

impl Step {
    fn command(&self, root: &Path) -> Command {
        let mut command = self.toolchain.cargo();
        command.args(self.arguments.split(' ')).current_dir(root);
        for variable in LENIENT_VARIABLES {
            command.env_remove(variable);
        }
        command.env("INSTA_UPDATE", "no");
        command.envs(self.variable.clone());
        command
    }
}

impl Toolchain {
    fn cargo(self) -> Command {
        match self {
            Self::Own => cargo(),
            Self::Nightly => {
                // What `cargo +nightly` does where cargo is already the one of a toolchain.
                let mut command = Command::new("rustup");
                command.args(["run", "nightly", "cargo"]);
                command
            }
        }
    }

    /// Whether such a command of it runs.
    fn has(self, subcommand: &str) -> bool {
        let mut command = self.cargo();
        command.args([subcommand, "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}

/// As it would be typed into a shell.
impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, value)) = &self.variable {
            write!(formatter, "{name}='{value}' ")?;
        }
        let cargo = match self.toolchain {
            Toolchain::Own => "cargo",
            Toolchain::Nightly => "cargo +nightly",
        };
        write!(formatter, "{cargo} {}", self.arguments)
    }
}

/// Fails early, and with a remedy, where a component of the toolchain was never installed.
fn require(subcommand: &str, component: &str) -> Result<()> {
    if !Toolchain::Own.has(subcommand) {
        bail!(
            "`cargo {subcommand}` does not run: {component} is not installed\n  \
             help: rustup component add {component}"
        );
    }
    Ok(())
}

fn find_runner() -> Runner {
    if Toolchain::Own.has("nextest") {
        return Runner::Nextest;
    }
    eprintln!("note: cargo-nextest is not installed; using `cargo test`, which is slower");
    Runner::Cargo
}

fn find_first_seed(root: &Path) -> u64 {
    simulation::seed_of_commit(root).unwrap_or_else(|| {
        eprintln!("note: git names no commit; the simulation's seeds begin with 1");
        1
    })
}

fn find_fuzzer() -> bool {
    let found = Toolchain::Nightly.has("fuzz");
    if !found {
        eprintln!(
            "note: no nightly toolchain with cargo-fuzz is installed; what would be fuzzed is \
             covered by property tests alone"
        );
    }
    found
}

fn announce(number: usize, count: usize, name: &str, command: &dyn fmt::Display) {
    eprintln!("[{number}/{count}] {name}: {command}");
}

fn finished(name: &str, took: Duration) {
    eprintln!("      {name} passed in {:.1} s", took.as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(runner: Runner) -> String {
        steps(runner, 500, Path::new("/t"))
            .iter()
            .map(|step| format!("{}: {step}\n", step.name))
            .collect()
    }

    #[test]
    fn steps_can_be_repeated_by_hand() {
        let expected = "\
format: cargo fmt --all --check
lints: cargo clippy --workspace --all-targets --locked -- -D warnings
lints, planted: cargo clippy --locked -p filch-scheduler -p filch-sim \
--features filch-scheduler/planted,filch-sim/planted --all-targets -- -D warnings
tests: cargo nextest run --workspace --exclude filch-e2e --locked
doc tests: cargo test --workspace --doc --locked
docs: RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --locked
planted bugs: cargo nextest run --release --locked -p filch-scheduler -p filch-sim \
--features filch-scheduler/planted,filch-sim/planted --test planted
simulation: cargo run --release --locked --package filch-cli -- simulate --seeds 500..2499 \
--duration 10m --workers 10 --faults swarm
end to end: FILCH_BINARY='/t/release/filch' cargo nextest run --release --locked --package filch-e2e
";
        assert_eq!(typed(Runner::Nextest), expected);
        let without_nextest = expected
            .replace(
                "nextest run --workspace --exclude filch-e2e",
                "test --workspace --exclude filch-e2e --tests",
            )
            .replace("nextest run --release", "test --release");
        assert_eq!(typed(Runner::Cargo), without_nextest);
    }

    #[test]
    fn the_fuzzer_can_be_repeated_by_hand() {
        assert_eq!(
            fuzz().to_string(),
            "cargo +nightly fuzz run node -- -runs=50000 -max_len=4096 -dict=fuzz/node.dict \
             -rss_limit_mb=512 -verbosity=0"
        );
    }

    #[test]
    fn no_step_may_rewrite_what_it_checks() {
        for step in steps(Runner::Nextest, 1, Path::new("/t")).into_iter().chain([fuzz()]) {
            let command = step.command(Path::new("."));
            let value_of =
                |name: &str| command.get_envs().find(|(key, _)| *key == name).map(|pair| pair.1);
            for variable in LENIENT_VARIABLES {
                assert_eq!(value_of(variable), Some(None), "{variable} is removed for {step}");
            }
            assert_eq!(value_of("INSTA_UPDATE"), Some(Some("no".as_ref())));
            assert_eq!(value_of("CARGO_TARGET_DIR"), None, "the target folder is inherited");
        }
    }

    #[test]
    fn a_failing_step_is_named_with_its_command() {
        let arguments = "no-such-subcommand".to_owned();
        let step = Step { name: "lints", toolchain: Toolchain::Own, variable: None, arguments };
        let error = perform(&step, Path::new(".")).unwrap_err().to_string();
        assert!(error.starts_with("step `lints` failed ("), "{error}");
        assert!(error.ends_with("help: repeat it with `cargo no-such-subcommand`"), "{error}");
    }

    #[test]
    fn a_missing_component_comes_with_a_remedy() {
        let error = require("no-such-subcommand", "nothing").unwrap_err().to_string();
        assert!(error.contains("help: rustup component add nothing"), "{error}");
    }
}
