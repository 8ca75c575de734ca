//! Everything in the file, for an integrity check: one pass through each table, in step with the
//! others.
//!
//! A row that cannot be decoded is reported as damage, and reading goes on.

use filch_scheduler::id::{Fence, JobId, LeaseNo, Seq};
use filch_scheduler::record::{JobRow, LeaseRow, Note};
use filch_scheduler::time::Duration;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, Row, Statement};

use super::cursor::Cursor;
use super::error::Failure;
use super::live::Live;
use super::numbers::Numbers;
use super::rows::{self, Names, select_jobs};
use super::{codes, notes, purge_log};
use crate::integrity::{DumpRecord, IntegrityRule, ParentJob, PurgeRecord, StoredJob};
use crate::store::PurgeCause;

/// Passes everything to `each`, in the order that [`DumpRecord`] requires.
pub(super) fn dump(
    connection: &Connection,
    each: &mut dyn FnMut(DumpRecord),
) -> Result<(), Failure> {
    let mut walk = Walk { connection, each };
    for step in [Walk::whole, Walk::numbers, Walk::purges, Walk::strays, Walk::jobs_and_leases] {
        let taken = step(&mut walk);
        walk.report_damage(taken, "the file")?;
    }
    Ok(())
}

struct Walk<'walk> {
    connection: &'walk Connection,
    each: &'walk mut dyn FnMut(DumpRecord),
}

impl Walk<'_> {
    /// Reports damage; passes on other failures, such as errors of the disk.
    fn report_damage<T>(
        &mut self,
        result: Result<T, Failure>,
        place: &str,
    ) -> Result<Option<T>, Failure> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(failure) if is_damage(&failure) => {
                self.damage(IntegrityRule::File, None, format!("{place}: {failure}"));
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }

    fn damage(&mut self, rule: IntegrityRule, job: Option<Seq>, what: String) {
        (self.each)(DumpRecord::Damage { rule, job, what });
    }

    /// SQLite's own check of pages, tables and indexes.
    fn whole(&mut self) -> Result<(), Failure> {
        let mut check = self.connection.prepare("PRAGMA integrity_check")?;
        let mut found = check.query(())?;
        while let Some(row) = found.next()? {
            let message = rows::text(row, 0)?;
            if message != "ok" {
                let rule = if message.contains("index") {
                    IntegrityRule::Index
                } else {
                    IntegrityRule::File
                };
                (self.each)(DumpRecord::Damage {
                    rule,
                    job: None,
                    what: format!("SQLite: {message}"),
                });
            }
        }
        Ok(())
    }

    fn numbers(&mut self) -> Result<(), Failure> {
        let Numbers { commit, seq, lease } = Numbers::read(self.connection)?;
        (self.each)(DumpRecord::Numbers { commit, seq, lease });
        Ok(())
    }

    fn purges(&mut self) -> Result<(), Failure> {
        let mut ranges =
            self.connection.prepare("SELECT first, last FROM purged_range ORDER BY first")?;
        let mut found = ranges.query(())?;
        while let Some(row) = found.next()? {
            let (first, last) = (rows::unsigned(row, 0)?, rows::unsigned(row, 1)?);
            (self.each)(DumpRecord::Purged(Seq(first), Seq(last)));
        }
        let sql = "SELECT cause, retention_ms, at_last, jobs, waited_least_ms, waited_least_job
                   FROM purge ORDER BY number";
        let mut purges = self.connection.prepare(sql)?;
        let mut found = purges.query(())?;
        while let Some(row) = found.next()? {
            let purge = PurgeRecord {
                cause: match row.get(0)? {
                    purge_log::EXPIRED => {
                        let retention = Duration::from_millis(rows::unsigned(row, 1)?);
                        PurgeCause::Expired { retention }
                    }
                    purge_log::MISDATED => PurgeCause::Misdated,
                    _ => PurgeCause::Discarded,
                },
                at: rows::wall(row, 2)?,
                jobs: rows::unsigned(row, 3)?,
                waited_least: (row.get(4)?, Seq(rows::unsigned(row, 5)?)),
            };
            (self.each)(DumpRecord::Purge(purge));
        }
        Ok(())
    }

    /// Rows that belong to a job or to a row of the ledger that does not exist.
    fn strays(&mut self) -> Result<(), Failure> {
        for (table, column) in
            [("job_state", "seq"), ("payload", "seq"), ("attempt_output", "job"), ("note", "job")]
        {
            let sql = format!(
                "SELECT {column} FROM {table}
                 WHERE {column} IS NOT NULL AND {column} NOT IN (SELECT seq FROM job) LIMIT 100"
            );
            let mut stray = self.connection.prepare(&sql)?;
            let mut found = stray.query(())?;
            while let Some(row) = found.next()? {
                let seq = Seq(rows::unsigned(row, 0)?);
                let what =
                    format!("the table {table} has a row for it, but the job does not exist");
                self.damage(IntegrityRule::Index, Some(seq), what);
            }
        }
        let sql = "SELECT number FROM lease_open WHERE number NOT IN (SELECT number FROM lease)";
        let mut stray = self.connection.prepare(sql)?;
        let mut found = stray.query(())?;
        while let Some(row) = found.next()? {
            let number: i64 = row.get(0)?;
            let what = format!("lease row {number} is open, but does not exist");
            self.damage(IntegrityRule::Index, None, what);
        }
        Ok(())
    }

    fn jobs_and_leases(&mut self) -> Result<(), Failure> {
        let mut jobs = self.connection.prepare(select_jobs!("ORDER BY job.seq"))?;
        let mut found = jobs.query(())?;
        let mut statements = Statements::new(self.connection)?;
        let mut beside = Beside::new(self.connection, &mut statements)?;
        let mut names = Names::default();
        while let Some(row) = found.next()? {
            let seq = Seq(rows::unsigned(row, 0)?);
            beside.is_live = beside.live.contains(seq);
            beside.live.set(seq, false);
            let kept = rows::job(row, &mut names).and_then(|row| beside.keep(row));
            let Some(kept) = self.report_damage(kept, &format!("job number {}", seq.0))? else {
                continue;
            };
            while let Some((number, lease)) = beside.leases.next_to(kept.lease_before.0)? {
                self.lease(number, lease)?;
            }
            (self.each)(DumpRecord::Job(Box::new(kept)));
        }
        while let Some((number, lease)) = beside.leases.next_to(u64::MAX)? {
            self.lease(number, lease)?;
        }
        for (first, last) in beside.live.runs() {
            let more = match last.0 - first.0 {
                0 => String::new(),
                more => format!("; the same holds for the {more} after it"),
            };
            let what = format!("the table live has it, but the job does not exist{more}");
            self.damage(IntegrityRule::Index, Some(first), what);
        }
        Ok(())
    }

    fn lease(&mut self, number: u64, lease: Result<Lease, Failure>) -> Result<(), Failure> {
        if let Some((row, is_open)) = self.report_damage(lease, &format!("lease row {number}"))? {
            (self.each)(DumpRecord::Lease { row, is_open });
        }
        Ok(())
    }
}

