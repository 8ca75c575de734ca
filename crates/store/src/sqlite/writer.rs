//! The connection that writes: one transaction per commit, and what happens when it fails.

use std::sync::Arc;

use filch_scheduler::id::CommitNo;
use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::disk_space::DiskLimits;
use super::epoch;
use super::error::{Failure, Halt};
use super::live::Live;
use super::log::Log;
use super::numbers::Numbers;
use super::readers::Readers;
use super::transaction::Transaction;
use crate::rules;
use crate::store::Commit;

/// The connection that writes, and the state that it caches.
pub(super) struct Writer {
    connection: Connection,
    readers: Arc<Readers>,
    epoch: u64,
    numbers: Numbers,
    log: Log,
    live: Live,
    /// Set once the disk has failed. It is not used again then, because its answers cannot be
    /// trusted.
    failed: Option<String>,
}

impl Writer {
    /// The writer of the owner of this epoch.
    pub(super) fn new(
        connection: Connection,
        epoch: u64,
        readers: Arc<Readers>,
        limits: DiskLimits,
    ) -> Result<Self, Failure> {
        let (numbers, live) = (Numbers::read(&connection)?, Live::read(&connection)?);
        let log = Log::new(&connection, limits)?;
        Ok(Self { connection, readers, epoch, numbers, log, live, failed: None })
    }

    pub(super) const fn last_commit(&self) -> CommitNo {
        self.numbers.commit
    }

    /// Whether this process still owns the store.
    pub(super) fn check_owner(&mut self) -> Result<(), Halt> {
        if let Some(failed) = &self.failed {
            return Err(Failure::Earlier(failed.clone()).into());
        }
        epoch::check(&self.connection, self.epoch)
    }

    /// How many disk syncs there were.
    pub(super) const fn syncs(&self) -> u64 {
        self.log.syncs()
    }

    /// Stores a commit that is not stored yet; afterwards it is durable, or nothing has changed.
    pub(super) fn commit(&mut self, commit: &Commit) -> Result<(), Halt> {
        if let Some(failed) = &self.failed {
            return Err(Failure::Earlier(failed.clone()).into());
        }
        rules::check_payloads(commit)?;
        rules::check_purges(commit)?;
        self.make_room(commit)?;
        let kept = Transaction::new(&self.connection, self.epoch, self.numbers, &mut self.live)
            .run(commit);
        match kept {
            Ok(numbers) => {
                self.numbers = numbers;
                self.live.settle();
                Ok(())
            }
            Err(halt) => {
                self.live.take_back();
                self.roll_back();
                match halt {
                    Halt::Failure(failure) => self.check(Err(failure)).map_err(Halt::Failure),
                    halt @ (Halt::Rejection(_) | Halt::Superseded) => Err(halt),
                }
            }
        }
    }

    fn make_room(&mut self, commit: &Commit) -> Result<(), Failure> {
        match self.log.make_room(&self.connection, &self.readers, commit.size()) {
            // The commit itself finds out whether there is space for it.
            Err(failure) if failure.is_full() => Ok(()),
            made => self.check(made),
        }
    }

    /// To be called after a commit. The commit is durable even if this fails, but no later one will
    /// be, unless the reason is only a full disk.
    pub(super) fn committed(&mut self) -> Result<(), Failure> {
        let moved = self.log.committed(&self.connection, &self.readers);
        self.check(moved)
    }

    /// Writes something that is not part of a commit; afterwards it is durable, or nothing has
    /// changed.
    pub(super) fn aside<T>(
        &mut self,
        write: impl FnOnce(&Connection) -> Result<T, Failure>,
    ) -> Result<T, Halt> {
        if let Some(failed) = &self.failed {
            return Err(Failure::Earlier(failed.clone()).into());
        }
        match in_transaction(&self.connection, self.epoch, write) {
            Ok(written) => match self.committed() {
                // It is durable; the next write finds out whether there is space for it.
                Err(failure) if !failure.is_full() => Err(failure.into()),
                _ => Ok(written),
            },
            Err(halt) => {
                self.roll_back();
                match halt {
                    Halt::Failure(failure) => {
                        let checked = self.check(Err(failure));
                        Err(checked.expect_err("it has failed").into())
                    }
                    halt @ (Halt::Rejection(_) | Halt::Superseded) => Err(halt),
                }
            }
        }
    }

    /// Checkpoints the log, however short it is, so that its space can be reused.
    pub(super) fn free_space(&mut self) {
        let moved = self.log.advance(&self.connection);
        // If it did not help, the next commit fails.
        let _ = self.check(moved);
    }

    /// Remembers a failure of the disk.
    fn check(&mut self, result: Result<(), Failure>) -> Result<(), Failure> {
        if let Err(failure) = &result
            && !failure.is_full()
        {
            let failure = failure.to_string();
            self.fail(failure);
        }
        result
    }

    /// From now on nothing is written or synced, not even when the connection is closed: a sync
    /// that succeeds after one that failed says nothing about what was lost between them.
    fn fail(&mut self, failure: String) {
        let (connection, setting) = (&self.connection, DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE);
        let set = connection.set_db_config(setting, true);
        set.expect("every SQLite since 3.16 knows this setting");
        self.failed = Some(failure);
    }

    fn roll_back(&mut self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            self.fail(error.to_string());
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.failed.is_none() {
            // If it fails, the next owner looks whether this process still runs.
            let _ = epoch::give_up(&self.connection, self.epoch);
        }
    }
}

fn in_transaction<T>(
    connection: &Connection,
    epoch: u64,
    write: impl FnOnce(&Connection) -> Result<T, Failure>,
) -> Result<T, Halt> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    epoch::check(connection, epoch)?;
    let written = write(connection)?;
    connection.execute_batch("COMMIT")?;
    Ok(written)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{connect, schema};
    use super::*;

    /// A commit with one long note, which needs disk space.
    fn commit(number: u64) -> Commit {
        use filch_scheduler::id::{Fence, Hold, Seq, WorkerId};
        use filch_scheduler::record::{AttemptOutcome, Mutation, Note};
        let note = Note::Attempt {
            hold: Hold { job: Seq(number), fence: Fence(1) },
            worker: WorkerId::apart(1),
            outcome: AttemptOutcome::Failed("x".repeat(2_000).into()),
        };
        let mutations = vec![Mutation::Note(note)];
        Commit { last: CommitNo(number), mutations, ..Commit::default() }
    }

    #[test]
    fn a_full_database_rejects_the_whole_commit_and_recovers_when_there_is_space() {
        let folder = tempfile::tempdir().unwrap();
        let path: &Path = &folder.path().join("filch.db");
        let mut connection = connect::connect(path, connect::Role::Write).unwrap();
        connect::tune(&connection, connect::Role::Write, path).unwrap();
        schema::create(&mut connection).unwrap();
        connection.pragma_update(None, "max_page_count", 100).unwrap();
        let readers = Arc::new(Readers::open(path).unwrap());
        let mut writer = Writer::new(connection, 0, readers, DiskLimits::DEFAULT).unwrap();
        let mut number = 1;
        let halt = loop {
            match writer.commit(&commit(number)) {
                Ok(()) => number += 1,
                Err(halt) => break halt,
            }
        };
        assert!(halt.is_full() && number > 20, "{halt} at {number}");
        assert_eq!(writer.last_commit(), CommitNo(number - 1));
        assert_eq!(Numbers::read(&writer.connection).unwrap(), writer.numbers);
        writer.connection.pragma_update(None, "max_page_count", 200).unwrap();
        writer.commit(&commit(number)).unwrap();
        assert_eq!(writer.last_commit(), CommitNo(number));
    }
}
