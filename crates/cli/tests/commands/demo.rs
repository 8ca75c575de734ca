//! `filch demo`: its claims are true, and it cleans up.

use std::path::Path;
use std::process::Command;

use crate::server::{Running, end, program, until};

/// The demo, with this directory for temporary files.
fn demo(folder: &Path, words: &[&str]) -> Command {
    let mut command = program();
    command.arg("demo").args(words).env("TMPDIR", folder).current_dir(folder);
    command
}

/// The number of processes with this directory in their arguments.
fn processes(folder: &Path) -> usize {
    let folder = folder.to_str().expect("it is UTF-8");
    let all = std::fs::read_dir("/proc").expect("the system shows its processes").flatten();
    let words = all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    words.filter(|words| String::from_utf8_lossy(words).contains(folder)).count()
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).expect("it is there").next().is_none()
}

#[test]
fn no_job_is_lost_or_done_twice() {
    let folder = tempfile::tempdir().unwrap();
    let picture = tempfile::tempdir().unwrap();
    let file = picture.path().join("demo.svg");
    let words = ["--seconds", "2", "--seed", "7", "--json", "--svg", file.to_str().unwrap()];
    let totals = end(&mut demo(folder.path(), &words), "").fine().json();
    let count = totals["jobs"].as_u64().unwrap();
    assert!(count > 20, "{totals}");
    assert_eq!(
        (&totals["done"], &totals["lost"], &totals["double"]),
        (&count.into(), &0.into(), &0.into())
    );
    assert!(totals["steals"].as_u64().unwrap() > 0, "{totals}");
    assert!(totals["held"].as_u64().unwrap() > 0, "{totals}");
    assert!(totals["rescued_after_ms"].as_u64().unwrap() > 0, "{totals}");
    assert_eq!((&totals["verified"], &totals["seed"]), (&true.into(), &7.into()));
    let picture = std::fs::read_to_string(file).unwrap();
    assert!(picture.contains("server verify: no violations"));
    assert!(is_empty(folder.path()));
}

#[test]
fn without_a_terminal_it_prints_lines() {
    let folder = tempfile::tempdir().unwrap();
    let ended = end(&mut demo(folder.path(), &["--seconds", "2"]), "").fine();
    let lines = ended.lines();
    assert!(lines[0].contains(" jobs, 0 lost, 0 done twice, "), "{ended:?}");
    assert!(lines[1].contains("was killed with"), "{ended:?}");
    assert_eq!(lines[2], "server verify: no violations");
    assert!(ended.stderr.contains("is killed (SIGKILL)") && !ended.stderr.contains('\u{1b}'));
}

#[test]
fn an_interrupted_demo_cleans_up() {
    let folder = tempfile::tempdir().unwrap();
    let mut running = Running::start(&mut demo(folder.path(), &["--seconds", "60"]));
    until("the server is there", || processes(folder.path()) > 0);
    let pid = rustix::process::Pid::from_raw(running.pid().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(running.code(), Some(130));
    assert!(is_empty(folder.path()));
    assert_eq!(processes(folder.path()), 0);
}
