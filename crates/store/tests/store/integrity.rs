//! The integrity check accepts sound stores, and finds every planted contradiction with its rows.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use filch_scheduler::id::{CommitNo, Fence, Hold, LeaseNo, Seq, WorkerId};
use filch_scheduler::record::{
    AttemptOutcome, JobRow, JobWrite, LastReport, LeaseCause, LeaseRow, Mutation, Note,
    OperatorAct, Reason, ReportKind,
};
use filch_scheduler::state::JobState;
use filch_scheduler::time::{Duration, Wall};
use filch_store::integrity::{IntegrityReport, IntegrityRule, check};
use filch_store::{Commit, PurgeCause, Snapshot};
use rusqlite::Connection;

use crate::pair::{FilePair, commit};
use crate::{id, put, row, write};

const ONE: WorkerId = WorkerId::apart(1);
const TWO: WorkerId = WorkerId::apart(2);
const HOUR: Duration = Duration::from_secs(3_600);

fn hold(job: u64, fence: u64) -> Hold {
    Hold { job: Seq(job), fence: Fence(fence) }
}

fn lease(
    number: u64,
    worker: Option<WorkerId>,
    cause: LeaseCause,
    jobs: &[(u64, u64)],
) -> Mutation {
    let jobs = jobs.iter().map(|&(job, fence)| hold(job, fence)).collect();
    let (number, at) = (LeaseNo(number), Wall(number));
    Mutation::Lease(LeaseRow { number, worker, cause, jobs, at })
}

fn attempt(job: u64, fence: u64, worker: WorkerId, outcome: AttemptOutcome) -> Mutation {
    Mutation::Note(Note::Attempt { hold: hold(job, fence), worker, outcome })
}

fn close(number: u64) -> Mutation {
    Mutation::Close(LeaseNo(number))
}

/// `a` succeeds and releases its child `c`; `b` is stolen, fails and succeeds at the second
/// attempt; `c` and `d` are taken back from a lost worker and given to another one; `e` is
/// cancelled; `f` is purged two hours after its end, where an hour was promised.
fn history() -> FilePair {
    use Mutation::Write;
    let pair = FilePair::new();
    let finished = LastReport { worker: ONE, kind: ReportKind::Finished };
    let end = |seq, fence| {
        Write(JobWrite { last: Some(finished), ..write(seq, JobState::Succeeded, fence) })
    };
    let queued = |seq| Write(JobWrite { suspicions: 1, ..write(seq, JobState::Queued, 2) });
    let child = row(3, "c", JobState::Blocked, |spec| spec.parents = vec![id("a")]);
    let failed = AttemptOutcome::Failed("it did not work".into());
    let waits = JobWrite { attempts: 1, ..write(2, JobState::Scheduled, 2) };
    let succeeds = JobWrite { attempts: 1, ..write(2, JobState::Succeeded, 3) };
    let cancelled = JobWrite { reason: Some(Reason::Request), ..write(5, JobState::Cancelled, 1) };
    let two_hours_ago = Wall(now() - 2 * HOUR.as_millis() as u64);
    let over = JobWrite { at: two_hours_ago, ..write(6, JobState::Succeeded, 1) };
    let commits = [
        vec![put(1, "a"), put(2, "b"), child, put(4, "d"), put(5, "e"), put(6, "f")],
        vec![lease(1, Some(ONE), LeaseCause::Claim, &[(1, 1), (2, 1), (4, 1)])],
        vec![lease(2, Some(TWO), LeaseCause::Steal(ONE), &[(2, 2)])],
        vec![end(1, 1), lease(3, Some(ONE), LeaseCause::Claim, &[(3, 1)])],
        vec![attempt(2, 2, TWO, failed), Write(waits), close(2)],
        vec![lease(4, Some(TWO), LeaseCause::Claim, &[(2, 3)])],
        vec![Write(succeeds), close(4)],
        vec![Write(JobWrite { holder: Some(ONE), ..write(4, JobState::Running, 1) }), close(1)],
        vec![
            Mutation::Note(Note::WorkerLost { worker: ONE, jobs: 2 }),
            attempt(3, 1, ONE, AttemptOutcome::LostAmongOthers),
            queued(3),
            attempt(4, 1, ONE, AttemptOutcome::LostAmongOthers),
            queued(4),
            lease(5, None, LeaseCause::Lost(ONE), &[(3, 2), (4, 2)]),
            close(3),
            close(5),
        ],
        vec![lease(6, Some(TWO), LeaseCause::Claim, &[(3, 3), (4, 3)])],
        vec![cancel("e"), Write(cancelled)],
        vec![lease(7, Some(TWO), LeaseCause::Claim, &[(6, 1)])],
        vec![Write(over), close(7)],
        vec![Mutation::Purge(vec![Seq(6)])],
    ];
    for (number, mutations) in (1..).zip(commits) {
        pair.commit(&expiring(number, mutations)).expect("it fits");
    }
    pair
}

