//! Keeps what the scheduler decides; decides nothing.
//!
//! [`Memory`] is the reference: what it does with a commit is what every [`Store`] has to do.
//! [`Sqlite`] keeps everything in a file, [`Transient`] nothing longer than it lives; both are held to
//! the same answers.
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
//! let submit = DispatchEvent::Request { from: RequestNo(1), request };
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
mod rules;
mod sqlite;
mod store;
mod token;
mod transient;

use std::fmt;

pub use daily_count::{DailyCount, day_of};
pub use memory::Memory;
pub use sqlite::{
    DiskReserve, OpenError, OwnerNote, Snapshot, Sqlite, StoreHolder, has_tokens, holder,
};
pub use store::{
    AttemptOutput, Commit, DiskSpace, Expired, Filter, History, ListOrder, Outdated, OwnerChange,
    PurgeCause, Store, StoreError, StoredText,
};
pub use token::TokenRow;
pub use transient::Transient;

/// Why a commit has no receipt. Each says what its owner does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommitError {
    /// Another server owns the jobs now. Nothing of the commit is kept, nor will anything be that
    /// this server decides: it steps down.
    Superseded,
    /// Perhaps it is kept, perhaps not. The same mutations under the same number again settle it: a
    /// commit that is there already is recognised.
    Unknown,
    /// There is no room on the disk. Nothing of it is kept; once there is room, the same again is.
    DiskFull(String),
    /// The disk has failed, so what it says from now on may not be true: perhaps the commit is kept,
    /// perhaps not, and the disk must not be asked again. The process ends; the next one begins with what
    /// the disk really holds.
    DiskFailed(String),
    /// The commit does not fit to what is kept. Nothing of it is kept; trying again cannot help, and
    /// going on would lose jobs: the process ends.
    Broken(String),
}

impl fmt::Display for CommitError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Superseded => {
                formatter.write_str("another server owns these jobs now: this one must step down")
            }
            Self::Unknown => formatter.write_str(
                "the outcome of the commit is unknown: repeat it unchanged under the same number",
            ),
            Self::DiskFull(why) => {
                write!(formatter, "the disk is full, nothing of it is kept: {why}")
            }
            Self::DiskFailed(why) => write!(
                formatter,
                "the store is not to be trusted any more and the server must stop: {why}\n  \
                 help: look at the disk (what does `dmesg` say?), then start again; what was \
                 acknowledged before is kept"
            ),
            Self::Broken(why) => {
                write!(formatter, "the commit cannot be kept and the server must stop: {why}")
            }
        }
    }
}

impl std::error::Error for CommitError {}
