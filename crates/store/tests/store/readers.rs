//! Many threads read while one commits: every acknowledged commit is visible, and no commit is
//! visible in part. Reads for clients neither keep the server from reading nor last long.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};

use filch_scheduler::id::{CommitNo, Fence, Hold, JobId, LeaseNo, Seq};
use filch_scheduler::name::Name;
use filch_scheduler::record::{AttemptOutcome, AttemptOutput, Mutation, Note};
use filch_scheduler::state::JobState;
use filch_scheduler::time::Wall;
use filch_store::integrity::StoreDump;
use filch_store::{
    CLIENT_READS_MAX, EXAMINED_ROWS_MAX, Filter, FoundIds, HISTORY_OUTPUTS_MAX, HISTORY_ROWS_MAX,
    JobText, ListOrder, Listed, Sqlite, Store,
};

use crate::pair::{FilePair, commit, payload};
use crate::{WORKER, id, lease, put, row, write};

/// Each commit puts this many jobs and ends those of the one before.
const JOBS: u64 = 10;
const COMMITS: u64 = 400;

#[test]
fn readers_see_acknowledged_commits_whole() {
    let pair = FilePair::new();
    let store = pair.store();
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
    let payloads = store.texts(JobText::Payload, &seqs).expect("readable");
    assert!(seqs.iter().zip(payloads).all(|(&seq, text)| text == Some(payload(seq))));
}

#[test]
fn the_server_reads_while_reads_for_clients_hold_all_their_connections() {
    let pair = FilePair::new();
    let store = pair.store();
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
        assert_eq!(store.texts(JobText::Payload, &[Seq(1)]).unwrap(), [Some(payload(Seq(1)))]);
        assert_eq!(store.expired(None, Wall(9), 9).unwrap(), []);
        assert_eq!(store.outdated(LeaseNo(0), &(Wall(9)..=Wall(u64::MAX)), 9).unwrap().leases, []);
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
    let pair = FilePair::new();
    let store = pair.store();
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
    let pair = FilePair::new();
    let store = pair.store();
    many(store);
    let found = |seq: u64| store.ids_ending(&format!("{seq:08x}"), 2).unwrap();
    assert_eq!(found(1), FoundIds { ids: vec![], may_be_more: true });
    for seq in [2, MANY] {
        let ids = vec![JobId(u128::from(seq) << 64 | u128::from(seq))];
        assert_eq!(found(seq), FoundIds { ids, may_be_more: true });
    }
}

#[test]
fn the_history_of_a_job_that_waits_examines_the_newest_part_of_the_ledger() {
    let pair = FilePair::new();
    let store = pair.store();
    let last = EXAMINED_ROWS_MAX as u64 + 1;
    let mut mutations = vec![put(1, "a"), put(2, "b"), lease(1, &[(1, 1)])];
    mutations.extend((2..last).map(|number| lease(number, &[(2, number)])));
    mutations.push(lease(last, &[(1, 2), (2, last)]));
    store.commit(&commit(CommitNo(1), mutations)).unwrap();
    let history = store.history(id("a")).unwrap().unwrap();
    let fences: Vec<u64> = history.owners.iter().map(|owner| owner.hold.fence.0).collect();
    assert_eq!((fences, history.may_be_more), (vec![2], true));
}

#[test]
fn a_long_history_has_its_newest_entries_in_order() {
    let pair = FilePair::new();
    let count = HISTORY_ROWS_MAX as u64 + 7;
    let hold = |fence| Hold { job: Seq(1), fence: Fence(fence) };
    let attempt = |fence| {
        let outcome = AttemptOutcome::Failed(format!("error {fence}").into());
        Mutation::Note(Note::Attempt { hold: hold(fence), worker: WORKER, outcome })
    };
    pair.commit(&commit(CommitNo(1), vec![put(1, "a")])).unwrap();
    let few = |may_be_more| {
        for store in pair.both() {
            assert_eq!(store.history(id("a")).unwrap().unwrap().may_be_more, may_be_more);
        }
    };
    few(false);
    let mutations = (1..=count).flat_map(|fence| [lease(fence, &[(1, fence)]), attempt(fence)]);
    let mut commit = commit(CommitNo(2), mutations.collect());
    let log = |fence| AttemptOutput { hold: hold(fence), result: None, log: Some("x".into()) };
    commit.outputs = (1..=count).map(log).collect();
    pair.commit(&commit).unwrap();
    few(true);
    for store in pair.both() {
        let history = store.history(id("a")).unwrap().unwrap();
        let newest = |many: usize| (count - many as u64 + 1..=count).collect::<Vec<_>>();
        let owners = history.owners.iter().map(|owner| owner.hold.fence.0);
        assert_eq!(owners.collect::<Vec<_>>(), newest(HISTORY_ROWS_MAX));
        let noted = history.notes.iter().map(|(_, note)| match note {
            Note::Attempt { hold, .. } => hold.fence.0,
            other => panic!("{other:?}"),
        });
        assert_eq!(noted.collect::<Vec<_>>(), newest(HISTORY_ROWS_MAX));
        let outputs = history.outputs.iter().map(|left| left.hold.fence.0);
        assert_eq!(outputs.collect::<Vec<_>>(), newest(HISTORY_OUTPUTS_MAX));
    }
}
