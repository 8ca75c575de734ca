//! Which files are opened: empty ones and stores of this schema version, and nothing else.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use filch_scheduler::id::{CommitNo, Fence, Hold, LeaseNo, Seq};
use filch_scheduler::record::{AttemptOutcome, Mutation, Note, OperatorAct};
use filch_scheduler::state::JobState;
use filch_scheduler::time::Wall;
use filch_store::{AttemptOutput, Commit, OpenError, OwnerNote, Snapshot, Sqlite, Store};
use rusqlite::Connection;

use crate::conformance::kept;
use crate::pair::{FilePlace, NO_RESERVE, commit, folder};
use crate::{WORKER, put, write};

fn open(path: &Path) -> Result<Sqlite, OpenError> {
    Sqlite::open_with(path, &OwnerNote::this_process(), NO_RESERVE)
}

fn refusal(path: &Path) -> String {
    match open(path) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("{} was opened", path.display()),
    }
}

#[test]
fn a_file_that_is_not_a_store_is_refused_and_left_unchanged() {
    let folder = folder();
    let text = folder.path().join("letter");
    let long = "Dear reader, this is no database. ".repeat(99);
    std::fs::write(&text, &long).unwrap();
    assert!(refusal(&text).contains("is not a filch store: choose another path"));
    assert_eq!(std::fs::read_to_string(&text).unwrap(), long);

    let other = folder.path().join("other.db");
    let make = "CREATE TABLE job (seq INTEGER PRIMARY KEY); PRAGMA user_version = 1;";
    Connection::open(&other).unwrap().execute_batch(make).unwrap();
    let before = std::fs::read(&other).unwrap();
    assert!(refusal(&other).contains("is not a filch store"));
    assert_eq!(std::fs::read(&other).unwrap(), before);

    let nowhere = folder.path().join("no").join("such").join("folder");
    let said = refusal(&nowhere);
    assert!(said.contains("cannot lock") && said.contains("No such file or directory"), "{said}");
}

#[test]
fn store_files_are_readable_by_their_owner_only() {
    let folder = folder();
    let path = folder.path().join("filch.db");
    let store = open(&path).unwrap();
    store.commit(&commit(CommitNo(1), vec![put(1, "a")])).unwrap();
    for name in ["filch.db", "filch.db-wal", "filch.db-shm"] {
        let mode = std::fs::metadata(folder.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn a_store_of_another_schema_version_is_refused_with_what_to_do() {
    for version in [0, 1, 4, 99] {
        let mut pair = kept::<FilePlace>();
        pair.close();
        let connection = Connection::open(pair.path()).unwrap();
        let read = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0);
        let current = connection.pragma_query_value(None, "user_version", read).unwrap();
        connection.pragma_update(None, "user_version", version).unwrap();
        drop(connection);
        let before = std::fs::read(pair.path()).unwrap();
        let expected = format!(
            "schema version {version} is not supported, this filch needs version {current}: use the filch \
             that created the file, or choose a new data directory"
        );
        assert_eq!(refusal(&pair.path()), expected);
        let looked = Snapshot::open(&pair.path()).err().map(|error| error.to_string());
        assert_eq!(looked, Some(expected));
        assert_eq!(std::fs::read(pair.path()).unwrap(), before, "it is left as it was");
    }
}

#[test]
fn an_empty_file_becomes_a_store() {
    let folder = folder();
    let path = folder.path().join("filch.db");
    std::fs::write(&path, "").unwrap();
    open(&path).unwrap().commit(&commit(CommitNo(1), vec![put(1, "a")])).unwrap();
    let store = open(&path).unwrap();
    assert_eq!(store.find(&[crate::id("a")], &[], &[]).unwrap().len(), 1);
}

/// Damage is reported as an error; it neither panics nor passes as another value.
#[test]
fn an_invalid_row_is_an_error() {
    let mut pair = kept::<FilePlace>();
    pair.close();
    for damage in [
        "UPDATE job_state SET reason = 9 WHERE seq = 3",
        "UPDATE job_state SET last_report = 9, last_worker = 1 WHERE seq = 3",
        "UPDATE job_state SET last_report = 0, last_worker = 0 WHERE seq = 3",
        "UPDATE job SET condition = 9 WHERE seq = 5",
        "UPDATE job SET parents = x'00' WHERE seq = 5",
        "UPDATE lease SET jobs = x'80'",
        "UPDATE lease SET cause = 1",
        "UPDATE live SET bits = zeroblob(512) WHERE 0; UPDATE store_meta SET strategy = 9",
        "DELETE FROM store_meta",
    ] {
        let copy = pair.path().with_file_name("damaged.db");
        let _ = std::fs::remove_file(&copy);
        std::fs::copy(pair.path(), &copy).unwrap();
        Connection::open(&copy).unwrap().execute_batch(damage).unwrap();
        let said = match open(&copy) {
            Err(error) => error.to_string(),
            Ok(store) => store.load(&mut |_| ()).unwrap_err().to_string(),
        };
        assert!(said.contains("the file is damaged: "), "{damage}: {said}");
    }
}

#[test]
fn purged_jobs_leave_no_rows() {
    let mut pair = kept::<FilePlace>();
    let hold = Hold { job: Seq(3), fence: Fence(2) };
    let outcome = AttemptOutcome::LostAlone;
    let let_go = |seq, state, fence| Mutation::Write(write(seq, state, fence));
    let mutations = vec![
        Mutation::Note(Note::Attempt { hold, worker: WORKER, outcome }),
        Mutation::Note(Note::Act { by: None, act: OperatorAct::Retry(crate::id("b")) }),
        Mutation::Note(Note::WorkerLost { worker: WORKER, jobs: 1 }),
        let_go(3, JobState::Dead, 2),
        let_go(4, JobState::Cancelled, 2),
        let_go(5, JobState::Cancelled, 2),
        Mutation::Close(LeaseNo(2)),
    ];
    let outputs = vec![AttemptOutput { hold, result: None, log: Some("printed".into()) }];
    pair.commit(&Commit { outputs, ..commit(CommitNo(5), mutations) }).unwrap();
    let purge = Mutation::Purge([6, 1, 2, 4, 3, 5].map(Seq).to_vec());
    pair.commit(&commit(CommitNo(6), vec![purge])).unwrap();
    let leases = vec![LeaseNo(1), LeaseNo(2)];
    let trim = Mutation::Trim { leases, notes_before: Wall(u64::MAX >> 1) };
    pair.commit(&commit(CommitNo(7), vec![trim])).unwrap();
    pair.compare();
    pair.close();
    let connection = Connection::open(pair.path()).unwrap();
    for table in [
        "job",
        "payload",
        "job_state",
        "live",
        "lease",
        "lease_open",
        "note",
        "attempt_output",
        "queue",
    ] {
        let sql = format!("SELECT count(*) FROM {table}");
        let rows: u32 = connection.query_row(&sql, (), |row| row.get(0)).unwrap();
        assert_eq!(rows, 0, "{table}");
    }
}
