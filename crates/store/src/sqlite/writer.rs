//! The connection that writes: one transaction per commit, and what happens when it fails.

use filch_scheduler::id::CommitNo;
use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::error::{Failure, Halt};
use super::live::Live;
use super::log::Log;
use super::numbers::Numbers;
use super::transaction::Transaction;
use crate::rules;
use crate::store::Commit;

/// The connection that writes, and the state that it caches.
pub(super) struct Writer {
    connection: Connection,
    numbers: Numbers,
    log: Log,
    live: Live,
    /// Set once the disk has failed. It is not used again then, because its answers cannot be
    /// trusted.
    failed: Option<String>,
}

impl Writer {
    pub(super) fn new(connection: Connection) -> Result<Self, Failure> {
        let (numbers, live) = (Numbers::read(&connection)?, Live::read(&connection)?);
        let log = Log::new(&connection)?;
        Ok(Self { connection, numbers, log, live, failed: None })
    }

    pub(super) const fn last_commit(&self) -> CommitNo {
        self.numbers.commit
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
        let kept = Transaction::new(&self.connection, self.numbers, &mut self.live).run(commit);
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
                    rejection @ Halt::Rejection(_) => Err(rejection),
                }
            }
        }
    }

    /// To be called after a commit. The commit is durable even if this fails, but no later one will
    /// be, unless the reason is only a full disk.
    pub(super) fn committed(&mut self) -> Result<(), Failure> {
        let moved = self.log.committed(&self.connection);
        self.check(moved)
    }

    /// Writes something that is not part of a commit; afterwards it is durable, or nothing has
    /// changed.
    pub(super) fn aside<T>(
        &mut self,
        write: impl FnOnce(&Connection) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if let Some(failed) = &self.failed {
            return Err(Failure::Earlier(failed.clone()));
        }
        match write(&self.connection) {
            Ok(written) => self.committed().map(|()| written),
            Err(failure) => {
                self.roll_back();
                // A violated constraint says nothing about the disk.
                if !failure.is_full() && !failure.is_not_permitted() {
                    self.failed = Some(failure.to_string());
                }
                Err(failure)
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
        let mut writer = Writer::new(connection).unwrap();
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
