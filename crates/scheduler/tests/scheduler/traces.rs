//! Every trace in `tests/traces`, and every one quoted in a document, plays as it is written.
//!
//! With `FILCH_BLESS=1` the files are rewritten with the actual output; review that change before
//! committing it.

use std::fs;
use std::path::{Path, PathBuf};

use filch_sim::replay::play;

fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The files in a folder with this ending, ordered by name.
fn files(path: &str, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder(path)).expect("the folder can be read");
    let paths = entries.map(|entry| entry.expect("an entry can be read").path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|it| it == ending)).collect();
    paths.sort();
    paths
}

/// Compares a file with the output of playing it, or rewrites it.
fn check(path: &Path, play: impl Fn(&str) -> Result<String, String>, wrong: &mut Vec<String>) {
    let written = fs::read_to_string(path).expect("a file can be read");
    let bless = std::env::var_os("FILCH_BLESS").is_some();
    match play(&written) {
        Ok(played) if played == written => {}
        Ok(played) if bless => fs::write(path, played).expect("a file can be written"),
        Ok(played) => wrong.push(format!("{}: {}", path.display(), difference(&written, &played))),
        Err(error) => wrong.push(format!("{}: {error}", path.display())),
    }
}

#[test]
fn traces_replay_as_written() {
    let traces = files("tests/traces", "trace");
    assert!(traces.len() >= 20, "the traces are there");
    let mut wrong = Vec::new();
    for path in traces {
        check(&path, play, &mut wrong);
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

#[test]
fn traces_in_the_documentation_replay_as_written() {
    let mut wrong = Vec::new();
    let documents = [files("../..", "md"), files("../../docs", "md")].concat();
    let quoting = documents
        .iter()
        .filter(|path| fs::read_to_string(path).expect("a file can be read").contains(BLOCK));
    assert!(quoting.count() >= 2, "the architecture and the page for contributors quote traces");
    for path in documents {
        check(&path, play_blocks, &mut wrong);
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

const BLOCK: &str = "```trace\n";

/// The document, with each of its traces played.
fn play_blocks(document: &str) -> Result<String, String> {
    let mut played = String::new();
    let mut rest = document;
    while let Some(start) = rest.find(BLOCK) {
        let (before, from) = rest.split_at(start + BLOCK.len());
        let end = from.find("```").ok_or("a trace without an end")?;
        played.push_str(before);
        played.push_str(&play(&from[..end])?);
        rest = &from[end..];
    }
    played.push_str(rest);
    Ok(played)
}

#[test]
fn a_trace_with_other_decisions_fails() {
    let good = play("dispatch\n0s    submit a\n").expect("can be played");
    assert!(good.contains("-> commit 1: put #1"), "{good}");
    assert_eq!(play(&good).as_deref(), Ok(good.as_str()));
    let bad = good.replace("commit 1", "commit 2");
    assert_ne!(play(&bad).as_deref(), Ok(bad.as_str()));
}

#[test]
fn the_error_names_the_invalid_line() {
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
