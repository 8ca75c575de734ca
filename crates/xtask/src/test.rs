//! What CI runs: a list of steps, in order, up to the first that fails. Where nobody sits before it, that is with
//! the variable `CI`, the others are still taken, so that one run tells everything that is wrong.
//!
//! Each step is one cargo command that a person can repeat by hand; the last is `tidy`, which runs in
//! this process. What is built for release comes after what is quicker to fail. No step is allowed to
//! rewrite what it should check, whatever the caller's environment asks for, and the target folder
//! stays the caller's choice.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;
use std::{env, fmt, fs};

use anyhow::{Context, Result, bail};

use crate::{cargo, needs, simulation, target_folder, tidy};

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

/// What no crate of ours enables, and users may: checked with everything else.
const FEATURES: &str = "--features filch-pool/full,filch-recruit/redis,filch-recruit/tower";

/// What makes ThreadSanitizer part of a program. Only a nightly compiler knows it; std was built without.
const SANITIZER: &str =
    "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg filch_sanitized";

/// A file in the folder of the pool, where its tests are run, with what is not to be reported, and why.
const UNREPORTED: &str = "suppressions=sanitizer.supp";

/// For what the pool is built with the sanitizer.
const SANITIZED: &str = "x86_64-unknown-linux-gnu";

/// What is fuzzed: a target in `fuzz/targets`, with words in `fuzz/NAME.dict` and first inputs in
/// `fuzz/seeds/NAME`.
const FUZZ_TARGETS: &[&str] = &["node", "submit", "session", "flow", "trace"];

/// How many inputs the fuzzer tries on every change: enough to see that the targets work, no hunt.
const FUZZ_RUNS: u32 = 50_000;

/// For how long at most, each.
const FUZZ_SECONDS: u32 = 20;

