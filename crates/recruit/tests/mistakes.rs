//! The known mistakes of the PHP program that this crate is modelled on, by number, and proof that
//! this crate does not make them.

#[path = "redis/server.rs"]
#[expect(dead_code, reason = "no server is killed here")]
mod server;

use std::sync::Mutex;
use std::time::Duration;

use filch_recruit::redis::{QueueSource, QueueTracker, QueuedRow, VolatileHash};
use filch_recruit::{
    Duty, Enlisted, Lottery, Rate, Recruiter, SetupError, SideError, SideJob as _, Slice,
};
use redis::Commands as _;

use server::{LONG, Server};

const HOUR: Duration = Duration::from_secs(3600);

/// With these seeds, one of the first draws of each lottery is 0.
const SEED_RANDOM: u64 = 21;
const SEED_WEYL: u64 = 24;
const DRAWS: u32 = 10_000;

fn done(_: &mut Slice) -> Result<Duty, SideError> {
    Ok(Duty::Done)
}

fn rate(part: f64) -> Rate {
    Rate::new(part).expect("valid rate")
}

/// A draw could be exactly 1, so that a caller was dismissed although the rate was 1. A unit test
/// of the lottery shows that no draw is 1 at any position; this test shows it from outside.
#[test]
fn mistake_1_no_draw_is_one() {
    for lottery in [Lottery::Random, Lottery::Weyl] {
        let builder = Recruiter::builder().unbounded().job("all", Rate::ALL, done).lottery(lottery);
        let recruiter = builder.build().expect("valid set-up");
        for _ in 0..100_000 {
            assert_eq!(recruiter.enlist(), Enlisted::Recruited { job: "all" });
        }
    }
}

/// A draw of 0 selected a first job whose rate was 0. The seeds are chosen so that a draw is 0
/// soon.
#[test]
fn mistake_2_a_rate_of_zero_is_never_drawn() {
    for (lottery, seed) in [(Lottery::Random, SEED_RANDOM), (Lottery::Weyl, SEED_WEYL)] {
        let recruiter = Recruiter::builder()
            .unbounded()
            .seed(seed)
            .job("none", Rate::NONE, done)
            .job("next", Rate::per_million(1), done)
            .lottery(lottery)
            .build()
            .expect("valid set-up");
        for _ in 0..DRAWS {
            recruiter.enlist();
        }
        let stats = recruiter.stats();
        assert_eq!(stats.jobs[0].counts.selected, 0);
        assert!(stats.jobs[1].counts.selected > 0, "one of the draws was 0");
    }
}

/// A value was returned only after it had expired, or if it had no expiry.
#[test]
fn mistake_3_expired_fields_are_not_returned() {
    let server = Server::start();
    let mut connection = server.connect();
    let hash = VolatileHash::new("h");
    hash.set(&mut connection, "alive", 1, HOUR).expect("it is set");
    hash.set(&mut connection, "expired", 2, Duration::ZERO).expect("it is set");
    let () = connection.hset("{h}:fields", "without", 3).expect("it is set");
    assert_eq!(hash.get(&mut connection, "alive"), Ok(Some(1)));
    assert_eq!(hash.get::<u32>(&mut connection, "expired"), Ok(None));
    assert_eq!(hash.get::<u32>(&mut connection, "without"), Ok(None));
}

/// Fields were removed outside the transaction (and even that failed). Here one transaction removes
/// them from the hash and the sorted set.
#[test]
fn mistake_4_fields_are_removed_in_the_transaction() {
    let server = Server::start();
    let hash = VolatileHash::new("h");
    let mut connection = server.connect();
    for field in ["a", "b"] {
        hash.set(&mut connection, field, 1, Duration::ZERO).expect("it is set");
    }
    let calls = |connection: &mut redis::Connection, command: &str| -> u64 {
        let info: String =
            redis::cmd("INFO").arg("commandstats").query(connection).expect("it answers");
        let line = info.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:")));
        let calls = line.and_then(|line| line.strip_prefix("calls=")?.split(',').next());
        calls.map_or(0, |calls| calls.parse().expect("it is a number"))
    };
    let reaper = hash.reaper(server.client());
    let duty = reaper.recruited(&mut Slice::new(LONG)).expect("it works");
    assert_eq!(duty, Duty::Done);
    assert_eq!(connection.exists("{h}:fields"), Ok(false));
    assert_eq!(connection.exists("{h}:expiries"), Ok(false));
    // One call for both fields, and three transactions: two writers and one reaper.
    assert_eq!([calls(&mut connection, "hdel"), calls(&mut connection, "zrem")], [1, 1]);
    assert_eq!([calls(&mut connection, "multi"), calls(&mut connection, "exec")], [3, 3]);
}

type Failure = fn(&mut Slice) -> Result<Duty, SideError>;

/// Only some kinds of failure were caught; others escaped from `enlist`.
#[test]
fn mistake_5_no_failure_reaches_the_caller() {
    let failures: [Failure; 4] = [
        |_| Err("an error".into()),
        |_| panic!("a panic"),
        |_| std::panic::panic_any(7),
        |slice| {
            let none: &[u8] = &[];
            Ok(if none[slice.used().as_nanos() as usize] == 0 { Duty::Done } else { Duty::NoWork })
        },
    ];
    for failure in failures {
        let builder = Recruiter::builder().unbounded().job("fails", Rate::ALL, failure);
        let recruiter = builder.build().expect("valid set-up");
        assert_eq!(recruiter.enlist(), Enlisted::Failed { job: "fails" });
    }
}

