//! The trait that every store implements, and the types in its interface.

use std::fmt;
use std::path::Path;

use filch_scheduler::id::{CommitNo, Hold, JobId, LeaseNo, Seq, WorkerId};
use filch_scheduler::name::Name;
pub use filch_scheduler::record::{AttemptOutput, StoredText};
use filch_scheduler::record::{JobRow, LeaseRow, Loaded, Mutation, Note};
use filch_scheduler::state::JobState;
use filch_scheduler::time::{Duration, Wall};

use crate::CommitError;
use crate::daily_count::DailyCount;
use crate::token::TokenRow;

/// How many reads for clients a store serves at once. Further ones wait a few seconds and then fail
/// as busy. [`Store::find`], [`Store::payloads`], [`Store::expired`] and [`Store::outdated`], which
/// a server needs in order to go on, do not wait for them.
pub const CLIENT_READS_MAX: usize = 4;

/// How many rows a search for a client examines at most, however many it excludes.
pub const EXAMINED_ROWS_MAX: usize = 50_000;

/// One or more consecutive commits that are stored together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// The number of the newest of them.
    pub last: CommitNo,
    /// What to store, in order.
    pub mutations: Vec<Mutation>,
    /// The payload of each job that `mutations` puts, and of no other job. Written once.
    pub payloads: Vec<(Seq, StoredText)>,
    /// The output of attempts that `mutations` end. Output of jobs that are not stored is dropped.
    pub outputs: Vec<AttemptOutput>,
    /// Why jobs are purged: one cause for each purge in `mutations`, in their order.
    pub purges: Vec<PurgeCause>,
}

impl Commit {
    /// One commit of the scheduler: payloads and outputs, which have tables of their own, are taken
    /// out of the mutations that brought them.
    #[must_use]
    pub fn new(last: CommitNo, mut mutations: Vec<Mutation>) -> Self {
        let mut commit = Self { last, ..Self::default() };
        let has_outputs = mutations.iter().any(|mutation| matches!(mutation, Mutation::Output(_)));
        for mutation in &mut mutations {
            if let Mutation::Put(row) = mutation
                && let Some(payload) = row.spec.payload.take()
            {
                commit.payloads.push((row.seq, payload));
            }
        }
        if has_outputs {
            mutations.retain_mut(|mutation| match mutation {
                Mutation::Output(output) => {
                    commit.outputs.push(output.clone());
                    false
                }
                _ => true,
            });
        }
        commit.mutations = mutations;
        commit
    }
}

/// Why jobs are purged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurgeCause {
    /// Their retention is over.
    Expired {
        /// How long ended jobs are stored.
        retention: Duration,
    },
    /// An operator discarded them.
    Discarded,
}

/// Everything that is stored about one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The job's row. Until the job ends, the scheduler's state in memory is newer.
    pub row: JobRow,
    /// What it was submitted with.
    pub payload: StoredText,
    /// Its changes of owner, each with the fence it gave, in order.
    pub owners: Vec<OwnerChange>,
    /// The notes about it, in order, each with the time at which the store wrote it by its own
    /// clock.
    pub notes: Vec<(Wall, Note)>,
    /// The outputs of its attempts, in order.
    pub outputs: Vec<AttemptOutput>,
}

/// One change of owner of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerChange {
    /// The job with the fence it got.
    pub hold: Hold,
    /// The new owner; `None` if the job went back to its queue.
    pub worker: Option<WorkerId>,
    /// Why it changed.
    pub cause: filch_scheduler::record::LeaseCause,
    /// When.
    pub at: Wall,
}

/// Which jobs to list. A criterion that is `None` or empty matches every job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// In one of these states, by their rows; empty for all.
    pub states: Vec<JobState>,
    /// In this queue.
    pub queue: Option<Name>,
    /// Of this kind.
    pub kind: Option<Name>,
    /// Submitted at this time or later.
    pub since: Option<Wall>,
}

