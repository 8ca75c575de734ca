//! Rows of the tables as the scheduler's records.
//!
//! SQLite's integers are signed and ours are not. Values that SQL compares (numbers, fences) are
//! rejected if they would need the sign bit; values that it only stores (ids of workers, times)
//! keep all their bits.

use std::collections::BTreeMap;

use filch_scheduler::id::{Digest, Fence, JobId, LeaseNo, Seq, WorkerId};
use filch_scheduler::name::Name;
use filch_scheduler::record::{JobRow, JobWrite, LastReport, LeaseRow, QueueSettings};
use filch_scheduler::spec::{Condition, JobSpec, Otherwise, Retry};
use filch_scheduler::time::{Millis, Wall};
use rusqlite::{Connection, Row};

use super::error::Failure;
use super::{codes, packed};
use crate::rules::Rejection;

/// A query whose rows [`job`] decodes: each job with its state, or from the tables in `from`.
macro_rules! select_jobs {
    (from $rest:literal) => {
        concat!(
            "SELECT job.seq, job.state, id, body, key, queue, kind, job.priority, submitted_at,
                 condition, otherwise, parents, not_before, attempts_max, backoff,
                 backoff_base_ms, backoff_factor_percent, backoff_cap_ms, jitter_percent,
                 timeout_ms, job_state.state, fence, attempts, suspicions, job_state.priority, due, holder,
                 reason, at, last_report, last_worker
             FROM ",
            $rest
        )
    };
    ($rest:literal) => {
        select_jobs!(from "job LEFT JOIN job_state ON job_state.seq = job.seq " $rest)
    };
    (from $first:literal $second:literal) => {
        concat!(select_jobs!(from $first), $second)
    };
}
pub(super) use select_jobs;

/// Interned names: many rows share a few.
#[derive(Default)]
pub(super) struct Names {
    known: BTreeMap<Box<str>, Name>,
}

impl Names {
    /// How many names are interned before the map is cleared.
    const MOST: usize = 4_096;

    fn get(&mut self, text: &str) -> Name {
        if let Some(name) = self.known.get(text) {
            return name.clone();
        }
        if self.known.len() >= Self::MOST {
            self.known.clear();
        }
        let name = Name::from(text);
        self.known.insert(text.into(), name.clone());
        name
    }
}

/// A job with its present state.
pub(super) fn job(row: &Row<'_>, names: &mut Names) -> Result<JobRow, Failure> {
    let seq = Seq(unsigned(row, 0)?);
    let mut spec = JobSpec {
        id: id(row, 2)?,
        body: Digest(u128::from_be_bytes(bytes(row, 3)?)),
        key: row.get_ref(4)?.as_str_or_null()?.map(Name::from),
        queue: names.get(text(row, 5)?),
        kind: names.get(text(row, 6)?),
        priority: row.get(7)?,
        parents: Vec::new(),
        condition: Condition::AllSucceeded,
        otherwise: Otherwise::Cancel,
        not_before: None,
        retry: codes::PLAIN_RETRY,
        timeout: None,
        payload: None,
    };
    if let Some(condition) = row.get(9)? {
        spec.condition = codes::condition(condition)?;
        special(row, &mut spec)?;
    }
    let submitted_at = wall(row, 8)?;
    let now = match row.get(20)? {
        Some(state) => JobWrite {
            job: seq,
            state: codes::state(state)?,
            fence: Fence(unsigned(row, 21)?),
            attempts: row.get(22)?,
            suspicions: row.get(23)?,
            priority: row.get(24)?,
            due: wall(row, 25)?,
            holder: worker(row, 26)?,
            last: last_report(row)?,
            reason: row.get::<_, Option<i64>>(27)?.map(codes::reason).transpose()?,
            at: wall(row, 28)?,
        },
        None => {
            JobWrite { state: codes::state(row.get(1)?)?, ..untouched(seq, &spec, submitted_at) }
        }
    };
    Ok(JobRow { seq, spec, submitted_at, now })
}

/// The report that ended the job's last attempt.
fn last_report(row: &Row<'_>) -> Result<Option<LastReport>, Failure> {
    match (row.get::<_, Option<i64>>(29)?, worker(row, 30)?) {
        (Some(kind), Some(worker)) => Ok(Some(LastReport { worker, kind: codes::report(kind)? })),
        _ => Ok(None),
    }
}

/// The columns that are written only if a job does not use all defaults.
fn special(row: &Row<'_>, spec: &mut JobSpec) -> Result<(), Failure> {
    spec.otherwise = codes::otherwise(row.get(10)?)?;
    if let Some(parents) = row.get_ref(11)?.as_blob_or_null()? {
        let (parents, rest) = parents.as_chunks();
        if !rest.is_empty() {
            return Err(Failure::Content("the parents of a job are truncated".into()));
        }
        spec.parents = parents.iter().map(|bytes| JobId(u128::from_be_bytes(*bytes))).collect();
    }
    spec.not_before = row.get::<_, Option<i64>>(12)?.map(|at| Wall(at.cast_unsigned()));
    spec.retry = Retry {
        max: row.get(13)?,
        backoff: codes::backoff(row.get(14)?, [row.get(15)?, row.get(16)?, row.get(17)?])?,
        jitter_percent: row.get(18)?,
    };
    spec.timeout = row.get::<_, Option<u32>>(19)?.map(Millis);
    Ok(())
}

