//! Jobs that are forgotten, and everything that belonged to them.
//!
//! Jobs that came together mostly end and expire together, so what is purged at once is a few ranges of
//! neighbours. A range is removed by one statement a table, which costs a fraction of one for each job.

use std::collections::BTreeSet;

use filch_scheduler::id::Seq;
use rusqlite::{Connection, OptionalExtension};

use super::error::{Failure, Halt};
use super::live::Live;
use super::rows::{self, ordered};
use crate::rules::{self, Misfit};

/// Old rows of other tables go after the jobs, so many at most at once: no commit takes long.
const OLD_MOST: u32 = 4_096;

/// Removes these jobs, none of which may live.
pub(super) fn purge(connection: &Connection, live: &Live, jobs: &[Seq]) -> Result<(), Halt> {
    let mut sorted = jobs.to_vec();
    sorted.sort_unstable();
    let is_neighbour = |one: &Seq, next: &Seq| one.0.checked_add(1) == Some(next.0);
    let mut ranges = Vec::new();
    for run in sorted.chunk_by(is_neighbour) {
        if let [first, .., last] | [first @ last] = run {
            ranges.push([ordered(first.0)?, ordered(last.0)?]);
        }
    }
    check(connection, live, jobs, &sorted, &ranges)?;
    for range in &ranges {
        for sql in [
            "DELETE FROM job WHERE seq BETWEEN ?1 AND ?2",
            "DELETE FROM payload WHERE seq BETWEEN ?1 AND ?2",
            "DELETE FROM fate WHERE seq BETWEEN ?1 AND ?2",
            "DELETE FROM remains WHERE job BETWEEN ?1 AND ?2",
            "DELETE FROM note WHERE job BETWEEN ?1 AND ?2",
        ] {
            connection.prepare_cached(sql)?.execute(*range)?;
        }
    }
    Ok(trim(connection)?)
}

/// Whether all of them are there, once each, and have ended.
fn check(
    connection: &Connection,
    live: &Live,
    jobs: &[Seq],
    sorted: &[Seq],
    ranges: &[[i64; 2]],
) -> Result<(), Halt> {
    let sql = "SELECT count(*) FROM job WHERE seq BETWEEN ?1 AND ?2";
    let mut count = connection.prepare_cached(sql)?;
    let mut there = 0_i64;
    for range in ranges {
        there += count.query_row(*range, |row| row.get::<_, i64>(0))?;
    }
    let are_there = there == jobs.len() as i64 && sorted.windows(2).all(|pair| pair[0] < pair[1]);
    if are_there && !jobs.iter().any(|&seq| live.contains(seq)) {
        return Ok(());
    }
    // Something is wrong: which is the first, in the order in which they were given?
    let mut gone = BTreeSet::new();
    for &seq in jobs {
        let kept = rows::kept(connection, seq)?.filter(|_| gone.insert(seq));
        rules::check_purge(&kept.ok_or(Misfit::NoJob(seq))?)?;
    }
    let what = "a job has ended, and is among those that live";
    Err(Failure::Content(what.into()).into())
}

/// Removes what no kept job has a part in any more: old rows of the ledger, old notes about workers.
fn trim(connection: &Connection) -> rusqlite::Result<()> {
    // A job is only in rows after the one it was submitted after, and that one grows from job to job:
    // what the oldest job does not need, none does.
    let sql = "SELECT lease_before, submitted_at FROM job ORDER BY seq LIMIT 1";
    let mut oldest = connection.prepare_cached(sql)?;
    let oldest = oldest.query_row((), |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let (lease, at): (i64, i64) = oldest.unwrap_or((i64::MAX, i64::MAX));
    let sql = "DELETE FROM lease WHERE number IN
                   (SELECT number FROM lease WHERE number <= ?1 ORDER BY number LIMIT ?2)
                   AND number NOT IN (SELECT number FROM lease_open)";
    connection.prepare_cached(sql)?.execute((lease, OLD_MOST))?;
    let sql = "DELETE FROM note WHERE number IN
                   (SELECT number FROM note INDEXED BY note_worker
                    WHERE job IS NULL AND at < ?1 ORDER BY at LIMIT ?2)";
    connection.prepare_cached(sql)?.execute((at, OLD_MOST))?;
    Ok(())
}
