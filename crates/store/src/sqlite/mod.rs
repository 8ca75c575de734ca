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
mod epoch;
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

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use filch_scheduler::id::{JobId, LeaseNo, Seq};
use filch_scheduler::name::Name;
use filch_scheduler::record::{JobRow, Loaded};
use filch_scheduler::spec::QueueKey;
use filch_scheduler::time::Wall;
use rusqlite::Connection;

pub use self::disk_space::DiskLimits;
pub(crate) use self::owner::holder;
pub use self::snapshot::Snapshot;
pub(crate) use self::tokens::has_tokens;

use self::connect::Role;
use self::disk_space::Watch;
use self::epoch::TakeOver;
use self::error::{Failure, Halt};
use self::owner::Lock;
use self::readers::{ReadFor, Reader, Readers};
use self::schema::Content;
use self::writer::Writer;
use crate::CommitError;
use crate::daily_count::DailyCount;
use crate::integrity::{DumpRecord, StoreDump};
use crate::open::{OpenError, OwnerNote};
use crate::store::{
    ActFilter, Commit, Expired, Filter, FoundIds, History, JobText, ListOrder, Listed, Outdated,
    Store, StoreError, StoreStatus, StoredAct, StoredText,
};
use crate::token::{TokenChange, TokenRow};

/// The error of a write after the store was closed.
const CLOSED: &str = "the store is closed, and another process may have opened it";

/// A SQLite database in a file, owned by this process until it is closed or dropped.
pub struct Sqlite {
    readers: Arc<Readers>,
    /// `None` once it is closed. Reads after that are harmless: a read in progress neither sees nor
    /// blocks the next owner's writes.
    owned: Mutex<Option<Owned>>,
    /// Of this owner.
    epoch: u64,
    /// Whether the former owner may still run.
    has_living_former: bool,
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
        Self::open_with(path, owner, DiskLimits::DEFAULT)
    }

    /// Opens the store in this file, with other limits on the disk space that it uses and leaves
    /// free.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_with(
        path: &Path,
        owner: &OwnerNote,
        limits: DiskLimits,
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
        let watch = Watch::new(&path, limits);
        let readers = Arc::new(Readers::open(&path)?);
        let taken = take_over(&connection, &lock, &watch);
        let TakeOver { epoch, has_living_former } = taken.map_err(cannot)?;
        let writer = Writer::new(connection, epoch, Arc::clone(&readers), limits);
        let writer = writer.map_err(cannot)?;
        Ok(Self {
            epoch,
            has_living_former,
            owned: Mutex::new(Some(Owned { writer, lock })),
            readers,
            watch,
            syncs: AtomicU64::new(0),
            path,
        })
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
        answer.map_err(|failure| failure.of_read(doing))
    }

    /// Runs `write` as the owner.
    fn write<T>(
        &self,
        doing: &str,
        write: impl FnOnce(&mut Writer) -> Result<T, Halt>,
    ) -> Result<T, CommitError> {
        let cannot = |why| CommitError::Broken(format!("{doing}: {why}"));
        let mut owned = self.owned.lock().map_err(|_| cannot("an earlier write panicked"))?;
        let writer = &mut owned.as_mut().ok_or_else(|| cannot(CLOSED))?.writer;
        let written = write(writer);
        self.syncs.store(writer.syncs(), Ordering::Relaxed);
        written.map_err(|halt| halt.of_write(doing))
    }

    fn write_commit(&self, writer: &mut Writer, commit: &Commit) -> Result<(), Halt> {
        if commit.last <= writer.last_commit() {
            return writer.check_owner();
        }
        self.watch.spend(commit);
        let mut kept = writer.commit(commit);
        if kept.as_ref().is_err_and(Halt::is_full) {
            self.watch.release();
            writer.free_space();
            // The first try was rolled back completely, so it can be repeated.
            kept = writer.commit(commit);
        }
        kept?;
        match writer.committed() {
            // The commit is durable; moving the log can wait until there is space.
            Err(failure) if failure.is_full() => {
                self.watch.release();
                Ok(())
            }
            settled => settled.map_err(Halt::Failure),
        }
    }
}

