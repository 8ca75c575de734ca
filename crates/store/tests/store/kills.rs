//! A process that commits is killed with SIGKILL. Every acknowledged commit is still there.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use filch_scheduler::id::{CommitNo, Fence, Hold, LeaseNo, Seq};
use filch_scheduler::record::{LeaseCause, LeaseRow, Mutation};
use filch_scheduler::state::JobState;
use filch_scheduler::time::Wall;
use filch_store::{
    AttemptOutput, Filter, JobText, ListOrder, Location, OwnerNote, Sqlite, Store, holder,
};
use rusqlite::Connection;

use crate::pair::{NO_RESERVE, commit, load, payload};
use crate::{WORKER, put, write};

const PATH: &str = "FILCH_STORE_KILL";

/// How many jobs each commit puts; the commit after it ends them.
const JOBS: u64 = 40;

#[test]
fn acknowledged_commits_survive_a_kill() {
    // On a real disk, where a kill can hit a commit.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("filch.db");
    let mut acknowledged = 0;
    for round in 0..8_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kills::child", "--nocapture"])
            .env(PATH, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        // Each line acknowledges one commit, also lines that were in the pipe at the kill.
        for line in said.lines() {
            let line = line.unwrap();
            let Some(number) = line.strip_prefix("kept ") else {
                continue;
            };
            acknowledged = number.parse().unwrap();
            if acknowledged >= (round + 1) * 17 {
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert_eq!(holder(&Location::from(&path)), None, "the lock is released with the process");
        check(&path, acknowledged);
    }
    assert!(acknowledged >= 8 * 17);
}

fn check(path: &std::path::Path, acknowledged: u64) {
    let store = Sqlite::open_with(path, &OwnerNote::this_process(), NO_RESERVE)
        .expect("the store can be opened after the kill");
    let Some(filch_scheduler::record::Loaded::Numbers { commit: last, .. }) =
        load(&store).into_iter().next()
    else {
        panic!("the numbers come first");
    };
    // One more may be stored: the one that was in progress.
    assert!((acknowledged..=acknowledged + 1).contains(&last.0), "{acknowledged} {last:?}");
    let rows = store
        .list(&Filter::default(), ListOrder::After(Seq(0)), usize::MAX)
        .expect("the store can be opened after the kill")
        .rows;
    assert_eq!(rows.len() as u64, last.0 * JOBS);
    let seqs: Vec<Seq> = rows.iter().map(|row| row.seq).collect();
    let payloads =
        store.texts(JobText::Payload, &seqs).expect("the store can be opened after the kill");
    for (row, text) in rows.iter().zip(payloads) {
        assert_eq!(text, Some(payload(row.seq)));
        let is_newest = row.seq.0 > (last.0 - 1) * JOBS;
        let state = if is_newest { JobState::Queued } else { JobState::Succeeded };
        assert_eq!(row.now.state, state, "{row:?}");
    }
    drop(store);
    let connection = Connection::open(path).expect("the store can be opened after the kill");
    let sound: String = connection
        .query_row("PRAGMA integrity_check", (), |row| row.get(0))
        .expect("the store can be opened after the kill");
    assert_eq!(sound, "ok");
}

/// Commits until it is killed. Does nothing without the variable.
#[test]
fn child() {
    let Some(path) = std::env::var_os(PATH) else {
        return;
    };
    let store = Sqlite::open_with(path.as_ref(), &OwnerNote::this_process(), NO_RESERVE).unwrap();
    let mut last = CommitNo(0);
    store
        .load(&mut |piece| {
            if let filch_scheduler::record::Loaded::Numbers { commit, .. } = piece {
                last = commit;
            }
        })
        .unwrap();
    println!();
    loop {
        let before = last.0 * JOBS;
        last = last.next();
        let jobs = before.saturating_sub(JOBS) + 1..=before;
        let holds = jobs.clone().map(|job| Hold { job: Seq(job), fence: Fence(1) });
        let holds: Vec<Hold> = holds.collect();
        let mut mutations: Vec<Mutation> =
            (before + 1..=before + JOBS).map(|seq| put(seq, &format!("j{seq}"))).collect();
        let outputs = |&hold: &Hold| AttemptOutput { hold, result: Some("1".into()), log: None };
        let outputs = holds.iter().map(outputs).collect();
        mutations.push(Mutation::Lease(LeaseRow {
            number: LeaseNo(last.0),
            worker: Some(WORKER),
            cause: LeaseCause::Claim,
            jobs: holds,
            at: Wall(0),
        }));
        mutations.extend(jobs.map(|job| Mutation::Write(write(job, JobState::Succeeded, 1))));
        mutations.push(Mutation::Close(LeaseNo(last.0)));
        let commit = filch_store::Commit { outputs, ..commit(last, mutations) };
        store.commit(&commit).unwrap();
        let mut out = std::io::stdout().lock();
        writeln!(out, "kept {}", last.0).unwrap();
        out.flush().unwrap();
    }
}