/// The record of a cancel.
fn cancel(name: &str) -> Mutation {
    Mutation::Note(Note::Act { by: None, act: OperatorAct::Cancel(id(name)) })
}

/// A commit whose purges are due to an hour's retention.
fn expiring(number: u64, mutations: Vec<Mutation>) -> Commit {
    let mut commit = commit(CommitNo(number), mutations);
    commit.purges.fill(PurgeCause::Expired { retention: HOUR });
    commit
}

fn now() -> u64 {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("it is after 1970");
    since.as_millis() as u64
}

fn report(path: &Path) -> IntegrityReport {
    let snapshot = Snapshot::open(path).expect("it is a store");
    check(&snapshot).expect("it can be read")
}

/// A copy of the history, and what is done to it.
fn damaged(pair: &FilePair, damage: impl FnOnce(&Path)) -> PathBuf {
    let copy = pair.path().with_file_name("damaged.db");
    let _ = std::fs::remove_file(&copy);
    pair.backup(&copy).expect("there is room");
    damage(&copy);
    copy
}

#[test]
fn a_sound_history_passes() {
    let pair = history();
    pair.check_integrity();
    let report = report(&pair.path());
    assert!(report.holds(), "{:#?}", report.violations);
    let counts = report.counts;
    assert_eq!((counts.submitted, counts.jobs, counts.expired, counts.purged()), (6, 5, 1, 1));
    assert_eq!((counts.claims, counts.steals, counts.losses), (8, 1, 2));
    assert_eq!((counts.children, counts.failures, counts.unfinished), (1, 3, 2));
}

