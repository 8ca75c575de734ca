//! Lists of jobs, in the order of their numbers.
//!
//! Dead and cancelled jobs are found by their index, unfinished ones through the table `live`, all
//! others by a scan. A page ends early once enough rows were examined, so that a filter that
//! excludes nearly all jobs does not hold a connection for long.

use std::cmp::Reverse;
use std::fmt::Write as _;

use filch_scheduler::id::Seq;
use filch_scheduler::record::JobRow;
use filch_scheduler::state::JobState;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::codes;
use super::error::Failure;
use super::live::Live;
use super::rows::{self, Names, bound, select_jobs};
use crate::store::{EXAMINED_ROWS_MAX, Filter, ListOrder, Listed};

pub(super) fn list(
    connection: &Connection,
    filter: &Filter,
    order: ListOrder,
    limit: usize,
) -> Result<Listed, Failure> {
    // The range of numbers, inclusive. It may be empty.
    let range = match order {
        ListOrder::After(Seq(u64::MAX)) | ListOrder::Before(Seq(0)) => return Ok(Listed::default()),
        ListOrder::After(seq) => (seq.next(), Seq(u64::MAX)),
        ListOrder::Before(seq) => (Seq(0), Seq(seq.0 - 1)),
    };
    let mut page = Page { filter, order, limit, jobs: Vec::new(), names: Names::default() };
    let all = |fits: fn(JobState) -> bool| {
        !filter.states.is_empty() && filter.states.iter().copied().all(fits)
    };
    let cut = if all(|state| matches!(state, JobState::Dead | JobState::Cancelled)) {
        page.add_unsuccessful(connection, range)?
    } else if all(|state| !state.is_ended()) {
        page.add_live(connection, range)?
    } else {
        page.add_any(connection, range)?
    };
    let last = page.jobs.last().filter(|_| page.jobs.len() == limit);
    Ok(Listed { last: last.map(|row| row.seq).or(cut), rows: page.jobs })
}

/// A scan in the order of numbers.
const SCAN: &str = select_jobs!("WHERE job.seq");

/// The present state of a job, whether it has a row in `job_state` or not.
const STATE: &str = "coalesce(job_state.state, job.state)";

/// By the index of dead and cancelled jobs, which is far shorter.
const UNSUCCESSFUL: &str = select_jobs!(
    from "job_state INDEXED BY job_state_unsuccessful CROSS JOIN job ON job.seq = job_state.seq
     WHERE job_state.state >= 6 AND job_state.seq"
);

/// The numbers of dead and cancelled jobs.
const UNSUCCESSFUL_SEQ: &str =
    "SELECT seq FROM job_state INDEXED BY job_state_unsuccessful WHERE state >= 6";

struct Page<'question> {
    filter: &'question Filter,
    order: ListOrder,
    limit: usize,
    jobs: Vec<JobRow>,
    names: Names,
}

/// Where a page ends, if the bound on examined rows was reached before the end of its range.
type Cut = Option<Seq>;

