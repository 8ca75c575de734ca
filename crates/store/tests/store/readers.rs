//! Many threads read while one commits: every acknowledged commit is visible, and no commit is
//! visible in part. Reads for clients neither keep the server from reading nor last long.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};

use filch_scheduler::id::{CommitNo, JobId, LeaseNo, Seq};
use filch_scheduler::name::Name;
use filch_scheduler::record::Mutation;
use filch_scheduler::state::JobState;
use filch_scheduler::time::Wall;
use filch_store::integrity::StoreDump;
use filch_store::{
    CLIENT_READS_MAX, EXAMINED_ROWS_MAX, Filter, FoundIds, ListOrder, Listed, Sqlite, Store,
};

use crate::pair::{Pair, commit, payload};
use crate::{id, put, row, write};

/// Each commit puts this many jobs and ends those of the one before.
const JOBS: u64 = 10;
const COMMITS: u64 = 400;

#[test]
fn readers_see_acknowledged_commits_whole() {
    let pair = Pair::new();
    let store = pair.sqlite();
    let kept = AtomicU64::new(0);
    std::thread::scope(|scope| {
        // More threads than connections.
        for reader in 0..7_u64 {
            let kept = &kept;
            scope.spawn(move || {
                loop {
                    let before = kept.load(Ordering::Acquire);
                    look(store, reader, before);
                    if before == COMMITS {
                        break;
                    }
                }
            });
        }
        for number in 1..=COMMITS {
            let jobs = |number: u64| (number - 1) * JOBS + 1..=number * JOBS;
            let mut mutations: Vec<Mutation> =
                jobs(number).map(|seq| put(seq, &format!("j{seq}"))).collect();
            if number > 1 {
                let end = |seq| Mutation::Write(write(seq, JobState::Succeeded, 1));
                mutations.extend(jobs(number - 1).map(end));
            }
            store.commit(&commit(CommitNo(number), mutations)).unwrap();
            kept.store(number, Ordering::Release);
        }
    });
}

fn look(store: &dyn Store, reader: u64, before: u64) {
    let filter = match reader % 3 {
        0 => Filter::default(),
        1 => Filter { states: vec![JobState::Queued], ..Filter::default() },
        _ => Filter { states: vec![JobState::Succeeded], ..Filter::default() },
    };
    let rows = store.list(&filter, ListOrder::After(Seq(0)), usize::MAX).expect("readable").rows;
    let count = rows.len() as u64;
    match reader % 3 {
        0 => assert!(count.is_multiple_of(JOBS) && count >= before * JOBS, "{count} {before}"),
        1 => assert_eq!(count, if before == 0 { count.min(JOBS) } else { JOBS }),
        _ => assert!(count.is_multiple_of(JOBS) && count + JOBS >= before * JOBS),
    }
    let seqs: Vec<Seq> = (1..=before * JOBS).map(Seq).collect();
    let payloads = store.payloads(&seqs).expect("readable");
    assert!(seqs.iter().zip(payloads).all(|(&seq, text)| text == Some(payload(seq))));
}

#[test]
fn the_server_reads_while_reads_for_clients_hold_all_their_connections() {
    let pair = Pair::new();
    let store = pair.sqlite();
    store.commit(&commit(CommitNo(1), vec![put(1, "a")])).unwrap();
    let (begun, begins) = channel();
    let gate = Mutex::new(());
    std::thread::scope(|scope| {
        // Dropped before the threads are joined, even if an assertion fails.
        let closed = gate.lock().unwrap();
        for _ in 0..CLIENT_READS_MAX {
            let (begun, gate) = (begun.clone(), &gate);
            scope.spawn(move || {
                let dumped = store.dump(&mut |_| {
                    let _ = begun.send(());
                    drop(gate.lock().unwrap_or_else(PoisonError::into_inner));
                });
                dumped.unwrap();
            });
        }
        for _ in 0..CLIENT_READS_MAX {
            begins.recv().unwrap();
        }
        assert_eq!(store.find(&[id("a")], &[], &[]).unwrap().len(), 1);
        assert_eq!(store.payloads(&[Seq(1)]).unwrap(), [Some(payload(Seq(1)))]);
        assert_eq!(store.expired(None, Wall(9), 9).unwrap(), []);
        assert_eq!(store.outdated(LeaseNo(0), Wall(9), 9).unwrap().leases, []);
        // Clients are told to come back.
        let error = store.history(id("a")).unwrap_err();
        assert!(error.is_busy(), "{error}");
        drop(closed);
    });
    assert!(store.history(id("a")).unwrap().is_some());
}

/// One more job than one call examines; the kind of the last is rare.
const MANY: u64 = EXAMINED_ROWS_MAX as u64 + 1;

fn many(store: &Sqlite) {
    let puts = (1..=MANY).map(|seq| {
        row(seq, "a", JobState::Queued, |spec| {
            spec.id = JobId(u128::from(seq) << 64 | u128::from(seq));
            if seq == MANY {
                spec.kind = "rare".into();
            }
        })
    });
    store.commit(&commit(CommitNo(1), puts.collect())).expect("new jobs fit");
}

/// Lists the jobs of the rare kind in these states, from both ends.
fn check_rare(store: &Sqlite, states: &[JobState]) {
    let kind = Some(Name::from("rare"));
    let filter = Filter { states: states.to_vec(), kind, ..Filter::default() };
    let list = |order| {
        let Listed { rows, last } = store.list(&filter, order, 10).expect("readable");
        (rows.iter().map(|row| row.seq.0).collect::<Vec<_>>(), last)
    };
    let (first, rest) = (ListOrder::After(Seq(0)), ListOrder::After(Seq(MANY - 1)));
    assert_eq!(list(first), (vec![], Some(Seq(MANY - 1))), "{states:?}");
    assert_eq!(list(rest), (vec![MANY], None), "{states:?}");
    let (first, rest) = (ListOrder::Before(Seq(u64::MAX)), ListOrder::Before(Seq(2)));
    assert_eq!(list(first), (vec![MANY], Some(Seq(2))), "{states:?}");
    assert_eq!(list(rest), (vec![], None), "{states:?}");
}

#[test]
fn a_list_ends_early_once_enough_rows_were_examined() {
    let pair = Pair::new();
    let store = pair.sqlite();
    many(store);
    check_rare(store, &[]);
    check_rare(store, &[JobState::Queued, JobState::Blocked]);
    check_rare(store, &[JobState::Queued, JobState::Dead]);
    let die = (1..=MANY).map(|seq| Mutation::Write(write(seq, JobState::Dead, 1)));
    store.commit(&commit(CommitNo(2), die.collect())).unwrap();
    check_rare(store, &[JobState::Dead]);
    // Without cancelled jobs, the bound of the dead ones counts.
    check_rare(store, &[JobState::Dead, JobState::Cancelled]);
}

#[test]
fn ids_are_searched_among_the_newest_jobs_only() {
    let pair = Pair::new();
    let store = pair.sqlite();
    many(store);
    let found = |seq: u64| store.ids_ending(&format!("{seq:08x}"), 2).unwrap();
    assert_eq!(found(1), FoundIds { ids: vec![], may_be_more: true });
    for seq in [2, MANY] {
        let ids = vec![JobId(u128::from(seq) << 64 | u128::from(seq))];
        assert_eq!(found(seq), FoundIds { ids, may_be_more: true });
    }
}
