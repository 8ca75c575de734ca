//! Two stores with the same commits: the reference, and the one on a disk. They must answer every
//! query alike.

use std::path::PathBuf;

use filch_scheduler::id::{CommitNo, JobId, LeaseNo, Seq};
use filch_scheduler::record::{AttemptOutcome, JobRow, Loaded, Mutation, Note};
use filch_scheduler::state::JobState;
use filch_scheduler::time::Wall;
use filch_store::integrity::check;
use filch_store::{
    AttemptOutput, Commit, CommitError, DiskReserve, Filter, History, ListOrder, Memory, OwnerNote,
    PurgeCause, Sqlite, Store, StoredText, Transient,
};
use tempfile::TempDir;

pub(crate) struct Pair {
    pub(crate) transient: Transient,
    /// `None` only while it is closed.
    sqlite: Option<Sqlite>,
    folder: TempDir,
}

/// Reserves no disk space, so that a nearly full disk does not matter here.
pub(crate) const NO_RESERVE: DiskReserve = DiskReserve { mark: 0, ballast: 0 };

/// In memory where possible, where syncs are cheap: these tests are not about the disk.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder")
}

/// All jobs.
fn all(store: &dyn Store) -> Vec<JobRow> {
    store.list(&Filter::default(), ListOrder::After(Seq(0)), usize::MAX).expect("readable").rows
}

pub(crate) fn load(store: &dyn Store) -> Vec<Loaded> {
    let mut loaded = Vec::new();
    store.load(&mut |piece| loaded.push(piece)).expect("readable");
    loaded
}

/// The payload that the job of this number gets in these tests.
pub(crate) fn payload(seq: Seq) -> StoredText {
    format!("{{\"number\":{}}}", seq.0).into()
}

/// A commit of these mutations, with a payload for each job that is put and a cause for each purge.
pub(crate) fn commit(last: CommitNo, mutations: Vec<Mutation>) -> Commit {
    let put = |mutation: &Mutation| match mutation {
        Mutation::Put(row) => Some((row.seq, payload(row.seq))),
        _ => None,
    };
    let payloads = mutations.iter().filter_map(put).collect();
    let is_purge = |mutation: &&Mutation| matches!(mutation, Mutation::Purge(_));
    let purges = mutations.iter().filter(is_purge).map(|_| PurgeCause::Discarded).collect();
    Commit { last, mutations, payloads, purges, ..Commit::default() }
}

impl Pair {
    pub(crate) fn new() -> Self {
        let mut pair = Self { transient: Transient::default(), sqlite: None, folder: folder() };
        pair.reopen();
        pair
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("filch.db")
    }

    pub(crate) fn sqlite(&self) -> &Sqlite {
        self.sqlite.as_ref().expect("it is open")
    }

    pub(crate) fn both(&self) -> [&dyn Store; 2] {
        [&self.transient, self.sqlite()]
    }

    pub(crate) fn reopen(&mut self) {
        self.sqlite = None;
        let opened = Sqlite::open_with(&self.path(), &OwnerNote::this_process(), NO_RESERVE);
        self.sqlite = Some(opened.expect("no other process has it open"));
    }

    pub(crate) fn close(&mut self) {
        self.sqlite = None;
    }

    pub(crate) fn memory(&self) -> Memory {
        self.transient.memory()
    }

