//! The tables, and how a file comes to have them.
//!
//! What was submitted is written once (`job`, `payload`) and never again; what became of it is a
//! narrow row of its own (`fate`), so that the write at a job's end is small whatever was submitted.
//! Which jobs live is one bit for each (`live`). So unfinished jobs are in no index but that of ids,
//! and that of keys if they have one.

use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};

use super::error::{Failure, OpenError};

/// Marks the file as one of ours: "flch".
const APPLICATION: i32 = 0x666c_6368;

/// What turns a file of each version into one of the next, beginning with an empty file.
const STEPS: &[&str] = &[FIRST, TOKENS, PROOF, TALLIES];

/// Enumerations are small integers whose meaning `codes` fixes for ever.
const FIRST: &str = "
    -- One row. Where numbering goes on, and the settings of the whole cluster.
    CREATE TABLE keeping (
        only_row       INTEGER PRIMARY KEY CHECK (only_row = 1),
        commit_last    INTEGER NOT NULL,
        seq_last       INTEGER NOT NULL,
        lease_last     INTEGER NOT NULL,
        strategy       INTEGER,
        aging_ns       INTEGER,
        lease_length_ns INTEGER
    ) STRICT;
    INSERT INTO keeping (only_row, commit_last, seq_last, lease_last) VALUES (1, 0, 0, 0);

    -- What was submitted. From condition on, all are NULL for a job that leaves them to the defaults.
    CREATE TABLE job (
        seq            INTEGER PRIMARY KEY,
        -- As it was put; the fate says what it is now.
        state          INTEGER NOT NULL CHECK (state BETWEEN 0 AND 7 AND state <> 3),
        id             BLOB NOT NULL CHECK (length(id) = 16),
        body           BLOB NOT NULL,
        key            TEXT,
        queue          TEXT NOT NULL,
        kind           TEXT NOT NULL,
        priority       INTEGER NOT NULL,
        submitted_at   INTEGER NOT NULL,
        -- The lease row before it: its owners are in later ones.
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
    CREATE UNIQUE INDEX job_key ON job (key) WHERE key IS NOT NULL;

    CREATE TABLE payload (
        seq            INTEGER PRIMARY KEY,
        text           TEXT NOT NULL
    ) STRICT;

    -- What became of a job. One that has no row here is as it was put, and lives.
    CREATE TABLE fate (
        seq            INTEGER PRIMARY KEY,
        state          INTEGER NOT NULL CHECK (state BETWEEN 0 AND 7 AND state <> 3),
        fence          INTEGER NOT NULL,
        attempts       INTEGER NOT NULL,
        suspicions     INTEGER NOT NULL,
        priority       INTEGER NOT NULL,
        due            INTEGER NOT NULL,
        holder         INTEGER,
        reason         INTEGER,
        at             INTEGER NOT NULL,
        -- The newest lease row of that commit: an ended job is in no later one.
        lease_then     INTEGER NOT NULL,
        CHECK (state = 7 OR (state = 4) = (holder IS NOT NULL))
    ) STRICT;
    CREATE INDEX fate_ended ON fate (at) WHERE state >= 5 AND holder IS NULL;
    CREATE INDEX fate_unsuccessful ON fate (state) WHERE state >= 6;

    -- For each block of 4,096 numbers in which a job lives, which ones do.
    CREATE TABLE live (
        block          INTEGER PRIMARY KEY,
        bits           BLOB NOT NULL CHECK (length(bits) = 512)
    ) STRICT;

    -- The ledger of ownership.
    CREATE TABLE lease (
        number         INTEGER PRIMARY KEY,
        worker         INTEGER,
        cause          INTEGER NOT NULL CHECK (cause BETWEEN 0 AND 3),
        from_worker    INTEGER,
        at             INTEGER NOT NULL,
        jobs           BLOB NOT NULL
    ) STRICT;
    -- Its rows that a load has to read. Apart, so that closing one does not rewrite it.
    CREATE TABLE lease_open (
        number         INTEGER PRIMARY KEY
    ) STRICT;

    CREATE TABLE note (
        number         INTEGER PRIMARY KEY,
        -- When it was kept.
        at             INTEGER NOT NULL,
        kind           INTEGER NOT NULL CHECK (kind BETWEEN 0 AND 5),
        job            INTEGER,
        fence          INTEGER,
        worker         INTEGER,
        outcome        INTEGER,
        text           TEXT,
        jobs           INTEGER
    ) STRICT;
    CREATE INDEX note_job ON note (job) WHERE job IS NOT NULL;
    CREATE INDEX note_worker ON note (at) WHERE job IS NULL;

    -- What attempts left behind.
    CREATE TABLE remains (
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
";

/// Who may do what.
const TOKENS: &str = "
    CREATE TABLE token (
        id             TEXT PRIMARY KEY,
        name           TEXT NOT NULL,
        role           TEXT NOT NULL,
        -- Their names with U+001F between them; empty for all.
        queues         TEXT NOT NULL,
        -- SHA-256 of the token, which itself is nowhere.
        digest         BLOB NOT NULL CHECK (length(digest) = 32),
        created_at     INTEGER NOT NULL,
        expires_at     INTEGER,
        revoked_at     INTEGER
    ) STRICT, WITHOUT ROWID;
";

/// What a proof needs, and rows did not say: which numbers are gone and why, and before which rows of the
/// ledger a job ended.
const PROOF: &str = "
    -- How many of the rows up to lease_then came with the event that brought the job where it is, or
    -- later. NULL if that was before anybody counted.
    ALTER TABLE fate ADD COLUMN lease_more INTEGER;

    -- The numbers of purged jobs, as ranges without a gap: between two of them there is a job that is kept.
    CREATE TABLE purged (
        first          INTEGER PRIMARY KEY,
        last           INTEGER NOT NULL,
        CHECK (last >= first)
    ) STRICT;

    -- Why they were purged, and when: what happened for one cause on one day is one row.
    CREATE TABLE purge (
        number         INTEGER PRIMARY KEY,
        cause          INTEGER NOT NULL CHECK (cause BETWEEN 0 AND 2),
        -- How long ended jobs were to be kept.
        retention_ms   INTEGER CHECK ((retention_ms IS NOT NULL) = (cause = 1)),
        at_first       INTEGER NOT NULL,
        at_last        INTEGER NOT NULL,
        jobs           INTEGER NOT NULL,
        -- The shortest time for which one of them had been over, and which.
        waited_least_ms INTEGER,
        waited_least_job INTEGER
    ) STRICT;

    -- What is missing by now was purged without a trace.
    INSERT INTO purged
        SELECT before + 1, seq - 1
        FROM (SELECT seq, lag(seq, 1, 0) OVER (ORDER BY seq) AS before FROM job)
        WHERE seq > before + 1
        UNION ALL
        SELECT newest + 1, seq_last
        FROM keeping, (SELECT coalesce(max(seq), 0) AS newest FROM job)
        WHERE seq_last > newest;
    INSERT INTO purge (cause, at_first, at_last, jobs)
        SELECT 0, 0, 0, sum(last - first + 1) FROM purged HAVING count(*) > 0;
";

/// What became of jobs that are purged, in numbers.
const TALLIES: &str = "
    CREATE TABLE tally (
        -- Of the jobs' ends: days since the beginning of 1970.
        day            INTEGER NOT NULL,
        queue          TEXT NOT NULL,
        succeeded      INTEGER NOT NULL,
        dead           INTEGER NOT NULL,
        cancelled      INTEGER NOT NULL,
        -- From submission to end, of all together.
        spent_ms       INTEGER NOT NULL,
        PRIMARY KEY (day, queue)
    ) STRICT, WITHOUT ROWID;
";

/// The version of the file's tables; 0 for an empty file. Changes nothing.
pub(super) fn version(connection: &Connection, path: &Path) -> Result<i64, OpenError> {
    let number = |sql| {
        let number = connection.query_row(sql, (), |row| row.get::<_, i64>(0));
        number.map_err(|error| Failure::from(error).while_opening("read", path))
    };
    let application = number("PRAGMA application_id")?;
    let found = number("PRAGMA user_version")?;
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    let is_empty = (application, found, tables) == (0, 0, 0);
    if application != i64::from(APPLICATION) && !is_empty {
        return Err(OpenError::NotOurs(path.to_owned()));
    }
    let known = newest();
    if !(0..=known).contains(&found) {
        return Err(OpenError::Newer { found, known });
    }
    Ok(found)
}

/// The version of the tables that are used here.
pub(super) const fn newest() -> i64 {
    STEPS.len() as i64
}

/// Gives the file the tables of the newest version, if it has older ones.
pub(super) fn migrate(connection: &mut Connection, version: i64) -> Result<(), Failure> {
    let steps = usize::try_from(version).ok().and_then(|version| STEPS.get(version..));
    let steps = steps.expect("the version was looked at");
    if steps.is_empty() {
        return Ok(());
    }
    // All in one transaction: a crash in between leaves the file as it was.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for step in steps {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", newest())?;
    transaction.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_file_gets_the_tables_of_today_and_what_is_missing_counts_as_purged() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(FIRST).unwrap();
        let rows = "
            INSERT INTO job (seq, state, id, body, queue, kind, priority, submitted_at, lease_before)
                SELECT value, 2, randomblob(16), x'', 'q', 'k', 0, 0, 0
                FROM json_each('[3, 4, 7]');
            INSERT INTO fate VALUES (4, 5, 1, 0, 0, 0, 0, NULL, NULL, 9, 2);
            UPDATE keeping SET seq_last = 9;
            PRAGMA user_version = 1;
        ";
        connection.execute_batch(rows).unwrap();
        migrate(&mut connection, 1).unwrap();
        let text = |sql| connection.query_row(sql, (), |row| row.get::<_, String>(0)).unwrap();
        let ranges = text("SELECT group_concat(first || '-' || last) FROM purged");
        assert_eq!(ranges, "1-2,5-6,8-9");
        assert_eq!(text("SELECT group_concat(cause || ' ' || jobs) FROM purge"), "0 6");
        assert_eq!(text("SELECT count(*) || '' FROM fate WHERE lease_more IS NULL"), "1");
        assert_eq!(
            text("SELECT user_version || '' FROM pragma_user_version"),
            newest().to_string()
        );
        // Of what was purged before, nobody has counted anything.
        assert_eq!(text("SELECT count(*) || '' FROM tally"), "0");
        // An empty file has nothing to explain.
        let mut empty = Connection::open_in_memory().unwrap();
        migrate(&mut empty, 0).unwrap();
        let rows = "SELECT (SELECT count(*) FROM purged) + (SELECT count(*) FROM purge)";
        assert_eq!(empty.query_row(rows, (), |row| row.get::<_, i64>(0)).unwrap(), 0);
    }
}
