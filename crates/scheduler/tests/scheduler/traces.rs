//! Every trace in `tests/traces` plays as it is written.
//!
//! With `FILCH_BLESS=1` the files are rewritten with what really happens; then the change is to be
//! read, not only committed.

use std::fs;
use std::path::{Path, PathBuf};

use crate::play::play;

fn traces() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces");
    let entries = fs::read_dir(&folder).expect("the folder of traces can be read");
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("an entry can be read").path()).collect();
    paths.sort();
    paths
}

#[test]
fn every_trace_plays_as_it_is_written() {
    let bless = std::env::var_os("FILCH_BLESS").is_some();
    let mut wrong = Vec::new();
    let traces = traces();
    assert!(traces.len() >= 10, "the traces are there");
    for path in traces {
        let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
        let written = fs::read_to_string(&path).expect("a trace can be read");
        match play(&written) {
            Ok(played) if played == written => {}
            Ok(played) if bless => fs::write(&path, played).expect("a trace can be written"),
            Ok(played) => wrong.push(format!("{name}: {}", difference(&written, &played))),
            Err(error) => wrong.push(format!("{name}: {error}")),
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn a_trace_that_says_something_else_is_noticed() {
    let good = play("dispatch\n0s    submit a\n").expect("can be played");
    assert!(good.contains("-> commit 1: put #1"), "{good}");
    assert_eq!(play(&good).as_deref(), Ok(good.as_str()));
    let bad = good.replace("commit 1", "commit 2");
    assert_ne!(play(&bad).as_deref(), Ok(bad.as_str()));
}

#[test]
fn a_line_that_cannot_be_read_is_named() {
    let error = play("dispatch\n0s  submit a\n1s  claim w1\n").expect_err("no such event");
    assert!(error.starts_with("line 3: expected `submit`, "), "{error}");
    assert!(error.ends_with("found `claim`"), "{error}");
}

fn difference(written: &str, played: &str) -> String {
    let pairs = written.lines().zip(played.lines()).zip(1..);
    let first = pairs.clone().find(|((one, other), _)| one != other);
    match first {
        Some(((written, played), line)) => {
            format!("line {line}\n  written: {written}\n  played:  {played}")
        }
        None => {
            format!("{} lines written, {} played", written.lines().count(), played.lines().count())
        }
    }
}
