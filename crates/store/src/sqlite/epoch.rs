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
    /// Whether a former owner has not closed the store, and its process may still run.
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

    /// On a full disk: this process goes on under the epoch of the former owner, if all
    /// former owners are gone.
    pub(super) fn without_writing(
        connection: &Connection,
        lock: &Lock,
    ) -> Result<Option<Self>, Failure> {
        let (has_living_former, epoch) = (may_live(connection, lock)?, read(connection)?);
        Ok((!has_living_former).then_some(Self { epoch, has_living_former }))
    }

    fn raise(connection: &Connection, lock: &Lock) -> Result<Self, Failure> {
        let has_living_former = may_live(connection, lock)?;
        let sql = "UPDATE store_meta SET epoch = epoch + 1 RETURNING epoch";
        let epoch: i64 =
            connection.query_row(sql, (), |row| row.get(0)).optional()?.ok_or_else(empty)?;
        let former = formers(connection)?;
        for former in former.iter().filter(|former| !former.may_live(lock)) {
            connection.execute("DELETE FROM owner WHERE epoch = ?1", [former.epoch])?;
        }
        let sql = "INSERT INTO owner (epoch, pid, started, lock) VALUES (?1, ?2, ?3, ?4)";
        let started = owner::started(lock.pid());
        connection.execute(sql, (epoch, lock.pid(), started, lock.inode()))?;
        Ok(Self { epoch: epoch.cast_unsigned(), has_living_former })
    }
}

/// A process that has opened the store and not closed it.
struct Former {
    epoch: i64,
    pid: u32,
    started: Option<i64>,
    lock: i64,
}

impl Former {
    /// Whether it may still run. It does not if it held the lock file that this process holds now:
    /// then it has ended, even if it is still to be seen.
    fn may_live(&self, lock: &Lock) -> bool {
        let is_there = self.started.is_some() && owner::started(self.pid) == self.started;
        is_there && self.lock != lock.inode()
    }
}

fn formers(connection: &Connection) -> Result<Vec<Former>, Failure> {
    let mut statement = connection.prepare("SELECT epoch, pid, started, lock FROM owner")?;
    let read = |row: &Row<'_>| {
        Ok(Former { epoch: row.get(0)?, pid: row.get(1)?, started: row.get(2)?, lock: row.get(3)? })
    };
    let found = statement.query_map((), read)?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// Whether any former owner may still run.
fn may_live(connection: &Connection, lock: &Lock) -> Result<bool, Failure> {
    Ok(formers(connection)?.iter().any(|former| former.may_live(lock)))
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
    connection.execute("DELETE FROM owner WHERE epoch = ?1", [epoch.cast_signed()])?;
    Ok(())
}
