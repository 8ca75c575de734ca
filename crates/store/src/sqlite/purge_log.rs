//! The record of purged jobs: their numbers, and why they were purged.
//!
//! Numbers are stored as ranges. Between two ranges there is a stored job, so there are never more
//! ranges than jobs, and mostly there is one range, however many jobs were purged. Causes are
//! stored by day.

use rusqlite::{Connection, OptionalExtension};

use super::error::Failure;
use super::rows::of_wall;
use crate::clock::clock;
use crate::store::PurgeCause;

/// Purges for the same cause within this span share a row.
const DAY_MS: i64 = 24 * 3_600 * 1_000;

pub(super) const EXPIRED: i64 = 1;
const DISCARDED: i64 = 2;
pub(super) const MISDATED: i64 = 3;

/// Records the purge of these ranges. Their jobs must still be stored.
pub(super) fn record(
    connection: &Connection,
    ranges: &[[i64; 2]],
    cause: PurgeCause,
) -> Result<(), Failure> {
    // The job that ended last has waited least.
    let mut newest: Option<(i64, i64)> = None;
    let sql = "SELECT max(at), seq FROM job_state WHERE seq BETWEEN ?1 AND ?2";
    let mut find = connection.prepare_cached(sql)?;
    for range in ranges {
        let found = find.query_row(*range, |row| {
            Ok(row.get::<_, Option<i64>>(0)?.zip(row.get::<_, Option<i64>>(1)?))
        })?;
        newest = newest.max(found);
        add(connection, *range)?;
    }
    let jobs = ranges.iter().map(|[first, last]| last - first + 1).sum::<i64>();
    let (cause, retention) = match cause {
        PurgeCause::Expired { retention } => {
            (EXPIRED, Some(i64::try_from(retention.as_millis()).unwrap_or(i64::MAX)))
        }
        PurgeCause::Misdated => (MISDATED, None),
        PurgeCause::Discarded => (DISCARDED, None),
    };
    let at = of_wall(clock());
    // Every purged job has ended and so has a row; without one there is nothing to purge.
    let Some((ended, job)) = newest else {
        return Ok(());
    };
    let least = at.saturating_sub(ended);
    let sql = "UPDATE purge SET
                   at_last = ?4,
                   jobs = jobs + ?5,
                   waited_least_job = iif(waited_least_ms <= ?6, waited_least_job, ?7),
                   waited_least_ms = min(waited_least_ms, ?6)
               WHERE number = (SELECT max(number) FROM purge)
                   AND cause = ?1 AND retention_ms IS ?2 AND at_first BETWEEN ?3 AND ?4";
    let row = (cause, retention, at - DAY_MS, at, jobs, least, job);
    if connection.prepare_cached(sql)?.execute(row)? == 0 {
        let sql = "INSERT INTO purge (cause, retention_ms, at_first, at_last, jobs,
                                      waited_least_ms, waited_least_job)
                   VALUES (?1, ?2, ?3, ?3, ?4, ?5, ?6)";
        let row = (cause, retention, at, jobs, least, job);
        connection.prepare_cached(sql)?.execute(row)?;
    }
    Ok(())
}

/// Adds a range that overlaps no other, and joins it with adjacent ranges.
fn add(connection: &Connection, [mut first, mut last]: [i64; 2]) -> Result<(), Failure> {
    let sql = "SELECT first, last FROM purged_range WHERE first < ?1 ORDER BY first DESC LIMIT 1";
    let mut find = connection.prepare_cached(sql)?;
    let before = find.query_row([first], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    if let Some((before, end)) = before
        && first - 1 == end
    {
        first = before;
    }
    let sql = "DELETE FROM purged_range WHERE first = ?1 RETURNING last";
    let after =
        connection.prepare_cached(sql)?.query_row([last + 1], |row| row.get(0)).optional()?;
    if let Some(after) = after {
        last = after;
    }
    let sql = "INSERT OR REPLACE INTO purged_range VALUES (?1, ?2)";
    connection.prepare_cached(sql)?.execute([first, last])?;
    Ok(())
}
