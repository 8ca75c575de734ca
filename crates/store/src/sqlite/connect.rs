//! Connections to the file, and their settings.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::error::Failure;
use crate::open::OpenError;

/// Older versions can lose a transaction when one connection checkpoints the log while another
/// writes.
const LIBRARY_OLDEST: i32 = 3_051_003;

/// How long a commit waits for another program that has locked the file.
const BUSY: Duration = Duration::from_secs(10);

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Write,
    Read,
}

pub(super) fn check_library() -> Result<(), OpenError> {
    if rusqlite::version_number() < LIBRARY_OLDEST {
        return Err(OpenError::Unusable(format!(
            "SQLite {} can lose committed data: build filch with 3.51.3 or newer",
            rusqlite::version()
        )));
    }
    Ok(())
}

/// Opens the file. Only a writer creates it if there is none.
pub(super) fn connect(path: &Path, role: Role) -> Result<Connection, Failure> {
    // Not as a URI: a path is a path. Nor with a mutex: each connection has one user at a time.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if role == Role::Write {
        make(path)?;
    }
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

/// Creates the file if there is none, readable by its owner only, because jobs may be confidential.
/// SQLite gives the files beside it the same permissions.
fn make(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Prepares a connection for its role. Writes to the file, so the file must be known to be a store.
pub(super) fn tune(connection: &Connection, role: Role, path: &Path) -> Result<(), OpenError> {
    let cannot = |error: rusqlite::Error| Failure::from(error).while_opening("set up", path);
    let mode = connection.query_row("PRAGMA journal_mode = WAL", (), |row| row.get(0));
    let mode: String = mode.map_err(cannot)?;
    if mode != "wal" {
        return Err(OpenError::Unusable(format!(
            "the file system supports no write-ahead log, only {mode}: use a local disk"
        )));
    }
    // `log` does the checkpoints; the log file is reused, up to a size limit. Pages that were
    // written or read are rarely needed again: a larger cache would only fill up and look like a
    // memory leak.
    let settings = "
        PRAGMA synchronous = FULL;
        PRAGMA wal_autocheckpoint = 0;
        PRAGMA journal_size_limit = 67108864;
        PRAGMA temp_store = MEMORY;
        PRAGMA trusted_schema = OFF;
    ";
    let own = match role {
        Role::Write => "PRAGMA cache_size = -16384;",
        // Not opened read-only, because such a connection cannot create the shared memory of the
        // log.
        Role::Read => "PRAGMA query_only = ON; PRAGMA cache_size = -4096;",
    };
    let set = connection.execute_batch(settings).and_then(|()| connection.execute_batch(own));
    set.map_err(cannot)
}
