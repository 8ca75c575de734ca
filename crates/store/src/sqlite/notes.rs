//! Notes as rows: remarks about jobs and workers for people to read later.

use filch_scheduler::dispatch::QueueChange;
use filch_scheduler::id::{Fence, Hold, JobId, Seq, WorkerId};
use filch_scheduler::name::Name;
use filch_scheduler::record::{AttemptOutcome, Note, OperatorAct};
use filch_scheduler::time::Wall;
use rusqlite::{Connection, Row};

use super::codes;
use super::error::{Failure, Halt};
use super::rows::{self, bound, of_worker, ordered};
use crate::clock::clock;
use crate::store::{ActFilter, HISTORY_ROWS_MAX, StoredAct, StoredText};

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
    by: Option<&'note str>,
    queue: Option<&'note str>,
}

/// Writes a note with the present time: the scheduler gives it none.
pub(super) fn write(connection: &Connection, note: &Note) -> Result<(), Halt> {
    match columns(connection, note)? {
        Some(columns) => Ok(insert(connection, columns)?),
        None => Ok(()),
    }
}

/// Writes an act that is not about a job.
pub(super) fn write_act(
    connection: &Connection,
    by: Option<&Name>,
    act: OperatorAct,
) -> Result<(), Failure> {
    insert(connection, Columns { by: by.map(Name::as_str), ..of_act(&act) })
}

fn insert(connection: &Connection, columns: Columns<'_>) -> Result<(), Failure> {
    let Columns { kind, job, fence, worker, outcome, text, jobs, by, queue } = columns;
    let sql = "INSERT INTO note (at, kind, job, fence, worker, outcome, text, jobs, done_by, queue)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    let at = rows::of_wall(clock());
    let row = (at, kind, job, fence, of_worker(worker), outcome, text, jobs, by, queue);
    connection.prepare_cached(sql)?.execute(row)?;
    Ok(())
}

/// `None` if the job that the note is about is not stored: the note could never be read.
fn columns<'note>(
    connection: &Connection,
    note: &'note Note,
) -> Result<Option<Columns<'note>>, Halt> {
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
                ..Columns::default()
            }))
        }
        Note::Act { ref by, ref act } => {
            let mut columns = of_act(act);
            columns.by = by.as_ref().map(Name::as_str);
            let Some(id) = act.job() else { return Ok(Some(columns)) };
            let job = rows::number_of(connection, id)?;
            Ok(job.map(|job| Columns { job: Some(job.0.cast_signed()), ..columns }))
        }
    }
}

/// The columns of an act, except who did it, and except the number of the job that it is about.
fn of_act(act: &OperatorAct) -> Columns<'_> {
    let columns = |kind| Columns { kind, ..Columns::default() };
    match act {
        OperatorAct::Cancel(_) => columns(2),
        OperatorAct::Retry(_) => columns(3),
        OperatorAct::SetPriority { priority, .. } => {
            Columns { outcome: Some(i64::from(*priority)), ..columns(4) }
        }
        OperatorAct::DrainWorker(worker) => Columns { worker: Some(*worker), ..columns(5) },
        OperatorAct::SetQueue { queue, change } => {
            let (code, value) = match *change {
                QueueChange::Pause => (0, None),
                QueueChange::Resume => (1, None),
                QueueChange::Limit(limit) => (2, limit),
                QueueChange::Weight(weight) => (3, Some(weight)),
            };
            let queue = Some(queue.as_str());
            Columns { outcome: Some(code), jobs: value, queue, ..columns(6) }
        }
        OperatorAct::SetStrategy(strategy) => {
            let (code, aging) = codes::of_strategy(*strategy);
            Columns { outcome: Some(code), fence: aging, ..columns(7) }
        }
        OperatorAct::CreateToken(token) => Columns { text: Some(token.as_str()), ..columns(8) },
        OperatorAct::RevokeToken(token) => Columns { text: Some(token.as_str()), ..columns(9) },
    }
}