#[test]
fn every_planted_contradiction_is_found_with_its_rows() {
    const REMOVE: &str = "DELETE FROM job WHERE seq = 2; DELETE FROM job_state WHERE seq = 2;
                          DELETE FROM payload WHERE seq = 2; DELETE FROM note WHERE job = 2;";
    let pair = history();
    let plants: &[(&str, IntegrityRule, Option<u64>, &str)] = &[
        // Two owners at once.
        (
            "UPDATE lease SET cause = 0, from_worker = NULL WHERE number = 2",
            IntegrityRule::S2,
            Some(2),
            "lease row 1: worker 0000000000000001 claimed it under fence 1 at 1 ms and has not \
             released it; then lease row 2: worker 0000000000000002 claimed it under fence 2 at 2 ms",
        ),
        (
            "UPDATE lease SET from_worker = 3 WHERE number = 2",
            IntegrityRule::S2,
            Some(2),
            "worker 0000000000000002 stole it from worker 0000000000000003",
        ),
        ("DELETE FROM lease WHERE number = 5", IntegrityRule::S2, Some(4), "has not released it"),
        (
            "UPDATE job_state SET state = 4, holder = 1, fence = 3 WHERE seq = 4",
            IntegrityRule::S2,
            Some(4),
            "does not own it",
        ),
        // Numbers that go back.
        (
            "UPDATE lease SET jobs = x'0401' WHERE number = 4",
            IntegrityRule::S7,
            Some(2),
            "the fence does not grow",
        ),
        (
            "UPDATE job_state SET fence = 9 WHERE seq = 2",
            IntegrityRule::S7,
            Some(2),
            "its fence is 9, but it changed owner 3 times",
        ),
        (
            "UPDATE store_meta SET seq_last = 3",
            IntegrityRule::S7,
            Some(6),
            "the newest number is 3",
        ),
        ("UPDATE store_meta SET lease_last = 3", IntegrityRule::S7, None, "lease row 7 exists"),
        // Jobs that are gone.
        (
            REMOVE,
            IntegrityRule::S1,
            Some(2),
            "it was acknowledged, but is neither stored nor purged",
        ),
        (
            "DELETE FROM purge; DELETE FROM purged_range;",
            IntegrityRule::S1,
            Some(6),
            "it was acknowledged, but is neither stored nor purged",
        ),
        (
            "DELETE FROM purge",
            IntegrityRule::S1,
            None,
            "1 jobs were purged, but causes are recorded for 0",
        ),
        (
            "INSERT INTO purged_range VALUES (2, 2)",
            IntegrityRule::S1,
            Some(2),
            "it is stored, but recorded as purged",
        ),
        ("DELETE FROM payload WHERE seq = 3", IntegrityRule::S1, Some(3), "its payload is missing"),
        // Purged too early.
        (
            "UPDATE purge SET waited_least_ms = 5",
            IntegrityRule::S1,
            Some(6),
            "it was purged 5 ms after its end, but the retention was 3600000 ms",
        ),
        // A child that was started before its parent ended.
        (
            "UPDATE job_state SET lease_last = 6, leases_since = 0 WHERE seq = 1",
            IntegrityRule::S12,
            Some(3),
            "lease row 3 assigns it before the success of all its parents: job number 1 is \
             succeeded, but was not yet then",
        ),
        (
            "UPDATE job_state SET state = 2 WHERE seq = 1",
            IntegrityRule::S12,
            Some(3),
            "job number 1 is queued",
        ),
        (
            "UPDATE job SET condition = 3, otherwise = 0 WHERE seq = 3",
            IntegrityRule::S12,
            Some(3),
            "the failure of one",
        ),
        // Ended jobs that went on, or ended for no reason.
        (
            "UPDATE job_state SET state = 5 WHERE seq = 3",
            IntegrityRule::S5,
            Some(3),
            "claimed it under fence 3 at 6 ms, but it had ended before",
        ),
        ("DELETE FROM note WHERE kind = 2", IntegrityRule::S5, Some(5), "no cancel was requested"),
        (
            "INSERT INTO note (at, kind, job, fence, worker, outcome, text)
                 VALUES (0, 1, 1, 1, 1, 0, 'x')",
            IntegrityRule::S3,
            Some(1),
            "it is succeeded under fence 1, but had no owner",
        ),
        // A report of a worker that did not own the job, and one that does not fit its state.
        (
            "UPDATE job_state SET last_report = 0, last_worker = 2 WHERE seq = 1",
            IntegrityRule::S3,
            Some(1),
            "last reported as Finished by worker 0000000000000002",
        ),
        (
            "UPDATE job_state SET last_report = 1, last_worker = 1 WHERE seq = 1",
            IntegrityRule::S3,
            Some(1),
            "last reported as Failed by worker 0000000000000001",
        ),
        (
            "UPDATE job_state SET attempts = 2 WHERE seq = 3",
            IntegrityRule::S9,
            Some(3),
            "its notes charge 0",
        ),
        (
            "UPDATE note SET fence = 1 WHERE job = 2",
            IntegrityRule::S9,
            Some(2),
            "never gave it that fence",
        ),
        // Tables that disagree.
        (
            "UPDATE live SET bits = zeroblob(512)",
            IntegrityRule::Index,
            Some(3),
            "but the table live lacks it",
        ),
        (
            "UPDATE live SET bits = CAST(x'ff' || substr(bits, 2) AS BLOB)",
            IntegrityRule::Index,
            Some(1),
            "but the table live has it",
        ),
        (
            "UPDATE live SET bits = CAST(substr(bits, 1, 100) || x'ff' || substr(bits, 102) AS BLOB)",
            IntegrityRule::Index,
            Some(800),
            "the table live has it, but the job does not exist; the same holds for the 7 after it",
        ),
        (
            "DELETE FROM lease_open",
            IntegrityRule::Index,
            Some(3),
            "lease row 6 names its owner, but is not open",
        ),
        (
            "INSERT INTO lease_open VALUES (1)",
            IntegrityRule::Index,
            None,
            "lease row 1 is open, but the rows of all its jobs are newer",
        ),
        (
            "INSERT INTO lease_open VALUES (99)",
            IntegrityRule::Index,
            None,
            "lease row 99 is open, but does not exist",
        ),
        (
            "INSERT INTO payload VALUES (77, '')",
            IntegrityRule::Index,
            Some(77),
            "the table payload has a row for it, but the job does not exist",
        ),
        (
            "INSERT INTO attempt_output VALUES (2, 9, NULL, NULL)",
            IntegrityRule::Index,
            Some(2),
            "it has output under fence 9",
        ),
        // Unreadable rows.
        (
            "UPDATE lease SET jobs = x'80' WHERE number = 1",
            IntegrityRule::File,
            None,
            "lease row 1: the file is damaged",
        ),
        (
            "UPDATE job SET condition = 9 WHERE seq = 3",
            IntegrityRule::File,
            None,
            "job number 3: the file is damaged",
        ),
        ("DROP TABLE purged_range", IntegrityRule::File, None, "no such table: purged_range"),
    ];
    for (damage, rule, job, evidence) in plants {
        let path = damaged(&pair, |copy| {
            let connection = Connection::open(copy).expect("it is there");
            // Plant also what the constraints of the tables would refuse.
            connection.pragma_update(None, "ignore_check_constraints", true).expect("known");
            connection.execute_batch(damage).expect("the damage is done");
        });
        let found = report(&path).violations;
        let is_it = |found: &&filch_store::integrity::IntegrityViolation| {
            found.rule == *rule && found.job == job.map(Seq) && found.what.contains(evidence)
        };
        assert!(found.iter().any(|found| is_it(&found)), "{damage}: {found:#?}");
        // Violations of stored jobs have the id.
        let named = found.iter().filter(|found| found.job == Some(Seq(4)));
        assert!(named.clone().all(|found| found.id == Some(id("d"))), "{damage}: {found:#?}");
    }
}

