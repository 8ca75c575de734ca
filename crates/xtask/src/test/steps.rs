//! The steps of `cargo xtask test`: each is one command that a person can repeat by hand.
//!
//! All tests, the program that they start and the doc tests are one build: the same packages,
//! features and profile. Only steps that need other code or another compiler build something else:
//! `lints`, `docs`, `planted bugs`, the models and the sanitizer.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::{env, fmt};

use anyhow::{Context as _, Result, bail};

use crate::{cargo, simulation};

/// Variables that make a test tool accept, rewrite or repeat instead of fail.
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

/// How many fresh seeds are simulated for every commit.
const SEEDS: u64 = 2_000;

/// Every package, with the features that none of our crates enables and users may.
const WORKSPACE: &str =
    "--workspace --features filch-pool/full,filch-recruit/redis,filch-recruit/tower";

/// Known bugs, which only tests enable.
const PLANTED: &str = "filch-scheduler/planted,filch-engine/planted,filch-sim/planted";

/// Tests that measure. A soak runs them; here they are only linted.
const MEASURING: &str = "filch-e2e/soak";

/// How many tests run at once for each core, since many of them wait: for processes, sockets,
/// disks.
const TESTS_PER_CORE: usize = 2;

/// End-to-end tests wait even more.
const END_TO_END_TESTS_PER_CORE: usize = 3;

/// Compiles ThreadSanitizer into a program. Only a nightly compiler can; std was built without it.
const SANITIZER: &str =
    "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg filch_sanitized";

/// A file in the pool's folder, where its tests run: reports to suppress, each with its reason.
const SUPPRESSIONS: &str = "suppressions=sanitizer.supp";

/// The platform for which the pool is built with the sanitizer.
const SANITIZED: &str = "x86_64-unknown-linux-gnu";

/// One command, and its name in messages.
pub(super) struct Step {
    pub name: &'static str,
    program: Program,
    variables: Vec<(&'static str, String)>,
    /// As they are typed: with a space between them, and none within.
    arguments: String,
}

/// What a step starts.
enum Program {
    Cargo,
    /// ThreadSanitizer needs a nightly compiler.
    NightlyCargo,
    /// The program that the step `build` has built.
    Filch(PathBuf),
}

/// The program that runs the tests, except for doc tests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Runner {
    Nextest,
    Cargo,
}

/// The steps up to `build`: if one of them fails, the others make no sense.
pub(super) fn first(runner: Runner) -> Vec<Step> {
    vec![
        step("format", "fmt --all --check"),
        step(
            "lints",
            &format!(
                "clippy {WORKSPACE},{PLANTED},{MEASURING} --all-targets --locked -- -D warnings"
            ),
        ),
        build(runner),
    ]
}

/// The steps that use the build, in order.
pub(super) fn main(runner: Runner, cores: usize, first_seed: u64, target: &Path) -> Vec<Step> {
    let mut steps = repeatable(runner, cores, target);
    let planted = match runner {
        Runner::Nextest => "nextest run",
        Runner::Cargo => "test",
    };
    let search = simulation::search(first_seed, SEEDS);
    steps.extend([
        step("doc tests", &format!("test {WORKSPACE} --doc --locked")),
        Step {
            variables: vec![("RUSTDOCFLAGS", "-D warnings".to_owned())],
            ..step("docs", &format!("doc {WORKSPACE} --no-deps --locked"))
        },
        Step { program: Program::Filch(program(target)), ..step("simulation", &search) },
        step("planted bugs", &format!("{planted} {WORKSPACE},{PLANTED} --locked --test planted")),
        Step { variables: vec![tested(target)], ..step("schema", "xtask schema") },
    ]);
    steps
}

/// The steps that need nothing of the build and have their own target folders, so that they can run
/// beside the main steps, which often wait. The pool's protocol in every order, then a small pool
/// in many orders.
pub(super) fn beside(target: &Path) -> Vec<Step> {
    vec![
        models("models", "--cfg loom", "models", target),
        models("larger models", "--cfg loom --cfg shuttle", "small", target),
    ]
}

/// Builds all tests and the program, and runs nothing.
pub(super) fn build(runner: Runner) -> Step {
    match runner {
        Runner::Nextest => step("build", &format!("nextest run {WORKSPACE} --locked --no-run")),
        Runner::Cargo => step("build", &format!("test {WORKSPACE} --tests --locked --no-run")),
    }
}

/// The steps that `--repeat` repeats. Nothing is left to build for them.
pub(super) fn repeatable(runner: Runner, cores: usize, target: &Path) -> Vec<Step> {
    match runner {
        // All packages are chosen and some are filtered out later: with other packages chosen,
        // cargo would build dependencies with other features.
        Runner::Nextest => {
            let run = |filter: &str, tests_per_core| {
                let threads = cores * tests_per_core;
                format!(
                    "nextest run {WORKSPACE} --locked --no-fail-fast --filterset {filter} \
                     --test-threads {threads}"
                )
            };
            vec![
                step("tests", &run("not(package(filch-e2e))", TESTS_PER_CORE)),
                Step {
                    variables: vec![tested(target)],
                    ..step("end to end", &run("package(filch-e2e)", END_TO_END_TESTS_PER_CORE))
                },
            ]
        }
        // `--tests` is every target with tests, unit tests of libraries and programs included; it
        // leaves out the doc tests.
        Runner::Cargo => vec![Step {
            variables: vec![tested(target)],
            ..step("tests", &format!("test {WORKSPACE} --tests --locked --no-fail-fast"))
        }],
    }
}