/// At most `limit` acts before this number, the newest first.
pub(super) fn acts(
    connection: &Connection,
    filter: &ActFilter,
    before: u64,
    limit: usize,
) -> Result<Vec<StoredAct>, Failure> {
    // The columns that `read_act` reads start at the second, as in `of_job`.
    let columns = "note.at, note.kind, note.fence, note.worker, note.outcome, note.text,
                   note.jobs, note.done_by, note.queue, note.number, job.id, job.queue";
    let which = match filter.queue {
        Some(_) => "note.queue = ?3",
        None => "note.kind >= 2 AND ?3 IS NULL",
    };
    let sql = format!(
        "SELECT {columns} FROM note LEFT JOIN job ON job.seq = note.job
         WHERE {which} AND note.number < ?1 ORDER BY note.number DESC LIMIT ?2"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let queue = filter.queue.as_ref().map(Name::as_str);
    let mut found = statement.query((bound(before), bound(limit as u64), queue))?;
    let mut acts = Vec::new();
    while let Some(row) = found.next()? {
        let id: Option<[u8; 16]> = row.get(10)?;
        let id = JobId(u128::from_be_bytes(id.unwrap_or_default()));
        let (by, act) = read_act(row, id)?;
        let queue: Option<String> = row.get(11)?;
        acts.push(StoredAct {
            number: rows::unsigned(row, 9)?,
            at: rows::wall(row, 0)?,
            by,
            act,
            job_queue: queue.map(|queue| Name::from(queue.as_str())),
        });
    }
    Ok(acts)
}

/// Who did what, from the columns `kind` to `queue`.
fn read_act(row: &Row<'_>, id: JobId) -> Result<(Option<Name>, OperatorAct), Failure> {
    let name = |column| -> Result<Option<Name>, Failure> {
        let text: Option<String> = row.get(column)?;
        Ok(text.map(|text| Name::from(text.as_str())))
    };
    let (code, value): (Option<i64>, Option<u32>) = (row.get(4)?, row.get(6)?);
    let code = code.unwrap_or_default();
    let act = match row.get(1)? {
        2 => OperatorAct::Cancel(id),
        3 => OperatorAct::Retry(id),
        4 => {
            let priority = i16::try_from(code).map_err(|_| codes::no("priority", code))?;
            OperatorAct::SetPriority { job: id, priority }
        }
        5 => OperatorAct::DrainWorker(rows::worker(row, 3)?.ok_or_else(|| codes::no("worker", 0))?),
        6 => {
            let change = match (code, value) {
                (0, None) => QueueChange::Pause,
                (1, None) => QueueChange::Resume,
                (2, limit) => QueueChange::Limit(limit),
                (3, Some(weight)) => QueueChange::Weight(weight),
                _ => return Err(codes::no("change of a queue", code)),
            };
            let queue = name(8)?.ok_or_else(|| codes::no("queue", 0))?;
            OperatorAct::SetQueue { queue, change }
        }
        7 => OperatorAct::SetStrategy(codes::strategy(code, row.get(2)?)?),
        kind @ (8 | 9) => {
            let token = name(5)?.ok_or_else(|| codes::no("token", 0))?;
            if kind == 8 {
                OperatorAct::CreateToken(token)
            } else {
                OperatorAct::RevokeToken(token)
            }
        }
        other => return Err(codes::no("act", other)),
    };
    Ok((name(7)?, act))
}

/// The newest notes about one job, in order, and whether there are older ones.
pub(super) fn of_job(
    connection: &Connection,
    seq: Seq,
    id: JobId,
) -> Result<(Vec<(Wall, Note)>, bool), Failure> {
    // The first column is for the caller; `read` starts at the second.
    let sql = "SELECT at, kind, fence, worker, outcome, text, jobs, done_by, queue FROM note
               WHERE job = ?1 ORDER BY number DESC";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query([seq.0.cast_signed()])?;
    let mut notes = Vec::new();
    let mut has_more = false;
    while let Some(row) = found.next()? {
        has_more = notes.len() == HISTORY_ROWS_MAX;
        if has_more {
            break;
        }
        notes.push((rows::wall(row, 0)?, read(row, seq, id)?));
    }
    notes.reverse();
    Ok((notes, has_more))
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
        2..=4 => {
            let (by, act) = read_act(row, id)?;
            Note::Act { by, act }
        }
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
