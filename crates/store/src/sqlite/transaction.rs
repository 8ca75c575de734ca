//! A commit as one transaction, all of it or nothing.
//!
//! Most mutations are one statement that makes its own checks: the write at the end of a job
//! changes no row if the fence would go back or the job has ended. Only then the reason is looked
//! up.

use filch_scheduler::id::{Hold, LeaseNo, Seq};
use filch_scheduler::name::Name;
use filch_scheduler::record::{JobRow, JobWrite, LeaseRow, Mutation, QueueSettings};
use rusqlite::{CachedStatement, Connection, ErrorCode, params};

use super::error::{Failure, Halt};
use super::live::Live;
use super::numbers::Numbers;
use super::rows::{self, of_wall, of_worker, ordered};
use super::{codes, epoch, notes, packed, purge, trim};
use crate::rules::{self, Rejection, check_holder, is_live};
use crate::store::{AttemptOutput, Commit, PurgeCause, StoredText};

/// A statement that is looked up once per commit, and only if it is used.
struct Lazy<'commit> {
    sql: &'static str,
    statement: Option<CachedStatement<'commit>>,
}

impl<'commit> Lazy<'commit> {
    const fn new(sql: &'static str) -> Self {
        Self { sql, statement: None }
    }

    fn get(
        &mut self,
        connection: &'commit Connection,
    ) -> rusqlite::Result<&mut CachedStatement<'commit>> {
        match &mut self.statement {
            Some(statement) => Ok(statement),
            missing => Ok(missing.insert(connection.prepare_cached(self.sql)?)),
        }
    }
}

const INSERT: &str =
    "INSERT INTO job (seq, state, id, body, key, queue, kind, priority, submitted_at, lease_before)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";

const INSERT_SPECIAL: &str = "INSERT INTO job
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,
             ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)";

/// For a job that has not ended: no row means that it is as it was put, with fence 0.
const WRITE: &str =
    "INSERT INTO job_state VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
     ON CONFLICT (seq) DO UPDATE SET
         state = ?2, fence = ?3, attempts = ?4, suspicions = ?5, priority = ?6, due = ?7,
         holder = ?8, last_report = ?9, last_worker = ?10, reason = ?11, at = ?12,
         lease_last = ?13, leases_since = ?14
     WHERE fence <= ?3 AND state < 5";

const OVERWRITE: &str = "INSERT OR REPLACE INTO job_state
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";

/// Begun by its first statement; ended by its last, or rolled back by the caller if it fails.
pub(super) struct Transaction<'commit> {
    connection: &'commit Connection,
    /// The epoch of this writer.
    epoch: u64,
    numbers: Numbers,
    live: &'commit mut Live,
    /// The newest lease row after this commit: the row that takes a job from its owner may come
    /// after the write that ends it.
    lease_last: LeaseNo,
    has_purged: bool,
    /// The causes of the purges that are still to come.
    purges: &'commit [PurgeCause],
    insert: Lazy<'commit>,
    write: Lazy<'commit>,
    /// A buffer for the jobs of lease rows and for parents.
    bytes: Vec<u8>,
}

impl<'commit> Transaction<'commit> {
    pub(super) const fn new(
        connection: &'commit Connection,
        epoch: u64,
        numbers: Numbers,
        live: &'commit mut Live,
    ) -> Self {
        Self {
            connection,
            epoch,
            numbers,
            live,
            lease_last: numbers.lease,
            has_purged: false,
            purges: &[],
            insert: Lazy::new(INSERT),
            write: Lazy::new(WRITE),
            bytes: Vec::new(),
        }
    }

