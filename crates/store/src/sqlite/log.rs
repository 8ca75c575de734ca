//! The write-ahead log: when it is checkpointed into the database, and how many syncs it took.
//!
//! SQLite would checkpoint by itself, but would neither report a failure nor count the syncs. A
//! checkpoint of a log of this length takes some tens of milliseconds. With a shorter limit,
//! checkpoints would be more frequent, and each would copy the pages again that every commit
//! writes.

use rusqlite::Connection;

use super::error::Failure;

/// The log is checkpointed when it has this many pages.
const PAGES_MAX: i64 = 2_000;

pub(super) struct Log {
    /// All of it has been checkpointed, so the next commit starts it again from the beginning.
    is_moved: bool,
    syncs: u64,
}

impl Log {
    pub(super) fn new(connection: &Connection) -> Result<Self, Failure> {
        // After a clean shutdown it is empty; after a crash it has what was not checkpointed.
        Ok(Self { is_moved: look(connection, "NOOP")?.pages <= 0, syncs: 0 })
    }

    pub(super) const fn syncs(&self) -> u64 {
        self.syncs
    }

    /// Counts a commit, and checkpoints the log if it has become long.
    pub(super) fn committed(&mut self, connection: &Connection) -> Result<(), Failure> {
        // One for the commit, and one for the header if the log has started again.
        self.syncs += 1 + u64::from(self.is_moved);
        self.is_moved = false;
        if look(connection, "NOOP")?.pages < PAGES_MAX {
            return Ok(());
        }
        self.advance(connection)
    }

    /// Checkpoints the log, as far as no reader needs it.
    pub(super) fn advance(&mut self, connection: &Connection) -> Result<(), Failure> {
        let Look { pages, moved } = look(connection, "PASSIVE")?;
        // One for the log and, unless a reader still needs some of it, one for the database.
        self.is_moved = pages == moved;
        self.syncs += 1 + u64::from(self.is_moved);
        Ok(())
    }
}

/// How many pages are in the log, and how many of them are checkpointed.
struct Look {
    pages: i64,
    moved: i64,
}

/// Reads the state of the log, after a checkpoint of this mode.
fn look(connection: &Connection, mode: &str) -> Result<Look, Failure> {
    let mut statement = connection.prepare_cached(&format!("PRAGMA wal_checkpoint({mode})"))?;
    Ok(statement.query_row((), |row| Ok(Look { pages: row.get(1)?, moved: row.get(2)? }))?)
}
