//! Syncs, and what happens when one fails: observed and injected with `strace`. Without `strace`,
//! or without the permission to trace, the tests print that and pass.

use std::path::Path;
use std::process::Command;

use filch_scheduler::id::{CommitNo, Seq};
use filch_store::{Commit, CommitError, OwnerNote, Sqlite, Store, StoredText};

use crate::pair::NO_RESERVE;
use crate::put;

const PATH: &str = "FILCH_STORE_SYNC";
const COMMITS: &str = "FILCH_STORE_COMMITS";

/// Runs the child below with this many commits, on a real disk. Returns its output and its number
/// of syncs.
fn traced(commits: u32, arguments: &[&str]) -> Option<(String, u64)> {
    let folder = tempfile::tempdir().expect("a folder");
    let calls = folder.path().join("calls");
    let ran = Command::new("strace")
        .args(["-f", "-qq", "-e", "signal=none", "-e", "trace=fsync,fdatasync", "-o"])
        .arg(&calls)
        .args(arguments)
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", "sync::child", "--nocapture"])
        .env(PATH, folder.path())
        .env(COMMITS, commits.to_string())
        .output();
    let output = match ran {
        Ok(ran) => {
            [ran.stdout, ran.stderr].map(|output| String::from_utf8_lossy(&output).into_owned())
        }
        Err(error) => [String::new(), error.to_string()],
    };
    let output = output.join("\n");
    if !output.contains("opened") {
        println!("cannot trace here: {output}");
        return None;
    }
    let calls = std::fs::read_to_string(calls).expect("strace wrote it");
    Some((output, calls.lines().filter(|line| line.contains("sync(")).count() as u64))
}

#[test]
fn every_sync_is_counted() {
    let (Some((_, opening)), Some((output, all))) = (traced(0, &[]), traced(300, &[])) else {
        return;
    };
    assert!(output.contains(&format!("kept 300 with {} syncs", all - opening)), "{output} {all}");
    // One per commit, and more: the log is checkpointed and starts again.
    assert!(all - opening > 305, "{all}");
}

#[test]
fn a_failed_sync_stops_all_writes() {
    for when in [8, 9, 50, 200] {
        let inject = format!("inject=fsync,fdatasync:error=EIO:when={when}");
        let Some((output, _)) = traced(300, &["-e", &inject]) else {
            return;
        };
        assert!(output.contains("disk failed: commit "), "{output}");
        // The disk would work again, but is not used any more.
        assert!(
            output.contains("then: ") && output.contains("the disk failed earlier"),
            "{output}"
        );
    }
}

#[test]
fn child() {
    let Some(folder) = std::env::var_os(PATH) else {
        return;
    };
    let path = Path::new(&folder).join("filch.db");
    let store = Sqlite::open_with(&path, &OwnerNote::this_process(), NO_RESERVE).unwrap();
    println!("opened");
    let commits: u64 = std::env::var(COMMITS).unwrap().parse().unwrap();
    for number in 1..=commits {
        if let Err(CommitError::DiskFailed(why)) = store.commit(&submit(number)) {
            println!("disk failed: {why}");
            println!("then: {:?}", store.commit(&submit(number)));
            println!("then: {:?}", store.commit(&submit(number + 1)));
            break;
        }
    }
    println!("kept {commits} with {} syncs", store.status().syncs);
    // Exit at once, so that the syncs of closing are not counted.
    std::process::exit(0);
}

fn submit(number: u64) -> Commit {
    let jobs = (number - 1) * 100 + 1..=number * 100;
    let text = StoredText::from("x".repeat(300));
    Commit {
        last: CommitNo(number),
        mutations: jobs.clone().map(|seq| put(seq, &format!("j{seq}"))).collect(),
        payloads: jobs.map(|seq| (Seq(seq), text.clone())).collect(),
        ..Commit::default()
    }
}
