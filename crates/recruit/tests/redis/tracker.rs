//! `QueueTracker`: which identifiers have queued rows.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use filch_recruit::redis::{QueueSource, QueueTracker, QueuedRow};
use filch_recruit::{Duty, SideError, SideJob as _};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redis::{Commands as _, Connection};

use crate::interposed::Interposed;
use crate::server::{LONG, Server};
use crate::slice;

/// Numbered rows, as in a database table.
#[derive(Clone, Default)]
struct Table(Arc<Mutex<Vec<QueuedRow>>>);

impl Table {
    fn with(rows: impl IntoIterator<Item = (u64, &'static str)>) -> Self {
        let table = Self::default();
        rows.into_iter().for_each(|(row, id)| table.push(row, id));
        table
    }

    fn push(&self, row: u64, id: &str) {
        self.0
            .lock()
            .expect("no code panics with the lock")
            .push(QueuedRow { row, id: id.to_owned() });
    }

    fn done(&self, id: &str) {
        self.0.lock().expect("no code panics with the lock").retain(|row| row.id != id);
    }

    fn ids(&self) -> BTreeSet<String> {
        self.0
            .lock()
            .expect("no code panics with the lock")
            .iter()
            .map(|row| row.id.clone())
            .collect()
    }
}

impl QueueSource for Table {
    fn next_after(&self, row: Option<u64>, limit: usize) -> Result<Vec<QueuedRow>, SideError> {
        let mut rows = self.0.lock().expect("no code panics with the lock").clone();
        rows.sort_by_key(|next| next.row);
        Ok(rows.into_iter().filter(|next| Some(next.row) > row).take(limit).collect())
    }

    fn no_longer_queued(&self, ids: &[String]) -> Result<Vec<String>, SideError> {
        let queued = self.ids();
        Ok(ids.iter().filter(|id| !queued.contains(*id)).cloned().collect())
    }
}

fn queued(connection: &mut Connection) -> BTreeSet<String> {
    connection.smembers("{q}:queued").expect("it is a set")
}

#[test]
fn an_identifier_is_added_with_its_row_and_removed_when_done() {
    let server = Server::start();
    let mut connection = server.connect();
    let tracker = QueueTracker::new("q");
    let table = Table::with([(3, "ada"), (7, "bob"), (8, "ada")]);
    assert_eq!(tracker.is_queued(&mut connection, "ada"), Ok(false));
    assert_eq!(tracker.add(&mut connection, &table).expect("it works"), 2);
    assert_eq!(tracker.is_queued(&mut connection, "ada"), Ok(true));
    assert_eq!(tracker.add(&mut connection, &table).expect("it works"), 0, "no more rows");
    assert_eq!(tracker.remove(&mut connection, &table).expect("it works"), 0, "all are queued");
    table.done("ada");
    assert_eq!(tracker.remove(&mut connection, &table).expect("it works"), 1);
    assert_eq!(tracker.is_queued(&mut connection, "ada"), Ok(false));
    assert_eq!(tracker.is_queued(&mut connection, "bob"), Ok(true));
    table.push(9, "ada");
    assert_eq!(tracker.add(&mut connection, &table).expect("it works"), 1);
    assert_eq!(tracker.is_queued(&mut connection, "ada"), Ok(true));
}

/// Returns many more rows than requested, unordered.
struct Generous(Mutex<Vec<usize>>);

impl QueueSource for Generous {
    fn next_after(&self, _: Option<u64>, _: usize) -> Result<Vec<QueuedRow>, SideError> {
        Ok((1..=100).rev().map(|row| QueuedRow { row, id: row.to_string() }).collect())
    }

