//! What every store has to do: one function over a way to make an empty store.

#![expect(clippy::unwrap_used, reason = "these are tests, but functions over a kind of store")]

use filch_scheduler::dispatch::{DispatchConfig, Loader, QueueChange};
use filch_scheduler::id::{CommitNo, Fence, Hold, JobId, LeaseNo, Seq};
use filch_scheduler::name::Name;
use filch_scheduler::record::{JobRow, JobWrite, Loaded, Mutation, Note, OperatorAct, Strategy};
use filch_scheduler::spec::QueueKey;
use filch_scheduler::state::JobState;
use filch_scheduler::time::{Duration, Now, Wall};
use filch_store::{
    ActFilter, AttemptOutput, Commit, CommitError, JobText, Store, StoredText, TokenChange,
    TokenRow,
};

use crate::pair::{FilePlace, MemoryPlace, Pair, Place, commit, ledger, load};
use crate::{WORKER, dispatch, id, lease, model, put, row, trim, write};

/// Checks a kind of store, by examples, with random commits, and with random decisions of the
/// scheduler. After each of them it is compared with the reference.
pub(crate) fn conformance<P: Place>() {
    a_rejected_commit_changes_nothing::<P>();
    a_repeated_commit_is_ignored_and_numbers_may_be_skipped::<P>();
    a_starting_server_loads_what_it_needs_in_order::<P>();
    jobs_are_found_once_each_by_id_key_or_number::<P>();
    expired_jobs_are_listed_oldest_first_until_they_are_purged::<P>();
    ledger_rows_without_stored_jobs_can_be_removed_and_purged_jobs_are_counted::<P>();
    every_new_job_needs_exactly_one_payload::<P>();
    attempt_outputs_belong_to_a_job_and_are_purged_with_it::<P>();
    ids_are_found_by_their_last_digits::<P>();
    tokens_are_stored_listed_and_revoked_once::<P>();
    a_new_owner_supersedes_the_former_one::<P>();
    acts_of_operators_are_listed::<P>();
    model::random_commits::<P>();
    dispatch::random_decisions::<P>();
}

#[test]
fn the_store_in_a_file_conforms() {
    conformance::<FilePlace>();
}

#[test]
fn the_store_in_memory_conforms() {
    conformance::<MemoryPlace>();
}

