//! History that concerns no stored job any more: closed rows of the ledger, and old notes about
//! workers.

use std::ops::RangeInclusive;

use filch_scheduler::id::LeaseNo;
use filch_scheduler::time::Wall;
use rusqlite::{Connection, OptionalExtension};

use super::error::{Failure, Halt};
use super::packed;
use super::rows::{self, bound, of_wall, ordered};
use crate::rules::Rejection;
use crate::store::Outdated;

/// How many notes are deleted at once, so that no commit takes long.
const NOTES_MOST: u32 = 4_096;

/// Examines rows of the ledger in their order.
pub(super) fn outdated(
    connection: &Connection,
    after: LeaseNo,
    recent: &RangeInclusive<Wall>,
    limit: usize,
) -> Result<Outdated, Failure> {
    let sql = "SELECT number, at, jobs, number IN (SELECT number FROM lease_open) FROM lease
               WHERE number > ?1 ORDER BY number LIMIT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    // One more row, to find out whether there are more.
    let mut found = statement.query((bound(after.0), bound(limit as u64 + 1)))?;
    let mut kept = Kept { connection };
    let (mut outdated, mut count) = (Outdated::default(), 0);
    let mut is_all = true;
    while let Some(row) = found.next()? {
        if recent.contains(&rows::wall(row, 1)?) {
            break;
        }
        if count == limit {
            is_all = false;
            break;
        }
        count += 1;
        let number = LeaseNo(rows::unsigned(row, 0)?);
        outdated.last = Some(number);
        let is_open: bool = row.get(3)?;
        if !is_open && !kept.has_any(row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?)? {
            outdated.leases.push(number);
        }
    }
    outdated.last = outdated.last.filter(|_| !is_all);
    let sql = "SELECT count(*) FROM (SELECT 1 FROM note INDEXED BY note_worker
                                     WHERE job IS NULL AND at < ?1 LIMIT ?2)";
    let mut notes = connection.prepare_cached(sql)?;
    let notes: i64 = notes.query_row((bound(recent.start().0), NOTES_MOST), |row| row.get(0))?;
    outdated.notes = notes.cast_unsigned();
    Ok(outdated)
}

/// Looks up whether jobs are stored, through the ranges of purged ones.
struct Kept<'read> {
    connection: &'read Connection,
}

impl Kept<'_> {
    fn has_any(&mut self, jobs: &[u8]) -> Result<bool, Failure> {
        // The range of purged jobs that the last one was in.
        let (mut first, mut last) = (1, 0);
        let sql =
            "SELECT first, last FROM purged_range WHERE first <= ?1 ORDER BY first DESC LIMIT 1";
        let mut find = self.connection.prepare_cached(sql)?;
        for hold in packed::unpack(jobs) {
            let job = bound(hold?.job.0);
            if (first..=last).contains(&job) {
                continue;
            }
            let range = find.query_row([job], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
            (first, last) = range.unwrap_or((1, 0));
            if !(first..=last).contains(&job) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Deletes these rows, none of which may be open, and notes about workers from before this time.
pub(super) fn trim(
    connection: &Connection,
    leases: &[LeaseNo],
    notes_before: Wall,
) -> Result<(), Halt> {
    let mut open = connection.prepare_cached("SELECT 1 FROM lease_open WHERE number = ?1")?;
    let mut remove = connection.prepare_cached("DELETE FROM lease WHERE number = ?1")?;
    for number in leases {
        let key = ordered(number.0)?;
        if open.exists([key])? {
            return Err(Rejection::TrimmedOpen(*number).into());
        }
        remove.execute([key])?;
    }
    let sql = "DELETE FROM note WHERE number IN
                   (SELECT number FROM note INDEXED BY note_worker
                    WHERE job IS NULL AND at < ?1 ORDER BY at LIMIT ?2)";
    connection.prepare_cached(sql)?.execute((of_wall(notes_before), NOTES_MOST))?;
    Ok(())
}