    /// Returns the newest numbers afterwards.
    pub(super) fn run(mut self, commit: &'commit Commit) -> Result<Numbers, Halt> {
        self.execute("BEGIN IMMEDIATE", ())?;
        epoch::check(self.connection, self.epoch)?;
        let number = |mutation: &Mutation| match mutation {
            Mutation::Lease(row) => Some(row.number),
            _ => None,
        };
        self.lease_last =
            commit.mutations.iter().rev().find_map(number).unwrap_or(self.numbers.lease);
        self.purges = &commit.purges;
        for mutation in &commit.mutations {
            self.mutate(mutation)?;
        }
        self.payloads(&commit.payloads)?;
        self.outputs(&commit.outputs)?;
        self.live.write(self.connection)?;
        self.numbers.commit = commit.last;
        self.numbers.write(self.connection)?;
        self.execute("COMMIT", ())?;
        Ok(self.numbers)
    }

    fn mutate(&mut self, mutation: &Mutation) -> Result<(), Halt> {
        match mutation {
            Mutation::Put(row) => self.put(row),
            Mutation::Write(write) => self.write(write),
            &Mutation::Priority { job, priority } => self.priority(job, priority),
            Mutation::Lease(row) => self.lease(row),
            &Mutation::Close(number) => self.close(number),
            Mutation::Queue(settings) => self.queue(settings),
            &Mutation::Strategy(strategy) => {
                let strategy = codes::of_strategy(strategy);
                self.execute("UPDATE store_meta SET strategy = ?1, aging_ns = ?2", strategy)?;
                Ok(())
            }
            &Mutation::LeaseLength(length) => {
                let length = codes::of_duration(length);
                self.execute("UPDATE store_meta SET lease_length_ns = ?1", [length])?;
                Ok(())
            }
            Mutation::Purge(jobs) => {
                self.has_purged = true;
                let (cause, rest) = self.purges.split_first().expect("checked: one for each");
                self.purges = rest;
                purge::purge(self.connection, self.live, jobs, *cause)
            }
            Mutation::Trim { leases, notes_before } => {
                trim::trim(self.connection, leases, *notes_before)
            }
            Mutation::Note(note) => notes::write(self.connection, note),
            Mutation::Output(output) => self.outputs(std::slice::from_ref(output)),
        }
    }

    fn put(&mut self, row: &JobRow) -> Result<(), Halt> {
        let JobRow { seq, ref spec, submitted_at, ref now } = *row;
        if seq <= self.numbers.seq {
            return Err(Rejection::SeqOrder { seq, last: self.numbers.seq }.into());
        }
        if now.job != seq {
            return Err(Rejection::WrittenAs { seq, job: now.job }.into());
        }
        let inserted = self.insert(row);
        if let Err(Halt::Failure(Failure::Sqlite(error))) = &inserted
            && error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
        {
            self.diagnose(row)?;
        }
        inserted?;
        check_holder(now)?;
        self.numbers.seq = seq;
        let begin = JobWrite { state: now.state, ..rows::untouched(seq, spec, submitted_at) };
        // An ended job always has a row in `job_state`: a job without one has not ended.
        if *now != begin || now.state.is_ended() {
            self.overwrite(now)?;
        }
        if is_live(now) {
            self.live.set(seq, true);
        }
        Ok(())
    }

    fn insert(&mut self, row: &JobRow) -> Result<(), Halt> {
        let JobRow { seq, ref spec, submitted_at, ref now } = *row;
        let seq = ordered(seq.0)?;
        let (id, body) = (spec.id.0.to_be_bytes(), spec.body.0.to_be_bytes());
        let key = spec.key.as_ref().map(Name::as_str);
        let state = codes::of_state(now.state);
        let (queue, kind) = (spec.queue.as_str(), spec.kind.as_str());
        let (submitted_at, lease) = (of_wall(submitted_at), ordered(self.numbers.lease.0)?);
        if rows::is_plain(spec) {
            let insert = self.insert.get(self.connection)?;
            let priority = spec.priority;
            insert.execute((
                seq,
                state,
                id,
                body,
                key,
                queue,
                kind,
                priority,
                submitted_at,
                lease,
            ))?;
            return Ok(());
        }
        self.bytes.clear();
        for parent in &spec.parents {
            self.bytes.extend_from_slice(&parent.0.to_be_bytes());
        }
        let parents = (!spec.parents.is_empty()).then_some(&self.bytes[..]);
        let (backoff, [base, factor, cap]) = codes::of_backoff(spec.retry.backoff);
        self.connection.prepare_cached(INSERT_SPECIAL)?.execute(params![
            seq,
            state,
            id,
            body,
            key,
            queue,
            kind,
            spec.priority,
            submitted_at,
            lease,
            codes::of_condition(spec.condition),
            codes::of_otherwise(spec.otherwise),
            parents,
            spec.not_before.map(of_wall),
            spec.retry.max,
            backoff,
            base,
            factor,
            cap,
            spec.retry.jitter_percent,
            spec.timeout.map(|timeout| timeout.0),
        ])?;
        Ok(())
    }

