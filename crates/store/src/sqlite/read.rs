//! Queries, except for lists of jobs (`list`).

use std::collections::BTreeMap;

use filch_scheduler::id::{Fence, Hold, JobId, Seq};
use filch_scheduler::record::JobRow;
use filch_scheduler::spec::QueueKey;
use filch_scheduler::time::Wall;
use rusqlite::{Connection, Row};

use super::error::Failure;
use super::rows::{self, Names, bound, select_jobs};
use super::{codes, notes, packed};
use crate::store::{
    AttemptOutput, EXAMINED_ROWS_MAX, Expired, FoundIds, HISTORY_OUTPUTS_MAX, HISTORY_ROWS_MAX,
    History, OwnerChange, StoredText,
};

pub(super) fn find(
    connection: &Connection,
    ids: &[JobId],
    keys: &[QueueKey],
    seqs: &[Seq],
) -> Result<Vec<JobRow>, Failure> {
    let mut jobs = BTreeMap::new();
    let mut names = Names::default();
    let mut take = |found: Option<&Row<'_>>| -> Result<(), Failure> {
        if let Some(row) = found {
            let job = rows::job(row, &mut names)?;
            jobs.insert(job.seq, job);
        }
        Ok(())
    };
    let mut by_id = connection.prepare_cached(select_jobs!("WHERE id = ?1"))?;
    for id in ids {
        take(by_id.query([id.0.to_be_bytes()])?.next()?)?;
    }
    let mut by_key = connection.prepare_cached(select_jobs!("WHERE key = ?1 AND queue = ?2"))?;
    for QueueKey { queue, key } in keys {
        take(by_key.query([key.as_str(), queue.as_str()])?.next()?)?;
    }
    let mut by_seq = connection.prepare_cached(select_jobs!("WHERE job.seq = ?1"))?;
    for seq in seqs {
        take(by_seq.query([bound(seq.0)])?.next()?)?;
    }
    Ok(jobs.into_values().collect())
}

pub(super) fn payloads(
    connection: &Connection,
    jobs: &[Seq],
) -> Result<Vec<Option<StoredText>>, Failure> {
    let mut find = connection.prepare_cached("SELECT text FROM payload WHERE seq = ?1")?;
    let mut payload = |seq: &Seq| {
        let mut found = find.query([bound(seq.0)])?;
        found.next()?.map(|row| Ok(rows::text(row, 0)?.into())).transpose()
    };
    jobs.iter().map(&mut payload).collect()
}

pub(super) fn history(connection: &Connection, job: JobId) -> Result<Option<History>, Failure> {
    let Some(row) = find(connection, &[job], &[], &[])?.pop() else {
        return Ok(None);
    };
    let payload = payloads(connection, &[row.seq])?.pop().flatten();
    let payload = payload
        .ok_or_else(|| Failure::Content(format!("job number {} has no payload", row.seq.0)))?;
    let (owners, more_owners) = owners(connection, row.seq)?;
    let (notes, more_notes) = notes::of_job(connection, row.seq, job)?;
    Ok(Some(History {
        payload,
        owners,
        notes,
        outputs: outputs(connection, row.seq)?,
        may_be_more: more_owners || more_notes,
        row,
    }))
}

