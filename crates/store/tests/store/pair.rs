//! Two stores with the same commits: the reference, and one that is tested. They must answer every
//! query alike.

use std::path::{Path, PathBuf};

use filch_scheduler::id::{CommitNo, LeaseNo, Seq};
use filch_scheduler::record::{AttemptOutcome, JobRow, LeaseRow, Loaded, Mutation, Note};
use filch_scheduler::time::Wall;
use filch_store::integrity::{DumpRecord, StoreDump, check};
use filch_store::{
    Commit, CommitError, DiskLimits, Filter, History, JobText, ListOrder, Memory, OwnerNote,
    PurgeCause, Snapshot, Sqlite, Store, StoreError, StoredText, Transient,
};
use tempfile::TempDir;

/// A place that holds a store.
pub(crate) trait Place {
    type Store: Store + StoreDump;

    /// A place without any jobs.
    fn empty() -> Self;

    /// Opens the store as its new owner. A former owner that still has it open is superseded.
    fn open(&self) -> Self::Store;
}

/// A file.
pub(crate) struct FilePlace(TempDir);

impl FilePlace {
    fn path(&self) -> PathBuf {
        self.0.path().join("filch.db")
    }
}

impl Place for FilePlace {
    type Store = Sqlite;

    fn empty() -> Self {
        Self(folder())
    }

    fn open(&self) -> Sqlite {
        // Without it, a former owner of the file is not in the way.
        let _ = std::fs::remove_file(self.path().with_file_name("filch.db.lock"));
        let opened = Sqlite::open_with(&self.path(), &OwnerNote::this_process(), NO_RESERVE);
        opened.expect("no lock is in the way")
    }
}

/// Memory.
pub(crate) struct MemoryPlace(Transient);

impl Place for MemoryPlace {
    type Store = Transient;

    fn empty() -> Self {
        Self(Transient::default())
    }

    fn open(&self) -> Transient {
        self.0.take_over()
    }
}

pub(crate) struct Pair<P: Place = FilePlace> {
    /// The reference.
    pub(crate) transient: Transient,
    /// The one that is tested. `None` only while it is closed.
    store: Option<P::Store>,
    place: P,
}

/// With a store in a file.
pub(crate) type FilePair = Pair<FilePlace>;

/// Reserves no disk space, so that a nearly full disk does not matter here.
pub(crate) const NO_RESERVE: DiskLimits =
    DiskLimits { free_min: 0, ballast: 0, ..DiskLimits::DEFAULT };

/// In memory where possible, where syncs are cheap: these tests are not about the disk.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder")
}

/// All jobs.
fn all(store: &dyn Store) -> Vec<JobRow> {
    store.list(&Filter::default(), ListOrder::After(Seq(0)), usize::MAX).expect("readable").rows
}

/// All rows of the ledger.
pub(crate) fn ledger(store: &dyn StoreDump) -> Vec<LeaseRow> {
    let mut rows = Vec::new();
    let dumped = store.dump(&mut |record| {
        if let DumpRecord::Lease { row, .. } = record {
            rows.push(row);
        }
    });
    dumped.expect("readable");
    rows
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

impl FilePair {
    pub(crate) fn path(&self) -> PathBuf {
        self.place.path()
    }

    /// Writes a copy to a new file.
    pub(crate) fn backup(&self, to: &Path) -> Result<(), StoreError> {
        Snapshot::open(&self.path()).expect("it is a store").backup(to)
    }
}

impl<P: Place> Pair<P> {
    pub(crate) fn new() -> Self {
        let place = P::empty();
        Self { transient: Transient::default(), store: Some(place.open()), place }
    }

    pub(crate) fn store(&self) -> &P::Store {
        self.store.as_ref().expect("it is open")
    }

    pub(crate) fn both(&self) -> [&dyn Store; 2] {
        [&self.transient, self.store()]
    }

    pub(crate) fn reopen(&mut self) {
        self.store = None;
        self.store = Some(self.place.open());
    }

    pub(crate) fn close(&mut self) {
        self.store = None;
    }

    /// Opens the store once more, as another process would.
    pub(crate) fn take_over(&self) -> P::Store {
        self.place.open()
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
                assert_eq!(
                    store.texts(JobText::LastError, &[row.seq]).expect("readable"),
                    [last_error(&history)]
                );
            }
        }
    }

    /// Both pass the integrity check.
    pub(crate) fn check_integrity(&self) {
        let [one, other] = [check(&self.transient), check(self.store())].map(|report| {
            let report = report.expect("readable");
            assert!(report.holds(), "{:#?}", report.violations);
            report.counts
        });
        assert_eq!((one.submitted, one.jobs), (other.submitted, other.jobs));
        assert_eq!((one.children, one.purged()), (other.children, other.purged()));
    }

    /// Compares everything but histories.
    pub(crate) fn compare_rows(&self) {
        let [transient, store] = self.both();
        assert_eq!(load(transient), load(store));
        let jobs = all(transient);
        assert_eq!(jobs, all(store));
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
        let keys: Vec<_> = row.spec.queue_key().into_iter().collect();
        for store in self.both() {
            let only = std::slice::from_ref(row);
            assert_eq!(store.find(&[row.spec.id], &[], &[]).expect("readable"), only);
            assert_eq!(store.find(&[row.spec.id], &keys, &[row.seq]).expect("readable"), only);
            let payloads = store.texts(JobText::Payload, &[row.seq]).expect("readable");
            assert_eq!(payloads, [Some(payload(row.seq))]);
        }
    }

    /// Compares what may be removed, and the counts of purged jobs.
    fn compare_outdated(&self) {
        for limit in [1, 3, 999] {
            const NEVER: u64 = u64::MAX;
            for (after, first, last) in
                [(0, 6, NEVER), (0, 4, 8), (2, NEVER, NEVER), (0, NEVER, NEVER)]
            {
                let (after, recent) = (LeaseNo(after), Wall(first)..=Wall(last));
                let [one, mut other] = self
                    .both()
                    .map(|store| store.outdated(after, &recent, limit).expect("readable"));
                // The reference does not know the times of notes.
                other.notes = 0;
                assert_eq!(one, other, "outdated after {after:?}, but not {recent:?}");
            }
            let [one, other] =
                self.both().map(|store| store.daily_counts(limit).expect("readable"));
            assert_eq!(one, other, "daily_counts");
        }
    }

    fn compare_ledgers(&self) {
        let (one, other) = (ledger(&self.transient), ledger(self.store()));
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
