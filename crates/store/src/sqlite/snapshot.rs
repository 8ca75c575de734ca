//! Read-only access to a store that a server may have open: a consistent snapshot.
//!
//! Nothing is written, and no lock is taken that a server would wait for: a server can go on
//! writing. Only the write-ahead log cannot start again from the beginning while the snapshot is
//! open, and the server cannot end it; so a read ends itself before the log exceeds its limit.

use std::path::{Path, PathBuf};

use filch_scheduler::id::{JobId, Seq};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::connect::{self, Role};
use super::disk_space::DiskLimits;
use super::error::Failure;
use super::schema::Content;
use super::{backup, dump, owner, rows, schema};
use crate::integrity::{DumpRecord, StoreDump};
use crate::open::OpenError;
use crate::store::StoreError;

/// A read-only view of a store, as it was when the view was opened.
pub struct Snapshot {
    connection: Connection,
    watch: LogWatch,
}

/// How many steps of a query there are between two looks at the log: less than a millisecond.
const STEPS: i32 = 10_000;

impl Snapshot {
    /// Opens the store in this file, whether a server has it open or not. The file may be a backup.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        Self::open_with(path, DiskLimits::DEFAULT)
    }

    /// Opens the store in this file with other limits on the size of its log.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_with(path: &Path, limits: DiskLimits) -> Result<Self, OpenError> {
        connect::check_library()?;
        let path = owner::resolve(path);
        let cannot = |failure: Failure| failure.while_opening("open", &path);
        let watch = LogWatch::new(&path, limits);
        let mut connection = open(&path).map_err(cannot)?;
        if schema::check(&connection, &path)? == Content::Empty {
            return Err(OpenError::NotOurs(path));
        }
        let watching = watch.clone();
        let watched = connection.progress_handler(STEPS, Some(move || watching.is_over()));
        watched.map_err(|error| cannot(error.into()))?;
        Ok(Self { connection, watch })
    }

    /// Writes a backup to a new file that only this user can read.
    ///
    /// # Errors
    /// If the file exists or cannot be written.
    pub fn backup(&self, to: &Path) -> Result<(), StoreError> {
        let copied = backup::copy(&self.connection, to, &|| self.watch.is_over());
        copied.map_err(|failure| failure.of_read("make a backup"))
    }
}

/// Watches how long the log has become since a snapshot was opened.
#[derive(Clone)]
struct LogWatch {
    log: PathBuf,
    bytes_max: u64,
}

impl LogWatch {
    fn new(path: &Path, limits: DiskLimits) -> Self {
        let log = log_of(path);
        let at_first = log.metadata().map_or(0, |log| log.len());
        // The server's own limit, less what it writes until a read notices.
        Self { log, bytes_max: at_first.max(limits.log_max / 4 * 3) }
    }

    fn is_over(&self) -> bool {
        self.log.metadata().is_ok_and(|log| log.len() > self.bytes_max)
    }
}

impl StoreDump for Snapshot {
    fn dump(&self, each: &mut dyn FnMut(DumpRecord)) -> Result<(), StoreError> {
        let read = dump::dump(&self.connection, each);
        read.map_err(|failure| failure.of_read("read the store"))
    }

    fn id_of(&self, job: Seq) -> Option<JobId> {
        rows::id_of(&self.connection, job)
    }
}

fn open(path: &Path) -> Result<Connection, Failure> {
    let log = log_of(path);
    // After a crash the log has what was not checkpointed. It is left unchanged.
    let has_log = log.exists();
    let connection = begin(connect::connect(path, Role::Read)?);
    let connection = match connection {
        // In a read-only directory, a file without a log can be opened as immutable.
        Err(_) if !has_log && is_unwritable(path) => begin(immutable(path)?)?,
        connection => connection?,
    };
    if has_log {
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    }
    Ok(connection)
}

/// Begins a transaction: from its first read on, all reads see the same state.
fn begin(connection: Connection) -> Result<Connection, Failure> {
    connection.execute_batch("PRAGMA query_only = ON; PRAGMA trusted_schema = OFF; BEGIN")?;
    connection.query_row("SELECT count(*) FROM sqlite_schema", (), |_| Ok(()))?;
    Ok(connection)
}

fn is_unwritable(path: &Path) -> bool {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    rustix::fs::access(folder.unwrap_or(Path::new(".")), rustix::fs::Access::WRITE_OK).is_err()
}

fn immutable(path: &Path) -> Result<Connection, Failure> {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                uri.push(*byte as char);
            }
            byte => uri.push_str(&format!("%{byte:02x}")),
        }
    }
    uri.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    Ok(Connection::open_with_flags(uri, flags)?)
}

fn log_of(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}
