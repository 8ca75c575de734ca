//! What a starting server loads.

use std::collections::BTreeSet;

use filch_scheduler::id::Seq;
use filch_scheduler::record::{JobRow, Loaded};
use rusqlite::Connection;

use super::codes;
use super::error::Failure;
use super::live::Live;
use super::numbers::Numbers;
use super::rows::{self, Names, select_jobs};
use crate::store::OWNER_LEASE;

/// Passes everything to `each`, in the order that [`Loaded`] requires.
pub(super) fn load(
    connection: &Connection,
    has_living_former: bool,
    each: &mut dyn FnMut(Loaded),
) -> Result<(), Failure> {
    let Numbers { commit, seq, lease } = Numbers::read(connection)?;
    each(Loaded::Numbers { commit, seq, lease, newest_id: newest_id(connection)? });
    if has_living_former {
        each(Loaded::FormerOwner { renews_for: OWNER_LEASE });
    }
    settings(connection, each)?;
    let runs = Live::read(connection)?.runs();
    let mut names = Names::default();
    // In one commit a child may have a lower number than its parents, so the order of numbers is
    // not enough: ended jobs come first.
    for seq in ended(connection, &runs)? {
        let mut find = connection.prepare_cached(select_jobs!("WHERE job.seq = ?1"))?;
        let mut found = find.query([seq.0.cast_signed()])?;
        if let Some(row) = found.next()? {
            each(Loaded::Job(rows::job(row, &mut names)?));
        }
    }
    let sql = select_jobs!("WHERE job.seq BETWEEN ?1 AND ?2 ORDER BY job.seq");
    let mut statement = connection.prepare_cached(sql)?;
    for (first, last) in runs {
        let mut found = statement.query([first.0.cast_signed(), last.0.cast_signed()])?;
        while let Some(row) = found.next()? {
            let job: JobRow = rows::job(row, &mut names)?;
            if !job.now.state.is_ended() {
                each(Loaded::Job(job));
            }
        }
    }
    let sql = "SELECT lease.number, worker, cause, from_worker, at, jobs
               FROM lease_open JOIN lease USING (number) ORDER BY lease_open.number";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(())?;
    while let Some(row) = found.next()? {
        each(Loaded::Lease(rows::lease(row)?));
    }
    Ok(())
}

fn newest_id(connection: &Connection) -> Result<Option<filch_scheduler::time::Wall>, Failure> {
    // Ids of version 7 sort by time; others may sort after them.
    let mut statement = connection.prepare_cached("SELECT id FROM job ORDER BY id DESC")?;
    let mut found = statement.query(())?;
    while let Some(row) = found.next()? {
        if let Some(at) = rows::id(row, 0)?.made_at() {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

fn settings(connection: &Connection, each: &mut dyn FnMut(Loaded)) -> Result<(), Failure> {
    let sql = "SELECT strategy, aging_ns, lease_length_ns FROM store_meta";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(())?;
    if let Some(row) = found.next()? {
        if let Some(strategy) = row.get(0)? {
            each(Loaded::Strategy(codes::strategy(strategy, row.get(1)?)?));
        }
        if let Some(length) = row.get(2)? {
            each(Loaded::LeaseLength(codes::duration(length)?));
        }
    }
    let sql = "SELECT name, paused, jobs_max, weight FROM queue ORDER BY name";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(())?;
    while let Some(row) = found.next()? {
        each(Loaded::Queue(rows::queue(row)?));
    }
    Ok(())
}

/// The ended jobs that a server needs: cancelled ones that a worker still holds, and the parents of
/// blocked ones.
fn ended(connection: &Connection, runs: &[(Seq, Seq)]) -> Result<BTreeSet<Seq>, Failure> {
    let mut ended = BTreeSet::new();
    let sql = "SELECT seq FROM job_state WHERE state >= 6 AND holder IS NOT NULL";
    let mut statement = connection.prepare_cached(sql)?;
    let mut found = statement.query(())?;
    while let Some(row) = found.next()? {
        ended.insert(Seq(rows::unsigned(row, 0)?));
    }
    let sql = "SELECT parents FROM job LEFT JOIN job_state ON job_state.seq = job.seq
               WHERE job.seq BETWEEN ?1 AND ?2 AND parents IS NOT NULL
                   AND coalesce(job_state.state, job.state) = 0";
    let mut blocked = connection.prepare_cached(sql)?;
    let sql = "SELECT job.seq FROM job JOIN job_state ON job_state.seq = job.seq
               WHERE id = ?1 AND job_state.state >= 5";
    let mut find = connection.prepare_cached(sql)?;
    for (first, last) in runs {
        let mut found = blocked.query([first.0.cast_signed(), last.0.cast_signed()])?;
        while let Some(row) = found.next()? {
            let parents = row.get_ref(0)?.as_blob()?;
            for parent in parents.as_chunks::<16>().0 {
                let mut found = find.query([parent])?;
                if let Some(row) = found.next()? {
                    ended.insert(Seq(rows::unsigned(row, 0)?));
                }
            }
        }
    }
    Ok(ended)
}
