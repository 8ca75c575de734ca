//! The JSON output of every command, compared with the files in `tests/snapshots`.
//!
//! A command with `--json` or `--jsonl` needs a line for each in [`CASES`] or [`ALONE`], any other
//! a reason in [`REASONS`]. `FILCH_BLESS=1 cargo nextest run -p filch-cli snapshots` writes the
//! files. Review them before the commit: programs will depend on them.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;

use crate::fixture::{Fixture, has_flag, runnable_commands};
use crate::mask::Mask;
use crate::server::{Ended, Server, end, program};

/// Run in this order against one server; names in braces are ids of `fixture`. Commands that change
/// something come last.
const CASES: &[&str] = &[
    "job list --json",
    "job list --jsonl",
    "job show --json {dead}",
    "job events --json {dead}",
    "job events --jsonl {dead}",
    "job result --json {done}",
    "why --json {later}",
    "events --jsonl --job {done}",
    "events --jsonl --worker {worker} --queue img",
    "logs --json {done}",
    "logs --jsonl {done}",
    "wait --json {done} {dead}",
    "wait --jsonl {done}",
    "dead list --json",
    "dead list --jsonl",
    "dead groups --json",
    "dead groups --jsonl",
    "queue list --json",
    "queue list --jsonl",
    "queue show --json later",
    "queue strategy --json",
    "worker list --json",
    "worker list --jsonl",
    "recruit list --json",
    "recruit report --json",
    "server status --json",
    "server verify --json data/filch.db",
    "server backup --json --data data copy.db",
    "config show --json",
    "config show --jsonl",
    "flow check --json flow.toml",
    "flow show --json flow.toml",
    "job cancel --json --dry-run {later}",
    "job retry --json --dry-run {dead}",
    "dead retry --json --dry-run {dead}",
    // Commands that change something.
    "queue pause --json later",
    "queue resume --json later",
    "queue set --json later --limit 4",
    "queue purge --json later --dry-run",
    "submit --json --at 1h -- true",
    "submit --jsonl --at 1h -- true",
    "submit --json --at 1h --array 1-2 -- true",
    "submit --jsonl --at 1h --array 1-2 -- true",
    "enqueue --json --at 1h resize 1",
    "enqueue --jsonl --at 1h resize 1",
    "flow run --json flow.toml",
    "job priority --json {later} 3",
    "job cancel --json {later}",
    "job retry --json {broken}",
    "dead retry --json {spoiled}",
    "dead discard --json {dead}",
    "events --jsonl --job {later}",
    "worker drain --json {worker}",
    "worker stop --json {extra}",
    // From here on every command needs the token.
    "token create --json --role admin",
    "token create --json --role submit --queue ci --expires 30d --name CI",
    "token revoke --json --dry-run {token}",
    "token revoke --json --yes {token}",
    "token list --json",
    "token list --jsonl",
];

/// Commands without a server that count or measure: their numbers differ each time.
const ALONE: &[&str] = &[
    "simulate --json --seeds 1..2 --duration 1s --workers 2 --faults none --threads 1",
    "simulate --json --workload uniform:8:2ms --workers 2",
    "demo --json --seconds 2 --seed 7",
    "demo imbalance --json --workers 2 --tasks 20",
    "bench drain --json --jobs 10",
    "bench latency --json --jobs 2",
    "bench skew --json --jobs 2 --workers 1",
    "bench split --json --jobs 10 --slots 2",
    "bench newcomer --json --jobs 20 --length 50",
];

/// Commands with neither flag.
const REASONS: &[(&str, &str)] = &[
    ("up", "serves until it is stopped; its one line is the URL"),
    ("server start", "serves until it is stopped; its one line is the URL"),
    ("worker start", "runs until it is stopped, and prints nothing"),
    ("run", "prints the output of its command"),
    ("node", "has its own JSON protocol: docs/node.md"),
    ("completions", "prints a script"),
    ("man", "prints a man page"),
];