/// A row of the ledger, and whether it is open.
type Lease = (LeaseRow, bool);

/// The queries of the other tables. They are ordered by their first column.
struct Statements<'walk> {
    places: Statement<'walk>,
    notes: Statement<'walk>,
    outputs: Statement<'walk>,
    leases: Statement<'walk>,
    parent: Statement<'walk>,
}

impl<'walk> Statements<'walk> {
    fn new(connection: &'walk Connection) -> Result<Self, Failure> {
        Ok(Self {
            places: connection.prepare(
                "SELECT job.seq, lease_before, lease_last,
                        coalesce(lease_last - leases_since, lease_before),
                        payload.seq IS NOT NULL
                 FROM job LEFT JOIN job_state ON job_state.seq = job.seq
                          LEFT JOIN payload ON payload.seq = job.seq
                 ORDER BY job.seq",
            )?,
            notes: connection.prepare(
                "SELECT job, kind, fence, worker, outcome, text, jobs, done_by, queue
                 FROM note INDEXED BY note_job
                 WHERE job IS NOT NULL ORDER BY job, number",
            )?,
            outputs: connection
                .prepare("SELECT job, fence FROM attempt_output ORDER BY job, fence")?,
            leases: connection.prepare(
                "SELECT lease.number, worker, cause, from_worker, at, jobs,
                        lease_open.number IS NOT NULL
                 FROM lease LEFT JOIN lease_open ON lease_open.number = lease.number
                 ORDER BY lease.number",
            )?,
            parent: connection.prepare(
                "SELECT job.seq, coalesce(job_state.state, job.state),
                        iif(job_state.seq IS NULL, lease_before, lease_last - leases_since),
                        EXISTS (SELECT 1 FROM note WHERE note.job = job.seq AND note.kind = 3),
                        submitted_at
                 FROM job LEFT JOIN job_state ON job_state.seq = job.seq WHERE id = ?1",
            )?,
        })
    }
}