impl Filter {
    /// Whether the filter matches a job.
    #[must_use]
    pub fn includes(&self, row: &JobRow) -> bool {
        (self.states.is_empty() || self.states.contains(&row.now.state))
            && self.queue.as_ref().is_none_or(|queue| *queue == row.spec.queue)
            && self.kind.as_ref().is_none_or(|kind| *kind == row.spec.kind)
            && self.since.is_none_or(|since| row.submitted_at >= since)
    }
}

/// The order of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListOrder {
    /// Ascending, from the number after this one.
    After(Seq),
    /// Descending, from the number before this one.
    Before(Seq),
}

impl ListOrder {
    /// The same direction, from another position.
    #[must_use]
    pub const fn from(self, seq: Seq) -> Self {
        match self {
            Self::After(_) => Self::After(seq),
            Self::Before(_) => Self::Before(seq),
        }
    }
}

/// A part of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// The jobs, in the order that was asked for.
    pub rows: Vec<JobRow>,
    /// The last job that was examined, if there may be more after it.
    pub last: Option<Seq>,
}

/// The result of a search for ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundIds {
    /// The ids, the newest first.
    pub ids: Vec<JobId>,
    /// Whether there may be more among the older jobs, which were not examined.
    pub may_be_more: bool,
}

/// A job whose retention may be over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    /// When it ended.
    pub at: Wall,
    /// Its number.
    pub seq: Seq,
    /// Its id.
    pub id: JobId,
}

/// History that concerns no stored job any more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outdated {
    /// Closed rows of the ledger.
    pub leases: Vec<LeaseNo>,
    /// The last row that was examined, if there may be more after it.
    pub last: Option<LeaseNo>,
    /// How many notes about workers are older than the given time, at most as many as one commit
    /// removes.
    pub notes: u64,
}

/// Whether there is enough disk space for new jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskSpace {
    /// There is enough.
    Enough,
    /// The disk is nearly full: running jobs can still be reported, but new jobs are refused.
    Low {
        /// Free bytes.
        free: u64,
        /// New jobs are refused below this many free bytes.
        mark: u64,
    },
}

