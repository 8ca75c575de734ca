//! Lists of jobs, in the order of their numbers.
//!
//! Dead and cancelled jobs are found by their index, unfinished ones through the table `live`, all
//! others by a scan.

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
use crate::store::{Filter, ListOrder};

pub(super) fn list(
    connection: &Connection,
    filter: &Filter,
    order: ListOrder,
    limit: usize,
) -> Result<Vec<JobRow>, Failure> {
    // The range of numbers, inclusive. It may be empty.
    let (first, last) = match order {
        ListOrder::After(Seq(u64::MAX)) | ListOrder::Before(Seq(0)) => return Ok(Vec::new()),
        ListOrder::After(seq) => (seq.next(), Seq(u64::MAX)),
        ListOrder::Before(seq) => (Seq(0), Seq(seq.0 - 1)),
    };
    let mut page = Page { filter, order, limit, jobs: Vec::new(), names: Names::default() };
    let all = |fits: fn(JobState) -> bool| {
        !filter.states.is_empty() && filter.states.iter().copied().all(fits)
    };
    if all(|state| matches!(state, JobState::Dead | JobState::Cancelled)) {
        page.add_unsuccessful(connection, first, last)?;
    } else if all(|state| !state.is_ended()) {
        let mut runs = Live::read(connection)?.runs();
        if matches!(order, ListOrder::Before(_)) {
            runs.reverse();
        }
        for run in runs.into_iter().filter(|run| run.0 <= last && run.1 >= first) {
            if page.jobs.len() >= limit {
                break;
            }
            let run = (first.max(run.0), last.min(run.1));
            page.add(connection, SCAN, STATE, run, &filter.states)?;
        }
    } else {
        page.add(connection, SCAN, STATE, (first, last), &filter.states)?;
    }
    Ok(page.jobs)
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

struct Page<'question> {
    filter: &'question Filter,
    order: ListOrder,
    limit: usize,
    jobs: Vec<JobRow>,
    names: Names,
}

impl Page<'_> {
    /// Dead and cancelled jobs: reads a page of each, and merges them.
    fn add_unsuccessful(
        &mut self,
        connection: &Connection,
        first: Seq,
        last: Seq,
    ) -> Result<(), Failure> {
        let mut jobs = Vec::new();
        for state in [JobState::Dead, JobState::Cancelled] {
            if self.filter.states.contains(&state) {
                self.add(connection, UNSUCCESSFUL, "job_state.state", (first, last), &[state])?;
                jobs.append(&mut self.jobs);
            }
        }
        match self.order {
            ListOrder::After(_) => jobs.sort_unstable_by_key(|row| row.seq),
            ListOrder::Before(_) => jobs.sort_unstable_by_key(|row| std::cmp::Reverse(row.seq)),
        }
        jobs.truncate(self.limit);
        self.jobs = jobs;
        Ok(())
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
        let direction = match self.order {
            ListOrder::After(_) => "ASC",
            ListOrder::Before(_) => "DESC",
        };
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
