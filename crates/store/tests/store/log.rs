//! The write-ahead log stays short, whoever reads meanwhile.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use filch_scheduler::id::{CommitNo, Seq};
use filch_store::integrity::StoreDump as _;
use filch_store::{
    CLIENT_READS_MAX, Commit, DiskLimits, Filter, ListOrder, OwnerNote, Snapshot, Sqlite, Store,
    StoredText,
};

use crate::pair::{NO_RESERVE, folder};
use crate::put;

const RESTART: u64 = 1 << 20;
const MAX: u64 = 4 << 20;

/// One commit: 100 jobs of 1 KiB.
const COMMIT: u64 = 400 << 10;

const LIMITS: DiskLimits = DiskLimits { log_restart: RESTART, log_max: MAX, ..NO_RESERVE };

fn open(folder: &Path) -> Sqlite {
    let path = folder.join("filch.db");
    Sqlite::open_with(&path, &OwnerNote::this_process(), LIMITS).expect("no other process uses it")
}

fn submit(store: &Sqlite, number: u64) {
    let jobs = (number - 1) * 100 + 1..=number * 100;
    let text = StoredText::from("x".repeat(1_000));
    let commit = Commit {
        last: CommitNo(number),
        mutations: jobs.clone().map(|seq| put(seq, &format!("j{seq}"))).collect(),
        payloads: jobs.map(|seq| (Seq(seq), text.clone())).collect(),
        ..Commit::default()
    };
    store.commit(&commit).expect("new jobs fit");
}

/// The size of the log: the file keeps the size of its longest content.
fn log_bytes(folder: &Path) -> u64 {
    folder.join("filch.db-wal").metadata().expect("it exists").len()
}

/// Commits this range; the log never exceeds its limit.
fn submit_all(store: &Sqlite, folder: &Path, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        submit(store, number);
        let bytes = log_bytes(folder);
        assert!(bytes <= MAX + COMMIT, "{bytes} bytes after commit {number}");
    }
}

#[test]
fn the_log_stays_short_under_overlapping_reads() {
    let folder = folder();
    let store = open(folder.path());
    submit_all(&store, folder.path(), 1..=20);
    let is_over = AtomicBool::new(false);
    let (begun, begins) = channel();
    std::thread::scope(|scope| {
        for _ in 0..CLIENT_READS_MAX {
            let (begun, is_over, store) = (begun.clone(), &is_over, &store);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let newest = ListOrder::Before(Seq(u64::MAX));
                    match store.list(&Filter::default(), newest, 2_000) {
                        Ok(listed) => assert_eq!(listed.rows.len(), 2_000),
                        Err(error) => assert!(error.is_busy(), "{error}"),
                    }
                    let _ = begun.send(());
                }
            });
        }
        for _ in 0..CLIENT_READS_MAX {
            begins.recv().unwrap();
        }
        // Also if an assertion fails.
        let end = Defer(|| is_over.store(true, Ordering::Relaxed));
        // Twenty times as much as the log may have.
        submit_all(&store, folder.path(), 21..=400);
        drop(end);
    });
}

/// Calls a function when it is dropped.
struct Defer<F: Fn()>(F);

impl<F: Fn()> Drop for Defer<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

#[test]
fn a_long_read_is_interrupted_before_the_log_exceeds_its_limit() {
    let folder = folder();
    let store = open(folder.path());
    submit_all(&store, folder.path(), 1..=100);
    let (begun, begins) = channel();
    std::thread::scope(|scope| {
        let reading = &store;
        let reader = scope.spawn(move || {
            // Slow enough that it would last for minutes.
            reading.dump(&mut |_| {
                let _ = begun.send(());
                std::thread::sleep(Duration::from_millis(10));
            })
        });
        begins.recv().unwrap();
        submit_all(&store, folder.path(), 101..=200);
        let error = reader.join().unwrap().unwrap_err();
        assert!(error.is_busy(), "{error}");
        assert!(error.to_string().contains("interrupted"), "{error}");
    });
    // Everything is still there, and reads work again.
    let listed = store.list(&Filter::default(), ListOrder::After(Seq(0)), usize::MAX).unwrap();
    assert_eq!(listed.rows.len(), 20_000);
}

/// One commit may be longer than all that the log may have. The next restart makes it short again.
#[test]
fn after_a_long_commit_the_log_has_its_limit_again() {
    let folder = folder();
    let store = open(folder.path());
    submit(&store, 1);
    let jobs = 1_001..=5_000_u64;
    let text = StoredText::from("x".repeat(1_000));
    let commit = Commit {
        last: CommitNo(2),
        mutations: jobs.clone().map(|seq| put(seq, &format!("j{seq}"))).collect(),
        payloads: jobs.map(|seq| (Seq(seq), text.clone())).collect(),
        ..Commit::default()
    };
    store.commit(&commit).unwrap();
    let longest = log_bytes(folder.path());
    assert!(longest > MAX, "{longest}");
    let (begun, begins) = channel();
    std::thread::scope(|scope| {
        // The log is as long as one commit, and restarts at the next.
        let numbered = |number: u64| Commit {
            last: CommitNo(number),
            mutations: vec![put(5_000 + number, &format!("k{number}"))],
            payloads: vec![(Seq(5_000 + number), text.clone())],
            ..Commit::default()
        };
        store.commit(&numbered(3)).unwrap();
        store.commit(&numbered(4)).unwrap();
        let reading = &store;
        let reader = scope.spawn(move || {
            reading.dump(&mut |_| {
                let _ = begun.send(());
                std::thread::sleep(Duration::from_millis(10));
            })
        });
        begins.recv().unwrap();
        for number in 5..=15_000 {
            store.commit(&numbered(number)).unwrap();
            if reader.is_finished() {
                break;
            }
        }
        assert!(log_bytes(folder.path()) <= longest, "the long read was interrupted in time");
        assert!(reader.join().unwrap().unwrap_err().is_busy());
    });
}

#[test]
fn a_read_by_another_process_ends_itself_before_the_log_exceeds_its_limit() {
    let folder = folder();
    let path = folder.path().join("filch.db");
    let store = open(folder.path());
    submit_all(&store, folder.path(), 1..=30);
    let snapshot = Snapshot::open_with(&path, LIMITS).unwrap();
    snapshot.dump(&mut |_| ()).unwrap();
    let mut number = 30;
    while log_bytes(folder.path()) <= MAX / 4 * 3 {
        number += 1;
        submit(&store, number);
    }
    let error = snapshot.dump(&mut |_| ()).unwrap_err();
    assert!(error.is_busy(), "{error}");
    let copy = folder.path().join("copy.db");
    let error = snapshot.backup(&copy).unwrap_err();
    assert!(error.is_busy() && !copy.exists(), "{error}");
    drop(snapshot);
    submit_all(&store, folder.path(), number + 1..=number + 100);
    // The size at the start counts, not only the limit: after a crash the log may be long.
    let snapshot = Snapshot::open_with(&path, DiskLimits { log_max: 0, ..LIMITS }).unwrap();
    snapshot.dump(&mut |_| ()).unwrap();
    snapshot.backup(&copy).unwrap();
}

#[test]
fn the_promised_bound_leaves_room_for_an_estimate_that_was_too_low() {
    let DiskLimits { log_restart, log_max, .. } = DiskLimits::default();
    assert!(log_max + (32 << 20) <= 256 << 20, "{log_max}");
    assert!(log_restart * 3 < log_max, "{log_restart}");
}