/// A succeeded job 1 (`a`, key `k`), a dead 2, a running 3, a cancelled 4 that is still held, a
/// blocked 5 and its ended parent 6; lease row 1 is closed and row 2 open.
pub(crate) fn kept<P: Place>() -> Pair<P> {
    let pair = Pair::<P>::new();
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

fn a_rejected_commit_changes_nothing<P: Place>() {
    let same_key = row(7, "g", JobState::Queued, |spec| spec.key = Some("k".into()));
    let write = |seq, state, fence| Mutation::Write(write(seq, state, fence));
    let other_number = match put(7, "g") {
        Mutation::Put(row) => Mutation::Put(JobRow { seq: Seq(8), ..row }),
        other => other,
    };
    let priority = Mutation::Priority { job: Seq(9), priority: 1 };
    let purge = |jobs: &[u64]| Mutation::Purge(jobs.iter().copied().map(Seq).collect());
    let pair = kept::<P>();
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

fn a_repeated_commit_is_ignored_and_numbers_may_be_skipped<P: Place>() {
    let pair = kept::<P>();
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

fn a_starting_server_loads_what_it_needs_in_order<P: Place>() {
    let mut pair = kept::<P>();
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

fn jobs_are_found_once_each_by_id_key_or_number<P: Place>() {
    let pair = kept::<P>();
    let key = |queue: &str, key: &str| QueueKey { queue: queue.into(), key: key.into() };
    let keys = [key("default", "k"), key("default", "unused"), key("another", "k")];
    for store in pair.both() {
        let ids = [id("d"), id("a"), id("zz")];
        let found = store.find(&ids, &keys, &[Seq(3), Seq(1), Seq(77)]).unwrap();
        let seqs: Vec<u64> = found.iter().map(|row| row.seq.0).collect();
        assert_eq!(seqs, [1, 3, 4]);
    }
}

fn expired_jobs_are_listed_oldest_first_until_they_are_purged<P: Place>() {
    let pair = kept::<P>();
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

fn ledger_rows_without_stored_jobs_can_be_removed_and_purged_jobs_are_counted<P: Place>() {
    let pair = kept::<P>();
    let outdated = |store: &dyn Store| {
        store.outdated(LeaseNo(0), &(Wall(u64::MAX)..=Wall(u64::MAX)), 9).unwrap().leases
    };
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
    let numbers: Vec<u64> = ledger(pair.store()).iter().map(|row| row.number.0).collect();
    assert_eq!(numbers, [1, 2, 4]);
    pair.compare();
}

fn every_new_job_needs_exactly_one_payload<P: Place>() {
    let pair = Pair::<P>::new();
    let text = || StoredText::from("{}");
    for (payloads, why) in [
        (vec![], Some("job number 1 is put without a payload")),
        (vec![Seq(1)], Some("job number 2 is put without a payload")),
        (vec![Seq(2)], Some("job number 1 is put without a payload")),
        (vec![Seq(1), Seq(2), Seq(3)], Some("payload for job number 3, which is not put")),
        (vec![Seq(1), Seq(1), Seq(2)], Some("payload for job number 1, which is not put")),
        (vec![Seq(2), Seq(1)], None),
    ] {
        let payloads = payloads.into_iter().map(|seq| (seq, text())).collect();
        let mutations = vec![put(1, "a"), put(2, "b")];
        let commit = Commit { last: CommitNo(1), mutations, payloads, ..Commit::default() };
        match (pair.commit(&commit), why) {
            (Ok(()), None) => {}
            (Err(CommitError::Broken(error)), Some(why)) => assert!(error.contains(why), "{error}"),
            (other, _) => panic!("{other:?}"),
        }
    }
    for store in pair.both() {
        let read = store.texts(JobText::Payload, &[Seq(2), Seq(9), Seq(1)]).unwrap();
        assert_eq!(read, [Some(text()), None, Some(text())]);
    }
}

fn attempt_outputs_belong_to_a_job_and_are_purged_with_it<P: Place>() {
    let pair = Pair::<P>::new();
    pair.commit(&commit(CommitNo(1), vec![put(1, "a")])).unwrap();
    let output = |job, fence, result: &str| AttemptOutput {
        hold: Hold { job: Seq(job), fence: Fence(fence) },
        result: Some(result.into()),
        log: None,
    };
    let outputs =
        vec![output(1, 3, "c"), output(1, 1, "a"), output(1, 1, "b"), output(7, 1, "nobody's")];
    let end = vec![Mutation::Write(write(1, JobState::Dead, 3))];
    pair.commit(&Commit { outputs, ..commit(CommitNo(2), end) }).unwrap();
    let id = id("a");
    for store in pair.both() {
        let outputs = store.history(id).unwrap().unwrap().outputs;
        assert_eq!(outputs, [output(1, 1, "b"), output(1, 3, "c")]);
    }
    pair.commit(&commit(CommitNo(3), vec![Mutation::Purge(vec![Seq(1)])])).unwrap();
    pair.commit(&commit(CommitNo(4), vec![put(8, "a")])).unwrap();
    for store in pair.both() {
        assert_eq!(store.history(id).unwrap().unwrap().outputs, []);
        assert_eq!(store.texts(JobText::Payload, &[Seq(1)]).unwrap(), [None]);
    }
}

fn ids_are_found_by_their_last_digits<P: Place>() {
    let pair = Pair::<P>::new();
    let ids = [0x0100_00ab_u128, 0x0200_00ab, 0x0300_0a0b, u128::MAX].map(JobId);
    let puts = (1..).zip(ids).map(|(seq, id)| match put(seq, "a") {
        Mutation::Put(mut row) => {
            row.spec.id = id;
            Mutation::Put(row)
        }
        other => other,
    });
    pair.commit(&commit(CommitNo(1), puts.collect())).unwrap();
    let long = "f".repeat(40);
    for (digits, limit, found) in [
        ("b", 9, &[2, 1, 0][..]),
        ("ab", 9, &[1, 0]),
        ("AB", 1, &[1]),
        ("0ab", 9, &[1, 0]),
        ("10000ab", 9, &[0]),
        (&long[..32], 9, &[3]),
        (&long, 9, &[]),
        ("", 2, &[3, 2]),
        ("xyz", 9, &[]),
        ("+b", 9, &[]),
    ] {
        let expected: Vec<JobId> = found.iter().map(|&place| ids[place]).collect();
        for store in pair.both() {
            assert_eq!(store.ids_ending(digits, limit).unwrap().ids, expected, "{digits:?}");
        }
    }
}

/// The audit trail has the newest first. Acts on a job go with the job, others with old history.
fn acts_of_operators_are_listed<P: Place>() {
    let pair = kept::<P>();
    let queue = |change| OperatorAct::SetQueue { queue: "mail".into(), change };
    let acts = [
        OperatorAct::Cancel(id("b")),
        OperatorAct::Retry(id("b")),
        OperatorAct::SetPriority { job: id("a"), priority: -7 },
        queue(QueueChange::Pause),
        queue(QueueChange::Resume),
        queue(QueueChange::Limit(None)),
        queue(QueueChange::Limit(Some(3))),
        queue(QueueChange::Weight(9)),
        OperatorAct::SetStrategy(Strategy::Fair),
        OperatorAct::SetStrategy(Strategy::Priority { aging: Duration::from_secs(7) }),
        OperatorAct::DrainWorker(WORKER),
    ];
    let by = Some(Name::from("Ada (1a2b3c4d)"));
    let note = |act: &OperatorAct| Mutation::Note(Note::Act { by: by.clone(), act: act.clone() });
    let mutations = acts.iter().map(note).collect();
    pair.commit(&commit(CommitNo(50), mutations)).expect("it fits");
    let listed = |store: &dyn Store, filter: &ActFilter, before, limit| {
        let stored = store.acts(filter, before, limit).expect("readable");
        assert!(stored.iter().all(|act| act.by == by), "{stored:?}");
        stored
    };
    for store in pair.both() {
        let all = listed(store, &ActFilter::default(), u64::MAX, 100);
        assert!(all.iter().rev().map(|stored| &stored.act).eq(&acts), "{all:?}");
        assert_eq!(all[all.len() - 1].job_queue, Some("default".into()));
        assert_eq!(all[0].job_queue, None);
        let page = listed(store, &ActFilter::default(), all[3].number, 2);
        assert_eq!(page, all[4..6]);
        let of_queue = ActFilter { queue: Some("mail".into()) };
        assert_eq!(listed(store, &of_queue, u64::MAX, 100), all[3..8]);
        assert_eq!(listed(store, &of_queue, all[5].number, 1), all[6..7]);
    }
    let old = Mutation::Trim { leases: Vec::new(), notes_before: Wall(u64::MAX >> 1) };
    pair.commit(&commit(CommitNo(51), vec![old])).expect("it fits");
    for store in pair.both() {
        let left = listed(store, &ActFilter::default(), u64::MAX, 100);
        assert!(left.iter().rev().map(|stored| &stored.act).eq(&acts[..3]), "{left:?}");
    }
}

fn tokens_are_stored_listed_and_revoked_once<P: Place>() {
    let mut pair = Pair::<P>::new();
    let first = TokenRow { queues: Vec::new(), expires_at: None, ..token("b", 1) };
    for store in pair.both() {
        assert_eq!(store.tokens().unwrap(), []);
        let create = |token: &TokenRow| {
            store.change_token(&TokenChange::Create(token.clone()), None).unwrap()
        };
        assert!(create(&token("c", 2)));
        assert!(create(&first));
        assert!(create(&token("a", 2)));
        assert!(!create(&token("a", 3)), "its id is in use");
        let revoke = |id: &str, at| {
            let revoke = TokenChange::Revoke { id: id.to_owned(), at: Wall(at) };
            store.change_token(&revoke, None).unwrap()
        };
        assert!(revoke("a", 9));
        assert!(!revoke("a", 10), "it was revoked before");
        assert!(!revoke("unknown", 10));
        let version = store.token_version().unwrap();
        assert!(create(&token("d", 4)));
        let later = store.token_version().unwrap();
        assert!(later > version, "{later} after {version}");
        assert!(revoke("d", 11) && store.token_version().unwrap() > later);
    }
    pair.reopen();
    let ended = TokenRow { revoked_at: Some(Wall(9)), ..token("a", 2) };
    for store in pair.both() {
        let last = TokenRow { revoked_at: Some(Wall(11)), ..token("d", 4) };
        assert_eq!(store.tokens().unwrap(), [first.clone(), ended.clone(), token("c", 2), last]);
    }
}

fn a_new_owner_supersedes_the_former_one<P: Place>() {
    let pair = kept::<P>();
    let former = pair.store();
    assert!(former.is_owned().unwrap());
    let owner = pair.take_over();
    assert!(owner.is_owned().unwrap() && !former.is_owned().unwrap());
    let revoke = TokenChange::Revoke { id: "a".into(), at: Wall(1) };
    let next = commit(CommitNo(5), vec![put(7, "g")]);
    // New commits and stored ones.
    for stale in [&next, &commit(CommitNo(4), vec![])] {
        assert_eq!(former.commit(stale), Err(CommitError::Superseded), "{stale:?}");
    }
    assert_eq!(former.change_token(&revoke, None), Err(CommitError::Superseded));
    assert!(former.find(&[id("g")], &[], &[]).unwrap().is_empty(), "nothing of it is stored");
    owner.commit(&next).expect("it fits");
    assert_eq!(owner.change_token(&revoke, None), Ok(false));
    // The former owner still reads, also what was committed since, and closing it changes nothing.
    assert_eq!(former.find(&[id("g")], &[], &[]).unwrap().len(), 1);
    former.close();
    owner.commit(&commit(CommitNo(6), vec![put(8, "h")])).expect("it fits");
}

pub(crate) fn token(id: &str, created_at: u64) -> TokenRow {
    TokenRow {
        id: id.to_owned(),
        name: "the CI's, \u{fc}ber".to_owned(),
        role: "submit".to_owned(),
        queues: vec!["a b".into(), "c,d".into()],
        digest: [7; 32],
        created_at: Wall(created_at),
        expires_at: Some(Wall(u64::MAX >> 2)),
        revoked_at: None,
    }
}