#[test]
fn a_purge_before_the_end_of_the_retention_is_a_violation() {
    let pair = history();
    end_seventh(&pair, now());
    pair.commit(&expiring(18, vec![Mutation::Purge(vec![Seq(7)])])).expect("it fits");
    let found = report(&pair.path()).violations;
    let [violation] = &found[..] else { panic!("{found:#?}") };
    assert_eq!((violation.rule, violation.job), (IntegrityRule::S1, Some(Seq(7))));
    assert!(violation.what.contains("but the retention was 3600000 ms"), "{violation:?}");
    assert!(violation.what.contains("(one of 2 jobs purged"), "{violation:?}");
}

#[test]
fn a_job_that_ended_while_the_clock_was_ahead_may_be_purged() {
    let pair = history();
    end_seventh(&pair, now() + 365 * 24 * 3_600 * 1_000);
    let mut purge = commit(CommitNo(18), vec![Mutation::Purge(vec![Seq(7)])]);
    purge.purges.fill(PurgeCause::Misdated);
    pair.commit(&purge).expect("it fits");
    let report = report(&pair.path());
    assert!(report.holds(), "{:#?}", report.violations);
    assert_eq!(report.counts.expired, 2);
}

/// A seventh job succeeds at this time.
fn end_seventh(pair: &FilePair, at: u64) {
    let ends = JobWrite { at: Wall(at), ..write(7, JobState::Succeeded, 1) };
    let commits = [
        vec![put(7, "g")],
        vec![lease(8, Some(TWO), LeaseCause::Claim, &[(7, 1)])],
        vec![Mutation::Write(ends), close(8)],
    ];
    for (number, mutations) in (15..).zip(commits) {
        pair.commit(&commit(CommitNo(number), mutations)).expect("it fits");
    }
}

