//! Purges jobs and everything that belongs to them.
//!
//! Jobs that were submitted together mostly end and expire together, so a purge mostly consists of
//! a few ranges of consecutive numbers. A range is deleted by one statement per table, which costs
//! a fraction of one statement per job.

use std::collections::BTreeSet;

use filch_scheduler::id::Seq;
use rusqlite::Connection;

use super::error::{Failure, Halt};
use super::live::Live;
use super::rows::{self, ordered};
use super::{daily_counts, purge_log};
use crate::rules::{self, Rejection};
use crate::store::PurgeCause;

/// Deletes these jobs, all of which must have ended.
pub(super) fn purge(
    connection: &Connection,
    live: &Live,
    jobs: &[Seq],
    cause: PurgeCause,
) -> Result<(), Halt> {
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
    purge_log::record(connection, &ranges, cause)?;
    daily_counts::count(connection, &ranges)?;
    for range in &ranges {
        for sql in [
            "DELETE FROM job WHERE seq BETWEEN ?1 AND ?2",
            "DELETE FROM payload WHERE seq BETWEEN ?1 AND ?2",
            "DELETE FROM job_state WHERE seq BETWEEN ?1 AND ?2",
            "DELETE FROM attempt_output WHERE job BETWEEN ?1 AND ?2",
            "DELETE FROM note WHERE job BETWEEN ?1 AND ?2",
        ] {
            connection.prepare_cached(sql)?.execute(*range)?;
        }
    }
    Ok(())
}

/// Whether all of them are stored, are named once, and have ended.
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
    // Something is wrong: find the first wrong one, in the given order.
    let mut gone = BTreeSet::new();
    for &seq in jobs {
        let kept = rows::kept(connection, seq)?.filter(|_| gone.insert(seq));
        rules::check_purge(&kept.ok_or(Rejection::NoJob(seq))?)?;
    }
    let what = "the table `live` has a job that has ended";
    Err(Failure::Content(what.into()).into())
}
