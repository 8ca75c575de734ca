//! What every store has to do with a commit: by examples here, against a simple model in `model`,
//! and with real decisions of the scheduler in `dispatch`. The other files test the store on a
//! disk.

mod backup;
mod disk_full;
mod dispatch;
mod integrity;
mod kills;
mod model;
mod owner;
mod pair;
mod readers;
mod schema;
mod sync;
mod tokens;

use filch_scheduler::dispatch::{DispatchConfig, Loader};
use filch_scheduler::id::{CommitNo, Fence, Hold, JobId, LeaseNo, Seq, WorkerId};
use filch_scheduler::name::Name;
use filch_scheduler::record::{JobRow, JobWrite, LeaseCause, LeaseRow, Loaded, Mutation, Strategy};
use filch_scheduler::spec::JobSpec;
use filch_scheduler::state::JobState;
use filch_scheduler::time::{Now, Wall};
use filch_store::{CommitError, Store};

use crate::pair::{Pair, commit, load};

const WORKER: WorkerId = WorkerId::apart(1);

fn id(name: &str) -> JobId {
    JobId::named(name, Wall(0)).expect("a short name")
}

fn write(seq: u64, state: JobState, fence: u64) -> JobWrite {
    JobWrite {
        job: Seq(seq),
        state,
        fence: Fence(fence),
        attempts: 0,
        suspicions: 0,
        priority: 0,
        due: Wall(0),
        holder: (state == JobState::Running).then_some(WORKER),
        last: None,
        reason: None,
        at: Wall(seq),
    }
}

fn put(seq: u64, name: &str) -> Mutation {
    row(seq, name, JobState::Queued, |_| ())
}

fn row(seq: u64, name: &str, state: JobState, say: impl FnOnce(&mut JobSpec)) -> Mutation {
    let mut spec = JobSpec::new(id(name));
    say(&mut spec);
    let now = write(seq, state, 0);
    Mutation::Put(JobRow { seq: Seq(seq), spec, submitted_at: Wall(0), now })
}

fn lease(number: u64, jobs: &[(u64, u64)]) -> Mutation {
    let hold = |&(job, fence): &(u64, u64)| Hold { job: Seq(job), fence: Fence(fence) };
    let jobs = jobs.iter().map(hold).collect();
    let number = LeaseNo(number);
    Mutation::Lease(LeaseRow {
        number,
        worker: Some(WORKER),
        cause: LeaseCause::Claim,
        jobs,
        at: Wall(0),
    })
}

fn trim(leases: &[u64]) -> Mutation {
    let leases = leases.iter().copied().map(LeaseNo).collect();
    Mutation::Trim { leases, notes_before: Wall(0) }
}

/// A succeeded job 1 (`a`, key `k`), a dead 2, a running 3, a cancelled 4 that is still held, a
/// blocked 5 and its ended parent 6; lease row 1 is closed and row 2 open.
fn kept() -> Pair {
    let pair = Pair::new();
    let keyed = row(1, "a", JobState::Queued, |spec| spec.key = Some("k".into()));
    let child = row(5, "e", JobState::Blocked, |spec| spec.parents = vec![id("f")]);
    let puts = vec![keyed, put(2, "b"), put(3, "c"), put(4, "d"), child, put(6, "f")];
    pair.commit(&commit(CommitNo(1), puts)).expect("new jobs fit");
    let held = JobWrite { holder: Some(WORKER), ..write(4, JobState::Cancelled, 1) };
    let writes = vec![
        lease(1, &[(1, 1), (2, 1), (3, 1)]),
        Mutation::Write(write(1, JobState::Succeeded, 1)),
        Mutation::Write(write(2, JobState::Dead, 1)),
        Mutation::Write(write(3, JobState::Running, 1)),
        Mutation::Write(held),
        Mutation::Write(write(6, JobState::Succeeded, 1)),
        Mutation::Close(LeaseNo(1)),
        lease(2, &[(3, 2)]),
    ];
    pair.commit(&commit(CommitNo(4), writes)).expect("a life of each fits");
    pair
}

