//! The connection that writes: one transaction a commit, and what follows when it fails.

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

/// The connection that writes, and what it knows by heart.
pub(super) struct Writer {
    connection: Connection,
    numbers: Numbers,
    log: Log,
    live: Live,
    /// A disk that has failed once is not asked again: what it says then may not be true.
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

    /// How often the disk was synced.
    pub(super) const fn syncs(&self) -> u64 {
        self.log.syncs()
    }

    /// Keeps a commit that is not kept yet; afterwards it is durable, or nothing has changed.
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
                    misfit @ Halt::Misfit(_) => Err(misfit),
                }
            }
        }
    }

    /// What is to be done after a commit. That is kept also if this fails, but nothing more will be,
    /// unless all it needs is room.
    pub(super) fn committed(&mut self) -> Result<(), Failure> {
        let moved = self.log.committed(&self.connection);
        self.check(moved)
    }

    /// Writes something that is no part of any commit; afterwards it is durable, or nothing has changed.
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
                // What the tables do not permit says nothing about the disk.
                if !failure.is_full() && !failure.is_not_permitted() {
                    self.failed = Some(failure.to_string());
                }
                Err(failure)
            }
        }
    }

    /// Moves the log, however short: it needs no more room then for what it held.
    pub(super) fn make_room(&mut self) {
        let moved = self.log.advance(&self.connection);
        // If it did not help, the next commit says so.
        let _ = self.check(moved);
    }

    /// Takes notice of a failure that is not to be forgotten.
    fn check(&mut self, result: Result<(), Failure>) -> Result<(), Failure> {
        if let Err(failure) = &result
            && !failure.is_full()
        {
            let failure = failure.to_string();
            self.fail(failure);
        }
        result
    }

    /// From now on nothing is written and nothing is synced, also when the connection is closed: a sync
    /// that succeeds after one that failed says nothing about what was lost between them.
    fn fail(&mut self, failure: String) {
        let (connection, setting) = (&self.connection, DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE);
        let told = connection.set_db_config(setting, true);
        told.expect("every SQLite since 3.16 knows this setting");
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

    /// A commit with one note, which takes up room.
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
    fn a_full_database_keeps_nothing_of_a_commit_and_goes_on_when_there_is_room() {
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