/// The newest changes of owner of one job, in order, and whether there may be older ones. Rows of
/// the ledger name their jobs, but a job's rows only bound the part of the ledger that can name it:
/// for a job that has waited for long, that is most of the ledger.
fn owners(connection: &Connection, job: Seq) -> Result<(Vec<OwnerChange>, bool), Failure> {
    let sql = "SELECT worker, cause, from_worker, lease.at, jobs
               FROM job LEFT JOIN job_state ON job_state.seq = job.seq CROSS JOIN lease
               WHERE job.seq = ?1 AND number > lease_before
                   AND number <= iif(job_state.state >= 5, lease_last, 9223372036854775807)
               ORDER BY number DESC";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query([bound(job.0)])?;
    let mut owners = Vec::new();
    let (mut examined, mut may_be_more) = (0, false);
    while let Some(row) = found.next()? {
        if examined == EXAMINED_ROWS_MAX || owners.len() == HISTORY_ROWS_MAX {
            may_be_more = true;
            break;
        }
        examined += 1;
        let jobs = row.get_ref(4)?.as_blob()?;
        for hold in packed::unpack(jobs) {
            let hold = hold?;
            if hold.job == job {
                let worker = rows::worker(row, 0)?;
                let cause = codes::cause(row.get(1)?, rows::worker(row, 2)?)?;
                owners.push(OwnerChange { hold, worker, cause, at: rows::wall(row, 3)? });
            }
        }
    }
    owners.reverse();
    Ok((owners, may_be_more))
}

fn outputs(connection: &Connection, job: Seq) -> Result<Vec<AttemptOutput>, Failure> {
    let sql = "SELECT fence, result, log FROM attempt_output
               WHERE job = ?1 ORDER BY fence DESC LIMIT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query([bound(job.0), bound(HISTORY_OUTPUTS_MAX as u64)])?;
    let mut outputs = Vec::new();
    while let Some(row) = found.next()? {
        let hold = Hold { job, fence: Fence(rows::unsigned(row, 0)?) };
        outputs.push(AttemptOutput { hold, result: row.get(1)?, log: row.get(2)? });
    }
    outputs.reverse();
    Ok(outputs)
}

pub(super) fn ids_ending(
    connection: &Connection,
    digits: &str,
    limit: usize,
) -> Result<FoundIds, Failure> {
    let is_ending = digits.len() <= 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    if !is_ending {
        return Ok(FoundIds::default());
    }
    // The empty string does not parse, and every id ends with it.
    let ending = u128::from_str_radix(digits, 16).unwrap_or(0);
    let mask = 1_u128.checked_shl(4 * digits.len() as u32).map_or(u128::MAX, |bit| bit - 1);
    // An index of the last digits was tried: even one in blocks, which keeps its inserts together,
    // made every put 15 % slower. Users mostly ask for the newest jobs.
    let mut statement = connection.prepare_cached("SELECT id FROM job ORDER BY id DESC")?;
    let mut newest = statement.query(())?;
    let mut found = FoundIds::default();
    let mut examined = 0;
    while found.ids.len() < limit
        && let Some(row) = newest.next()?
    {
        if examined == EXAMINED_ROWS_MAX {
            found.may_be_more = true;
            break;
        }
        examined += 1;
        let id = rows::id(row, 0)?;
        if id.0 & mask == ending {
            found.ids.push(id);
        }
    }
    Ok(found)
}

pub(super) fn expired(
    connection: &Connection,
    after: Option<(Wall, Seq)>,
    before: Wall,
    limit: usize,
) -> Result<Vec<Expired>, Failure> {
    let sql =
        "SELECT at, job_state.seq, job.id FROM job_state CROSS JOIN job ON job.seq = job_state.seq
               WHERE job_state.state >= 5 AND holder IS NULL
                   AND (at, job_state.seq) > (?1, ?2) AND at < ?3
               ORDER BY at, job_state.seq LIMIT ?4";
    let mut statement = connection.prepare_cached(sql)?;
    // No job has the number 0, and none ended before 1970.
    let (at, seq) = after.map_or((0, 0), |(at, seq)| (bound(at.0), bound(seq.0)));
    let mut found = statement.query((at, seq, bound(before.0), bound(limit as u64)))?;
    let mut expired = Vec::new();
    while let Some(row) = found.next()? {
        let (at, seq) = (rows::wall(row, 0)?, Seq(rows::unsigned(row, 1)?));
        expired.push(Expired { at, seq, id: rows::id(row, 2)? });
    }
    Ok(expired)
}