fn step(name: &'static str, arguments: &str) -> Step {
    let arguments = arguments.to_owned();
    Step { name, program: Program::Cargo, variables: vec![], arguments }
}

/// Models of the pool's protocol, in which loom or shuttle replaces atomics, locks and threads.
/// They have their own target folder, because all of their dependencies are built with other flags.
fn models(name: &'static str, flags: &str, filter: &str, target: &Path) -> Step {
    let folder = target.join("models");
    Step {
        variables: vec![("RUSTFLAGS", flags.to_owned())],
        ..step(
            name,
            &format!(
                "test --package filch-pool --lib --locked --target-dir {} {filter}",
                folder.display()
            ),
        )
    }
}

/// All tests of the pool under ThreadSanitizer; one of them plants races, which must be reported.
/// The output of tests is not captured and panics print no backtraces: both happen under a lock of
/// std, which the sanitizer does not see.
pub(super) fn sanitizer(target: &Path) -> Step {
    let arguments = format!(
        "test --package filch-pool --features full --lib --tests --locked --target {SANITIZED} \
         --target-dir {} -- --nocapture",
        target.join("sanitizer").display()
    );
    Step {
        program: Program::NightlyCargo,
        variables: vec![
            ("RUSTFLAGS", SANITIZER.to_owned()),
            ("TSAN_OPTIONS", SUPPRESSIONS.to_owned()),
            ("RUST_BACKTRACE", "0".to_owned()),
        ],
        ..step("thread sanitizer", &arguments)
    }
}

/// Licences and sources of dependencies. Advisories are left out: they need the network, and would
/// fail without any change here.
pub(super) fn deny() -> Step {
    step("dependencies", "deny --locked check bans licenses sources")
}

/// Tells the tests which program to start.
fn tested(target: &Path) -> (&'static str, String) {
    ("FILCH_BINARY", program(target).display().to_string())
}

/// Where the step `build` puts the program.
fn program(target: &Path) -> PathBuf {
    target.join("debug").join("filch")
}

impl Step {
    /// Fails with the command that repeats this step.
    pub(super) fn perform(&self, root: &Path) -> Result<()> {
        let mut command = self.command(root);
        let status = command.status().with_context(|| cannot_start(&command))?;
        self.check(status)
    }

    /// The same, with the output of the step printed at once when it is over.
    pub(super) fn perform_beside(&self, root: &Path) -> Result<()> {
        let mut command = self.command(root);
        let output = command.output().with_context(|| cannot_start(&command))?;
        let mut printed = output.stderr;
        printed.extend(output.stdout);
        eprint!("{self}\n{}", String::from_utf8_lossy(&printed));
        self.check(output.status)
    }

    fn check(&self, status: ExitStatus) -> Result<()> {
        if !status.success() {
            bail!("step `{}` failed ({status})\n  help: repeat it with `{self}`", self.name);
        }
        Ok(())
    }

    /// No step may rewrite what it checks, whatever the caller's environment asks for. The target
    /// folder is inherited.
    fn command(&self, root: &Path) -> Command {
        let mut command = self.program.command();
        command.args(self.arguments.split(' ')).current_dir(root);
        for variable in LENIENT_VARIABLES {
            command.env_remove(variable);
        }
        command.env("INSTA_UPDATE", "no");
        command.envs(self.variables.iter().cloned());
        command
    }
}

fn cannot_start(command: &Command) -> String {
    format!("cannot start {}", command.get_program().display())
}

impl Program {
    fn command(&self) -> Command {
        match self {
            Self::Cargo => cargo(),
            Self::NightlyCargo => {
                // `cargo +nightly` needs rustup's cargo, and `cargo()` is a toolchain's own.
                let mut command = Command::new("rustup");
                command.args(["run", "nightly", "cargo"]);
                command
            }
            Self::Filch(path) => Command::new(path),
        }
    }
}

/// As it would be typed into a shell.
impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.variables {
            write!(formatter, "{name}='{value}' ")?;
        }
        match &self.program {
            Program::Cargo => formatter.write_str("cargo")?,
            Program::NightlyCargo => formatter.write_str("cargo +nightly")?,
            Program::Filch(path) => write!(formatter, "{}", path.display())?,
        }
        for argument in self.arguments.split(' ') {
            let needs_quotes = argument.contains(['(', ')']);
            let quote = if needs_quotes { "'" } else { "" };
            write!(formatter, " {quote}{argument}{quote}")?;
        }
        Ok(())
    }
}