#[test]
fn a_new_job_with_the_id_of_a_purged_parent_is_not_the_parent() {
    let pair = history();
    let Mutation::Put(again) = put(7, "a") else { panic!("a job is put") };
    let commits = [
        vec![Mutation::Write(write(3, JobState::Succeeded, 3))],
        vec![Mutation::Purge(vec![Seq(1)])],
        vec![Mutation::Put(JobRow { submitted_at: Wall(1), ..again })],
    ];
    for (number, mutations) in (15..).zip(commits) {
        pair.commit(&expiring(number, mutations)).expect("it fits");
    }
    pair.check_integrity();
    let report = report(&pair.path());
    assert!(report.holds(), "{:#?}", report.violations);
    assert_eq!((report.counts.children, report.counts.orphans), (0, 1));
}

/// Where the table or index of this name begins in the file.
fn page_of(path: &Path, name: &str) -> u64 {
    let connection = Connection::open(path).expect("it is there");
    let sql =
        "SELECT (rootpage - 1) * page_size FROM sqlite_schema, pragma_page_size WHERE name = ?1";
    connection.query_row(sql, [name], |row| row.get::<_, u32>(0)).expect("it has a page").into()
}

fn change(path: &Path, at: u64, length: usize) {
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::File::options().read(true).write(true).open(path).expect("it is there");
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at).expect("it is that long");
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
    file.write_all_at(&bytes, at).expect("there is room");
}

#[test]
fn a_corrupted_page_is_found() {
    let pair = history();
    for name in ["job", "job_state", "lease", "job_id", "note_job", "payload"] {
        let path = damaged(&pair, |copy| change(copy, page_of(copy, name), 4_096));
        let found = report(&path).violations;
        let is_it = |rule| matches!(rule, IntegrityRule::File | IntegrityRule::Index);
        assert!(found.iter().any(|found| is_it(found.rule)), "{name}: {found:#?}");
    }
    // One byte of one entry of an index: the last of the page, in which the first entry ends.
    let path = damaged(&pair, |copy| change(copy, page_of(copy, "job_id") + 4_096 - 8, 1));
    let found = report(&path).violations;
    let is_it = |what: &str| what.contains("missing from index job_id");
    assert!(
        found.iter().any(|found| found.rule == IntegrityRule::Index && is_it(&found.what)),
        "{found:#?}"
    );
}

#[test]
fn a_check_does_not_block_the_writer_and_sees_a_consistent_snapshot() {
    let pair = history();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut looks = 0;
            while !is_over.load(Ordering::Relaxed) || looks < 2 {
                let report = report(&pair.path());
                assert!(report.holds(), "{:#?}", report.violations);
                looks += 1;
            }
        });
        let snapshot = Snapshot::open(&pair.path()).expect("it is a store");
        for number in 0..100 {
            let (seq, row) = (7 + number, 8 + number);
            let commits = [
                vec![
                    put(seq, &format!("j{seq}")),
                    lease(row, Some(TWO), LeaseCause::Claim, &[(seq, 1)]),
                ],
                vec![Mutation::Write(write(seq, JobState::Succeeded, 1)), close(row)],
            ];
            for (place, mutations) in (0..).zip(commits) {
                let number = CommitNo(15 + 2 * number + place);
                pair.commit(&commit(number, mutations)).expect("the check does not block it");
            }
        }
        is_over.store(true, Ordering::Relaxed);
        // A snapshot that was opened before shows the state of then.
        assert_eq!(check(&snapshot).expect("it can be read").counts.jobs, 5);
        looking.join().expect("all checks passed");
    });
    assert_eq!(report(&pair.path()).counts.jobs, 105);
}

#[test]
fn a_check_leaves_the_files_unchanged() {
    let mut pair = history();
    let files = |pair: &FilePair| {
        let folder = pair.path().parent().expect("it is in a folder").to_owned();
        let entries = std::fs::read_dir(folder).expect("it is there");
        let mut files: Vec<_> = entries
            .map(|entry| entry.expect("readable").path())
            .map(|path| (std::fs::read(&path).expect("readable"), path))
            .collect();
        files.sort();
        files
    };
    pair.close();
    let before = files(&pair);
    assert!(report(&pair.path()).holds());
    assert!(files(&pair) == before, "after a clean end");
}
