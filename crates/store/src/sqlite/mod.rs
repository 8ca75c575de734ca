//! The keeping of one machine: a SQLite database in a file.
//!
//! One connection writes (`writer`), a few read (`readers`). The write-ahead log is synced at every
//! commit, so what has its receipt survives a power cut. Beside the database stand the lock of its owner
//! (`owner`) and a ballast (`room`).

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
use self::readers::{Reader, Readers};
use self::schema::Content;
use self::writer::Writer;
use crate::CommitError;
use crate::daily_count::DailyCount;
use crate::integrity::{DumpRecord, StoreDump};
use crate::store::{
    Commit, DiskSpace, Expired, Filter, History, ListOrder, Outdated, Store, StoreError, StoredText,
};
use crate::token::TokenRow;

/// What a write is told that comes after the store was let go.
const CLOSED: &str = "the store is closed, and may be somebody else's by now";

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
/// // Whoever comes second is told whom to talk to.
/// let second = Sqlite::open(&path, &OwnerNote::this_process());
/// let Err(OpenError::Held { url, .. }) = second else {
///     panic!("two owners");
/// };
/// assert_eq!(url.as_deref(), Some("http://127.0.0.1:7420"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Sqlite {
    readers: Readers,
    /// Nothing once it is closed. Whoever still reads then does no harm: the next owner's writes are not
    /// seen by a read that has begun, and do not wait for it.
    owned: Mutex<Option<Owned>>,
    watch: Watch,
    syncs: AtomicU64,
    path: PathBuf,
}

/// What only the owner has. Let go in this order: whoever opens the store next finds no other writer.
struct Owned {
    writer: Writer,
    lock: Lock,
}

impl Sqlite {
    /// Opens the store in this file; makes it if there is none.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(path: &Path, owner: &OwnerNote) -> Result<Self, OpenError> {
        Self::open_with(path, owner, DiskReserve::default())
    }

    /// Opens the store in this file, with other bounds on the room it leaves on the disk.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_with(
        path: &Path,
        owner: &OwnerNote,
        reserve: DiskReserve,
    ) -> Result<Self, OpenError> {
        connect::check_library()?;
        // So that two ways to one file lead to one lock.
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

    /// Tells others where the server of this store can be reached.
    ///
    /// # Errors
    /// If the file that says it cannot be written.
    pub fn announce(&self, url: &str) -> io::Result<()> {
        // What is written is whole or not, whoever panicked before.
        let mut owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
        let owned = owned.as_mut().ok_or_else(|| io::Error::other(CLOSED))?;
        owned.lock.write(Some(url))
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
    ) -> Result<T, StoreError> {
        let answer = self.readers.borrow().and_then(|reader| ask(&reader));
        answer.map_err(|failure| StoreError { doing, source: Box::new(failure) })
    }

    fn aside<T>(
        &self,
        doing: &'static str,
        write: impl FnOnce(&Connection) -> Result<T, Failure>,
    ) -> Result<T, StoreError> {
        let cannot = |why: &'static str| StoreError { doing, source: why.into() };
        let mut owned =
            self.owned.lock().map_err(|_| cannot("an earlier write ended in a panic"))?;
        let writer = &mut owned.as_mut().ok_or_else(|| cannot(CLOSED))?.writer;
        let written = writer.aside(write);
        self.syncs.store(writer.syncs(), Ordering::Relaxed);
        written.map_err(|failure| StoreError { doing, source: Box::new(failure) })
    }
}

impl StoreDump for Sqlite {
    fn dump(&self, each: &mut dyn FnMut(DumpRecord)) -> Result<(), StoreError> {
        self.read("read everything", |reader| dump::dump(reader, each))
    }

    fn id_of(&self, job: Seq) -> Option<JobId> {
        self.readers.borrow().ok().and_then(|reader| rows::id_of(&reader, job))
    }
}

impl Store for Sqlite {
    fn load(&self, each: &mut dyn FnMut(Loaded)) -> Result<(), StoreError> {
        self.read("load what is kept", |reader| load::load(reader, each))
    }

    fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        let cannot = |why| CommitError::Broken(format!("commit {}: {why}", commit.last.0));
        let mut owned = self.owned.lock().map_err(|_| cannot("an earlier one ended in a panic"))?;
        let writer = &mut owned.as_mut().ok_or_else(|| cannot(CLOSED))?.writer;
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
        let settled = kept.and_then(|()| match writer.committed() {
            // The commit is kept; what follows it can wait for room.
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
        self.read("look up jobs", |reader| read::find(reader, ids, keys, seqs))
    }

    fn payloads(&self, jobs: &[Seq]) -> Result<Vec<Option<StoredText>>, StoreError> {
        self.read("read payloads", |reader| read::payloads(reader, jobs))
    }

    fn errors(&self, jobs: &[Seq]) -> Result<Vec<Option<StoredText>>, StoreError> {
        self.read("read what went wrong", |reader| notes::errors(reader, jobs))
    }

    fn history(&self, job: JobId) -> Result<Option<History>, StoreError> {
        self.read("read a job's history", |reader| read::history(reader, job))
    }

    fn list(
        &self,
        filter: &Filter,
        order: ListOrder,
        limit: usize,
    ) -> Result<Vec<JobRow>, StoreError> {
        self.read("list jobs", |reader| list::list(reader, filter, order, limit))
    }

    fn ids_ending(&self, digits: &str, limit: usize) -> Result<Vec<JobId>, StoreError> {
        self.read("look for ids", |reader| read::ids_ending(reader, digits, limit))
    }

    fn expired(
        &self,
        after: Option<(Wall, Seq)>,
        before: Wall,
        limit: usize,
    ) -> Result<Vec<Expired>, StoreError> {
        self.read("look for expired jobs", |reader| read::expired(reader, after, before, limit))
    }

    fn outdated(&self, after: LeaseNo, before: Wall, limit: usize) -> Result<Outdated, StoreError> {
        self.read("look for old rows", |reader| trim::outdated(reader, after, before, limit))
    }

    fn daily_counts(&self, limit: usize) -> Result<Vec<DailyCount>, StoreError> {
        self.read("read the daily_counts", |reader| daily_counts::list(reader, limit))
    }

    fn ledger(&self, after: LeaseNo, limit: usize) -> Result<Vec<LeaseRow>, StoreError> {
        self.read("read the ledger", |reader| read::ledger(reader, after, limit))
    }

    fn disk_space(&self) -> DiskSpace {
        self.watch.disk_space()
    }

    /// Counted are the syncs of the write-ahead log, one at each commit and one more whenever it begins
    /// anew, and those that move it into the database; not those of backups, nor what opening and
    /// closing cost.
    fn sync_count(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    fn tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        self.read("read the tokens", |reader| tokens::list(reader))
    }

    fn keep_token(&self, token: &TokenRow) -> Result<(), StoreError> {
        self.aside("keep a token", |connection| tokens::keep(connection, token))
    }

    fn revoke_token(&self, id: &str, at: Wall) -> Result<bool, StoreError> {
        self.aside("end a token", |connection| tokens::revoke(connection, id, at))
    }

    fn backup(&self, to: &Path) -> Result<(), StoreError> {
        self.read("make a copy", |reader| backup::copy(reader, to))
    }

    fn close(&self) {
        // A commit that is on its way is waited for; a panic has left nothing half written.
        self.owned.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
