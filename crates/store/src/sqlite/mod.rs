//! The store of one machine: a SQLite database in a file.
//!
//! One connection writes (`writer`), a few read (`readers`). The write-ahead log is synced at every
//! commit, so an acknowledged commit survives a power cut. Two files stand beside the database: the
//! lock of its owner (`owner`), and a ballast file that reserves disk space (`disk_space`).

mod backup;
mod codes;
mod connect;
mod cursor;
mod daily_counts;
mod disk_space;
mod dump;
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
mod purge_log;
mod read;
mod readers;
mod rows;
mod schema;
mod snapshot;
mod tokens;
mod transaction;
mod trim;
mod writer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use filch_scheduler::id::{JobId, LeaseNo, Seq};
use filch_scheduler::name::Name;
use filch_scheduler::record::{JobRow, LeaseRow, Loaded};
use filch_scheduler::time::Wall;
use rusqlite::Connection;

pub use self::disk_space::DiskReserve;
pub use self::error::OpenError;
pub use self::owner::{OwnerNote, StoreHolder, holder};
pub use self::snapshot::Snapshot;
pub use self::tokens::has_tokens;

use self::connect::Role;
use self::disk_space::Watch;
use self::error::{Failure, Halt};
use self::owner::Lock;
use self::readers::{ReadFor, Reader, Readers};
use self::schema::Content;
use self::writer::Writer;
use crate::CommitError;
use crate::daily_count::DailyCount;
use crate::integrity::{DumpRecord, StoreDump};
use crate::store::{
    Commit, DiskSpace, Expired, Filter, FoundIds, History, ListOrder, Listed, Outdated, Store,
    StoreError, StoredText,
};
use crate::token::TokenRow;

/// The error of a write after the store was closed.
const CLOSED: &str = "the store is closed, and another process may have opened it";

/// A SQLite database in a file, owned by this process until it is closed or dropped.
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
/// // A second process gets the address of the first.
/// let second = Sqlite::open(&path, &OwnerNote::this_process());
/// let Err(OpenError::Held { url, .. }) = second else {
///     panic!("two owners");
/// };
/// assert_eq!(url.as_deref(), Some("http://127.0.0.1:7420"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Sqlite {
    readers: Readers,
    /// `None` once it is closed. Reads after that are harmless: a read in progress neither sees nor
    /// blocks the next owner's writes.
    owned: Mutex<Option<Owned>>,
    watch: Watch,
    syncs: AtomicU64,
    path: PathBuf,
}

/// What only the owner has. Dropped in this order, so that the next owner finds no other writer.
struct Owned {
    writer: Writer,
    lock: Lock,
}

impl Sqlite {
    /// Opens the store in this file; creates it if there is none.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(path: &Path, owner: &OwnerNote) -> Result<Self, OpenError> {
        Self::open_with(path, owner, DiskReserve::default())
    }

    /// Opens the store in this file, with other bounds on the disk space that it leaves free.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_with(
        path: &Path,
        owner: &OwnerNote,
        reserve: DiskReserve,
    ) -> Result<Self, OpenError> {
        connect::check_library()?;
        // Two paths to one file must lead to the same lock.
        let path = owner::resolve(path);
        let lock = Lock::take(&path, owner)?;
        let cannot = |failure: Failure| failure.while_opening("open", &path);
        let mut connection = connect::connect(&path, Role::Write).map_err(cannot)?;
        let content = schema::check(&connection, &path)?;
        connect::tune(&connection, Role::Write, &path)?;
        if content == Content::Empty {
            schema::create(&mut connection).map_err(cannot)?;
        }
        Ok(Self {
            owned: Mutex::new(Some(Owned {
                writer: Writer::new(connection).map_err(cannot)?,
                lock,
            })),
            readers: Readers::open(&path)?,
            watch: Watch::new(&path, reserve),
            syncs: AtomicU64::new(0),
            path,
        })
    }

    /// Publishes the address of the server that owns this store, in the lock file.
    ///
    /// # Errors
    /// If the lock file cannot be written.
    pub fn announce(&self, url: &str) -> io::Result<()> {
        // The lock file is rewritten as a whole, so an earlier panic does not matter.
        let mut owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
        let owned = owned.as_mut().ok_or_else(|| io::Error::other(CLOSED))?;
        owned.lock.write(Some(url))
    }

    /// The path of the database.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn read<T>(
        &self,
        read_for: ReadFor,
        doing: &'static str,
        ask: impl FnOnce(&Reader<'_>) -> Result<T, Failure>,
    ) -> Result<T, StoreError> {
        let answer = self.readers.borrow(read_for).and_then(|reader| ask(&reader));
        answer.map_err(|failure| match failure {
            Failure::Waited(waited) => StoreError::busy(doing, waited),
            failure => StoreError { doing, source: Box::new(failure) },
        })
    }

    fn aside<T>(
        &self,
        doing: &'static str,
        write: impl FnOnce(&Connection) -> Result<T, Failure>,
    ) -> Result<T, StoreError> {
        let cannot = |why: &'static str| StoreError { doing, source: why.into() };
        let mut owned = self.owned.lock().map_err(|_| cannot("an earlier write panicked"))?;
        let writer = &mut owned.as_mut().ok_or_else(|| cannot(CLOSED))?.writer;
        let written = writer.aside(write);
        self.syncs.store(writer.syncs(), Ordering::Relaxed);
        written.map_err(|failure| StoreError { doing, source: Box::new(failure) })
    }
}

