//! Rounds with real processes: the scenarios of the end-to-end tests in turn, each with a fresh
//! seed and more faults the longer the soak; and load, which comes last.
//!
//! The tests print how many faults they have injected and what they have measured, in lines that
//! begin with [`INJECTED`] and [`MEASURED`]; here they are added up.

use std::fmt;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::cargo;

/// Some tests: those of a test target that begin with this name.
#[derive(Clone, Copy, Debug)]
struct Scenario {
    target: &'static str,
    name: &'static str,
}

/// Tests that are also part of `cargo xtask test`.
const fn e2e(name: &'static str) -> Scenario {
    Scenario { target: "e2e", name }
}

/// Tests that measure. Only a soak runs them.
const fn soak(name: &'static str) -> Scenario {
    Scenario { target: "soak", name }
}

/// In turn. Kills, which hit at moments drawn from a seed, come twice as often.
const SCENARIOS: [Scenario; 10] = [
    e2e("kills::"),
    e2e("zombies::"),
    e2e("partitions::"),
    e2e("power::"),
    e2e("points::"),
    e2e("limits::"),
    e2e("kills::"),
    e2e("double_billing::"),
    soak("idle::"),
    soak("malformed::"),
];

const LOAD: Scenario = soak("load::");
const LOAD_MINUTES_MAX: u32 = 10;

/// Counts are those of a test run times the minutes over this.
const MINUTES_PER_SCALE: u32 = 10;

/// Followed by a number and a name.
const INJECTED: &str = "injected ";
/// Followed by a name, a colon, and a text.
const MEASURED: &str = "measured ";

/// The scenarios, built once. All rounds use this build, even if the sources change meanwhile.
pub(super) struct Processes {
    /// The program under test.
    filch: PathBuf,
    /// The programs with the tests, by the name of their target.
    tests: [(&'static str, PathBuf); 2],
    folder: PathBuf,
    minutes: u32,
    rounds: usize,
    /// Injected faults by name, in the order in which each name came first.
    done: Vec<(String, u64)>,
    /// What was measured last.
    measured: Vec<(String, String)>,
}

impl Processes {
    pub(super) fn build(root: &Path, filch: PathBuf, minutes: NonZeroU32) -> Result<Self> {
        let output = cargo()
            .args(["test", "--no-run", "--release", "--locked", "--package", "filch-e2e"])
            .args(["--features", "soak", "--test", "e2e", "--test", "soak"])
            .args(["--message-format", "json-render-diagnostics"])
            .current_dir(root)
            .stderr(Stdio::inherit())
            .output()
            .context("cannot start cargo")?;
        if !output.status.success() {
            bail!("the end-to-end tests cannot be built ({})", output.status);
        }
        let messages = String::from_utf8_lossy(&output.stdout);
        let tests = |target| {
            let program = super::program_in(&messages, target);
            let program =
                program.with_context(|| format!("cargo did not print the path of {target}"));
            Ok::<_, anyhow::Error>((target, program?))
        };
        Ok(Self {
            filch,
            tests: [tests("e2e")?, tests("soak")?],
            folder: root.join("crates/e2e"),
            minutes: minutes.get(),
            rounds: 0,
            done: Vec::new(),
            measured: Vec::new(),
        })
    }

    /// The next scenario. Its output is shown only if it fails, with the command that repeats it.
    pub(super) fn round(&mut self, seed: u64) -> Result<()> {
        let scenario = SCENARIOS[self.rounds % SCENARIOS.len()];
        self.rounds += 1;
        self.play(scenario, seed)
    }

    /// How many minutes the load lasts.
    pub(super) fn load_minutes(&self) -> u32 {
        self.minutes.min(LOAD_MINUTES_MAX)
    }

    /// Load, for that long.
    pub(super) fn load(&mut self, seed: u64) -> Result<()> {
        self.play(LOAD, seed)
    }

    fn play(&mut self, scenario: Scenario, seed: u64) -> Result<()> {
        let Scenario { target, name } = scenario;
        let tests = self.tests.iter().find(|(it, _)| *it == target);
        let (_, tests) = tests.expect("both targets are built");
        let output = Command::new(tests)
            .args([name, "--nocapture"])
            .envs(self.variables(seed))
            .current_dir(&self.folder)
            .output()
            .with_context(|| format!("cannot start {}", tests.display()))?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        let repeat = || format!("help: repeat it with `{}`", self.command(scenario, seed));
        if !output.status.success() {
            let stdout = String::from_utf8_lossy(&output.stdout);
            let status = output.status;
            bail!("seed {seed} of {name} failed ({status})\n{stdout}{stderr}\n  {}", repeat());
        }
        if !stderr.lines().any(|line| line.starts_with(INJECTED)) {
            bail!("{name} has injected no faults\n  {}", repeat());
        }
        stderr.lines().for_each(|line| self.count(line));
        Ok(())
    }

    fn count(&mut self, line: &str) {
        if let Some((count, name)) = part(line, INJECTED, " ")
            && let Ok(count) = count.parse::<u64>()
        {
            *value_of(&mut self.done, name) += count;
        } else if let Some((name, what)) = part(line, MEASURED, ": ") {
            what.clone_into(value_of(&mut self.measured, name));
        }
    }

    fn variables(&self, seed: u64) -> [(&'static str, String); 4] {
        [
            ("FILCH_BINARY", self.filch.display().to_string()),
            ("FILCH_E2E_SEED", seed.to_string()),
            ("FILCH_FAULTS", (self.minutes / MINUTES_PER_SCALE).max(1).to_string()),
            ("FILCH_LOAD_MINUTES", self.load_minutes().to_string()),
        ]
    }

    /// As a line for a shell.
    fn command(&self, Scenario { target, name }: Scenario, seed: u64) -> String {
        let variables = self.variables(seed).map(|(name, value)| format!("{name}={value}"));
        format!(
            "{} cargo test --release --package filch-e2e --features soak --test {target} -- {name} \
             --nocapture",
            variables.join(" ")
        )
    }
}

/// What stands behind the beginning of a line, in two parts.
fn part<'a>(line: &'a str, beginning: &str, between: &str) -> Option<(&'a str, &'a str)> {
    line.strip_prefix(beginning)?.split_once(between)
}

/// What is known under a name, nothing at first.
fn value_of<'a, T: Default>(list: &'a mut Vec<(String, T)>, name: &str) -> &'a mut T {
    let index = list.iter().position(|(it, _)| it == name).unwrap_or_else(|| {
        list.push((name.to_owned(), T::default()));
        list.len() - 1
    });
    &mut list[index].1
}

