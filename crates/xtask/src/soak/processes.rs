//! Rounds with real processes: the scenarios of the end-to-end tests in turn, each with a fresh seed and
//! more faults the longer the soak; and load, which comes last.
//!
//! What they have brought about and measured they say themselves, in lines that begin with [`BROUGHT_ABOUT`]
//! and [`MEASURED`]; here it is added up.

use std::fmt;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::cargo;

/// Which tests these are. Those that hit at moments drawn from a seed come twice as often.
const SCENARIOS: [&str; 9] = [
    "kills::",
    "zombies::",
    "partitions::",
    "power::",
    "points::",
    "terms::",
    "kills::",
    "double_billing::",
    "idle::",
];

const LOAD: &str = "load::";
const LOAD_MINUTES_MAX: u32 = 10;

/// Counts are those of a test run times the minutes over this.
const MINUTES_PER_SCALE: u32 = 10;

/// Behind it a number and a name.
const BROUGHT_ABOUT: &str = "brought about ";
/// Behind it a name, a colon, and a text.
const MEASURED: &str = "measured ";

/// The scenarios, built once. The rounds use what was built then, whatever happens to the sources.
pub(super) struct Processes {
    /// The program that is tried, and the one that tries it.
    filch: PathBuf,
    tests: PathBuf,
    folder: PathBuf,
    minutes: u32,
    rounds: usize,
    /// What was brought about, in the order in which it was first heard of.
    done: Vec<(String, u64)>,
    /// What was measured last.
    measured: Vec<(String, String)>,
}

impl Processes {
    pub(super) fn build(root: &Path, filch: PathBuf, minutes: NonZeroU32) -> Result<Self> {
        let output = cargo()
            .args(["test", "--no-run", "--release", "--locked", "--package", "filch-e2e"])
            .args(["--test", "e2e", "--message-format", "json-render-diagnostics"])
            .current_dir(root)
            .stderr(Stdio::inherit())
            .output()
            .context("cannot start cargo")?;
        if !output.status.success() {
            bail!("the end-to-end tests cannot be built ({})", output.status);
        }
        let messages = String::from_utf8_lossy(&output.stdout);
        let tests = super::program_in(&messages, "e2e");
        Ok(Self {
            filch,
            tests: tests.context("cargo did not say where it put the end-to-end tests")?,
            folder: root.join("crates/e2e"),
            minutes: minutes.get(),
            rounds: 0,
            done: Vec::new(),
            measured: Vec::new(),
        })
    }

    /// The next scenario. Its talk is shown only if it fails, as an error that says how to repeat it.
    pub(super) fn round(&mut self, seed: u64) -> Result<()> {
        let scenario = SCENARIOS[self.rounds % SCENARIOS.len()];
        self.rounds += 1;
        self.play(scenario, seed)
    }

    /// For how many minutes there is load.
    pub(super) fn load_minutes(&self) -> u32 {
        self.minutes.min(LOAD_MINUTES_MAX)
    }

    /// Load, for that long.
    pub(super) fn load(&mut self, seed: u64) -> Result<()> {
        self.play(LOAD, seed)
    }

    fn play(&mut self, scenario: &str, seed: u64) -> Result<()> {
        let output = Command::new(&self.tests)
            .args([scenario, "--nocapture"])
            .envs(self.variables(seed))
            .current_dir(&self.folder)
            .output()
            .with_context(|| format!("cannot start {}", self.tests.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        let repeat = || format!("help: repeat it with `{}`", self.command(scenario, seed));
        if !output.status.success() {
            let talk = String::from_utf8_lossy(&output.stdout);
            let status = output.status;
            bail!("seed {seed} of {scenario} failed ({status})\n{talk}{said}\n  {}", repeat());
        }
        if !said.lines().any(|line| line.starts_with(BROUGHT_ABOUT)) {
            bail!("{scenario} has brought about nothing\n  {}", repeat());
        }
        said.lines().for_each(|line| self.hear(line));
        Ok(())
    }

    fn hear(&mut self, line: &str) {
        if let Some((count, name)) = part(line, BROUGHT_ABOUT, " ")
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

    /// As it would be typed into a shell.
    fn command(&self, scenario: &str, seed: u64) -> String {
        let variables = self.variables(seed).map(|(name, value)| format!("{name}={value}"));
        format!(
            "{} cargo test --release --package filch-e2e --test e2e -- {scenario} --nocapture",
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
            std::fs::write(folder.join(scenario), script).unwrap();
        }
        Processes {
            filch: "/t/filch".into(),
            tests: "sh".into(),
            folder: folder.into(),
            minutes: 20,
            rounds: 0,
            done: Vec::new(),
            measured: Vec::new(),
        }
    }

    #[test]
    fn rounds_take_the_scenarios_in_turn_and_add_up_what_these_say() {
        let folder = tempfile::tempdir().unwrap();
        let script = r#"echo "brought about 7 lies"
            echo "brought about $FILCH_E2E_SEED faults of $0" >&2
            echo "measured load: $FILCH_LOAD_MINUTES of $FILCH_E2E_SEED" >&2"#;
        let mut processes = processes(folder.path(), script);
        for seed in 1..=7 {
            processes.round(seed).unwrap();
        }
        processes.load(8).unwrap();
        let expected = "real processes: rounds 7, faults of kills:: 8, faults of zombies:: 2, \
                        faults of partitions:: 3, faults of power:: 4, faults of points:: 5, \
                        faults of terms:: 6, faults of load:: 8\n  load: 10 of 8";
        assert_eq!(processes.to_string(), expected);
    }

    #[test]
    fn a_round_that_fails_says_how_to_repeat_it() {
        let folder = tempfile::tempdir().unwrap();
        let error = processes(folder.path(), "exit 1").round(7).unwrap_err().to_string();
        assert!(error.starts_with("seed 7 of kills:: failed (exit status: 1)"), "{error}");
        let command = "FILCH_BINARY=/t/filch FILCH_E2E_SEED=7 FILCH_FAULTS=2 \
                       FILCH_LOAD_MINUTES=10 cargo test --release --package filch-e2e --test e2e \
                       -- kills:: --nocapture`";
        assert!(error.ends_with(command), "{error}");
    }

    #[test]
    fn a_round_in_which_nothing_happens_is_no_proof() {
        let folder = tempfile::tempdir().unwrap();
        let error = processes(folder.path(), "true").round(7).unwrap_err().to_string();
        assert!(error.starts_with("kills:: has brought about nothing"), "{error}");
    }
}
