//! The trait that every store implements, and the types in its interface.

use std::fmt;
use std::ops::RangeInclusive;

use filch_scheduler::id::{CommitNo, Hold, JobId, LeaseNo, Seq, WorkerId};
use filch_scheduler::name::Name;
pub use filch_scheduler::record::{AttemptOutput, StoredText};
use filch_scheduler::record::{JobRow, Loaded, Mutation, Note, OperatorAct};
use filch_scheduler::spec::QueueKey;
use filch_scheduler::state::JobState;
use filch_scheduler::time::{Duration, Wall};

use crate::CommitError;
use crate::daily_count::DailyCount;
use crate::token::{TokenChange, TokenRow};

/// How long the owner of a store may act as such after the store last confirmed it. A new owner
/// whose predecessor may still run expects that it renewed leases until then.
pub const OWNER_LEASE: Duration = Duration::from_secs(10);

/// How many reads for clients a store serves at once. Further ones wait a few seconds and then fail
/// as busy. [`Store::find`], payloads ([`Store::texts`]), [`Store::expired`] and
/// [`Store::outdated`], which a server needs in order to go on, do not wait for them.
pub const CLIENT_READS_MAX: usize = 4;

/// How many rows a search for a client examines at most, however many it excludes.
pub const EXAMINED_ROWS_MAX: usize = 50_000;

/// How many changes of owner, and how many notes, the history of a job has at most.
pub const HISTORY_ROWS_MAX: usize = 500;

/// Outputs of how many attempts the history of a job has at most.
pub const HISTORY_OUTPUTS_MAX: usize = 16;

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

    /// About how many bytes this takes in a store.
    #[must_use]
    pub fn size(&self) -> u64 {
        let payloads = self.payloads.iter().map(|(_, text)| text.len());
        let outputs = self.outputs.iter().flat_map(|output| [&output.result, &output.log]);
        let texts = payloads.chain(outputs.flatten().map(|text| text.len())).sum::<usize>() as u64;
        texts + MUTATION_BYTES * self.mutations.len() as u64
    }

    /// Appends the commits that follow these.
    pub fn append(&mut self, next: Self) {
        self.last = next.last;
        self.mutations.extend(next.mutations);
        self.payloads.extend(next.payloads);
        self.outputs.extend(next.outputs);
        self.purges.extend(next.purges);
    }
}

/// About what a mutation takes in a store, without payload and output.
const MUTATION_BYTES: u64 = 512;

/// Why jobs are purged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurgeCause {
    /// Their retention is over.
    Expired {
        /// How long ended jobs are stored.
        retention: Duration,
    },
    /// Their retention is over, but the times of their ends do not show it: they ended while the
    /// clock was ahead, which has been set back since.
    Misdated,
    /// An operator discarded them.
    Discarded,
}

/// What is stored about one job: everything, or the newest part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The job's row. Until the job ends, the scheduler's state in memory is newer.
    pub row: JobRow,
    /// What it was submitted with.
    pub payload: StoredText,
    /// Its newest changes of owner, each with the fence it gave, in order.
    pub owners: Vec<OwnerChange>,
    /// The newest notes about it, in order, each with the time at which the store wrote it by its
    /// own clock.
    pub notes: Vec<(Wall, Note)>,
    /// The outputs of its newest attempts, in order.
    pub outputs: Vec<AttemptOutput>,
    /// Whether there may be older changes of owner or notes: at most [`HISTORY_ROWS_MAX`] of each
    /// are returned, and of the ledger only the newest [`EXAMINED_ROWS_MAX`] rows are examined.
    pub may_be_more: bool,
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
    /// How many notes about workers are older than recent times, at most as many as one commit
    /// removes.
    pub notes: u64,
}

/// Which acts to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActFilter {
    /// Only those that changed the settings of this queue.
    pub queue: Option<Name>,
}

/// What an operator did, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAct {
    /// Its number: larger for later ones.
    pub number: u64,
    /// When it was stored.
    pub at: Wall,
    /// Who did it: the name of a token.
    pub by: Option<Name>,
    /// What was done.
    pub act: OperatorAct,
    /// The queue of the job that it is about.
    pub job_queue: Option<Name>,
}

/// Which text of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobText {
    /// What it was submitted with.
    Payload,
    /// The error of its newest noted attempt.
    LastError,
}

/// How a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreStatus {
    /// Whether there is space for new jobs.
    pub space: StoreSpace,
    /// How many disk syncs this process has made, if the store counts them.
    pub syncs: u64,
}

/// Whether there is enough space for new jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreSpace {
    /// There is enough.
    Enough,
    /// The store is nearly full: running jobs can still be reported, but new jobs are refused.
    Low {
        /// Free bytes.
        free: u64,
        /// New jobs are refused below this many free bytes.
        needed: u64,
    },
}