#[test]
fn a_rejected_commit_changes_nothing() {
    let same_key = row(7, "g", JobState::Queued, |spec| spec.key = Some("k".into()));
    let write = |seq, state, fence| Mutation::Write(write(seq, state, fence));
    let other_number = match put(7, "g") {
        Mutation::Put(row) => Mutation::Put(JobRow { seq: Seq(8), ..row }),
        other => other,
    };
    let priority = Mutation::Priority { job: Seq(9), priority: 1 };
    let purge = |jobs: &[u64]| Mutation::Purge(jobs.iter().copied().map(Seq).collect());
    let pair = kept();
    let before = pair.memory();
    for (mutation, why) in [
        (put(6, "g"), "job number 6 follows number 6"),
        (put(7, "a"), "a is stored as number 1 and is put again as 7"),
        (same_key, "jobs number 1 and 7 have the same key, \"k\""),
        (other_number, "job number 8 is written under number 7"),
        (row(7, "g", JobState::Leased, |_| ()), "job number 7 is written as leased"),
        (write(9, JobState::Queued, 1), "no job number 9"),
        (write(3, JobState::Queued, 0), "the fence of job number 3 would go back from 1 to 0"),
        (write(1, JobState::Queued, 9), "job number 1 is succeeded and cannot become queued"),
        (write(2, JobState::Queued, 1), "job number 2 is dead and cannot become queued"),
        (write(4, JobState::Queued, 9), "job number 4 is cancelled and cannot become queued"),
        (write(3, JobState::Leased, 2), "job number 3 is written as leased"),
        (priority, "no job number 9"),
        (lease(2, &[(3, 3)]), "lease row 2 follows row 2"),
        (lease(3, &[(9, 1)]), "no job number 9"),
        (Mutation::Close(LeaseNo(1)), "lease row 1 is not open"),
        (Mutation::Close(LeaseNo(3)), "lease row 3 is not open"),
        (purge(&[1, 3]), "job number 3 is running, held by a worker and cannot be purged"),
        (purge(&[4]), "job number 4 is cancelled, held by a worker and cannot be purged"),
        (purge(&[1, 1]), "no job number 1"),
        (trim(&[1, 2]), "lease row 2 is open and cannot be removed"),
    ] {
        // The mutations before it in the commit are undone.
        let mutations = vec![
            write(5, JobState::Cancelled, 9),
            purge(&[6]),
            Mutation::Strategy(Strategy::Fair),
            Mutation::Priority { job: Seq(3), priority: 7 },
            mutation.clone(),
        ];
        let Err(CommitError::Broken(error)) = pair.commit(&commit(CommitNo(5), mutations)) else {
            panic!("{mutation:?} was kept");
        };
        assert!(error.starts_with("commit 5: ") && error.contains(why), "{error}");
        assert_eq!(pair.memory(), before, "{mutation:?}");
        pair.compare();
    }
}

#[test]
fn a_repeated_commit_is_ignored_and_numbers_may_be_skipped() {
    let pair = kept();
    let before = pair.memory();
    assert_eq!(before.last_commit(), CommitNo(4));
    for number in 0..=4 {
        pair.commit(&commit(CommitNo(number), vec![put(7, "g")])).unwrap();
        assert_eq!(pair.memory(), before);
        pair.compare();
    }
    pair.commit(&commit(CommitNo(9), vec![])).unwrap();
    assert_eq!(pair.memory().last_commit(), CommitNo(9));
    pair.compare();
}

#[test]
fn a_starting_server_loads_what_it_needs_in_order() {
    let mut pair = kept();
    pair.reopen();
    for store in pair.both() {
        let words: Vec<String> = load(store).into_iter().map(show).collect();
        // The ended parent 6 comes before its child 5; 1 and 2 are not needed any more.
        assert_eq!(words, ["numbers 4 6 2", "job 4", "job 6", "job 3", "job 5", "lease 2"]);
        let mut loader = Loader::new(DispatchConfig::default(), Now::default());
        load(store).into_iter().for_each(|piece| loader.add(piece).unwrap());
        loader.finish(&mut Vec::new()).unwrap().audit().unwrap();
    }
}

fn show(piece: Loaded) -> String {
    match piece {
        Loaded::Numbers { commit, seq, lease, newest_id } => {
            assert_eq!(newest_id, Some(Wall(0)));
            format!("numbers {} {} {}", commit.0, seq.0, lease.0)
        }
        Loaded::Job(row) => format!("job {}", row.seq.0),
        Loaded::Lease(row) => format!("lease {}", row.number.0),
        other => format!("{other:?}"),
    }
}