    /// Why a row could not be inserted, if the reason is its id, its key or its state.
    fn diagnose(&self, row: &JobRow) -> Result<(), Halt> {
        let JobRow { seq, ref spec, ref now, .. } = *row;
        if let Some(other) = rows::number_of(self.connection, spec.id)? {
            return Err(Rejection::SameId { id: spec.id, other, seq }.into());
        }
        if let Some(key) = &spec.key {
            let find = "SELECT seq FROM job WHERE key = ?1 AND queue = ?2";
            let mut find = self.connection.prepare_cached(find)?;
            let mut found = find.query([key.as_str(), spec.queue.as_str()])?;
            if let Some(found) = found.next()? {
                let other = Seq(rows::unsigned(found, 0)?);
                return Err(Rejection::SameKey { key: key.clone(), other, seq }.into());
            }
        }
        Ok(check_holder(now)?)
    }

    fn write(&mut self, write: &JobWrite) -> Result<(), Halt> {
        let is_usual = self.live.contains(write.job) && check_holder(write).is_ok();
        if !is_usual || !self.write_usual(write)? {
            let kept = self.kept(write.job)?;
            rules::check_write(&kept, write)?;
            if kept.state.is_ended() && write.state.is_ended() {
                self.let_go(write)?;
            } else {
                self.overwrite(write)?;
            }
        }
        self.live.set(write.job, is_live(write));
        Ok(())
    }

    /// Writes the state of a job that has not ended. Returns false without writing if the fence
    /// would go back, or if the job was cancelled and is only still held.
    fn write_usual(&mut self, write: &JobWrite) -> Result<bool, Halt> {
        let parameters = self.state_row(write)?;
        Ok(self.write.get(self.connection)?.execute(parameters)? == 1)
    }

    /// Writes that no worker holds a cancelled job any more; it ended before.
    fn let_go(&self, write: &JobWrite) -> Result<(), Halt> {
        let sql = "SELECT lease_last - leases_since FROM job_state WHERE seq = ?1";
        let mut find = self.connection.prepare_cached(sql)?;
        let job = ordered(write.job.0)?;
        let ended: i64 = find.query_row([job], |row| row.get(0))?;
        self.overwrite(write)?;
        let sql = "UPDATE job_state SET leases_since = lease_last - ?2 WHERE seq = ?1";
        self.execute(sql, (job, ended))?;
        Ok(())
    }

    fn overwrite(&self, write: &JobWrite) -> Result<(), Halt> {
        let parameters = self.state_row(write)?;
        self.execute(OVERWRITE, parameters)?;
        Ok(())
    }

    fn priority(&mut self, job: Seq, priority: i16) -> Result<(), Halt> {
        let sql = "UPDATE job_state SET priority = ?2 WHERE seq = ?1";
        if self.execute(sql, (ordered(job.0)?, priority))? == 0 {
            self.overwrite(&JobWrite { priority, ..self.kept(job)? })?;
        }
        Ok(())
    }

