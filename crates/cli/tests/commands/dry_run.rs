//! `--dry-run`: every command that cannot be undone has it, and it changes nothing.

use crate::fixture::{Fixture, has_flag, runnable_commands};
use crate::server::{Server, end, program};

/// One line for each command that has it; ids as in `fixture`.
const DRY_RUNS: &[&str] = &[
    "job cancel --dry-run {later}",
    "job cancel --dry-run state:scheduled",
    "job retry --dry-run {dead}",
    "job retry --dry-run state:dead",
    "dead retry --dry-run {dead}",
    "dead retry --dry-run --all",
    "dead discard --dry-run {dead}",
    "dead discard --dry-run --all",
    "worker drain --dry-run {worker}",
    "worker drain --dry-run --all",
    "worker stop --dry-run {worker}",
    "worker stop --dry-run --all",
    "queue purge --dry-run later",
];

/// Commands with their own tests below.
const ELSEWHERE: [&str; 1] = ["token revoke"];

/// Verbs of commands that cannot be undone.
const VERBS: [&str; 9] =
    ["cancel", "retry", "discard", "drain", "stop", "purge", "revoke", "rm", "restore"];

#[test]
fn every_command_that_cannot_be_undone_has_a_dry_run() {
    let root = filch_cli::command();
    for (path, _) in runnable_commands(&root) {
        let verb = path.rsplit(' ').next().expect("a path has a word");
        let has_dry_run = ELSEWHERE.contains(&path.as_str())
            || DRY_RUNS.iter().any(|case| case.starts_with(&format!("{path} --dry-run")));
        assert_eq!(has_flag(&root, &path, "dry-run"), has_dry_run, "filch {path}");
        // A benchmark drains its own jobs.
        if VERBS.contains(&verb) && !path.starts_with("bench ") {
            assert!(has_dry_run, "filch {path} has no --dry-run");
            assert!(has_flag(&root, &path, "yes"), "filch {path} has no --yes");
        }
    }
}

#[test]
fn a_dry_run_changes_nothing() {
    let server = Server::up();
    let fixture = Fixture::new(&server);
    let seen = || {
        let lists = [&["job", "list", "--all"][..], &["dead", "list"], &["queue", "list"]];
        let mut seen: String =
            lists.iter().map(|words| server.filch(words).fine().stdout).collect();
        let workers = server.filch(&["worker", "list"]).fine();
        seen.push_str(&format!(
            "{:?}",
            workers.rows().iter().map(|row| row[..2].to_vec()).collect::<Vec<_>>()
        ));
        seen
    };
    let before = seen();
    for case in DRY_RUNS {
        let words = fixture.words(case);
        let ended = server.filch(&words.iter().map(String::as_str).collect::<Vec<_>>()).fine();
        assert!(ended.stderr.contains("would be"), "{case}: {ended:?}");
        assert_eq!(seen(), before, "{case}");
    }
}

#[test]
fn a_token_survives_the_dry_run_of_its_revocation() {
    let folder = tempfile::tempdir().expect("a directory can be created");
    let filch = |words: &[&str]| end(program().args(words).current_dir(folder.path()), "");
    filch(&["token", "create", "--role", "admin"]).fine();
    let list = filch(&["token", "list"]).fine();
    let id = list.rows()[0][0].to_owned();
    filch(&["token", "revoke", "--dry-run", &id]).fine();
    assert_eq!(filch(&["token", "list"]).fine().stdout, list.stdout);
    filch(&["token", "revoke", "--dry-run", "00000000"]).refused(3, "no active token \"00000000\"");
    filch(&["token", "revoke", &id]).fine();
    assert_ne!(filch(&["token", "list"]).fine().stdout, list.stdout);
}
