//! A disk that fills up: new jobs are refused in time, reports are still stored, and nothing is
//! lost when the disk is full.
//!
//! The disk is a small tmpfs in a separate namespace. Where that cannot be created, the test prints
//! that and passes.

use std::path::Path;
use std::process::Command;

use filch_scheduler::id::{CommitNo, Seq};
use filch_scheduler::record::Mutation;
use filch_scheduler::state::JobState;
use filch_store::{
    Commit, CommitError, DiskLimits, Filter, ListOrder, OwnerNote, PurgeCause, Sqlite, Store,
    StoreSpace, StoredText,
};

use crate::{put, write};

const PATH: &str = "FILCH_STORE_FULL";
const DISK: u64 = 48 << 20;
/// More than the log takes up at its longest.
const RESERVE: DiskLimits =
    DiskLimits { free_min: 12 << 20, ballast: 2 << 20, ..DiskLimits::DEFAULT };

#[test]
fn a_full_disk_takes_reports_and_then_refuses_cleanly() {
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=$0 filch \"$1\" && exec \"$2\" --exact disk_full::child --nocapture";
    let ran = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, &DISK.to_string()])
        .arg(folder.path())
        .arg(std::env::current_exe().unwrap())
        .env(PATH, folder.path())
        .output();
    match ran {
        Ok(ran) if String::from_utf8_lossy(&ran.stdout).contains("the disk was filled") => {
            assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        }
        Ok(ran)
            if ran.status.success()
                || String::from_utf8_lossy(&ran.stdout).contains("panicked") =>
        {
            panic!("{}", String::from_utf8_lossy(&ran.stdout));
        }
        Ok(ran) => {
            let said = String::from_utf8_lossy(&ran.stderr);
            assert!(!said.contains("panicked"), "{said}");
            println!("cannot create a small disk here: {said}");
        }
        Err(error) => println!("cannot create a small disk here: {error}"),
    }
}

#[test]
fn child() {
    let Some(folder) = std::env::var_os(PATH) else {
        return;
    };
    let path = Path::new(&folder).join("filch.db");
    let open = || Sqlite::open_with(&path, &OwnerNote::this_process(), RESERVE).unwrap();
    let ballast = Path::new(&folder).join("filch.db.ballast");
    // A file of another program.
    let other = Path::new(&folder).join("film");
    std::fs::write(&other, vec![7; 3 << 20]).unwrap();
    let store = open();
    assert_eq!(ballast.metadata().unwrap().len(), RESERVE.ballast);

    // Jobs are accepted while there is enough space.
    let mut last = 0;
    let jobs_of = |last: u64| last * 100 + 1..=last * 100 + 100;
    let submit = |last: u64| {
        let text = StoredText::from("x".repeat(1_000));
        Commit {
            last: CommitNo(last + 1),
            mutations: jobs_of(last).map(|seq| put(seq, &format!("j{seq}"))).collect(),
            payloads: jobs_of(last).map(|seq| (Seq(seq), text.clone())).collect(),
            ..Commit::default()
        }
    };
    while store.status().space == StoreSpace::Enough {
        store.commit(&submit(last)).unwrap();
        last += 1;
    }
    let jobs = last * 100;
    assert!(jobs > 5_000, "{jobs}");
    let StoreSpace::Low { free, needed } = store.status().space else { panic!() };
    assert!(free < needed && free > needed / 4, "{free}");

    // All of them can still be reported.
    for batch in 0..last {
        let ends = jobs_of(batch).map(|seq| Mutation::Write(write(seq, JobState::Succeeded, 1)));
        let number = CommitNo(last + batch + 1);
        store
            .commit(&Commit { last: number, mutations: ends.collect(), ..Commit::default() })
            .unwrap();
    }
    assert!(ballast.exists(), "the mark was enough");

    // A caller that ignores the low-space answer fills the disk completely.
    let mut next = CommitNo(2 * last + 1);
    let mut taken = last;
    let error = loop {
        match store.commit(&Commit { last: next, ..submit(taken) }) {
            Ok(()) => (taken, next) = (taken + 1, next.next()),
            Err(CommitError::DiskFull(error)) => break error,
            Err(other) => panic!("{other}"),
        }
        assert!(taken < 10 * last);
    };
    assert!(error.contains("disk is full"), "{error}");
    assert!(!ballast.exists(), "the ballast is deleted first");

    // Nothing is lost, nothing is stored in part, and with free space commits work again.
    let check = |store: &Sqlite, jobs: u64| {
        let rows =
            store.list(&Filter::default(), ListOrder::After(Seq(0)), usize::MAX).unwrap().rows;
        assert_eq!(rows.len() as u64, jobs);
        assert!(
            rows.iter()
                .all(|row| (row.now.state == JobState::Succeeded) == (row.seq.0 <= last * 100))
        );
    };
    check(&store, taken * 100);
    drop(store);
    let store = open();
    check(&store, taken * 100);
    std::fs::remove_file(other).unwrap();
    let purge: Vec<Seq> = (1..=last * 100).map(Seq).collect();
    for seqs in purge.chunks(50) {
        let mutations = vec![Mutation::Purge(seqs.to_vec())];
        let purges = vec![PurgeCause::Discarded];
        store.commit(&Commit { last: next, mutations, purges, ..Commit::default() }).unwrap();
        next = next.next();
    }
    store.commit(&Commit { last: next, ..submit(taken) }).unwrap();
    println!("the disk was filled");
}
