//! Read-only access to a store that a server may have open: a consistent snapshot.
//!
//! Nothing is written, and no lock is taken that a server would wait for: a server can go on
//! writing. Only the write-ahead log cannot start again from the beginning while the snapshot is
//! open.

use std::path::{Path, PathBuf};

use filch_scheduler::id::{JobId, Seq};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::connect::{self, Role};
use super::error::{Failure, OpenError};
use super::schema::Content;
use super::{backup, dump, owner, rows, schema};
use crate::integrity::{DumpRecord, StoreDump};
use crate::store::StoreError;

/// A read-only view of a store, as it was when the view was opened.
pub struct Snapshot {
    connection: Connection,
}

impl Snapshot {
    /// Opens the store in this file, whether a server has it open or not. The file may be a backup.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        connect::check_library()?;
        let path = owner::resolve(path);
        let connection = open(&path).map_err(|failure| failure.while_opening("open", &path))?;
        match schema::check(&connection, &path)? {
            Content::Empty => Err(OpenError::NotOurs(path)),
            Content::Store => Ok(Self { connection }),
        }
    }

    /// Writes a backup to a new file that only this user can read.
    ///
    /// # Errors
    /// If the file exists or cannot be written.
    pub fn backup(&self, to: &Path) -> Result<(), StoreError> {
        let copied = backup::copy(&self.connection, to);
        copied.map_err(|failure| StoreError { doing: "make a backup", source: Box::new(failure) })
    }
}

impl StoreDump for Snapshot {
    fn dump(&self, each: &mut dyn FnMut(DumpRecord)) -> Result<(), StoreError> {
        let read = dump::dump(&self.connection, each);
        read.map_err(|failure| StoreError { doing: "read the store", source: Box::new(failure) })
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