impl fmt::Display for Processes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "real processes: rounds {}", self.rounds)?;
        for (name, count) in &self.done {
            write!(formatter, ", {name} {count}")?;
        }
        for (name, what) in &self.measured {
            write!(formatter, "\n  {name}: {what}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With a shell in place of the tests, to which a scenario is a script of that name.
    fn processes(folder: &Path, script: &str) -> Processes {
        for scenario in SCENARIOS.iter().chain([&LOAD]) {
            std::fs::write(folder.join(scenario.name), script).unwrap();
        }
        Processes {
            filch: "/t/filch".into(),
            tests: [("e2e", "sh".into()), ("soak", "sh".into())],
            folder: folder.into(),
            minutes: 20,
            rounds: 0,
            done: Vec::new(),
            measured: Vec::new(),
        }
    }

    #[test]
    fn rounds_run_the_scenarios_in_turn_and_add_up_their_counts() {
        let folder = tempfile::tempdir().unwrap();
        let script = r#"echo "injected 7 faults on the wrong stream"
            echo "injected $FILCH_E2E_SEED faults of $0" >&2
            echo "measured load: $FILCH_LOAD_MINUTES of $FILCH_E2E_SEED" >&2"#;
        let mut processes = processes(folder.path(), script);
        for seed in 1..=7 {
            processes.round(seed).unwrap();
        }
        processes.load(8).unwrap();
        let expected = "real processes: rounds 7, faults of kills:: 8, faults of zombies:: 2, \
                        faults of partitions:: 3, faults of power:: 4, faults of points:: 5, \
                        faults of limits:: 6, faults of load:: 8\n  load: 10 of 8";
        assert_eq!(processes.to_string(), expected);
    }

    #[test]
    fn a_failed_round_prints_how_to_repeat_it() {
        let folder = tempfile::tempdir().unwrap();
        let error = processes(folder.path(), "exit 1").round(7).unwrap_err().to_string();
        assert!(error.starts_with("seed 7 of kills:: failed (exit status: 1)"), "{error}");
        let command = "FILCH_BINARY=/t/filch FILCH_E2E_SEED=7 FILCH_FAULTS=2 \
                       FILCH_LOAD_MINUTES=10 cargo test --release --package filch-e2e --features soak \
                       --test e2e -- kills:: --nocapture`";
        assert!(error.ends_with(command), "{error}");
    }

    #[test]
    fn a_round_without_faults_fails() {
        let folder = tempfile::tempdir().unwrap();
        let error = processes(folder.path(), "true").round(7).unwrap_err().to_string();
        assert!(error.starts_with("kills:: has injected no faults"), "{error}");
    }
}