/// Makes this process the owner, if possible also on a full disk.
fn take_over(connection: &Connection, lock: &Lock, watch: &Watch) -> Result<TakeOver, Failure> {
    let is_full = |taken: &Result<TakeOver, Failure>| taken.as_ref().is_err_and(Failure::is_full);
    let mut taken = TakeOver::by(connection, lock);
    if is_full(&taken) {
        watch.release();
        taken = TakeOver::by(connection, lock);
    }
    match TakeOver::without_writing(connection, lock) {
        Ok(Some(former)) if is_full(&taken) => Ok(former),
        _ => taken,
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
        let former = self.has_living_former;
        self.read(ReadFor::Server, "load the store", |reader| load::load(reader, former, each))
    }

    fn commit(&self, commit: &Commit) -> Result<(), CommitError> {
        let doing = format!("commit {}", commit.last.0);
        self.write(&doing, |writer| self.write_commit(writer, commit))
    }

    fn is_owned(&self) -> Result<bool, StoreError> {
        let newest = self.read(ReadFor::Server, "read the epoch", |reader| epoch::read(reader));
        Ok(newest? == self.epoch)
    }

    fn find(
        &self,
        ids: &[JobId],
        keys: &[QueueKey],
        seqs: &[Seq],
    ) -> Result<Vec<JobRow>, StoreError> {
        self.read(ReadFor::Server, "look up jobs", |reader| read::find(reader, ids, keys, seqs))
    }

    fn texts(&self, which: JobText, jobs: &[Seq]) -> Result<Vec<Option<StoredText>>, StoreError> {
        match which {
            JobText::Payload => {
                self.read(ReadFor::Server, "read payloads", |reader| read::payloads(reader, jobs))
            }
            JobText::LastError => self.read(ReadFor::Client, "read the errors of jobs", |reader| {
                notes::errors(reader, jobs)
            }),
        }
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

    fn outdated(
        &self,
        after: LeaseNo,
        recent: &RangeInclusive<Wall>,
        limit: usize,
    ) -> Result<Outdated, StoreError> {
        self.read(ReadFor::Server, "look for outdated rows", |reader| {
            trim::outdated(reader, after, recent, limit)
        })
    }

    fn daily_counts(&self, limit: usize) -> Result<Vec<DailyCount>, StoreError> {
        self.read(ReadFor::Client, "read the daily counts", |reader| {
            daily_counts::list(reader, limit)
        })
    }

    fn tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        self.read(ReadFor::Server, "read the tokens", |reader| tokens::list(reader))
    }

    fn acts(
        &self,
        filter: &ActFilter,
        before: u64,
        limit: usize,
    ) -> Result<Vec<StoredAct>, StoreError> {
        self.read(ReadFor::Client, "read the audit trail", |reader| {
            notes::acts(reader, filter, before, limit)
        })
    }

    fn token_version(&self) -> Result<u64, StoreError> {
        self.read(ReadFor::Server, "read the tokens", |reader| tokens::version(reader))
    }

    fn change_token(&self, change: &TokenChange, by: Option<&Name>) -> Result<bool, CommitError> {
        self.write("change a token", |writer| {
            writer.aside(|connection| tokens::change(connection, change, by))
        })
    }

    /// Counts the syncs of the write-ahead log (one per commit, and one more whenever the log
    /// starts again from the beginning) and those of checkpoints; not those of backups, opening and
    /// closing.
    fn status(&self) -> StoreStatus {
        let syncs = self.syncs.load(Ordering::Relaxed);
        StoreStatus { space: self.watch.space(), syncs }
    }

    /// Writes it into the lock file.
    fn announce(&self, url: &str) -> Result<(), StoreError> {
        let cannot = |source| StoreError { doing: "write the server's address", source };
        // The lock file is rewritten as a whole, so an earlier panic does not matter.
        let mut owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
        let owned = owned.as_mut().ok_or_else(|| cannot(CLOSED.into()))?;
        owned.lock.write(Some(url)).map_err(|error| cannot(error.into()))
    }

    fn close(&self) {
        // Waits for a commit in progress; a panic has left nothing half written.
        self.owned.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
