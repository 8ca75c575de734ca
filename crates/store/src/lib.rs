//! Stores what the scheduler decides, and decides nothing itself.
//!
//! [`Memory`] is the reference implementation: every [`Store`] must do with a commit what it does.
//! [`Transient`] is the same as a store that loses everything when it is dropped; `open` opens a
//! durable one, which needs the feature `sqlite`. All pass the same tests.
//!
//! ```
//! use filch_scheduler::dispatch::{DispatchConfig, Dispatch, DispatchEffect, DispatchEvent, Loader, Request};
//! use filch_scheduler::id::{JobId, RequestNo};
//! use filch_scheduler::spec::JobSpec;
//! use filch_scheduler::time::{Now, Wall};
//! use filch_store::Memory;
//!
//! let (now, mut effects) = (Now::default(), Vec::new());
//! let id = JobId::named("a", Wall(0)).expect("a short name");
//! let request = Request::Submit(vec![JobSpec::new(id)]);
//! let submit = DispatchEvent::Request { from: RequestNo(1), by: None, request };
//! Dispatch::new(DispatchConfig::default(), now).handle(now, submit, &mut effects);
//!
//! let mut memory = Memory::default();
//! for effect in effects {
//!     if let DispatchEffect::Commit { number, mutations } = effect {
//!         memory.commit(number, &mutations)?;
//!     }
//! }
//! assert!(memory.by_id(id).is_some());
//!
//! // A server that starts again knows the job.
//! let mut loader = Loader::new(DispatchConfig::default(), now);
//! for piece in memory.load() {
//!     loader.add(piece)?;
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod clock;
mod daily_count;
pub mod integrity;
mod memory;
mod open;
mod rules;
#[cfg(feature = "sqlite")]
mod sqlite;
mod store;
mod token;
mod transient;

use std::fmt;

pub use daily_count::{DailyCount, day_of};
pub use memory::Memory;
pub use open::{Location, OpenError, OwnerNote, StoreHolder};
#[cfg(feature = "sqlite")]
pub use open::{has_tokens, holder, inspect, open};
#[cfg(feature = "sqlite")]
pub use sqlite::{DiskLimits, Snapshot, Sqlite};
pub use store::{
    ActFilter, AttemptOutput, CLIENT_READS_MAX, Commit, EXAMINED_ROWS_MAX, Expired, Filter,
    FoundIds, HISTORY_OUTPUTS_MAX, HISTORY_ROWS_MAX, History, JobText, ListOrder, Listed,
    OWNER_LEASE, Outdated, OwnerChange, PurgeCause, Store, StoreError, StoreSpace, StoreStatus,
    StoredAct, StoredText,
};
pub use token::{TokenChange, TokenRow};
pub use transient::Transient;

/// Why a commit failed. Each variant says what the caller has to do next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommitError {
    /// Another server owns the jobs now. Nothing of the commit is stored, nor will any later commit
    /// of this server be: it must step down.
    Superseded,
    /// The commit may or may not be stored. Repeating it unchanged under the same number settles
    /// that: a commit that is stored already is recognised by its number.
    Unknown,
    /// The disk is full. Nothing of the commit is stored; it can be repeated once there is space.
    DiskFull(String),
    /// The disk reported an error, so later answers from it cannot be trusted: the commit may or
    /// may not be stored, and the disk must not be used again. The process must end; the next one
    /// starts from what is really on the disk.
    DiskFailed(String),
    /// The commit contradicts what is stored. Nothing of it is stored. Repeating it cannot help and
    /// carrying on would lose jobs: the process must end.
    Broken(String),
}

impl fmt::Display for CommitError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Superseded => formatter.write_str(
                "another server has taken over the store: shutting down\n  \
                     help: use that server; every acknowledged job is still stored",
            ),
            Self::Unknown => formatter.write_str(
                "the result of the commit is unknown: repeat it unchanged under the same number",
            ),
            Self::DiskFull(why) => {
                write!(formatter, "disk full, the commit was not stored: {why}")
            }
            Self::DiskFailed(why) => write!(
                formatter,
                "disk error: durability cannot be guaranteed, shutting down: {why}\n  \
                 help: check the disk (for example with `dmesg`), then start again; every \
                 acknowledged job is still stored"
            ),
            Self::Broken(why) => {
                write!(formatter, "internal error: the commit was rejected, shutting down: {why}")
            }
        }
    }
}

impl std::error::Error for CommitError {}
