//! What the disk is told, and what happens when it fails: watched and provoked by `strace`. Where there is
//! none, or it may not trace, there is nothing to test with, and the tests say so.

use std::path::Path;
use std::process::Command;

use filch_scheduler::id::{CommitNo, Seq};
use filch_store::{Commit, CommitError, OwnerNote, Sqlite, Store, StoredText};

use crate::pair::NO_RESERVE;
use crate::put;

const PATH: &str = "FILCH_STORE_SYNC";
const COMMITS: &str = "FILCH_STORE_COMMITS";

/// Has the child below make so many commits, on a real disk. What it said, and how often it synced.
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
    let said = match ran {
        Ok(ran) => [ran.stdout, ran.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()),
        Err(error) => [String::new(), error.to_string()],
    };
    let said = said.join("\n");
    if !said.contains("opened") {
        println!("nothing can be traced here: {said}");
        return None;
    }
    let calls = std::fs::read_to_string(calls).expect("strace wrote it");
    Some((said, calls.lines().filter(|line| line.contains("sync(")).count() as u64))
}

#[test]
fn every_sync_is_counted() {
    let (Some((_, opening)), Some((said, all))) = (traced(0, &[]), traced(300, &[])) else {
        return;
    };
    assert!(said.contains(&format!("kept 300 with {} syncs", all - opening)), "{said} {all}");
    // One a commit, and then some: the log is moved and begins anew.
    assert!(all - opening > 305, "{all}");
}

#[test]
fn a_sync_that_fails_is_the_end() {
    for when in [8, 9, 50, 200] {
        let inject = format!("inject=fsync,fdatasync:error=EIO:when={when}");
        let Some((said, _)) = traced(300, &["-e", &inject]) else {
            return;
        };
        assert!(said.contains("untrusted: commit "), "{said}");
        // The disk would do what it is asked, but is not asked again.
        assert!(said.contains("then: ") && said.contains("the disk has failed before"), "{said}");
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
            println!("untrusted: {why}");
            println!("then: {:?}", store.commit(&submit(number)));
            println!("then: {:?}", store.commit(&submit(number + 1)));
            break;
        }
    }
    println!("kept {commits} with {} syncs", store.sync_count());
    // At once: what closing costs is not looked at.
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
