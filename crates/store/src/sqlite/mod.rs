//! The keeping of one machine: a SQLite database in a file.
//!
//! One connection writes (`writer`), a few read (`readers`). The write-ahead log is synced at every
//! commit, so what has its receipt survives a power cut. Beside the database stand the lock of its owner
//! (`owner`) and a ballast (`room`).

mod backup;
mod codes;
mod connect;
mod error;
mod list;
mod live;
mod load;
mod log;
mod notes;
mod numbers;
mod owner;
mod packed;
mod purge;
mod read;
mod readers;
mod room;
mod rows;
mod schema;
mod transaction;
mod writer;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use filch_scheduler::id::{JobId, LeaseNo, Seq};
use filch_scheduler::name::Name;
use filch_scheduler::record::{JobRow, LeaseRow, Loaded};
use filch_scheduler::time::Wall;

pub use self::error::OpenError;
pub use self::owner::{Holder, OwnerNote, holder};
pub use self::room::Reserve;

use self::connect::Role;
use self::error::{Failure, Halt};
use self::owner::Lock;
use self::readers::{Reader, Readers};
use self::room::Watch;
use self::writer::Writer;
use crate::CommitError;
use crate::keep::{Commit, Filter, History, Order, ReadError, Room, Store, Text};

/// A SQLite database in a file, owned by this process until it is dropped.
///
/// ```
/// use filch_store::{Commit, OpenError, OwnerNote, Sqlite, Store};
///
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("filch.db");
/// let store = Sqlite::open(&path, &OwnerNote::this_process())?;
/// store.announce("http://127.0.0.1:7420")?;
/// store.commit(&Commit::default())?;
///
/// // Whoever comes second is told whom to talk to.
/// let second = Sqlite::open(&path, &OwnerNote::this_process());
/// let Err(OpenError::Held { url, .. }) = second else {
///     panic!("two owners");
/// };
/// assert_eq!(url.as_deref(), Some("http://127.0.0.1:7420"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Sqlite {
    // Closed in this order, and the lock last: whoever opens it next finds nobody else at it.
    readers: Readers,
    writer: Mutex<Writer>,
    watch: Watch,
    syncs: AtomicU64,
    lock: Mutex<Lock>,
    path: PathBuf,
}

impl Sqlite {
    /// Opens the store in this file; makes it if there is none.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(path: &Path, owner: &OwnerNote) -> Result<Self, OpenError> {
        Self::open_with(path, owner, Reserve::default())
    }

    /// Opens the store in this file, with other bounds on the room it leaves on the disk.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_with(path: &Path, owner: &OwnerNote, reserve: Reserve) -> Result<Self, OpenError> {
        connect::check_library()?;
        // So that two ways to one file lead to one lock.
        let path = owner::resolve(path);
        let lock = Lock::take(&path, owner)?;
        let cannot = |failure: Failure| failure.while_opening("open", &path);
        let mut connection = connect::connect(&path, Role::Write).map_err(cannot)?;
        let version = schema::version(&connection, &path)?;
        connect::tune(&connection, Role::Write, &path)?;
        schema::migrate(&mut connection, version).map_err(cannot)?;
        Ok(Self {
            writer: Mutex::new(Writer::new(connection).map_err(cannot)?),
            readers: Readers::open(&path)?,
            watch: Watch::new(&path, reserve),
            syncs: AtomicU64::new(0),
            lock: Mutex::new(lock),
            path,
        })
    }

    /// Tells others where the server of this store can be reached.
    ///
    /// # Errors
    /// If the file that says it cannot be written.
    pub fn announce(&self, url: &str) -> io::Result<()> {
        // What is written is whole or not, whoever panicked before.
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).write(Some(url))
    }

    /// Where the database is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn read<T>(
        &self,
        doing: &'static str,
        ask: impl FnOnce(&Reader<'_>) -> Result<T, Failure>,
    ) -> Result<T, ReadError> {
        let answer = self.readers.borrow().and_then(|reader| ask(&reader));
        answer.map_err(|failure| ReadError { doing, source: Box::new(failure) })
    }
}

impl Store for Sqlite {
    fn load(&self, each: &mut dyn FnMut(Loaded)) -> Result<(), ReadError> {
        self.read("load what is kept", |reader| load::load(reader, each))
    }

    fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        let broken = |why: &dyn fmt::Display| {
            CommitError::Broken(format!("commit {}: {why}", commit.last.0))
        };
        let Ok(mut writer) = self.writer.lock() else {
            return Err(broken(&"an earlier one ended in a panic"));
        };
        if commit.last <= writer.last_commit() {
            return Ok(());
        }
        self.watch.spend(commit);
        let mut kept = writer.commit(commit);
        if kept.as_ref().is_err_and(Halt::is_full) {
            self.watch.release();
            writer.make_room();
            // All of it was rolled back, so this is no second try at something half done.
            kept = writer.commit(commit);
        }
        kept.map_err(|halt| broken(&halt))?;
        if writer.committed().is_err_and(|failure| failure.is_full()) {
            self.watch.release();
        }
        self.syncs.store(writer.syncs(), Ordering::Relaxed);
        Ok(())
    }

    fn find(&self, ids: &[JobId], keys: &[Name], seqs: &[Seq]) -> Result<Vec<JobRow>, ReadError> {
        self.read("look up jobs", |reader| read::find(reader, ids, keys, seqs))
    }

    fn payloads(&self, jobs: &[Seq]) -> Result<Vec<Option<Text>>, ReadError> {
        self.read("read payloads", |reader| read::payloads(reader, jobs))
    }

    fn history(&self, job: JobId) -> Result<Option<History>, ReadError> {
        self.read("read a job's history", |reader| read::history(reader, job))
    }

    fn list(&self, filter: &Filter, order: Order, limit: usize) -> Result<Vec<JobRow>, ReadError> {
        self.read("list jobs", |reader| list::list(reader, filter, order, limit))
    }

    fn ids_ending(&self, digits: &str, limit: usize) -> Result<Vec<JobId>, ReadError> {
        self.read("look for ids", |reader| read::ids_ending(reader, digits, limit))
    }

    fn expired(&self, before: Wall, limit: usize) -> Result<Vec<(Seq, JobId)>, ReadError> {
        self.read("look for expired jobs", |reader| read::expired(reader, before, limit))
    }

    fn ledger(&self, after: LeaseNo, limit: usize) -> Result<Vec<LeaseRow>, ReadError> {
        self.read("read the ledger", |reader| read::ledger(reader, after, limit))
    }

    fn room(&self) -> Room {
        self.watch.room()
    }

    /// Counted are the syncs of the write-ahead log, one at each commit and one more whenever it begins
    /// anew, and those that move it into the database; not those of backups, nor what opening and
    /// closing cost.
    fn sync_count(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    fn backup(&self, to: &Path) -> Result<(), ReadError> {
        self.read("make a copy", |reader| backup::copy(reader, to))
    }
}