/// Stores what the scheduler decides. Reads see every commit that has returned.
pub trait Store: Send + Sync + 'static {
    /// Passes everything that a starting server needs to `each`, in the order that [`Loaded`]
    /// requires.
    ///
    /// # Errors
    /// If it cannot be read.
    fn load(&self, each: &mut dyn FnMut(Loaded)) -> Result<(), StoreError>;

    /// Stores a commit, all of it or nothing, and returns once it is durable. A commit that is
    /// stored already is recognised by its number. Called by one thread at a time.
    ///
    /// # Errors
    /// See [`CommitError`].
    fn commit(&self, commit: &Commit) -> Result<(), CommitError>;

    /// The jobs that have one of these ids, keys or numbers, each once, in the order of submission.
    ///
    /// # Errors
    /// If they cannot be read.
    fn find(&self, ids: &[JobId], keys: &[Name], seqs: &[Seq]) -> Result<Vec<JobRow>, StoreError>;

    /// The payloads of these jobs, in the same order; `None` for a job that is not stored.
    ///
    /// # Errors
    /// If they cannot be read.
    fn payloads(&self, jobs: &[Seq]) -> Result<Vec<Option<StoredText>>, StoreError>;

    /// The error of the newest noted attempt of each of these jobs, in the same order; `None` for a
    /// job without one.
    ///
    /// # Errors
    /// If it cannot be read.
    fn errors(&self, jobs: &[Seq]) -> Result<Vec<Option<StoredText>>, StoreError>;

    /// Everything that is stored about one job.
    ///
    /// # Errors
    /// If it cannot be read.
    fn history(&self, job: JobId) -> Result<Option<History>, StoreError>;

    /// At most `limit` jobs that match the filter, by their rows: the row of a leased job still has
    /// the state from before the lease. There may be fewer, even none, although more jobs match:
    /// about [`EXAMINED_ROWS_MAX`] rows are examined. The list goes on after [`Listed::last`].
    ///
    /// # Errors
    /// If they cannot be read.
    fn list(&self, filter: &Filter, order: ListOrder, limit: usize) -> Result<Listed, StoreError>;

    /// At most `limit` ids that end with these hexadecimal digits, of the newest
    /// [`EXAMINED_ROWS_MAX`] jobs.
    ///
    /// # Errors
    /// If they cannot be read.
    fn ids_ending(&self, digits: &str, limit: usize) -> Result<FoundIds, StoreError>;

    /// At most `limit` jobs that ended before this time and that no worker holds, the oldest end
    /// first, starting after the job `after` (its end and number), if given. The caller decides
    /// whether they are purged.
    ///
    /// # Errors
    /// If they cannot be read.
    fn expired(
        &self,
        after: Option<(Wall, Seq)>,
        before: Wall,
        limit: usize,
    ) -> Result<Vec<Expired>, StoreError>;

    /// Examines at most `limit` rows of the ledger after this number that were written before this
    /// time, and returns the closed ones that concern no stored job. The caller decides whether
    /// they are removed.
    ///
    /// # Errors
    /// If they cannot be read.
    fn outdated(&self, after: LeaseNo, before: Wall, limit: usize) -> Result<Outdated, StoreError>;

    /// At most `limit` daily counts of purged jobs, the newest day first.
    ///
    /// # Errors
    /// If they cannot be read.
    fn daily_counts(&self, limit: usize) -> Result<Vec<DailyCount>, StoreError>;

    /// At most `limit` rows of the ledger after this number, the oldest first. Closed rows that
    /// concern no stored job may have been removed.
    ///
    /// # Errors
    /// If they cannot be read.
    fn ledger(&self, after: LeaseNo, limit: usize) -> Result<Vec<LeaseRow>, StoreError>;

    /// Whether there is disk space for new jobs. Called often, so cheap.
    fn disk_space(&self) -> DiskSpace;

    /// How many disk syncs this store has made.
    fn sync_count(&self) -> u64;

    /// Every token that was ever created, the oldest first.
    ///
    /// # Errors
    /// If they cannot be read.
    fn tokens(&self) -> Result<Vec<TokenRow>, StoreError>;

    /// Stores a new token, and returns once it is durable.
    ///
    /// # Errors
    /// If it cannot be written, or its id is in use.
    fn keep_token(&self, token: &TokenRow) -> Result<(), StoreError>;

    /// Revokes a token, and returns once that is durable; false if there is no token with this id,
    /// or it was revoked before.
    ///
    /// # Errors
    /// If it cannot be written.
    fn revoke_token(&self, id: &str, at: Wall) -> Result<bool, StoreError>;

    /// Writes a copy of everything to a new file.
    ///
    /// # Errors
    /// If the file exists or cannot be written.
    fn backup(&self, to: &Path) -> Result<(), StoreError>;

    /// Closes the store once the commit in progress is durable: from then on another process can
    /// open it, even if this value is still in use. Later writes fail; reads still work.
    fn close(&self);
}

/// An operation on a store failed, other than a commit. The stored data is unchanged.
#[derive(Debug)]
pub struct StoreError {
    /// What was attempted.
    pub doing: &'static str,
    /// Why it failed.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

impl StoreError {
    /// Too many reads were in progress for this long.
    #[must_use]
    pub fn busy(doing: &'static str, waited: Duration) -> Self {
        Self { doing, source: Box::new(StoreBusy(waited)) }
    }

    /// Whether only too many reads were in progress: the store is fine, and the same read can
    /// succeed a moment later.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.source.is::<StoreBusy>()
    }
}

/// The source of errors that are due to too many reads.
#[derive(Debug)]
struct StoreBusy(Duration);

impl fmt::Display for StoreBusy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "too many reads at once for {} ms", self.0.as_millis())
    }
}

impl std::error::Error for StoreBusy {}

impl fmt::Display for StoreError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "cannot {}: {}", self.doing, self.source)
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}