/// A queue that records what it was asked.
#[derive(Default)]
struct Recording {
    rows: Vec<(u64, &'static str)>,
    asked_after: Mutex<Vec<Option<u64>>>,
    asked_about: Mutex<Vec<Vec<String>>>,
}

impl QueueSource for Recording {
    fn next_after(&self, row: Option<u64>, limit: usize) -> Result<Vec<QueuedRow>, SideError> {
        self.asked_after.lock().expect("no code panics with the lock").push(row);
        let rows = self.rows.iter().filter(|(next, _)| Some(*next) > row).take(limit);
        Ok(rows.map(|(row, id)| QueuedRow { row: *row, id: (*id).to_owned() }).collect())
    }

    fn no_longer_queued(&self, ids: &[String]) -> Result<Vec<String>, SideError> {
        self.asked_about.lock().expect("no code panics with the lock").push(ids.to_vec());
        let is_queued = |id: &String| self.rows.iter().any(|(_, queued)| queued == id);
        Ok(ids.iter().filter(|id| !is_queued(id)).cloned().collect())
    }
}

/// The tracker could neither be created nor add rows: it used names that did not exist.
#[test]
fn mistake_6_a_tracker_adds_queued_identifiers() {
    let server = Server::start();
    let mut connection = server.connect();
    let tracker = QueueTracker::new("q");
    let queue = Recording { rows: vec![(5, "ada"), (6, "bob")], ..Recording::default() };
    assert_eq!(tracker.add(&mut connection, &queue).expect("it works"), 2);
    assert_eq!(tracker.is_queued(&mut connection, "ada"), Ok(true));
    assert_eq!(tracker.is_queued(&mut connection, "bob"), Ok(true));
    assert_eq!(tracker.is_queued(&mut connection, "eve"), Ok(false));
}

/// The callback never returned the number of the last row, so the first rows were read forever.
#[test]
fn mistake_7_the_next_slice_reads_the_next_rows() {
    let server = Server::start();
    let mut connection = server.connect();
    let tracker = QueueTracker::new("q").limit(2);
    let rows = vec![(5, "a"), (6, "b"), (9, "c")];
    let queue = Recording { rows, ..Recording::default() };
    for _ in 0..3 {
        tracker.add(&mut connection, &queue).expect("it works");
    }
    assert_eq!(
        *queue.asked_after.lock().expect("no code panics with the lock"),
        [None, Some(6), Some(9)]
    );
    assert_eq!(tracker.is_queued(&mut connection, "c"), Ok(true));
}

/// The callback was documented to return the identifiers still queued, and those were removed.
#[test]
fn mistake_8_identifiers_still_queued_are_kept() {
    let server = Server::start();
    let mut connection = server.connect();
    let tracker = QueueTracker::new("q");
    let () = connection.sadd("{q}:queued", &["still", "gone"]).expect("it is set");
    let queue = Recording { rows: vec![(1, "still")], ..Recording::default() };
    assert_eq!(tracker.remove(&mut connection, &queue).expect("it works"), 1);
    assert_eq!(tracker.is_queued(&mut connection, "still"), Ok(true));
    assert_eq!(tracker.is_queued(&mut connection, "gone"), Ok(false));
    assert_eq!(queue.asked_about.lock().expect("no code panics with the lock").len(), 1);
}

/// Rates below 0 and NaN were accepted.
#[test]
fn mistake_9_a_rate_is_from_0_to_1() {
    for bad in [-0.1, -f64::MIN_POSITIVE, 1.000_000_1, f64::NAN, f64::INFINITY] {
        Rate::new(bad).expect_err("invalid rate");
    }
}

/// Rates were added as floating-point numbers: whether ten tenths were accepted depended on
/// rounding.
#[test]
fn mistake_10_rates_add_up_exactly() {
    let jobs = |count: usize, part: f64| {
        let jobs = 0..count;
        let builder = jobs.fold(Recruiter::builder().unbounded(), |builder, job| {
            builder.job(job.to_string(), rate(part), done)
        });
        builder.build().map(|_| ())
    };
    assert!((0..10).map(|_| 0.1).sum::<f64>() != 1.0, "floating-point tenths do not add up to 1");
    assert_eq!(jobs(10, 0.1), Ok(()));
    assert_eq!(jobs(1000, 0.001), Ok(()));
    assert_eq!(jobs(1001, 0.001), Err(SetupError::RatesTooHigh { parts_per_million: 1_001_000 }));
}

/// A job that was added after the first enlist call silently never ran. Here no job can be added to
/// a recruiter: only the builder has `job`, and `build` consumes it. Calls that enlist with the
/// process-wide recruiter before it is built are counted.
#[test]
fn mistake_11_the_set_up_is_complete_before_the_first_call() {
    assert_eq!(filch_recruit::enlist(), Enlisted::Dismissed);
    assert_eq!(filch_recruit::enlisted_before_setup(), 1);
    let builder =
        Recruiter::builder().unbounded().job("first", rate(0.5), done).job("last", rate(0.5), done);
    builder.build_global().expect("none was built yet");
    for _ in 0..100 {
        filch_recruit::enlist();
    }
    let stats = filch_recruit::global().expect("it was built").stats();
    assert!(stats.jobs.iter().all(|job| job.counts.recruited > 40), "{stats:?}");
    let late = Recruiter::builder().unbounded().job("late", rate(0.1), done).build_global();
    assert_eq!(late.expect_err("it is too late"), SetupError::AlreadyBuilt);
    assert_eq!(filch_recruit::enlisted_before_setup(), 1);
}
