//! What every keeping does, and what is handed to it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use filch_scheduler::id::{CommitNo, Hold, JobId, LeaseNo, Seq, WorkerId};
use filch_scheduler::name::Name;
use filch_scheduler::record::{JobRow, LeaseRow, Loaded, Mutation, Note};
use filch_scheduler::state::JobState;
use filch_scheduler::time::{Duration, Wall};

use crate::CommitError;
use crate::daily_count::DailyCount;
use crate::token::TokenRow;

/// What goes with a job and is never looked into here: JSON text, as it was given.
pub type StoredText = Arc<str>;

/// One or more consecutive commits that are kept together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// The newest of them.
    pub last: CommitNo,
    /// What is to be kept, in order.
    pub mutations: Vec<Mutation>,
    /// The payload of each job that `mutations` puts, and of no other. Written once.
    pub payloads: Vec<(Seq, StoredText)>,
    /// What attempts left behind that `mutations` end. Of a job that is not kept, nothing outputs.
    pub outputs: Vec<AttemptOutput>,
    /// Why jobs are purged: one for each time that `mutations` purge some, in their order.
    pub purges: Vec<PurgeCause>,
}

/// Why jobs are purged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurgeCause {
    /// They ended long enough ago.
    Expired {
        /// How long ended jobs are to be kept.
        retention: Duration,
    },
    /// Somebody did not want them any more.
    Discarded,
}

/// What one attempt left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptOutput {
    /// Which job, under which fence.
    pub hold: Hold,
    /// What it came to; the job's result if the attempt succeeded.
    pub result: Option<StoredText>,
    /// What it printed, perhaps shortened.
    pub log: Option<StoredText>,
}

/// Everything that is kept of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The job itself. While it lives, the brain knows better.
    pub row: JobRow,
    /// What it was submitted with.
    pub payload: StoredText,
    /// Its changes of owner, each with the fence it gave, in order.
    pub owners: Vec<OwnerChange>,
    /// What is noted about it, in order, and when that was kept by the store's own clock.
    pub notes: Vec<(Wall, Note)>,
    /// What its attempts left behind, in order.
    pub outputs: Vec<AttemptOutput>,
}

/// One change of owner of one job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerChange {
    /// The job with the fence it got.
    pub hold: Hold,
    /// Who owned it from then on; nobody means that it was queued.
    pub worker: Option<WorkerId>,
    /// How that came.
    pub cause: filch_scheduler::record::LeaseCause,
    /// When.
    pub at: Wall,
}

/// Which jobs a list is about; everything that is `None` does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// In one of these states, as the rows say it; empty for all.
    pub states: Vec<JobState>,
    /// Of this queue.
    pub queue: Option<Name>,
    /// Of this kind.
    pub kind: Option<Name>,
    /// Submitted at this moment or later.
    pub since: Option<Wall>,
}

impl Filter {
    /// Whether a job is meant.
    #[must_use]
    pub fn includes(&self, row: &JobRow) -> bool {
        (self.states.is_empty() || self.states.contains(&row.now.state))
            && self.queue.as_ref().is_none_or(|queue| *queue == row.spec.queue)
            && self.kind.as_ref().is_none_or(|kind| *kind == row.spec.kind)
            && self.since.is_none_or(|since| row.submitted_at >= since)
    }
}

/// In which order a list goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListOrder {
    /// From the number after this one upwards.
    After(Seq),
    /// From the number before this one downwards.
    Before(Seq),
}

/// A job that ended some time ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired {
    /// When it ended.
    pub at: Wall,
    /// Its number.
    pub seq: Seq,
    /// Its id.
    pub id: JobId,
}

/// History that no kept job has a part in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outdated {
    /// Closed rows of the ledger.
    pub leases: Vec<LeaseNo>,
    /// The last row that was looked at, if there may be more behind it.
    pub last: Option<LeaseNo>,
    /// How many notes about workers were kept before that moment, as many as one commit can remove.
    pub notes: u64,
}

/// Whether there is room for more jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskSpace {
    /// There is.
    Enough,
    /// The disk is nearly full: what runs may still be reported, but nothing new is taken.
    Low {
        /// Bytes that are free.
        free: u64,
        /// Below this many nothing new is taken.
        mark: u64,
    },
}