    fn lease(&mut self, row: &LeaseRow) -> Result<(), Halt> {
        let LeaseRow { number, worker, cause, ref jobs, at } = *row;
        if number <= self.numbers.lease {
            return Err(Rejection::LeaseOrder { number, last: self.numbers.lease }.into());
        }
        for hold in jobs {
            if !self.live.contains(hold.job) {
                self.kept(hold.job)?;
            }
        }
        packed::pack(jobs, &mut self.bytes);
        let (cause, from) = codes::of_cause(cause);
        let key = ordered(number.0)?;
        self.execute(
            "INSERT INTO lease VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            (key, of_worker(worker), cause, of_worker(from), of_wall(at), &self.bytes[..]),
        )?;
        self.execute("INSERT INTO lease_open VALUES (?1)", [key])?;
        self.numbers.lease = number;
        Ok(())
    }

    fn close(&self, number: LeaseNo) -> Result<(), Halt> {
        let closed =
            self.execute("DELETE FROM lease_open WHERE number = ?1", [ordered(number.0)?])?;
        if closed == 0 {
            return Err(Rejection::NotOpen(number).into());
        }
        Ok(())
    }

    fn queue(&self, settings: &QueueSettings) -> Result<(), Halt> {
        let QueueSettings { queue, paused, limit, weight } = settings;
        self.execute(
            "INSERT OR REPLACE INTO queue VALUES (?1, ?2, ?3, ?4)",
            (queue.as_str(), paused, limit, weight),
        )?;
        Ok(())
    }

    fn payloads(&self, payloads: &[(Seq, StoredText)]) -> Result<(), Halt> {
        let mut sql = "INSERT INTO payload VALUES (?1, ?2)";
        if self.has_purged {
            // The purge may have deleted a job that this commit has put.
            sql =
                "INSERT INTO payload SELECT ?1, ?2 WHERE EXISTS (SELECT 1 FROM job WHERE seq = ?1)";
        }
        let mut insert = self.connection.prepare_cached(sql)?;
        for (seq, text) in payloads {
            insert.execute((seq.0.cast_signed(), &**text))?;
        }
        Ok(())
    }

    fn outputs(&self, outputs: &[AttemptOutput]) -> Result<(), Halt> {
        let sql = "INSERT OR REPLACE INTO attempt_output SELECT ?1, ?2, ?3, ?4
                   WHERE EXISTS (SELECT 1 FROM job WHERE seq = ?1)";
        let mut insert = self.connection.prepare_cached(sql)?;
        for AttemptOutput { hold: Hold { job, fence }, result, log } in outputs {
            insert.execute((
                ordered(job.0)?,
                ordered(fence.0)?,
                result.as_deref(),
                log.as_deref(),
            ))?;
        }
        Ok(())
    }

    /// The mutable part of a job, as it is stored.
    fn kept(&self, seq: Seq) -> Result<JobWrite, Halt> {
        Ok(rows::kept(self.connection, seq)?.ok_or(Rejection::NoJob(seq))?)
    }

    fn execute(&self, sql: &str, parameters: impl rusqlite::Params) -> rusqlite::Result<usize> {
        self.connection.prepare_cached(sql)?.execute(parameters)
    }

    /// A row of `job_state`, in the order of its columns.
    fn state_row(&self, write: &JobWrite) -> Result<impl rusqlite::Params + use<>, Rejection> {
        let leases_since = self.lease_last.0.saturating_sub(self.numbers.lease.0);
        Ok((
            ordered(write.job.0)?,
            codes::of_state(write.state),
            ordered(write.fence.0)?,
            write.attempts,
            write.suspicions,
            write.priority,
            of_wall(write.due),
            of_worker(write.holder),
            write.last.map(|last| codes::of_report(last.kind)),
            of_worker(write.last.map(|last| last.worker)),
            write.reason.map(codes::of_reason),
            of_wall(write.at),
            ordered(self.lease_last.0)?,
            ordered(leases_since)?,
        ))
    }
}
