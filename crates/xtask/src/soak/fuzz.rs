//! Rounds of fuzzing: one target after the other, each for a few seconds.
//!
//! It needs a nightly toolchain and cargo-fuzz; without them there is a note instead. The inputs in
//! `fuzz/seeds` are replayed by an ordinary test anyway.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// Each has a file in `fuzz/targets`, a dictionary `fuzz/NAME.dict` and first inputs in
/// `fuzz/seeds/NAME`.
const TARGETS: &[&str] = &["node", "submit", "session", "flow", "trace"];

const SECONDS_PER_ROUND: u32 = 20;

pub(super) struct Fuzzer {
    root: PathBuf,
    rounds: usize,
}

impl Fuzzer {
    /// Builds all targets; `None` if cargo-fuzz is not installed.
    pub(super) fn build(root: &Path) -> Result<Option<Self>> {
        if !has_cargo_fuzz() {
            eprintln!(
                "note: no nightly toolchain with cargo-fuzz is installed; nothing is fuzzed\n  \
                 help: rustup toolchain install nightly && cargo install cargo-fuzz"
            );
            return Ok(None);
        }
        let built = cargo_fuzz().arg("build").current_dir(root).status();
        if !built.context("cannot start rustup")?.success() {
            bail!("the fuzz targets cannot be built\n  help: cargo +nightly fuzz build");
        }
        for target in TARGETS {
            // The fuzzer does not create it.
            let folder = root.join("fuzz/corpus").join(target);
            fs::create_dir_all(&folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        Ok(Some(Self { root: root.to_owned(), rounds: 0 }))
    }

    /// Fuzzes the next target. Its output is printed only if it fails.
    pub(super) fn round(&mut self) -> Result<()> {
        let target = TARGETS[self.rounds % TARGETS.len()];
        self.rounds += 1;
        let arguments = arguments(target);
        let output = cargo_fuzz()
            .args(arguments.split(' '))
            .current_dir(&self.root)
            .output()
            .context("cannot start rustup")?;
        if !output.status.success() {
            let printed = String::from_utf8_lossy(&output.stderr);
            bail!(
                "the fuzz target {target} failed ({})\n{printed}\n  \
                 help: repeat it with `cargo +nightly fuzz {arguments}`",
                output.status
            );
        }
        Ok(())
    }
}

impl fmt::Display for Fuzzer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "fuzzing: rounds {} of {SECONDS_PER_ROUND} s", self.rounds)
    }
}

/// The fuzzer writes interesting inputs into the first folder, and only reads the second.
fn arguments(target: &str) -> String {
    format!(
        "run {target} fuzz/corpus/{target} fuzz/seeds/{target} -- \
         -max_total_time={SECONDS_PER_ROUND} -timeout=10 -max_len=4096 -dict=fuzz/{target}.dict \
         -rss_limit_mb=512 -verbosity=0"
    )
}

fn cargo_fuzz() -> Command {
    // `cargo +nightly` needs rustup's cargo, and ours is a toolchain's own.
    let mut command = Command::new("rustup");
    command.args(["run", "nightly", "cargo", "fuzz"]);
    command
}

fn has_cargo_fuzz() -> bool {
    let mut command = cargo_fuzz();
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_can_be_repeated_by_hand() {
        assert_eq!(
            arguments("node"),
            "run node fuzz/corpus/node fuzz/seeds/node -- -max_total_time=20 -timeout=10 \
             -max_len=4096 -dict=fuzz/node.dict -rss_limit_mb=512 -verbosity=0"
        );
    }

    #[test]
    fn every_target_has_a_dictionary_and_first_inputs() {
        let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
        let mut targets: Vec<String> = fs::read_dir(fuzz.join("targets"))
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().display().to_string())
            .collect();
        targets.sort();
        let mut listed = TARGETS.to_vec();
        listed.sort_unstable();
        assert_eq!(targets, listed);
        for target in listed {
            assert!(fuzz.join(format!("{target}.dict")).exists(), "{target}");
            let seeds = fs::read_dir(fuzz.join("seeds").join(target)).unwrap();
            assert!(seeds.count() > 0, "{target}");
        }
    }
}
