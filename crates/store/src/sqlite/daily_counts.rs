//! The table `daily_count`: how purged jobs had ended, one row per day and queue.

use filch_scheduler::name::Name;
use rusqlite::Connection;

use super::error::Failure;
use super::rows::{self, bound};
use crate::daily_count::{DAY_MS, DAYS_MAX, DailyCount, OTHERS, QUEUES_MAX};

/// Counts the jobs of these ranges, which are about to be purged and must still be stored.
pub(super) fn count(connection: &Connection, ranges: &[[i64; 2]]) -> Result<(), Failure> {
    let sql = "SELECT job_state.at / ?3, queue, sum(job_state.state = 5), sum(job_state.state = 6),
                      sum(job_state.state = 7), sum(max(job_state.at - submitted_at, 0))
               FROM job_state CROSS JOIN job ON job.seq = job_state.seq
               WHERE job_state.seq BETWEEN ?1 AND ?2 GROUP BY 1, 2";
    let mut sums = connection.prepare_cached(sql)?;
    for &[first, last] in ranges {
        let mut found = sums.query([first, last, bound(DAY_MS)])?;
        while let Some(row) = found.next()? {
            add(connection, &read(row)?)?;
        }
    }
    let sql = "DELETE FROM daily_count WHERE day <= (SELECT max(day) FROM daily_count) - ?1";
    connection.prepare_cached(sql)?.execute([bound(DAYS_MAX)])?;
    Ok(())
}

fn add(connection: &Connection, count: &DailyCount) -> Result<(), Failure> {
    let mut queue = count.queue.as_str();
    let day = bound(count.day);
    let sql = "SELECT count(*), coalesce(sum(queue = ?2), 0) FROM daily_count WHERE day = ?1";
    let mut known = connection.prepare_cached(sql)?;
    let (queues, is_known): (i64, i64) =
        known.query_row((day, queue), |row| Ok((row.get(0)?, row.get(1)?)))?;
    if is_known == 0 && queues >= QUEUES_MAX as i64 {
        queue = OTHERS;
    }
    let sql = "INSERT INTO daily_count VALUES (?1, ?2, ?3, ?4, ?5, ?6)
               ON CONFLICT (day, queue) DO UPDATE SET
                   succeeded = succeeded + ?3, dead = dead + ?4, cancelled = cancelled + ?5,
                   spent_ms = spent_ms + ?6";
    let counts = [count.succeeded, count.dead, count.cancelled, count.spent_ms].map(bound);
    let [succeeded, dead, cancelled, spent] = counts;
    let row = (day, queue, succeeded, dead, cancelled, spent);
    connection.prepare_cached(sql)?.execute(row)?;
    Ok(())
}

/// The newest day first; within a day by queue.
pub(super) fn list(connection: &Connection, limit: usize) -> Result<Vec<DailyCount>, Failure> {
    let sql = "SELECT day, queue, succeeded, dead, cancelled, spent_ms FROM daily_count
               ORDER BY day DESC, queue LIMIT ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query([bound(limit as u64)])?;
    let mut daily_counts = Vec::new();
    while let Some(row) = found.next()? {
        daily_counts.push(read(row)?);
    }
    Ok(daily_counts)
}

fn read(row: &rusqlite::Row<'_>) -> Result<DailyCount, Failure> {
    Ok(DailyCount {
        day: rows::unsigned(row, 0)?,
        queue: Name::from(rows::text(row, 1)?),
        succeeded: rows::unsigned(row, 2)?,
        dead: rows::unsigned(row, 3)?,
        cancelled: rows::unsigned(row, 4)?,
        spent_ms: rows::unsigned(row, 5)?,
    })
}