    fn no_longer_queued(&self, ids: &[String]) -> Result<Vec<String>, SideError> {
        self.0.lock().expect("no code panics with the lock").push(ids.len());
        Ok((1..=100).map(|row: u64| row.to_string()).collect())
    }
}

#[test]
fn a_slice_processes_at_most_its_limit() {
    let server = Server::start();
    let mut connection = server.connect();
    let tracker = QueueTracker::new("q").limit(10);
    let queue = Generous(Mutex::default());
    for round in 1..=4 {
        assert_eq!(tracker.add(&mut connection, &queue).expect("it works"), 10);
        assert_eq!(queued(&mut connection).len(), round * 10);
        assert_eq!(connection.get("{q}:row"), Ok(round * 10), "no row is skipped");
    }
    for round in (0..4).rev() {
        assert_eq!(tracker.remove(&mut connection, &queue).expect("it works"), 10);
        assert_eq!(queued(&mut connection).len(), round * 10);
    }
    assert_eq!(*queue.0.lock().expect("no code panics with the lock"), [10; 4]);
    assert_eq!(tracker.remove(&mut connection, &queue).expect("it works"), 0);
}

#[test]
fn recruits_keep_up_with_the_queue() {
    let server = Server::start();
    let mut connection = server.connect();
    let ids = ["a", "b", "c", "d", "e", "f", "g"];
    let table = Table::with((1..200).map(|row| (row, ids[row as usize % ids.len()])));
    let scraper = QueueTracker::new("q").scraper(server.client(), table.clone());
    let mut follow = || {
        let begun = Instant::now();
        while queued(&mut connection) != table.ids() {
            scraper.recruited(&mut slice()).expect("no error");
            assert!(begun.elapsed() < LONG, "the set does not follow the queue");
        }
    };
    follow();
    ["a", "c", "e"].iter().for_each(|id| table.done(id));
    follow();
    table.push(1000, "new");
    follow();
    table.0.lock().expect("no code panics with the lock").clear();
    follow();
    let idle = scraper.recruited(&mut slice()).expect("no error");
    assert_eq!(idle, Duty::NoWork);
}

#[test]
fn on_contention_a_slice_gives_up_and_loses_no_identifier() {
    let server = Server::start();
    let tracker = QueueTracker::new("q");
    let table = Table::with([(1, "ada"), (2, "bob")]);
    let mut other = server.connect();
    tracker.add(&mut other, &table).expect("it works");
    table.done("ada");
    // It finds no queued row of `ada`; then one is added and another client reads it.
    let mut removes = Interposed::new(server.connect(), || {
        table.push(3, "ada");
        tracker.add(&mut other, &table).expect("it works");
    });
    assert_eq!(tracker.remove(&mut removes, &table).expect("it works"), 0);
    assert_eq!(removes.transactions, 1, "it is not retried");
    let mut connection = removes.connection;
    assert_eq!(tracker.is_queued(&mut connection, "ada"), Ok(true));
    // Two clients add the same row at the same time: one succeeds.
    table.push(4, "eve");
    let mut other = server.connect();
    let mut adds = Interposed::new(connection, || {
        assert_eq!(tracker.add(&mut other, &table).expect("it works"), 1);
    });
    assert_eq!(tracker.add(&mut adds, &table).expect("it works"), 0);
    assert_eq!(tracker.is_queued(&mut adds.connection, "eve"), Ok(true));
}

#[test]
fn the_first_row_is_read_even_if_its_number_is_0() {
    let server = Server::start();
    let mut connection = server.connect();
    let tracker = QueueTracker::new("q");
    let table = Table::with([(0, "ada"), (1, "bob")]);
    assert_eq!(tracker.add(&mut connection, &table).expect("it works"), 2);
    assert_eq!(tracker.is_queued(&mut connection, "ada"), Ok(true));
}

#[test]
fn rows_with_the_same_number_are_read_together() {
    let server = Server::start();
    let mut connection = server.connect();
    let tracker = QueueTracker::new("q").limit(3);
    let table = Table::with([(1, "a"), (1, "b"), (2, "c"), (2, "d"), (2, "e"), (3, "f")]);
    for added in [2, 3, 1, 0] {
        assert_eq!(tracker.add(&mut connection, &table).expect("it works"), added);
    }
    assert_eq!(queued(&mut connection), table.ids());
    // If more rows have the same number than the limit, that is an error: none is skipped silently.
    ["g", "h", "i", "j"].iter().for_each(|id| table.push(4, id));
    let error = tracker.add(&mut connection, &table).expect_err("they do not fit");
    assert!(error.to_string().contains("more than 3 rows have the number 4"), "{error}");
    assert_eq!(tracker.limit(4).add(&mut connection, &table).expect("it works"), 4);
}

#[test]
fn a_lost_set_or_row_number_is_rebuilt() {
    let server = Server::start();
    let mut connection = server.connect();
    let tracker = QueueTracker::new("q");
    let table = Table::with([(1, "ada"), (2, "bob")]);
    for lost in ["{q}:queued", "{q}:row"] {
        tracker.add(&mut connection, &table).expect("it works");
        let () = connection.del(lost).expect("it works");
        tracker.add(&mut connection, &table).expect("it works");
        assert_eq!(queued(&mut connection), table.ids(), "{lost} was lost");
    }
}

#[test]
fn a_late_row_is_found_by_a_rescan() {
    let server = Server::start();
    let mut connection = server.connect();
    let table = Table::with([(2, "bob")]);
    let tracker = QueueTracker::new("q");
    tracker.add(&mut connection, &table).expect("it works");
    table.push(1, "ada");
    tracker.add(&mut connection, &table).expect("it works");
    assert_eq!(tracker.is_queued(&mut connection, "ada"), Ok(false), "the tracker is past it");
    tracker.rescan(&mut connection).expect("it works");
    assert_eq!(tracker.is_queued(&mut connection, "bob"), Ok(true), "the set stays as it is");
    tracker.add(&mut connection, &table).expect("it works");
    assert_eq!(tracker.is_queued(&mut connection, "ada"), Ok(true));
}

#[test]
fn rescans_happen_even_if_there_are_always_new_rows() {
    let server = Server::start();
    let mut connection = server.connect();
    let table = Table::with([(1_000, "bob")]);
    let tracker = QueueTracker::new("q").rescan_every(Duration::from_millis(50));
    tracker.add(&mut connection, &table).expect("it works");
    table.push(1, "ada");
    let begun = Instant::now();
    for row in 1_001.. {
        table.push(row, "bob");
        tracker.add(&mut connection, &table).expect("it works");
        if tracker.is_queued(&mut connection, "ada") == Ok(true) {
            break;
        }
        assert!(begun.elapsed() < LONG, "no rescan");
    }
}

#[test]
fn a_rescan_period_applies_to_a_scan_started_with_another_period() {
    let server = Server::start();
    let mut connection = server.connect();
    let table = Table::with([(2, "bob")]);
    let never = QueueTracker::new("q");
    never.add(&mut connection, &table).expect("it works");
    // Redis accepts even the longest period. The last round continues the scan of the round before.
    let hour = Duration::from_secs(3600);
    for (late, period, is_found) in
        [("ada", Duration::MAX, true), ("eve", hour, true), ("joe", hour, false)]
    {
        table.push(1, late);
        let tracker = never.clone().rescan_every(period);
        tracker.add(&mut connection, &table).expect("it works");
        assert_eq!(tracker.is_queued(&mut connection, late), Ok(is_found), "{late}");
        let left: u128 = connection.pttl("{q}:row").expect("the key expires");
        assert!(left <= period.as_millis());
    }
}

#[derive(Clone, Debug)]
enum Act {
    Push {
        id: u8,
    },
    Done {
        id: u8,
    },
    Add,
    Remove,
    /// A removal during which a new row of an identifier is added and read.
    RemoveMeanwhile {
        id: u8,
    },
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let id = 0..6_u8;
    let act = prop_oneof![
        3 => id.clone().prop_map(|id| Act::Push { id }),
        2 => id.clone().prop_map(|id| Act::Done { id }),
        2 => Just(Act::Add),
        2 => Just(Act::Remove),
        1 => id.prop_map(|id| Act::RemoveMeanwhile { id }),
    ];
    prop::collection::vec(act, 1..40)
}

/// After any sequence of actions, the set contains the identifiers of all queued rows that were
/// read; once nothing changes any more, it contains no others.
fn play(server: &Server, acts: Vec<Act>) {
    let mut connection = server.connect();
    let () = redis::cmd("FLUSHALL").query(&mut connection).expect("it works");
    let tracker = QueueTracker::new("q").limit(3);
    let table = Table::default();
    for (row, act) in (0..).zip(acts) {
        match act {
            Act::Push { id } => table.push(row, &id.to_string()),
            Act::Done { id } => table.done(&id.to_string()),
            Act::Add => {
                assert!(tracker.add(&mut connection, &table).expect("it works") <= 3);
            }
            Act::Remove => {
                assert!(tracker.remove(&mut connection, &table).expect("it works") <= 3);
            }
            Act::RemoveMeanwhile { id } => {
                let mut other = server.connect();
                let mut removes = Interposed::new(server.connect(), || {
                    table.push(row, &id.to_string());
                    tracker.add(&mut other, &table).expect("it works");
                });
                tracker.remove(&mut removes, &table).expect("it works");
            }
        }
        let read: Option<u64> = connection.get("{q}:row").expect("it answers");
        let in_set = queued(&mut connection);
        for next in table.0.lock().expect("no code panics with the lock").iter() {
            let is_read = read.is_some_and(|read| next.row <= read);
            assert!(!is_read || in_set.contains(&next.id), "{} is missing", next.id);
        }
    }
    let begun = Instant::now();
    while queued(&mut connection) != table.ids() {
        tracker.add(&mut connection, &table).expect("it works");
        tracker.remove(&mut connection, &table).expect("it works");
        assert!(begun.elapsed() < LONG, "the set does not follow the queue");
    }
}

#[test]
fn no_identifier_is_lost_and_the_set_follows_the_queue() {
    let server = Server::start();
    let config = Config { cases: 50, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&acts(), |acts| {
        play(&server, acts);
        Ok(())
    });
    outcome.expect("no identifier is lost");
}
