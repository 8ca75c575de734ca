//! The write-ahead log: when it is moved into the database, and how often the disk was synced for it.
//!
//! SQLite would move it by itself, but would not say if that failed, nor count what it costs. Moving a
//! log of this length takes some tens of milliseconds; a shorter one is moved more often, and the pages
//! that every commit writes again are moved each time.

use rusqlite::Connection;

use super::error::Failure;

/// With so many pages in it, the log is moved.
const PAGES_MAX: i64 = 2_000;

pub(super) struct Log {
    /// Everything in it has been moved, so that the next commit begins it anew.
    is_moved: bool,
    syncs: u64,
}

impl Log {
    pub(super) fn new(connection: &Connection) -> Result<Self, Failure> {
        // After a clean end it is empty; after a crash it holds what was not moved.
        Ok(Self { is_moved: look(connection, "NOOP")?.pages <= 0, syncs: 0 })
    }

    pub(super) const fn syncs(&self) -> u64 {
        self.syncs
    }

    /// Counts a commit, and moves the log if it has become long.
    pub(super) fn committed(&mut self, connection: &Connection) -> Result<(), Failure> {
        // One for the commit, and one for the header if the log has begun anew.
        self.syncs += 1 + u64::from(self.is_moved);
        self.is_moved = false;
        if look(connection, "NOOP")?.pages < PAGES_MAX {
            return Ok(());
        }
        self.advance(connection)
    }

    /// Moves the log, as far as no reader needs it.
    pub(super) fn advance(&mut self, connection: &Connection) -> Result<(), Failure> {
        let Look { pages, moved } = look(connection, "PASSIVE")?;
        // One for the log and, unless a reader still needs some of it, one for the database.
        self.is_moved = pages == moved;
        self.syncs += 1 + u64::from(self.is_moved);
        Ok(())
    }
}

/// How many pages are in the log, and how many of them have been moved.
struct Look {
    pages: i64,
    moved: i64,
}

/// Looks at the log, or moves it and then looks.
fn look(connection: &Connection, mode: &str) -> Result<Look, Failure> {
    let mut statement = connection.prepare_cached(&format!("PRAGMA wal_checkpoint({mode})"))?;
    Ok(statement.query_row((), |row| Ok(Look { pages: row.get(1)?, moved: row.get(2)? }))?)
}