/// The initial state of a job without a row in `job_state`, except for the state itself.
pub(super) fn untouched(seq: Seq, spec: &JobSpec, submitted_at: Wall) -> JobWrite {
    JobWrite {
        job: seq,
        state: filch_scheduler::state::JobState::Queued,
        fence: Fence(0),
        attempts: 0,
        suspicions: 0,
        priority: spec.priority,
        due: spec.not_before.unwrap_or_default(),
        holder: None,
        last: None,
        reason: None,
        at: submitted_at,
    }
}

/// Whether a job uses the defaults for all optional columns.
pub(super) fn is_plain(spec: &JobSpec) -> bool {
    spec.parents.is_empty()
        && spec.condition == Condition::AllSucceeded
        && spec.otherwise == Otherwise::Cancel
        && spec.not_before.is_none()
        && spec.retry == codes::PLAIN_RETRY
        && spec.timeout.is_none()
}

/// The number of the job with this id.
pub(super) fn number_of(connection: &Connection, id: JobId) -> Result<Option<Seq>, Failure> {
    let mut find = connection.prepare_cached("SELECT seq FROM job WHERE id = ?1")?;
    let mut found = find.query([id.0.to_be_bytes()])?;
    found.next()?.map(|row| Ok(Seq(unsigned(row, 0)?))).transpose()
}

/// The id of the job with this number, if it can be read.
pub(super) fn id_of(connection: &Connection, seq: Seq) -> Option<JobId> {
    let mut find = connection.prepare_cached("SELECT id FROM job WHERE seq = ?1").ok()?;
    let mut found = find.query([bound(seq.0)]).ok()?;
    id(found.next().ok()??, 0).ok()
}

/// The mutable part of the job with this number.
pub(super) fn kept(connection: &Connection, seq: Seq) -> Result<Option<JobWrite>, Failure> {
    let mut find = connection.prepare_cached(select_jobs!("WHERE job.seq = ?1"))?;
    let mut found = find.query([bound(seq.0)])?;
    found.next()?.map(|row| Ok(job(row, &mut Names::default())?.now)).transpose()
}

/// A row of the ledger: number, worker, cause, former owner, time, jobs.
pub(super) fn lease(row: &Row<'_>) -> Result<LeaseRow, Failure> {
    let jobs = row.get_ref(5)?.as_blob()?;
    Ok(LeaseRow {
        number: LeaseNo(unsigned(row, 0)?),
        worker: worker(row, 1)?,
        cause: codes::cause(row.get(2)?, worker(row, 3)?)?,
        at: wall(row, 4)?,
        jobs: packed::unpack(jobs).collect::<Result<_, _>>()?,
    })
}

/// A queue's settings: name, whether it is paused, how many of its jobs may be owned, weight.
pub(super) fn queue(row: &Row<'_>) -> Result<QueueSettings, Failure> {
    Ok(QueueSettings {
        queue: text(row, 0)?.into(),
        paused: row.get(1)?,
        limit: row.get(2)?,
        weight: row.get(3)?,
    })
}

pub(super) fn id(row: &Row<'_>, column: usize) -> Result<JobId, Failure> {
    Ok(JobId(u128::from_be_bytes(bytes(row, column)?)))
}

fn bytes(row: &Row<'_>, column: usize) -> Result<[u8; 16], Failure> {
    let bytes = row.get_ref(column)?.as_blob()?;
    bytes.try_into().map_err(|_| Failure::Content(format!("an id has {} bytes", bytes.len())))
}

pub(super) fn text<'row>(row: &'row Row<'_>, column: usize) -> Result<&'row str, Failure> {
    Ok(row.get_ref(column)?.as_str()?)
}

pub(super) fn unsigned(row: &Row<'_>, column: usize) -> Result<u64, Failure> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| codes::no("number", number))
}

pub(super) fn wall(row: &Row<'_>, column: usize) -> Result<Wall, Failure> {
    Ok(Wall(row.get::<_, i64>(column)?.cast_unsigned()))
}

pub(super) fn worker(row: &Row<'_>, column: usize) -> Result<Option<WorkerId>, Failure> {
    let Some(bits) = row.get::<_, Option<i64>>(column)? else {
        return Ok(None);
    };
    WorkerId::new(bits.cast_unsigned()).map(Some).ok_or_else(|| codes::no("worker", bits))
}

/// A number that SQL compares.
pub(super) fn ordered(number: u64) -> Result<i64, Rejection> {
    i64::try_from(number).map_err(|_| Rejection::TooLarge(number))
}

/// A bound in a query: no stored number exceeds the range of SQLite.
pub(super) fn bound(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) const fn of_wall(wall: Wall) -> i64 {
    wall.0.cast_signed()
}

pub(super) fn of_worker(worker: Option<WorkerId>) -> Option<i64> {
    worker.map(|worker| worker.bits().cast_signed())
}