    /// Both store it, or both reject it with the same error.
    pub(crate) fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        let [one, other] = self.both().map(|store| store.commit(commit));
        assert_eq!(one, other, "{commit:?}");
        one
    }

    /// Compares everything in both.
    pub(crate) fn compare(&self) {
        self.compare_rows();
        for row in self.memory().jobs() {
            let [one, other] = self.both().map(|store| store.history(row.spec.id));
            let [one, other] = [one, other].map(|history| timeless(history.expect("readable")));
            assert_eq!(one, other);
            let history = other.expect("it is stored");
            assert_eq!(history.payload, payload(row.seq));
            for store in self.both() {
                assert_eq!(store.errors(&[row.seq]).expect("readable"), [last_error(&history)]);
            }
        }
    }

    /// Both pass the integrity check.
    pub(crate) fn check_integrity(&self) {
        let [one, other] = [check(&self.transient), check(self.sqlite())].map(|report| {
            let report = report.expect("readable");
            assert!(report.holds(), "{:#?}", report.violations);
            report.counts
        });
        assert_eq!((one.submitted, one.jobs), (other.submitted, other.jobs));
        assert_eq!((one.children, one.purged()), (other.children, other.purged()));
    }

    /// Compares everything but histories.
    pub(crate) fn compare_rows(&self) {
        let [transient, sqlite] = self.both();
        assert_eq!(load(transient), load(sqlite));
        let jobs = all(transient);
        assert_eq!(jobs, all(sqlite));
        for row in &jobs {
            self.compare_job(row);
        }
        for (before, limit) in [(0, 9), (6, 3), (6, 99), (u64::MAX, 2), (u64::MAX, 999)] {
            let before = Wall(before);
            for after in [None, Some((Wall(2), Seq(3)))] {
                let [one, other] =
                    self.both().map(|store| store.expired(after, before, limit).expect("readable"));
                assert_eq!(one, other, "expired after {after:?}, before {before:?}");
            }
        }
        self.compare_ledgers();
        self.compare_outdated();
    }

    fn compare_job(&self, row: &JobRow) {
        let keys: Vec<_> = row.spec.key.iter().cloned().collect();
        for store in self.both() {
            let only = std::slice::from_ref(row);
            assert_eq!(store.find(&[row.spec.id], &[], &[]).expect("readable"), only);
            assert_eq!(store.find(&[row.spec.id], &keys, &[row.seq]).expect("readable"), only);
            assert_eq!(store.payloads(&[row.seq]).expect("readable"), [Some(payload(row.seq))]);
        }
    }

    /// Compares what may be removed, and the counts of purged jobs.
    fn compare_outdated(&self) {
        for limit in [1, 3, 999] {
            for (after, before) in [(0, 6), (2, u64::MAX), (0, u64::MAX)] {
                let (after, before) = (LeaseNo(after), Wall(before));
                let [one, mut other] = self
                    .both()
                    .map(|store| store.outdated(after, before, limit).expect("readable"));
                // The reference does not know the times of notes.
                other.notes = 0;
                assert_eq!(one, other, "outdated after {after:?}, before {before:?}");
            }
            let [one, other] =
                self.both().map(|store| store.daily_counts(limit).expect("readable"));
            assert_eq!(one, other, "daily_counts");
        }
    }

    fn compare_ledgers(&self) {
        let [one, other] =
            self.both().map(|store| store.ledger(LeaseNo(0), usize::MAX).expect("readable"));
        assert_eq!(one, other, "the ledger");
        assert!(one.is_sorted_by_key(|row| row.number));
    }

    /// Compares lists of both, from every position in both directions.
    pub(crate) fn compare_lists(&self, filter: &Filter, limit: usize) {
        let seqs: Vec<Seq> = all(&self.transient).iter().map(|row| row.seq).collect();
        let ends = [Seq(0), Seq(u64::MAX)];
        for &seq in seqs.iter().chain(&ends) {
            for order in [ListOrder::After(seq), ListOrder::Before(seq)] {
                let [one, other] =
                    self.both().map(|store| store.list(filter, order, limit).expect("readable"));
                assert_eq!(one, other, "{filter:?} {order:?} {limit}");
            }
        }
    }
}

/// The error of the newest noted attempt of a job.
fn last_error(history: &History) -> Option<StoredText> {
    let mut attempts = history.notes.iter().rev().filter_map(|(_, note)| match note {
        Note::Attempt { outcome, .. } => Some(outcome),
        _ => None,
    });
    match attempts.next() {
        Some(AttemptOutcome::Failed(error) | AttemptOutcome::Unstarted(error)) => {
            Some(StoredText::from(&**error))
        }
        _ => None,
    }
}

/// Removes the times of notes, which come from each store's own clock.
fn timeless(history: Option<History>) -> Option<History> {
    history.map(|mut history| {
        for (at, _) in &mut history.notes {
            assert!(at.0 > 1_700_000_000_000, "{at:?} is long ago");
            *at = Wall(0);
        }
        history
    })
}

#[test]
fn every_new_job_needs_exactly_one_payload() {
    use crate::put;
    let pair = Pair::new();
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
        let read = store.payloads(&[Seq(2), Seq(9), Seq(1)]).unwrap();
        assert_eq!(read, [Some(text()), None, Some(text())]);
    }
}

#[test]
fn attempt_outputs_belong_to_a_job_and_are_purged_with_it() {
    use crate::{put, write};
    use filch_scheduler::id::{Fence, Hold};
    let pair = Pair::new();
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
    let id = crate::id("a");
    for store in pair.both() {
        let outputs = store.history(id).unwrap().unwrap().outputs;
        assert_eq!(outputs, [output(1, 1, "b"), output(1, 3, "c")]);
    }
    pair.commit(&commit(CommitNo(3), vec![Mutation::Purge(vec![Seq(1)])])).unwrap();
    pair.commit(&commit(CommitNo(4), vec![put(8, "a")])).unwrap();
    for store in pair.both() {
        assert_eq!(store.history(id).unwrap().unwrap().outputs, []);
        assert_eq!(store.payloads(&[Seq(1)]).unwrap(), [None]);
    }
}

#[test]
fn ids_are_found_by_their_last_digits() {
    let pair = Pair::new();
    let ids = [0x0100_00ab_u128, 0x0200_00ab, 0x0300_0a0b, u128::MAX].map(JobId);
    let puts = (1..).zip(ids).map(|(seq, id)| match crate::put(seq, "a") {
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
