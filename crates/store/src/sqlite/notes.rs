//! Notes as rows: remarks about jobs and workers for people to read later.

use filch_scheduler::id::{Fence, Hold, JobId, Seq, WorkerId};
use filch_scheduler::record::{AttemptOutcome, Note};
use filch_scheduler::time::Wall;
use rusqlite::{Connection, Row};

use super::codes;
use super::error::{Failure, Halt};
use super::rows::{self, of_worker, ordered};
use crate::clock::clock;
use crate::store::StoredText;

/// The columns of a note. Those that its kind does not use are NULL.
#[derive(Default)]
struct Columns<'note> {
    kind: i64,
    job: Option<i64>,
    fence: Option<i64>,
    worker: Option<WorkerId>,
    outcome: Option<i64>,
    text: Option<&'note str>,
    jobs: Option<u32>,
}

/// Writes a note with the present time: the scheduler gives it none.
pub(super) fn write(connection: &Connection, note: &Note) -> Result<(), Halt> {
    let Some(columns) = columns(connection, note)? else {
        return Ok(());
    };
    let Columns { kind, job, fence, worker, outcome, text, jobs } = columns;
    let sql = "INSERT INTO note (at, kind, job, fence, worker, outcome, text, jobs)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let at = rows::of_wall(clock());
    let row = (at, kind, job, fence, of_worker(worker), outcome, text, jobs);
    connection.prepare_cached(sql)?.execute(row)?;
    Ok(())
}

/// `None` if the job that the note is about is not stored: the note could never be read.
fn columns<'note>(
    connection: &Connection,
    note: &'note Note,
) -> Result<Option<Columns<'note>>, Halt> {
    let about = |kind, id| {
        let job = rows::number_of(connection, id)?;
        Ok(job.map(|job| Columns { kind, job: Some(job.0.cast_signed()), ..Columns::default() }))
    };
    match *note {
        Note::WorkerLost { worker, jobs } => {
            let (worker, jobs) = (Some(worker), Some(jobs));
            Ok(Some(Columns { kind: 0, worker, jobs, ..Columns::default() }))
        }
        Note::Attempt { hold, worker, ref outcome } => {
            let (outcome, text) = of_outcome(outcome);
            Ok(Some(Columns {
                kind: 1,
                job: Some(ordered(hold.job.0)?),
                fence: Some(ordered(hold.fence.0)?),
                worker: Some(worker),
                outcome: Some(outcome),
                text,
                jobs: None,
            }))
        }
        Note::Cancelled(id) => about(2, id),
        Note::Retried(id) => about(3, id),
        Note::Prioritised(id) => about(4, id),
        Note::Drained(worker) => {
            Ok(Some(Columns { kind: 5, worker: Some(worker), ..Columns::default() }))
        }
    }
}

/// The notes about one job, in order.
pub(super) fn of_job(
    connection: &Connection,
    seq: Seq,
    id: JobId,
) -> Result<Vec<(Wall, Note)>, Failure> {
    // The first column is for the caller; `read` starts at the second.
    let sql = "SELECT at, kind, fence, worker, outcome, text FROM note
               WHERE job = ?1 ORDER BY number";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query([seq.0.cast_signed()])?;
    let mut notes = Vec::new();
    while let Some(row) = found.next()? {
        notes.push((rows::wall(row, 0)?, read(row, seq, id)?));
    }
    Ok(notes)
}

/// The error of the newest noted attempt of each job.
pub(super) fn errors(
    connection: &Connection,
    jobs: &[Seq],
) -> Result<Vec<Option<StoredText>>, Failure> {
    let sql = "SELECT text FROM note WHERE job = ?1 AND kind = 1 ORDER BY number DESC LIMIT 1";
    let mut newest = connection.prepare_cached(sql)?;
    let mut error = |seq: &Seq| {
        let mut found = newest.query([seq.0.cast_signed()])?;
        found.next()?.map_or(Ok(None), |row| Ok(row.get(0)?))
    };
    jobs.iter().map(&mut error).collect()
}

pub(super) fn read(row: &Row<'_>, job: Seq, id: JobId) -> Result<Note, Failure> {
    Ok(match row.get(1)? {
        1 => Note::Attempt {
            hold: Hold { job, fence: Fence(rows::unsigned(row, 2)?) },
            worker: rows::worker(row, 3)?.ok_or_else(|| codes::no("worker", 0))?,
            outcome: outcome(row)?,
        },
        2 => Note::Cancelled(id),
        3 => Note::Retried(id),
        4 => Note::Prioritised(id),
        other => return Err(codes::no("note about a job", other)),
    })
}

fn of_outcome(outcome: &AttemptOutcome) -> (i64, Option<&str>) {
    match outcome {
        AttemptOutcome::Failed(text) => (0, Some(text)),
        AttemptOutcome::Snoozed => (1, None),
        AttemptOutcome::Interrupted => (2, None),
        AttemptOutcome::LostAlone => (3, None),
        AttemptOutcome::LostAmongOthers => (4, None),
        AttemptOutcome::Unstarted(text) => (5, Some(text)),
    }
}

fn outcome(row: &Row<'_>) -> Result<AttemptOutcome, Failure> {
    Ok(match row.get(4)? {
        0 => AttemptOutcome::Failed(rows::text(row, 5)?.into()),
        1 => AttemptOutcome::Snoozed,
        2 => AttemptOutcome::Interrupted,
        3 => AttemptOutcome::LostAlone,
        4 => AttemptOutcome::LostAmongOthers,
        5 => AttemptOutcome::Unstarted(rows::text(row, 5)?.into()),
        other => return Err(codes::no("outcome", other)),
    })
}