/// Stores what the scheduler decides. Reads see every commit that has returned.
///
/// A store has one owner at a time, the process that opened it last. Opening it raises its epoch,
/// and every write is bound to the epoch of its writer: a former owner that still runs is refused
/// as [`CommitError::Superseded`].
pub trait Store: Send + Sync + 'static {
    /// Stores a commit, all of it or nothing, and returns once it is durable. A commit that is
    /// stored already is recognised by its number. Called by one thread at a time.
    ///
    /// # Errors
    /// See [`CommitError`].
    fn commit(&self, commit: &Commit) -> Result<(), CommitError>;

    /// Whether this process still owns the store. Does not wait for a commit in progress.
    ///
    /// # Errors
    /// If it cannot be read.
    fn is_owned(&self) -> Result<bool, StoreError>;

    /// Passes everything that a starting server needs to `each`, in the order that [`Loaded`]
    /// requires.
    ///
    /// # Errors
    /// If it cannot be read.
    fn load(&self, each: &mut dyn FnMut(Loaded)) -> Result<(), StoreError>;

    /// The jobs that have one of these ids, keys or numbers, each once, in the order of submission.
    ///
    /// # Errors
    /// If they cannot be read.
    fn find(
        &self,
        ids: &[JobId],
        keys: &[QueueKey],
        seqs: &[Seq],
    ) -> Result<Vec<JobRow>, StoreError>;

    /// A text of each of these jobs, in the same order; `None` for a job that is not stored or has
    /// no such text.
    ///
    /// # Errors
    /// If they cannot be read.
    fn texts(&self, which: JobText, jobs: &[Seq]) -> Result<Vec<Option<StoredText>>, StoreError>;

    /// What is stored about one job.
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

    /// Examines at most `limit` rows of the ledger after this number, until the first one that was
    /// written at a `recent` time, and returns the closed ones that concern no stored job. The
    /// caller decides whether they are removed. Notes are counted that are older than `recent`.
    ///
    /// # Errors
    /// If they cannot be read.
    fn outdated(
        &self,
        after: LeaseNo,
        recent: &RangeInclusive<Wall>,
        limit: usize,
    ) -> Result<Outdated, StoreError>;

    /// At most `limit` daily counts of purged jobs, the newest day first.
    ///
    /// # Errors
    /// If they cannot be read.
    fn daily_counts(&self, limit: usize) -> Result<Vec<DailyCount>, StoreError>;

    /// At most `limit` acts of operators before this number, the newest first. Acts on jobs are
    /// stored as long as the job, others as long as the history.
    ///
    /// # Errors
    /// If they cannot be read.
    fn acts(
        &self,
        filter: &ActFilter,
        before: u64,
        limit: usize,
    ) -> Result<Vec<StoredAct>, StoreError>;

    /// Every token that was ever created, the oldest first.
    ///
    /// # Errors
    /// If they cannot be read.
    fn tokens(&self) -> Result<Vec<TokenRow>, StoreError>;

    /// A number that grows with every change of the tokens, by whichever process. Cheap enough to
    /// be read every second.
    ///
    /// # Errors
    /// If it cannot be read.
    fn token_version(&self) -> Result<u64, StoreError>;

    /// Creates or revokes a token, stores who did, and returns once both are durable; false if
    /// nothing was changed.
    ///
    /// # Errors
    /// See [`CommitError`].
    fn change_token(&self, change: &TokenChange, by: Option<&Name>) -> Result<bool, CommitError>;

    /// How it is. Called often, so cheap.
    fn status(&self) -> StoreStatus;

    /// Publishes the address of the server that owns this store, for processes that want to
    /// connect.
    ///
    /// # Errors
    /// If it cannot be written.
    fn announce(&self, url: &str) -> Result<(), StoreError>;

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
        Self { doing, source: Box::new(StoreBusy::Waited(waited)) }
    }

    /// It took so long that writes would have had to wait for it.
    #[must_use]
    pub fn interrupted(doing: &'static str) -> Self {
        Self { doing, source: Box::new(StoreBusy::Interrupted) }
    }

    /// A defect of the store: the code that read it panicked.
    #[must_use]
    pub fn panicked(doing: &'static str) -> Self {
        Self { doing, source: "the code that reads the store panicked".into() }
    }

    /// Whether the store was only busy: it is fine, and the same operation can succeed a moment
    /// later.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.source.is::<StoreBusy>()
    }
}

/// The source of errors of a busy store.
#[derive(Debug)]
enum StoreBusy {
    /// Too many reads were in progress for this long.
    Waited(Duration),
    /// The read would have delayed writes.
    Interrupted,
}

impl fmt::Display for StoreBusy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waited(waited) => {
                write!(formatter, "too many reads at once for {} ms", waited.as_millis())
            }
            Self::Interrupted => formatter.write_str(
                "interrupted, because it took so long that the write-ahead log reached its limit",
            ),
        }
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
