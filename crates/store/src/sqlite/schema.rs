//! The tables of a store file, and the check that a file has exactly these.
//!
//! What was submitted is written once (`job`, `payload`) and never changes. What became of a job is
//! a narrow row in `job_state`, so the write at the end of a job is small however large the
//! submission was. `live` has one bit per job that has not ended. Unfinished jobs are therefore in
//! no index except that of ids, and that of keys if they have one.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::error::Failure;
use crate::open::OpenError;

/// Marks the file as a filch store: "flch".
const APPLICATION: i32 = 0x666c_6368;

/// Raised by every change of the tables. A file with any other version is refused: until the first
/// release there is no upgrade from one version to the next.
pub(super) const VERSION: i64 = 8;

/// Enumerations are stored as small integers; `codes` defines their meaning.
const TABLES: &str = "
    -- A single row: the owner's epoch, the newest number of each kind, and the settings of the
    -- whole cluster.
    CREATE TABLE store_meta (
        id             INTEGER PRIMARY KEY CHECK (id = 1),
        -- Raised by each process that opens the store to write. Only the newest may write.
        epoch          INTEGER NOT NULL,
        commit_last    INTEGER NOT NULL,
        seq_last       INTEGER NOT NULL,
        lease_last     INTEGER NOT NULL,
        strategy       INTEGER,
        aging_ns       INTEGER,
        lease_length_ns INTEGER,
        -- Grows with every change of the table `token`.
        token_version  INTEGER NOT NULL
    ) STRICT;
    INSERT INTO store_meta (id, epoch, commit_last, seq_last, lease_last, token_version)
        VALUES (1, 0, 0, 0, 0, 0);

    -- Every process that has opened the store to write and has not closed it: when it was started,
    -- in clock ticks since boot, and the inode of the lock file that it holds.
    CREATE TABLE owner (
        epoch          INTEGER PRIMARY KEY,
        pid            INTEGER NOT NULL,
        started        INTEGER,
        lock           INTEGER NOT NULL
    ) STRICT;

    -- What was submitted. From `condition` on, all columns are NULL for a job that uses the defaults.
    CREATE TABLE job (
        seq            INTEGER PRIMARY KEY,
        -- The state at submission; `job_state` has the present one.
        state          INTEGER NOT NULL CHECK (state BETWEEN 0 AND 7 AND state <> 3),
        id             BLOB NOT NULL CHECK (length(id) = 16),
        body           BLOB NOT NULL,
        key            TEXT,
        queue          TEXT NOT NULL,
        kind           TEXT NOT NULL,
        priority       INTEGER NOT NULL,
        submitted_at   INTEGER NOT NULL,
        -- The newest lease row at submission: the owners of the job are in later rows.
        lease_before   INTEGER NOT NULL,
        condition      INTEGER,
        otherwise      INTEGER,
        parents        BLOB,
        not_before     INTEGER,
        attempts_max   INTEGER,
        backoff        INTEGER,
        backoff_base_ms INTEGER,
        backoff_factor_percent INTEGER,
        backoff_cap_ms INTEGER,
        jitter_percent INTEGER,
        timeout_ms     INTEGER
    ) STRICT;
    CREATE UNIQUE INDEX job_id ON job (id);
    CREATE UNIQUE INDEX job_key ON job (key, queue) WHERE key IS NOT NULL;

    CREATE TABLE payload (
        seq            INTEGER PRIMARY KEY,
        text           TEXT NOT NULL
    ) STRICT;

    -- The present state of a job. A job without a row is as it was submitted, and has not ended.
    CREATE TABLE job_state (
        seq            INTEGER PRIMARY KEY,
        state          INTEGER NOT NULL CHECK (state BETWEEN 0 AND 7 AND state <> 3),
        fence          INTEGER NOT NULL,
        attempts       INTEGER NOT NULL,
        suspicions     INTEGER NOT NULL,
        priority       INTEGER NOT NULL,
        due            INTEGER NOT NULL,
        holder         INTEGER,
        -- The report that ended the last attempt, under this fence, and the worker that sent it.
        last_report    INTEGER,
        last_worker    INTEGER,
        reason         INTEGER,
        at             INTEGER NOT NULL,
        -- The newest lease row after the commit that wrote this row: an ended job is in no later one.
        lease_last     INTEGER NOT NULL,
        -- How many lease rows, counted back from lease_last, were written by the event that put the job
        -- into this state, or after it. lease_last - leases_since is the newest lease row before that
        -- event; stored as a difference because that mostly takes no byte.
        leases_since   INTEGER NOT NULL,
        CHECK (state = 7 OR (state = 4) = (holder IS NOT NULL)),
        CHECK ((last_report IS NULL) = (last_worker IS NULL))
    ) STRICT;
    CREATE INDEX job_state_ended ON job_state (at) WHERE state >= 5 AND holder IS NULL;
    CREATE INDEX job_state_unsuccessful ON job_state (state) WHERE state >= 6;

    -- One bit per job that has not ended, in blocks of 4,096 numbers. Blocks without any have no row.
    CREATE TABLE live (
        block          INTEGER PRIMARY KEY,
        bits           BLOB NOT NULL CHECK (length(bits) = 512)
    ) STRICT;

    -- The ownership ledger: each row moves jobs to a worker, or back to their queue.
    CREATE TABLE lease (
        number         INTEGER PRIMARY KEY,
        worker         INTEGER,
        cause          INTEGER NOT NULL CHECK (cause BETWEEN 0 AND 3),
        from_worker    INTEGER,
        at             INTEGER NOT NULL,
        jobs           BLOB NOT NULL
    ) STRICT;
    -- The rows of the ledger that a starting server reads. A separate table, so that closing a row does
    -- not rewrite it.
    CREATE TABLE lease_open (
        number         INTEGER PRIMARY KEY
    ) STRICT;

    -- Remarks about jobs and workers: failed attempts, lost workers; and what operators did.
    CREATE TABLE note (
        number         INTEGER PRIMARY KEY,
        -- When it was stored.
        at             INTEGER NOT NULL,
        kind           INTEGER NOT NULL CHECK (kind BETWEEN 0 AND 9),
        job            INTEGER,
        fence          INTEGER,
        worker         INTEGER,
        outcome        INTEGER,
        text           TEXT,
        jobs           INTEGER,
        -- Who did it, if it is an act of an operator, and in which queue.
        done_by        TEXT,
        queue          TEXT
    ) STRICT;
    CREATE INDEX note_job ON note (job) WHERE job IS NOT NULL;
    CREATE INDEX note_queue ON note (queue, number) WHERE queue IS NOT NULL;
    CREATE INDEX note_act ON note (number) WHERE kind >= 2;
    CREATE INDEX note_worker ON note (at) WHERE job IS NULL;

    -- The result and the log of an attempt.
    CREATE TABLE attempt_output (
        job            INTEGER NOT NULL,
        fence          INTEGER NOT NULL,
        result         TEXT,
        log            TEXT,
        PRIMARY KEY (job, fence)
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE queue (
        name           TEXT PRIMARY KEY,
        paused         INTEGER NOT NULL,
        jobs_max       INTEGER,
        weight         INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;

    CREATE TABLE token (
        id             TEXT PRIMARY KEY,
        name           TEXT NOT NULL,
        role           TEXT NOT NULL,
        -- Names of queues, separated by U+001F; empty means all queues.
        queues         TEXT NOT NULL,
        -- SHA-256 of the token. The token itself is stored nowhere.
        digest         BLOB NOT NULL CHECK (length(digest) = 32),
        created_at     INTEGER NOT NULL,
        expires_at     INTEGER,
        revoked_at     INTEGER
    ) STRICT, WITHOUT ROWID;

    -- The numbers of purged jobs, as ranges: between two ranges there is at least one stored job.
    CREATE TABLE purged_range (
        first          INTEGER PRIMARY KEY,
        last           INTEGER NOT NULL,
        CHECK (last >= first)
    ) STRICT;

    -- Why and when jobs were purged: one row per cause and day.
    CREATE TABLE purge (
        number         INTEGER PRIMARY KEY,
        cause          INTEGER NOT NULL CHECK (cause BETWEEN 1 AND 3),
        -- The retention that applied.
        retention_ms   INTEGER CHECK ((retention_ms IS NOT NULL) = (cause = 1)),
        at_first       INTEGER NOT NULL,
        at_last        INTEGER NOT NULL,
        jobs           INTEGER NOT NULL,
        -- The shortest time between the end and the purge of one of these jobs, and its number.
        waited_least_ms INTEGER NOT NULL,
        waited_least_job INTEGER NOT NULL
    ) STRICT;

    -- How purged jobs had ended, by day and queue.
    CREATE TABLE daily_count (
        -- The day on which the jobs ended: days since 1970-01-01.
        day            INTEGER NOT NULL,
        queue          TEXT NOT NULL,
        succeeded      INTEGER NOT NULL,
        dead           INTEGER NOT NULL,
        cancelled      INTEGER NOT NULL,
        -- Sum of the times from submission to end.
        spent_ms       INTEGER NOT NULL,
        PRIMARY KEY (day, queue)
    ) STRICT, WITHOUT ROWID;
";

/// What a file is before it is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Content {
    /// It has no tables yet.
    Empty,
    /// It has the tables of this version.
    Store,
}

/// Checks that the file is empty or a store of this version. Changes nothing.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<Content, OpenError> {
    let number = |sql| {
        let number = connection.query_row(sql, (), |row| row.get::<_, i64>(0));
        number.map_err(|error| Failure::from(error).while_opening("read", path))
    };
    let application = number("PRAGMA application_id")?;
    let found = number("PRAGMA user_version")?;
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    if (application, found, tables) == (0, 0, 0) {
        return Ok(Content::Empty);
    }
    if application != i64::from(APPLICATION) {
        return Err(OpenError::NotOurs(path.to_owned()));
    }
    if found != VERSION {
        return Err(OpenError::OtherVersion { found, known: VERSION });
    }
    Ok(Content::Store)
}

/// Creates the tables in an empty file.
pub(super) fn create(connection: &mut Connection) -> Result<(), Failure> {
    // In one transaction: after a crash in between, the file is still empty.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(TABLES)?;
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    Ok(())
}