impl StoreDump for Sqlite {
    fn dump(&self, each: &mut dyn FnMut(DumpRecord)) -> Result<(), StoreError> {
        self.read(ReadFor::Client, "read the store", |reader| dump::dump(reader, each))
    }

    fn id_of(&self, job: Seq) -> Option<JobId> {
        self.readers.borrow(ReadFor::Client).ok().and_then(|reader| rows::id_of(&reader, job))
    }
}

impl Store for Sqlite {
    fn load(&self, each: &mut dyn FnMut(Loaded)) -> Result<(), StoreError> {
        self.read(ReadFor::Server, "load the store", |reader| load::load(reader, each))
    }

    fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        let cannot = |why| CommitError::Broken(format!("commit {}: {why}", commit.last.0));
        let mut owned = self.owned.lock().map_err(|_| cannot("an earlier commit panicked"))?;
        let writer = &mut owned.as_mut().ok_or_else(|| cannot(CLOSED))?.writer;
        if commit.last <= writer.last_commit() {
            return Ok(());
        }
        self.watch.spend(commit);
        let mut kept = writer.commit(commit);
        if kept.as_ref().is_err_and(Halt::is_full) {
            self.watch.release();
            writer.free_space();
            // The first try was rolled back completely, so it can be repeated.
            kept = writer.commit(commit);
        }
        let settled = kept.and_then(|()| match writer.committed() {
            // The commit is durable; moving the log can wait until there is space.
            Err(failure) if failure.is_full() => {
                self.watch.release();
                Ok(())
            }
            settled => settled.map_err(Halt::Failure),
        });
        self.syncs.store(writer.syncs(), Ordering::Relaxed);
        settled.map_err(|halt| halt.of_commit(commit.last))
    }

    fn find(&self, ids: &[JobId], keys: &[Name], seqs: &[Seq]) -> Result<Vec<JobRow>, StoreError> {
        self.read(ReadFor::Server, "look up jobs", |reader| read::find(reader, ids, keys, seqs))
    }

    fn payloads(&self, jobs: &[Seq]) -> Result<Vec<Option<StoredText>>, StoreError> {
        self.read(ReadFor::Server, "read payloads", |reader| read::payloads(reader, jobs))
    }

    fn errors(&self, jobs: &[Seq]) -> Result<Vec<Option<StoredText>>, StoreError> {
        self.read(ReadFor::Client, "read the errors of jobs", |reader| notes::errors(reader, jobs))
    }

    fn history(&self, job: JobId) -> Result<Option<History>, StoreError> {
        self.read(ReadFor::Client, "read a job's history", |reader| read::history(reader, job))
    }

    fn list(&self, filter: &Filter, order: ListOrder, limit: usize) -> Result<Listed, StoreError> {
        self.read(ReadFor::Client, "list jobs", |reader| list::list(reader, filter, order, limit))
    }

    fn ids_ending(&self, digits: &str, limit: usize) -> Result<FoundIds, StoreError> {
        self.read(ReadFor::Client, "look for ids", |reader| read::ids_ending(reader, digits, limit))
    }

    fn expired(
        &self,
        after: Option<(Wall, Seq)>,
        before: Wall,
        limit: usize,
    ) -> Result<Vec<Expired>, StoreError> {
        self.read(ReadFor::Server, "look for expired jobs", |reader| {
            read::expired(reader, after, before, limit)
        })
    }

    fn outdated(&self, after: LeaseNo, before: Wall, limit: usize) -> Result<Outdated, StoreError> {
        self.read(ReadFor::Server, "look for outdated rows", |reader| {
            trim::outdated(reader, after, before, limit)
        })
    }

    fn daily_counts(&self, limit: usize) -> Result<Vec<DailyCount>, StoreError> {
        self.read(ReadFor::Client, "read the daily counts", |reader| {
            daily_counts::list(reader, limit)
        })
    }

    fn ledger(&self, after: LeaseNo, limit: usize) -> Result<Vec<LeaseRow>, StoreError> {
        self.read(ReadFor::Client, "read the ledger", |reader| read::ledger(reader, after, limit))
    }

    fn disk_space(&self) -> DiskSpace {
        self.watch.disk_space()
    }

    /// Counts the syncs of the write-ahead log (one per commit, and one more whenever the log
    /// starts again from the beginning) and those of checkpoints; not those of backups, opening and
    /// closing.
    fn sync_count(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    fn tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        self.read(ReadFor::Client, "read the tokens", |reader| tokens::list(reader))
    }

    fn keep_token(&self, token: &TokenRow) -> Result<(), StoreError> {
        self.aside("store a token", |connection| tokens::keep(connection, token))
    }

    fn revoke_token(&self, id: &str, at: Wall) -> Result<bool, StoreError> {
        self.aside("revoke a token", |connection| tokens::revoke(connection, id, at))
    }

    fn backup(&self, to: &Path) -> Result<(), StoreError> {
        self.read(ReadFor::Client, "make a backup", |reader| backup::copy(reader, to))
    }

    fn close(&self) {
        // Waits for a commit in progress; a panic has left nothing half written.
        self.owned.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
