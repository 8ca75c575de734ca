//! The write-ahead log: when it is checkpointed into the database, how long it becomes, and how
//! many syncs it took.
//!
//! SQLite would checkpoint by itself, but would neither report a failure nor count the syncs. A
//! checkpoint of a log of this length takes some tens of milliseconds. With a shorter limit,
//! checkpoints would be more frequent, and each would copy the pages again that every commit
//! writes.
//!
//! The log starts again from the beginning only at a moment when no read uses it. If reads overlap,
//! there is no such moment, so from some length on one is made: new reads wait for those in
//! progress to end, and reads that last long are interrupted before the log exceeds its limit.

use std::time::Duration;

use rusqlite::Connection;

use super::disk_space::DiskLimits;
use super::error::Failure;
use super::readers::{Readers, Stopping};

/// The log is checkpointed when it has this many pages.
const PAGES_MAX: u64 = 2_000;

/// The size of a page in the log, with its header.
const PAGE_BYTES: u64 = 4_096 + 24;

/// How long reads wait for others to end, and a commit for them, before the log is simply longer.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a commit waits for interrupted reads to end.
const STOP: Duration = Duration::from_secs(20);

pub(super) struct Log {
    limits: DiskLimits,
    /// All of it has been checkpointed, so the next commit starts it again from the beginning,
    /// unless a read still uses it.
    is_moved: bool,
    /// Its length after the last commit.
    bytes: u64,
    /// At this length, reads wait for a restart.
    restart_at: u64,
    /// Before this length, reads of clients are interrupted for a restart.
    stop_at: u64,
    syncs: u64,
}

impl Log {
    pub(super) fn new(connection: &Connection, limits: DiskLimits) -> Result<Self, Failure> {
        // After a clean shutdown it is empty; after a crash it has what was not checkpointed.
        let pages = look(connection, "NOOP")?.pages;
        Ok(Self {
            limits,
            is_moved: pages == 0,
            bytes: pages * PAGE_BYTES,
            restart_at: limits.log_restart,
            stop_at: limits.log_max,
            syncs: 0,
        })
    }

    pub(super) const fn syncs(&self) -> u64 {
        self.syncs
    }

    /// Makes room for a commit of about this size, if the log would exceed its limit.
    pub(super) fn make_room(
        &mut self,
        connection: &Connection,
        readers: &Readers,
        bytes: u64,
    ) -> Result<(), Failure> {
        // Pages are rarely full, so it takes more in the log.
        let needed = bytes.saturating_mul(2);
        let wanted = self.bytes.saturating_add(needed);
        if self.bytes == 0 || wanted <= self.stop_at {
            return Ok(());
        }
        // If another program reads the file, this does not help, so it is not tried at each commit.
        self.stop_at = wanted.saturating_add(self.limits.log_restart / 4);
        readers.paused(PAUSE, Stopping::Within(STOP), || self.advance(connection))
    }

    /// Counts a commit, and checkpoints the log if it has become long.
    pub(super) fn committed(
        &mut self,
        connection: &Connection,
        readers: &Readers,
    ) -> Result<(), Failure> {
        let Look { pages, .. } = look(connection, "NOOP")?;
        let bytes = pages * PAGE_BYTES;
        // One for the commit, and one for the header if the log has started again.
        self.syncs += 1 + u64::from(self.is_moved);
        self.is_moved = false;
        // After a restart, the log is as long as the last commit, however long that is.
        let has_restarted = bytes < self.bytes;
        self.bytes = bytes;
        if has_restarted || bytes < self.limits.log_restart {
            (self.restart_at, self.stop_at) = (self.limits.log_restart, self.limits.log_max);
        }
        if bytes >= self.restart_at {
            self.restart_at = bytes + self.limits.log_restart / 4;
            return readers.paused(PAUSE, Stopping::Never, || self.advance(connection));
        }
        if pages < PAGES_MAX { Ok(()) } else { self.advance(connection) }
    }

    /// Checkpoints the log, as far as no read needs it.
    pub(super) fn advance(&mut self, connection: &Connection) -> Result<(), Failure> {
        let before = look(connection, "NOOP")?;
        if before.pages == before.moved {
            self.is_moved = true;
            return Ok(());
        }
        let Look { pages, moved } = look(connection, "PASSIVE")?;
        // One for the log and, unless a read still needs some of it, one for the database.
        self.is_moved = pages == moved;
        self.syncs += 1 + u64::from(self.is_moved);
        Ok(())
    }
}

/// How many pages are in the log, and how many of them are checkpointed.
struct Look {
    pages: u64,
    moved: u64,
}

/// Reads the state of the log, after a checkpoint of this mode.
fn look(connection: &Connection, mode: &str) -> Result<Look, Failure> {
    let mut statement = connection.prepare_cached(&format!("PRAGMA wal_checkpoint({mode})"))?;
    // Negative if there is no log yet.
    let count = |pages: i64| u64::try_from(pages).unwrap_or(0);
    let look =
        |row: &rusqlite::Row<'_>| Ok(Look { pages: count(row.get(1)?), moved: count(row.get(2)?) });
    Ok(statement.query_row((), look)?)
}
