//! The epoch of the owner: raised by every process that opens the store to write, and compared in
//! every transaction that writes. So a former owner that still runs, for instance because its lock
//! file was removed, can write nothing more.

use rusqlite::{Connection, OptionalExtension as _, Row};

use super::error::{Failure, Halt};
use super::owner::{self, Lock};

/// What a new owner has to know.
pub(super) struct TakeOver {
    /// Its epoch.
    pub(super) epoch: u64,
    /// Whether the former owner has not closed the store, and its process still runs.
    pub(super) has_living_former: bool,
}

impl TakeOver {
    /// Makes this process the owner.
    pub(super) fn by(connection: &Connection, lock: &Lock) -> Result<Self, Failure> {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let taken = Self::raise(connection, lock).and_then(|taken| {
            connection.execute_batch("COMMIT")?;
            Ok(taken)
        });
        if !connection.is_autocommit() {
            connection.execute_batch("ROLLBACK")?;
        }
        taken
    }

    /// On a full disk: this process goes on under the epoch of the former owner, if that is gone.
    pub(super) fn without_writing(
        connection: &Connection,
        lock: &Lock,
    ) -> Result<Option<Self>, Failure> {
        let (has_living_former, epoch) = (may_live(connection, lock)?, read(connection)?);
        Ok((!has_living_former).then_some(Self { epoch, has_living_former }))
    }

    fn raise(connection: &Connection, lock: &Lock) -> Result<Self, Failure> {
        let has_living_former = may_live(connection, lock)?;
        let sql = "UPDATE store_meta
                   SET epoch = epoch + 1, owner_pid = ?1, owner_started = ?2, owner_lock = ?3
                   RETURNING epoch";
        let owner = (lock.pid(), owner::started(lock.pid()), lock.inode());
        let epoch: i64 = connection.query_row(sql, owner, |row| row.get(0))?;
        Ok(Self { epoch: epoch.cast_unsigned(), has_living_former })
    }
}

/// Whether the former owner may still run. It does not if it has closed the store, nor if it held
/// the lock file that this process holds now: then it has ended, even if it is still to be seen.
fn may_live(connection: &Connection, lock: &Lock) -> Result<bool, Failure> {
    let sql = "SELECT owner_pid, owner_started, owner_lock FROM store_meta";
    let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let found = connection.query_row(sql, (), read).optional()?;
    let (former, since, inode): (Option<u32>, Option<i64>, Option<i64>) =
        found.ok_or_else(empty)?;
    let has_let_go = since.is_none() || inode == Some(lock.inode());
    Ok(!has_let_go && former.and_then(owner::started) == since)
}

/// The epoch of the owner.
pub(super) fn read(connection: &Connection) -> Result<u64, Failure> {
    let mut statement = connection.prepare_cached("SELECT epoch FROM store_meta")?;
    let epoch: Option<i64> = statement.query_row((), |row| row.get(0)).optional()?;
    Ok(epoch.ok_or_else(empty)?.cast_unsigned())
}

fn empty() -> Failure {
    Failure::Content("the table `store_meta` is empty".into())
}

/// Refuses a write of a former owner. Within a transaction that writes, no other process can raise
/// the epoch after this.
pub(super) fn check(connection: &Connection, epoch: u64) -> Result<(), Halt> {
    if read(connection)? == epoch { Ok(()) } else { Err(Halt::Superseded) }
}

/// Writes that the owner of this epoch has closed the store.
pub(super) fn give_up(connection: &Connection, epoch: u64) -> Result<(), Failure> {
    let sql = "UPDATE store_meta
               SET owner_pid = NULL, owner_started = NULL, owner_lock = NULL WHERE epoch = ?1";
    connection.execute(sql, [epoch.cast_signed()])?;
    Ok(())
}