#[test]
fn the_json_of_every_command_is_unchanged() {
    let server = Server::up();
    let mut fixture = Fixture::new(&server);
    let mut token = None;
    let mut snapshots = Snapshots::default();
    for case in CASES {
        let words = fixture.words(case);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = server.command(&words);
        if let Some(token) = &token {
            command.env("FILCH_TOKEN", token);
        }
        let ended = end(&mut command, "");
        snapshots.compare(case, &ended, fixture.mask.clone());
        if case.starts_with("token create ") {
            let made = ended.json();
            let secret = made["secret"].as_str().expect("it is shown once").to_owned();
            match &token {
                None => token = Some(secret),
                Some(_) => fixture.name("token", made["token"]["id"].as_str().expect("it has one")),
            }
        }
    }
    snapshots.assert_unchanged();
}

#[test]
fn the_json_of_measuring_commands_is_unchanged() {
    let folder = tempfile::tempdir().expect("a directory can be created");
    let mut snapshots = Snapshots::default();
    for case in ALONE {
        let mut command = program();
        command.args(case.split(' ')).env("TMPDIR", folder.path()).current_dir(folder.path());
        snapshots.compare(case, &end(&mut command, ""), Mask::of_numbers());
    }
    snapshots.assert_unchanged();
}

/// Compares output with the stored snapshots.
#[derive(Default)]
struct Snapshots {
    differing: Vec<String>,
}

impl Snapshots {
    fn compare(&mut self, case: &str, ended: &Ended, mask: Mask) {
        assert!([0, 100].contains(&ended.code), "{case}: {ended:?}");
        let seen = masked(case, &ended.stdout, mask);
        let path = folder().join(file_name(case));
        if std::env::var_os("FILCH_BLESS").is_some() {
            std::fs::create_dir_all(folder()).expect("a directory can be created");
            std::fs::write(&path, &seen).expect("a file can be written");
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        if kept != seen {
            let path = path.display();
            self.differing.push(format!("{case}\n--- {path}\n{kept}\n+++ now\n{seen}"));
        }
    }

    fn assert_unchanged(self) {
        assert!(self.differing.is_empty(), "{}", self.differing.join("\n"));
    }
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots")
}

/// The printed documents, with their version and without values that differ each time.
fn masked(case: &str, stdout: &str, mut mask: Mask) -> String {
    let mut shown = String::new();
    let documents = serde_json::Deserializer::from_str(stdout).into_iter::<Value>();
    for document in documents {
        let mut document = document.unwrap_or_else(|error| panic!("{case}: {error}: {stdout}"));
        assert_eq!(document["v"], 1, "{case}: no version in {document}");
        mask.apply(&mut document);
        shown.push_str(&serde_json::to_string_pretty(&document).expect("it was read from JSON"));
        shown.push('\n');
    }
    shown
}

/// Every snapshot has a case.
#[test]
fn no_snapshot_is_left_over() {
    let names = std::fs::read_dir(folder()).expect("there are snapshots");
    let kept: BTreeSet<String> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(kept, CASES.iter().chain(ALONE).map(|case| file_name(case)).collect());
}

#[test]
fn every_command_has_a_snapshot_or_a_reason() {
    let root = filch_cli::command();
    let leaves = runnable_commands(&root);
    for (path, _) in &leaves {
        let forms = ["json", "jsonl"].into_iter().filter(|form| has_flag(&root, path, form));
        let forms: Vec<&str> = forms.collect();
        for form in &forms {
            let is_run = CASES.iter().chain(ALONE).any(|case| {
                let flags = case.strip_prefix(&format!("{path} "));
                flags.is_some_and(|flags| flags.split(' ').any(|flag| flag == format!("--{form}")))
            });
            assert!(is_run, "`filch {path} --{form}` has no snapshot");
        }
        let has_reason = REASONS.iter().any(|(command, _)| command == path);
        assert_ne!(forms.is_empty(), !has_reason, "`filch {path}` has --json, or it has a reason");
    }
    for (path, _) in REASONS {
        assert!(leaves.iter().any(|(known, _)| known == path), "there is no `filch {path}`");
    }
}

/// `job show --json {dead}` is in `job-show-json-dead.json`.
fn file_name(case: &str) -> String {
    let plain = case.replace(|character: char| !character.is_ascii_alphanumeric(), "-");
    let words: Vec<&str> = plain.split('-').filter(|word| !word.is_empty()).collect();
    format!("{}.json", words.join("-"))
}