/// Keeps what the scheduler decides. Reads see every commit that has its receipt.
pub trait Store: Send + Sync + 'static {
    /// Hands out what a server is given when it starts, in the order that [`Loaded`] asks for.
    ///
    /// # Errors
    /// If it cannot be read.
    fn load(&self, each: &mut dyn FnMut(Loaded)) -> Result<(), StoreError>;

    /// Keeps a commit, all of it or nothing, and returns once it is durable. A commit that is kept
    /// already is recognised by its number. Called by one thread at a time.
    ///
    /// # Errors
    /// See [`CommitError`].
    fn commit(&self, commit: &Commit) -> Result<(), CommitError>;

    /// The jobs that have one of these ids, keys or numbers, each once, in the order of submission.
    ///
    /// # Errors
    /// If they cannot be read.
    fn find(&self, ids: &[JobId], keys: &[Name], seqs: &[Seq]) -> Result<Vec<JobRow>, StoreError>;

    /// The payloads of these jobs, in the same order; `None` for a job that is not kept.
    ///
    /// # Errors
    /// If they cannot be read.
    fn payloads(&self, jobs: &[Seq]) -> Result<Vec<Option<StoredText>>, StoreError>;

    /// What the newest attempt that is noted of each of these jobs said went wrong, in the same order;
    /// `None` for one that said nothing.
    ///
    /// # Errors
    /// If it cannot be read.
    fn errors(&self, jobs: &[Seq]) -> Result<Vec<Option<StoredText>>, StoreError>;

    /// Everything about one job.
    ///
    /// # Errors
    /// If it cannot be read.
    fn history(&self, job: JobId) -> Result<Option<History>, StoreError>;

    /// At most `limit` jobs that the filter includes, as the rows say it: a leased job is still the
    /// one it was before.
    ///
    /// # Errors
    /// If they cannot be read.
    fn list(
        &self,
        filter: &Filter,
        order: ListOrder,
        limit: usize,
    ) -> Result<Vec<JobRow>, StoreError>;

    /// At most `limit` ids that end with these hexadecimal digits, the newest first.
    ///
    /// # Errors
    /// If they cannot be read.
    fn ids_ending(&self, digits: &str, limit: usize) -> Result<Vec<JobId>, StoreError>;

    /// At most `limit` jobs that ended before this moment and that nobody holds, the oldest end first,
    /// beginning behind the one that ended at this moment under this number, if one is given. Whether
    /// they are purged is for others to decide.
    ///
    /// # Errors
    /// If they cannot be read.
    fn expired(
        &self,
        after: Option<(Wall, Seq)>,
        before: Wall,
        limit: usize,
    ) -> Result<Vec<Expired>, StoreError>;

    /// Looks at most at so many rows of the ledger after this number that were written before this moment,
    /// and says which closed ones no kept job has a part in. Whether they are trimmed is for others to
    /// decide.
    ///
    /// # Errors
    /// If they cannot be read.
    fn outdated(&self, after: LeaseNo, before: Wall, limit: usize) -> Result<Outdated, StoreError>;

    /// At most `limit` daily_counts of purged jobs, the newest day first.
    ///
    /// # Errors
    /// If they cannot be read.
    fn daily_counts(&self, limit: usize) -> Result<Vec<DailyCount>, StoreError>;

    /// At most `limit` rows of the ledger after this number, the oldest first. Closed rows of which no
    /// job is kept may be gone.
    ///
    /// # Errors
    /// If they cannot be read.
    fn ledger(&self, after: LeaseNo, limit: usize) -> Result<Vec<LeaseRow>, StoreError>;

    /// Whether there is room for more jobs. Asked often, so cheap.
    fn disk_space(&self) -> DiskSpace;

    /// How many times this keeping has made the disk hold on to what was written.
    fn sync_count(&self) -> u64;

    /// Every token that was ever made, the oldest first.
    ///
    /// # Errors
    /// If they cannot be read.
    fn tokens(&self) -> Result<Vec<TokenRow>, StoreError>;

    /// Keeps a new token, and returns once it is durable.
    ///
    /// # Errors
    /// If it cannot be written, or its id is taken.
    fn keep_token(&self, token: &TokenRow) -> Result<(), StoreError>;

    /// Keeps when a token was ended, and returns once that is durable; false if there is none of that id
    /// that has not been ended before.
    ///
    /// # Errors
    /// If it cannot be written.
    fn revoke_token(&self, id: &str, at: Wall) -> Result<bool, StoreError>;

    /// Writes a copy of everything to a new file.
    ///
    /// # Errors
    /// If the file is there already or cannot be written.
    fn backup(&self, to: &Path) -> Result<(), StoreError>;

    /// Lets go of it, once what is being written is durable: another may open it from now on, however many
    /// still hold this. What is written later is refused; what was kept can still be read.
    fn close(&self);
}

/// The keeping could not be read. What it holds is not changed.
#[derive(Debug)]
pub struct StoreError {
    /// What was being done.
    pub doing: &'static str,
    /// What came in between.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

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