/// Whether cargo has this subcommand. With a flag in its place, whether cargo itself runs.
fn has(mut cargo: Command, subcommand: &str) -> bool {
    cargo.args([subcommand, "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    cargo.status().is_ok_and(|status| status.success())
}

/// Fails early, with a remedy, if a component of the toolchain is not installed.
pub(super) fn require(subcommand: &str, component: &str) -> Result<()> {
    if !has(cargo(), subcommand) {
        bail!(
            "`cargo {subcommand}` does not run: {component} is not installed\n  \
             help: rustup component add {component}"
        );
    }
    Ok(())
}

pub(super) fn find_runner() -> Runner {
    if has(cargo(), "nextest") {
        return Runner::Nextest;
    }
    eprintln!("note: cargo-nextest is not installed; using `cargo test`, which is slower");
    Runner::Cargo
}

pub(super) fn find_first_seed(root: &Path) -> u64 {
    simulation::seed_of_commit(root).unwrap_or_else(|| {
        eprintln!("note: git finds no commit here; the simulation starts with seed 1");
        1
    })
}

pub(super) fn has_deny() -> bool {
    let found = has(cargo(), "deny");
    if !found {
        eprintln!(
            "note: cargo-deny is not installed; licences and sources (deny.toml) are not checked"
        );
    }
    found
}

pub(super) fn has_sanitizer() -> bool {
    let is_supported = cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"));
    let found = is_supported && has(Program::NightlyCargo.command(), "--verbose");
    if !found {
        eprintln!(
            "note: no nightly toolchain for {SANITIZED} is installed; the pool is not tested with \
             ThreadSanitizer"
        );
    }
    found
}

/// Whether the later steps are still run after one that failed: on CI, one run should report every
/// failure.
pub(super) fn goes_on_after_failure() -> bool {
    env::var_os("CI").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(runner: Runner) -> Vec<Step> {
        let target = Path::new("/t");
        let mut steps = first(runner);
        steps.extend(main(runner, 2, 500, target));
        steps.extend(beside(target));
        steps.extend([deny(), sanitizer(target)]);
        steps
    }

    fn typed(runner: Runner) -> String {
        all(runner).iter().map(|step| format!("{}: {step}\n", step.name)).collect()
    }

    #[test]
    fn steps_can_be_repeated_by_hand() {
        let expected = "\
format: cargo fmt --all --check
lints: cargo clippy \
WORKSPACE,filch-scheduler/planted,filch-engine/planted,filch-sim/planted,filch-e2e/soak \
--all-targets --locked -- -D warnings
build: cargo nextest run WORKSPACE --locked --no-run
tests: cargo nextest run WORKSPACE --locked --no-fail-fast \
--filterset 'not(package(filch-e2e))' --test-threads 4
end to end: FILCH_BINARY='/t/debug/filch' cargo nextest run WORKSPACE --locked --no-fail-fast \
--filterset 'package(filch-e2e)' --test-threads 6
doc tests: cargo test WORKSPACE --doc --locked
docs: RUSTDOCFLAGS='-D warnings' cargo doc WORKSPACE --no-deps --locked
simulation: /t/debug/filch simulate --seeds 500..2499 --duration 10m --workers 10 --faults swarm
planted bugs: cargo nextest run \
WORKSPACE,filch-scheduler/planted,filch-engine/planted,filch-sim/planted --locked --test planted
schema: FILCH_BINARY='/t/debug/filch' cargo xtask schema
models: RUSTFLAGS='--cfg loom' cargo test --package filch-pool --lib --locked \
--target-dir /t/models models
larger models: RUSTFLAGS='--cfg loom --cfg shuttle' cargo test --package filch-pool --lib --locked \
--target-dir /t/models small
dependencies: cargo deny --locked check bans licenses sources
thread sanitizer: RUSTFLAGS='-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer \
--cfg filch_sanitized' TSAN_OPTIONS='suppressions=sanitizer.supp' RUST_BACKTRACE='0' \
cargo +nightly test --package filch-pool --features full --lib --tests --locked \
--target x86_64-unknown-linux-gnu --target-dir /t/sanitizer -- --nocapture
"
        .replace(
            "WORKSPACE",
            "--workspace --features filch-pool/full,filch-recruit/redis,filch-recruit/tower",
        );
        assert_eq!(typed(Runner::Nextest), expected);
    }

    #[test]
    fn without_nextest_one_step_runs_all_tests() {
        let typed = typed(Runner::Cargo);
        let tests = "tests: FILCH_BINARY='/t/debug/filch' cargo test --workspace \
                     --features filch-pool/full,filch-recruit/redis,filch-recruit/tower --tests --locked \
                     --no-fail-fast\n";
        assert!(typed.contains(tests), "{typed}");
        assert!(!typed.contains("nextest") && !typed.contains("end to end"), "{typed}");
    }

    #[test]
    fn no_step_may_rewrite_what_it_checks() {
        for step in all(Runner::Nextest) {
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
        let error = step("lints", "no-such-subcommand").perform(Path::new(".")).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("step `lints` failed ("), "{error}");
        assert!(error.ends_with("help: repeat it with `cargo no-such-subcommand`"), "{error}");
    }

    #[test]
    fn a_missing_component_comes_with_a_remedy() {
        let error = require("no-such-subcommand", "nothing").unwrap_err().to_string();
        assert!(error.contains("help: rustup component add nothing"), "{error}");
    }
}