/// One command and what it is called when it fails.
struct Step {
    name: &'static str,
    toolchain: Toolchain,
    variables: Vec<(&'static str, String)>,
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
    let target = target_folder(root)?;
    let mut steps = steps(runner, find_first_seed(root), &target);
    steps.extend(find_deny().then(deny));
    steps.extend(find_sanitizer().then(|| sanitizer(&target)));
    if find_fuzzer() {
        make_room_for_inputs(root)?;
        steps.extend(FUZZ_TARGETS.iter().map(|target| fuzz(target)));
    }
    let count = steps.len() + 1;
    let goes_on = env::var_os("CI").is_some();
    let mut failures = Vec::new();
    let mut take = |number, name, command: &dyn fmt::Display, perform: &dyn Fn() -> Result<()>| {
        eprintln!("[{number}/{count}] {name}: {command}");
        let step_started = Instant::now();
        match perform() {
            Ok(()) => {
                eprintln!("      {name} passed in {:.1} s", step_started.elapsed().as_secs_f64());
            }
            Err(failure) if goes_on => {
                eprintln!("error: {failure:#}");
                failures.push(name);
            }
            Err(failure) => return Err(failure),
        }
        Ok(())
    };
    for (index, step) in steps.iter().enumerate() {
        take(index + 1, step.name, step, &|| perform(step, root))?;
    }
    take(count, "tidy", &"cargo xtask tidy", &|| check_tidiness(root))?;

    if !failures.is_empty() {
        bail!("{} of {count} steps failed: {}", failures.len(), failures.join(", "));
    }
    eprintln!("all {count} steps passed in {:.1} s", started.elapsed().as_secs_f64());
    Ok(ExitCode::SUCCESS)
}

fn steps(runner: Runner, first_seed: u64, target: &Path) -> Vec<Step> {
    let step = |name, arguments: &str| {
        let arguments = arguments.to_owned();
        Step { name, toolchain: Toolchain::Own, variables: vec![], arguments }
    };
    let (tests, some) = match runner {
        Runner::Nextest => ("nextest run --workspace --exclude filch-e2e", "nextest run"),
        // `--tests` is every target with tests, units of libraries and programs included; it leaves
        // out the doc tests, which have their own step.
        Runner::Cargo => ("test --workspace --exclude filch-e2e --tests", "test"),
    };
    let hunt = simulation::hunt(first_seed, SEEDS);
    vec![
        step("format", "fmt --all --check"),
        step(
            "lints",
            &format!("clippy --workspace {FEATURES} --all-targets --locked -- -D warnings"),
        ),
        step("lints, planted", &format!("clippy --locked {PLANTED} --all-targets -- -D warnings")),
        step("tests", &format!("{tests} --no-fail-fast {FEATURES} --locked")),
        step("doc tests", &format!("test --workspace {FEATURES} --doc --locked")),
        Step {
            variables: vec![("RUSTDOCFLAGS", "-D warnings".to_owned())],
            ..step("docs", &format!("doc --workspace {FEATURES} --no-deps --locked"))
        },
        step("planted bugs", &format!("{some} --release --locked {PLANTED} --test planted")),
        // The pool's protocol in every order, then a small pool in many orders.
        models("models", "--cfg loom", "models", target),
        models("models, larger", "--cfg loom --cfg shuttle", "small", target),
        step("simulation", &format!("run --release --locked --package filch-cli -- {hunt}")),
        // With the program that the step before has built.
        Step {
            variables: vec![("FILCH_BINARY", program(target).display().to_string())],
            ..step(
                "end to end",
                &format!("{some} --no-fail-fast --release --locked --package filch-e2e"),
            )
        },
        Step {
            variables: vec![("FILCH_BINARY", program(target).display().to_string())],
            ..step("schema", "xtask schema")
        },
    ]
}

/// Stories of the pool's protocol, with loom or shuttle in the place of atomics, locks and threads. In a
/// folder of its own, as everything below is built anew.
fn models(name: &'static str, flags: &str, stories: &str, target: &Path) -> Step {
    let folder = target.join("models");
    Step {
        name,
        toolchain: Toolchain::Own,
        variables: vec![("RUSTFLAGS", flags.to_owned())],
        arguments: format!(
            "test --package filch-pool --lib --locked --target-dir {} {stories}",
            folder.display()
        ),
    }
}

/// All tests of the pool under ThreadSanitizer; one of them plants races, which must be reported. The
/// output of tests is not captured and panics print no backtraces: both happen under a lock of std,
/// which the sanitizer does not see.
fn sanitizer(target: &Path) -> Step {
    Step {
        name: "thread sanitizer",
        toolchain: Toolchain::Nightly,
        variables: vec![
            ("RUSTFLAGS", SANITIZER.to_owned()),
            ("TSAN_OPTIONS", UNREPORTED.to_owned()),
            ("RUST_BACKTRACE", "0".to_owned()),
        ],
        arguments: format!(
            "test --package filch-pool --features full --lib --tests --locked --target {SANITIZED} \
             --target-dir {} -- --nocapture",
            target.join("sanitizer").display()
        ),
    }
}

/// Where the program lies that is built for release.
fn program(target: &Path) -> PathBuf {
    target.join("release").join("filch")
}

/// What may become part of the program. What is known against it (`advisories`) is left out: that would
/// need the network, and fail by itself on any day.
fn deny() -> Step {
    let arguments = "deny --locked check bans licenses sources".to_owned();
    Step { name: "dependencies", toolchain: Toolchain::Own, variables: vec![], arguments }
}

/// What the fuzzer finds worth keeping goes into the first folder; the second is only read.
fn fuzz(target: &str) -> Step {
    let arguments = format!(
        "fuzz run {target} fuzz/corpus/{target} fuzz/seeds/{target} -- -runs={FUZZ_RUNS} \
         -max_total_time={FUZZ_SECONDS} -timeout=10 -max_len=4096 -dict=fuzz/{target}.dict \
         -rss_limit_mb=512 -verbosity=0"
    );
    Step { name: "fuzz", toolchain: Toolchain::Nightly, variables: vec![], arguments }
}

/// The fuzzer makes no folders.
fn make_room_for_inputs(root: &Path) -> Result<()> {
    for target in FUZZ_TARGETS {
        let folder = root.join("fuzz/corpus").join(target);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    Ok(())
}

fn perform(step: &Step, root: &Path) -> Result<()> {
    let status = step.command(root).status().context("cannot start cargo")?;
    if !status.success() {
        bail!("step `{}` failed ({status})\n  help: repeat it with `{step}`", step.name);
    }
    Ok(())
}

fn check_tidiness(root: &Path) -> Result<()> {
    if tidy::run(root, &[])? != ExitCode::SUCCESS {
        bail!("step `tidy` failed\n  help: repeat it with `cargo xtask tidy`");
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
        command.envs(self.variables.iter().cloned());
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

    /// Whether such a command of it runs; with a flag in its place, whether cargo does.
    fn has(self, subcommand: &str) -> bool {
        let mut command = self.cargo();
        command.args([subcommand, "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}

/// As it would be typed into a shell.
impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.variables {
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

fn find_deny() -> bool {
    let found = Toolchain::Own.has("deny");
    if !found {
        eprintln!(
            "note: cargo-deny is not installed; licences and sources (deny.toml) are not checked"
        );
    }
    found
}

fn find_sanitizer() -> bool {
    let is_known = cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"));
    let found = is_known && Toolchain::Nightly.has("--verbose");
    if !found {
        eprintln!(
            "note: no nightly toolchain for {SANITIZED} is installed; the pool is not run under \
             ThreadSanitizer"
        );
    }
    found
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
lints: cargo clippy --workspace \
--features filch-pool/full,filch-recruit/redis,filch-recruit/tower --all-targets \
--locked -- -D warnings
lints, planted: cargo clippy --locked -p filch-scheduler -p filch-sim \
--features filch-scheduler/planted,filch-sim/planted --all-targets -- -D warnings
tests: cargo nextest run --workspace --exclude filch-e2e --no-fail-fast \
--features filch-pool/full,filch-recruit/redis,filch-recruit/tower --locked
doc tests: cargo test --workspace \
--features filch-pool/full,filch-recruit/redis,filch-recruit/tower --doc --locked
docs: RUSTDOCFLAGS='-D warnings' cargo doc --workspace \
--features filch-pool/full,filch-recruit/redis,filch-recruit/tower --no-deps --locked
planted bugs: cargo nextest run --release --locked -p filch-scheduler -p filch-sim \
--features filch-scheduler/planted,filch-sim/planted --test planted
models: RUSTFLAGS='--cfg loom' cargo test --package filch-pool --lib --locked \
--target-dir /t/models models
models, larger: RUSTFLAGS='--cfg loom --cfg shuttle' cargo test --package filch-pool --lib --locked \
--target-dir /t/models small
simulation: cargo run --release --locked --package filch-cli -- simulate --seeds 500..2499 \
--duration 10m --workers 10 --faults swarm
end to end: FILCH_BINARY='/t/release/filch' cargo nextest run --no-fail-fast \
--release --locked --package filch-e2e
schema: FILCH_BINARY='/t/release/filch' cargo xtask schema
";
        assert_eq!(typed(Runner::Nextest), expected);
        let without_nextest = expected
            .replace(
                "nextest run --workspace --exclude filch-e2e",
                "test --workspace --exclude filch-e2e --tests",
            )
            .replace("nextest run --release", "test --release")
            .replace("nextest run --no-fail-fast", "test --no-fail-fast");
        assert_eq!(typed(Runner::Cargo), without_nextest);
    }

    #[test]
    fn the_fuzzer_can_be_repeated_by_hand() {
        assert_eq!(
            fuzz("node").to_string(),
            "cargo +nightly fuzz run node fuzz/corpus/node fuzz/seeds/node -- -runs=50000 \
             -max_total_time=20 -timeout=10 -max_len=4096 -dict=fuzz/node.dict -rss_limit_mb=512 \
             -verbosity=0"
        );
    }

    #[test]
    fn the_sanitizer_can_be_repeated_by_hand() {
        assert_eq!(
            sanitizer(Path::new("/t")).to_string(),
            "RUSTFLAGS='-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg filch_sanitized' \
             TSAN_OPTIONS='suppressions=sanitizer.supp' RUST_BACKTRACE='0' cargo +nightly test \
             --package filch-pool --features full --lib --tests --locked \
             --target x86_64-unknown-linux-gnu --target-dir /t/sanitizer -- --nocapture"
        );
    }

    #[test]
    fn every_target_is_fuzzed_and_has_words_and_first_inputs() {
        let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
        let mut targets: Vec<String> = fs::read_dir(fuzz.join("targets"))
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().display().to_string())
            .collect();
        targets.sort();
        let mut listed = FUZZ_TARGETS.to_vec();
        listed.sort_unstable();
        assert_eq!(targets, listed);
        for target in listed {
            assert!(fuzz.join(format!("{target}.dict")).exists(), "{target}");
            let seeds = fs::read_dir(fuzz.join("seeds").join(target)).unwrap();
            assert!(seeds.count() > 0, "{target}");
        }
    }

    #[test]
    fn no_step_may_rewrite_what_it_checks() {
        let steps = steps(Runner::Nextest, 1, Path::new("/t"));
        let more = [deny(), fuzz("node"), sanitizer(Path::new("/t"))];
        for step in steps.into_iter().chain(more) {
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
        let step = Step { name: "lints", toolchain: Toolchain::Own, variables: vec![], arguments };
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