/// The newest rows of the ledger when a job was put and written, and whether it has a payload.
struct Place {
    before: LeaseNo,
    last: Option<LeaseNo>,
    written: LeaseNo,
    has_payload: bool,
}

/// The rows of other tables that belong to jobs.
struct Beside<'walk, 'connection> {
    places: Cursor<'walk, Place>,
    notes: Cursor<'walk, Note>,
    outputs: Cursor<'walk, Fence>,
    leases: Cursor<'walk, Lease>,
    parent: &'walk mut Statement<'connection>,
    /// The live jobs that were not read yet.
    live: Live,
    /// Whether the job that was read last was among them.
    is_live: bool,
}

impl<'walk, 'connection> Beside<'walk, 'connection> {
    fn new(
        connection: &Connection,
        statements: &'walk mut Statements<'connection>,
    ) -> Result<Self, Failure> {
        let Statements { places, notes, outputs, leases, parent } = statements;
        Ok(Self {
            places: Cursor::new(places, place)?,
            notes: Cursor::new(notes, |row| {
                // The check does not use the id.
                notes::read(row, Seq(rows::unsigned(row, 0)?), JobId(0))
            })?,
            outputs: Cursor::new(outputs, |row| Ok(Fence(rows::unsigned(row, 1)?)))?,
            leases: Cursor::new(leases, |row| Ok((rows::lease(row)?, row.get(6)?)))?,
            parent,
            live: Live::read(connection)?,
            is_live: false,
        })
    }

    fn keep(&mut self, row: JobRow) -> Result<StoredJob, Failure> {
        let seq = row.seq.0;
        let gone = || Failure::Content("its row has disappeared while reading".into());
        let place = self.places.of(seq)?.pop().ok_or_else(gone)?;
        Ok(StoredJob {
            lease_before: place.before,
            lease_ended: place.written,
            lease_last: place.last.unwrap_or(LeaseNo(u64::MAX)),
            notes: self.notes.of(seq)?,
            outputs: self.outputs.of(seq)?,
            has_payload: place.has_payload,
            is_live: self.is_live,
            parents: row
                .spec
                .parents
                .iter()
                .map(|id| self.parent(*id))
                .collect::<Result<_, _>>()?,
            row,
        })
    }

    fn parent(&mut self, id: JobId) -> Result<Option<ParentJob>, Failure> {
        let mut found = self.parent.query([id.0.to_be_bytes()])?;
        let Some(row) = found.next()? else {
            return Ok(None);
        };
        Ok(Some(ParentJob {
            seq: Seq(rows::unsigned(row, 0)?),
            submitted_at: rows::wall(row, 4)?,
            state: codes::state(row.get(1)?)?,
            lease_ended: LeaseNo(rows::unsigned(row, 2)?),
            is_retried: row.get(3)?,
        }))
    }
}

fn place(row: &Row<'_>) -> Result<Place, Failure> {
    Ok(Place {
        before: LeaseNo(rows::unsigned(row, 1)?),
        last: match row.get_ref(2)? {
            ValueRef::Null => None,
            _ => Some(LeaseNo(rows::unsigned(row, 2)?)),
        },
        written: LeaseNo(rows::unsigned(row, 3)?),
        has_payload: row.get(4)?,
    })
}

/// Whether the content of the file is the cause.
fn is_damage(failure: &Failure) -> bool {
    match failure {
        Failure::Content(_) => true,
        Failure::Sqlite(rusqlite::Error::SqliteFailure(error, _)) => {
            // Our queries are correct, so SQLITE_ERROR means that a table is missing.
            matches!(error.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
                || error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHORT_READ
                || error.extended_code == rusqlite::ffi::SQLITE_ERROR
        }
        // A column has a wrong type or is out of range.
        Failure::Sqlite(_) => true,
        Failure::Io(_) | Failure::Earlier(_) | Failure::Waited(_) | Failure::Interrupted => false,
    }
}