#[test]
fn jobs_are_found_once_each_by_id_key_or_number() {
    let pair = kept();
    let keys = [Name::from("k"), Name::from("unused")];
    for store in pair.both() {
        let ids = [id("d"), id("a"), id("zz")];
        let found = store.find(&ids, &keys, &[Seq(3), Seq(1), Seq(77)]).unwrap();
        let seqs: Vec<u64> = found.iter().map(|row| row.seq.0).collect();
        assert_eq!(seqs, [1, 3, 4]);
    }
}

#[test]
fn expired_jobs_are_listed_oldest_first_until_they_are_purged() {
    let pair = kept();
    let expires = |before, limit, expected: &[(Seq, JobId)]| {
        for store in pair.both() {
            let expired = store.expired(None, Wall(before), limit).unwrap();
            let jobs: Vec<_> = expired.iter().map(|job| (job.seq, job.id)).collect();
            assert_eq!(jobs, expected);
            // After the first come the others.
            let Some(first) = expired.first() else { continue };
            let rest = store.expired(Some((first.at, first.seq)), Wall(before), limit - 1).unwrap();
            assert_eq!(rest, expired[1..]);
        }
    };
    let [a, b, f] = [(Seq(1), id("a")), (Seq(2), id("b")), (Seq(6), id("f"))];
    expires(2, 9, &[a]);
    expires(99, 2, &[a, b]);
    pair.commit(&commit(CommitNo(5), vec![Mutation::Purge(vec![Seq(1)])])).unwrap();
    expires(99, 9, &[b, f]);
    // An operator's retry: the job is unfinished again.
    let retry = Mutation::Write(write(2, JobState::Queued, 2));
    pair.commit(&commit(CommitNo(6), vec![retry])).unwrap();
    expires(99, 9, &[f]);
    // The id and key of a purged job are free again; its number is not.
    let again = row(7, "a", JobState::Queued, |spec| spec.key = Some("k".into()));
    pair.commit(&commit(CommitNo(7), vec![again])).unwrap();
    assert_eq!(pair.memory().by_id(id("a")).unwrap().seq, Seq(7));
    pair.compare();
}

#[test]
fn ledger_rows_without_stored_jobs_can_be_removed_and_purged_jobs_are_counted() {
    let pair = kept();
    let outdated =
        |store: &dyn Store| store.outdated(LeaseNo(0), Wall(u64::MAX), 9).unwrap().leases;
    let more = vec![put(7, "g"), lease(3, &[(7, 1)]), Mutation::Write(write(7, JobState::Dead, 1))];
    pair.commit(&commit(CommitNo(5), more)).unwrap();
    pair.commit(&commit(CommitNo(6), vec![Mutation::Close(LeaseNo(3))])).unwrap();
    assert!(pair.both().into_iter().all(|store| outdated(store).is_empty()));
    // Job 3 of row 1 is unfinished; row 2 is open.
    let purge = Mutation::Purge([1, 2, 7].map(Seq).to_vec());
    pair.commit(&commit(CommitNo(7), vec![purge])).unwrap();
    for store in pair.both() {
        assert_eq!(outdated(store), [LeaseNo(3)]);
        let [count] = &store.daily_counts(9).unwrap()[..] else { panic!("one day, one queue") };
        let counts = (count.succeeded, count.dead, count.cancelled, count.spent_ms);
        assert_eq!((count.day, count.queue.as_str(), counts), (0, "default", (1, 2, 0, 10)));
    }
    pair.commit(&commit(CommitNo(8), vec![trim(&[3, 99])])).unwrap();
    // Numbering goes on after the removed row.
    pair.commit(&commit(CommitNo(9), vec![put(8, "h"), lease(4, &[(8, 1)])])).unwrap();
    for store in pair.both() {
        let numbers: Vec<u64> =
            store.ledger(LeaseNo(0), 9).unwrap().iter().map(|row| row.number.0).collect();
        assert_eq!(numbers, [1, 2, 4]);
    }
    pair.compare();
}
