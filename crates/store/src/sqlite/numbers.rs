//! The newest numbers: the one row that every commit writes.

use filch_scheduler::id::{CommitNo, LeaseNo, Seq};
use rusqlite::Connection;

use super::error::{Failure, Halt};
use super::rows::{ordered, unsigned};

/// The newest number of each kind, stored or purged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Numbers {
    pub(super) commit: CommitNo,
    pub(super) seq: Seq,
    pub(super) lease: LeaseNo,
}

impl Numbers {
    pub(super) fn read(connection: &Connection) -> Result<Self, Failure> {
        let sql = "SELECT commit_last, seq_last, lease_last FROM store_meta";
        let mut statement = connection.prepare_cached(sql)?;
        let mut rows = statement.query(())?;
        let row = rows
            .next()?
            .ok_or_else(|| Failure::Content("the table `store_meta` is empty".into()))?;
        Ok(Self {
            commit: CommitNo(unsigned(row, 0)?),
            seq: Seq(unsigned(row, 1)?),
            lease: LeaseNo(unsigned(row, 2)?),
        })
    }

    pub(super) fn write(self, connection: &Connection) -> Result<(), Halt> {
        let sql = "UPDATE store_meta SET commit_last = ?1, seq_last = ?2, lease_last = ?3";
        let numbers = [ordered(self.commit.0)?, ordered(self.seq.0)?, ordered(self.lease.0)?];
        connection.prepare_cached(sql)?.execute(numbers)?;
        Ok(())
    }
}