impl Page<'_> {
    /// Dead and cancelled jobs: reads a page of each, and merges them.
    fn add_unsuccessful(
        &mut self,
        connection: &Connection,
        range: (Seq, Seq),
    ) -> Result<Cut, Failure> {
        let mut jobs = Vec::new();
        let mut cuts = Vec::new();
        for state in [JobState::Dead, JobState::Cancelled] {
            if self.filter.states.contains(&state) {
                let from = format!("{UNSUCCESSFUL_SEQ} AND state = {}", codes::of_state(state));
                let (range, cut) = self.shorten(connection, &from, range)?;
                cuts.extend(cut);
                self.add(connection, UNSUCCESSFUL, "job_state.state", range, &[state])?;
                jobs.append(&mut self.jobs);
            }
        }
        // Beyond the nearer cut, jobs of one state are missing.
        let cut = match self.order {
            ListOrder::After(_) => {
                jobs.sort_unstable_by_key(|row| row.seq);
                let cut = cuts.into_iter().min();
                jobs.retain(|row| cut.is_none_or(|cut| row.seq <= cut));
                cut
            }
            ListOrder::Before(_) => {
                jobs.sort_unstable_by_key(|row| Reverse(row.seq));
                let cut = cuts.into_iter().max();
                jobs.retain(|row| cut.is_none_or(|cut| row.seq >= cut));
                cut
            }
        };
        jobs.truncate(self.limit);
        self.jobs = jobs;
        Ok(cut)
    }

    /// Unfinished jobs. Their runs of numbers are dense, so numbers are counted instead of rows.
    fn add_live(
        &mut self,
        connection: &Connection,
        (first, last): (Seq, Seq),
    ) -> Result<Cut, Failure> {
        let mut runs = Live::read(connection)?.runs();
        if matches!(self.order, ListOrder::Before(_)) {
            runs.reverse();
        }
        let mut left = EXAMINED_ROWS_MAX as u64;
        for run in runs.into_iter().filter(|run| run.0 <= last && run.1 >= first) {
            let (first, last) = (first.max(run.0), last.min(run.1));
            let count = (last.0 - first.0 + 1).min(left);
            let (run, end) = match self.order {
                ListOrder::After(_) => {
                    let end = Seq(first.0 + count - 1);
                    ((first, end), end)
                }
                ListOrder::Before(_) => {
                    let end = Seq(last.0 - (count - 1));
                    ((end, last), end)
                }
            };
            self.add(connection, SCAN, STATE, run, &self.filter.states)?;
            left -= count;
            if left == 0 {
                return Ok(Some(end));
            }
            if self.jobs.len() >= self.limit {
                break;
            }
        }
        Ok(None)
    }

    /// Jobs in any state.
    fn add_any(&mut self, connection: &Connection, range: (Seq, Seq)) -> Result<Cut, Failure> {
        let (range, cut) = self.shorten(connection, "SELECT seq FROM job WHERE true", range)?;
        self.add(connection, SCAN, STATE, range, &self.filter.states)?;
        Ok(cut)
    }

    /// The part of a range in which rows are examined. Without a filter, the page's own limit is
    /// the bound.
    fn shorten(
        &self,
        connection: &Connection,
        from: &str,
        (first, last): (Seq, Seq),
    ) -> Result<((Seq, Seq), Cut), Failure> {
        if *self.filter == Filter::default() {
            return Ok(((first, last), None));
        }
        let direction = self.direction();
        let sql = format!(
            "{from} AND seq BETWEEN ?1 AND ?2 ORDER BY seq {direction} LIMIT 1 OFFSET {}",
            EXAMINED_ROWS_MAX - 1
        );
        let mut statement = connection.prepare_cached(&sql)?;
        let mut found = statement.query((bound(first.0), bound(last.0)))?;
        let cut = found.next()?.map(|row| rows::unsigned(row, 0)).transpose()?.map(Seq);
        let range = match (cut, self.order) {
            (None, _) => (first, last),
            (Some(cut), ListOrder::After(_)) => (first, cut),
            (Some(cut), ListOrder::Before(_)) => (cut, last),
        };
        Ok((range, cut))
    }

    const fn direction(&self) -> &'static str {
        match self.order {
            ListOrder::After(_) => "ASC",
            ListOrder::Before(_) => "DESC",
        }
    }

    /// Adds the jobs of a range of numbers, inclusive, until the page is full.
    fn add(
        &mut self,
        connection: &Connection,
        from: &str,
        state: &str,
        (first, last): (Seq, Seq),
        states: &[JobState],
    ) -> Result<(), Failure> {
        let mut sql = format!("{from} BETWEEN ?1 AND ?2");
        let mut values = vec![Value::Integer(bound(first.0)), Value::Integer(bound(last.0))];
        let mut and = |condition: &str, value| {
            values.push(value);
            let _ = write!(sql, " AND {condition} ?{}", values.len());
        };
        let Filter { states: _, queue, kind, since } = self.filter;
        if let Some(queue) = queue {
            and("queue =", Value::Text(queue.as_str().into()));
        }
        if let Some(kind) = kind {
            and("kind =", Value::Text(kind.as_str().into()));
        }
        if let Some(since) = since {
            and("submitted_at >=", Value::Integer(bound(since.0)));
        }
        if !states.is_empty() {
            let codes = states.iter().map(|&state| codes::of_state(state).to_string());
            let codes = codes.collect::<Vec<_>>().join(", ");
            let _ = write!(sql, " AND {state} IN ({codes})");
        }
        let direction = self.direction();
        values.push(Value::Integer(bound((self.limit - self.jobs.len()) as u64)));
        let _ = write!(sql, " ORDER BY job.seq {direction} LIMIT ?{}", values.len());
        let mut statement = connection.prepare_cached(&sql)?;
        let mut found = statement.query(params_from_iter(values))?;
        while let Some(row) = found.next()? {
            self.jobs.push(rows::job(row, &mut self.names)?);
        }
        Ok(())
    }
}
