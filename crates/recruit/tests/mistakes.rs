//! The mistakes of the program that this one is modelled on: each, by its number, is not made here.

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

fn done(_: &mut Slice) -> Result<Duty, SideError> {
    Ok(Duty::Done)
}

fn rate(part: f64) -> Rate {
    Rate::new(part).expect("it is a rate")
}

/// A draw could be exactly 1, so that somebody was dismissed though all were wanted. That no draw is,
/// whatever the position, is tested beside the draw; here it is seen from outside.
#[test]
fn mistake_1_no_draw_is_one() {
    for lottery in [Lottery::Random, Lottery::Weyl] {
        let builder = Recruiter::builder().unbounded().job("all", Rate::ALL, done).lottery(lottery);
        let recruiter = builder.build().expect("it makes sense");
        for _ in 0..100_000 {
            assert_eq!(recruiter.enlist(), Enlisted::Recruited { job: "all" });
        }
    }
}

/// A draw of 0 recruited for a first job that wanted nobody. Of ten million draws below a million some
/// are 0.
#[test]
fn mistake_2_who_wants_nobody_gets_nobody() {
    for lottery in [Lottery::Random, Lottery::Weyl] {
        let recruiter = Recruiter::builder()
            .unbounded()
            .job("none", Rate::NONE, done)
            .job("next", Rate::per_million(1), done)
            .lottery(lottery)
            .build()
            .expect("it makes sense");
        for _ in 0..10_000_000 {
            recruiter.enlist();
        }
        let stats = recruiter.stats();
        assert_eq!(stats.jobs[0].counts.selected, 0);
        assert!(stats.jobs[1].counts.selected > 0, "there were draws of 0");
    }
}

/// A value was returned only once it had expired, and if it had no expiry.
#[test]
fn mistake_3_what_is_read_has_not_expired() {
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

/// Fields were removed beside the transaction instead of in it (and not even that worked). Here hash and
/// sorted set lose them together, in one transaction.
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
    // One call for both fields, and as many transactions as there were writers and reapers.
    assert_eq!([calls(&mut connection, "hdel"), calls(&mut connection, "zrem")], [1, 1]);
    assert_eq!([calls(&mut connection, "multi"), calls(&mut connection, "exec")], [3, 3]);
}

type Failure = fn(&mut Slice) -> Result<Duty, SideError>;

/// Only some kinds of failure were caught; others came out of `enlist`.
#[test]
fn mistake_5_no_failure_reaches_the_host() {
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
        let recruiter = builder.build().expect("it makes sense");
        assert_eq!(recruiter.enlist(), Enlisted::Failed { job: "fails" });
    }
}

/// A queue that notes what it was asked.
#[derive(Default)]
struct Noted {
    rows: Vec<(u64, &'static str)>,
    asked_after: Mutex<Vec<Option<u64>>>,
    asked_about: Mutex<Vec<Vec<String>>>,
}

impl QueueSource for Noted {
    fn next_after(&self, row: Option<u64>, limit: usize) -> Result<Vec<QueuedRow>, SideError> {
        self.asked_after.lock().expect("nobody panics").push(row);
        let rows = self.rows.iter().filter(|(next, _)| Some(*next) > row).take(limit);
        Ok(rows.map(|(row, id)| QueuedRow { row: *row, id: (*id).to_owned() }).collect())
    }

    fn no_longer_queued(&self, ids: &[String]) -> Result<Vec<String>, SideError> {
        self.asked_about.lock().expect("nobody panics").push(ids.to_vec());
        let is_queued = |id: &String| self.rows.iter().any(|(_, queued)| queued == id);
        Ok(ids.iter().filter(|id| !is_queued(id)).cloned().collect())
    }
}

/// The tracker could not be made, and could not add: it used names that were not there.
#[test]
fn mistake_6_a_tracker_adds_what_is_queued() {
    let server = Server::start();
    let mut connection = server.connect();
    let tracker = QueueTracker::new("q");
    let queue = Noted { rows: vec![(5, "ada"), (6, "bob")], ..Noted::default() };
    assert_eq!(tracker.add(&mut connection, &queue).expect("it works"), 2);
    assert_eq!(tracker.is_queued(&mut connection, "ada"), Ok(true));
    assert_eq!(tracker.is_queued(&mut connection, "bob"), Ok(true));
    assert_eq!(tracker.is_queued(&mut connection, "eve"), Ok(false));
}

/// The number of the last row never came back from the callback, so that the first rows were read for
/// ever.
#[test]
fn mistake_7_the_next_slice_reads_on() {
    let server = Server::start();
    let mut connection = server.connect();
    let tracker = QueueTracker::new("q").limit(2);
    let rows = vec![(5, "a"), (6, "b"), (9, "c")];
    let queue = Noted { rows, ..Noted::default() };
    for _ in 0..3 {
        tracker.add(&mut connection, &queue).expect("it works");
    }
    assert_eq!(*queue.asked_after.lock().expect("nobody panics"), [None, Some(6), Some(9)]);
    assert_eq!(tracker.is_queued(&mut connection, "c"), Ok(true));
}

/// The callback was said to return who is still queued, and those were removed.
#[test]
fn mistake_8_who_is_still_queued_stays() {
    let server = Server::start();
    let mut connection = server.connect();
    let tracker = QueueTracker::new("q");
    let () = connection.sadd("{q}:queued", &["still", "gone"]).expect("it is set");
    let queue = Noted { rows: vec![(1, "still")], ..Noted::default() };
    assert_eq!(tracker.remove(&mut connection, &queue).expect("it works"), 1);
    assert_eq!(tracker.is_queued(&mut connection, "still"), Ok(true));
    assert_eq!(tracker.is_queued(&mut connection, "gone"), Ok(false));
    assert_eq!(queue.asked_about.lock().expect("nobody panics").len(), 1);
}

/// Rates below 0 and rates that are no numbers were taken.
#[test]
fn mistake_9_a_rate_is_from_0_to_1() {
    for bad in [-0.1, -f64::MIN_POSITIVE, 1.000_000_1, f64::NAN, f64::INFINITY] {
        Rate::new(bad).expect_err("it is no rate");
    }
}

/// Rates were added up as floating-point numbers: of ten tenths, the last was refused or not by chance.
#[test]
fn mistake_10_rates_add_up_exactly() {
    let jobs = |count: usize, part: f64| {
        let jobs = 0..count;
        let builder = jobs.fold(Recruiter::builder().unbounded(), |builder, job| {
            builder.job(job.to_string(), rate(part), done)
        });
        builder.build().map(|_| ())
    };
    assert!((0..10).map(|_| 0.1).sum::<f64>() != 1.0, "they do not add up by themselves");
    assert_eq!(jobs(10, 0.1), Ok(()));
    assert_eq!(jobs(1000, 0.001), Ok(()));
    assert_eq!(jobs(1001, 0.001), Err(SetupError::RatesTooHigh { parts_per_million: 1_001_000 }));
}

/// A job that was added after the first had enlisted was silently without work. Here nothing can be
/// added to a recruiter: it is the builder that has `job`, and `build` consumes it. And who enlists with
/// the process's recruiter before there is one is counted.
#[test]
fn mistake_11_the_set_up_comes_before_who_enlists() {
    assert_eq!(filch_recruit::enlist(), Enlisted::Dismissed);
    assert_eq!(filch_recruit::enlisted_before_setup(), 1);
    let builder =
        Recruiter::builder().unbounded().job("first", rate(0.5), done).job("last", rate(0.5), done);
    builder.build_global().expect("there is none yet");
    for _ in 0..100 {
        filch_recruit::enlist();
    }
    let stats = filch_recruit::global().expect("it is set up").stats();
    assert!(stats.jobs.iter().all(|job| job.counts.recruited > 40), "{stats:?}");
    let late = Recruiter::builder().unbounded().job("late", rate(0.1), done).build_global();
    assert_eq!(late.expect_err("it is too late"), SetupError::AlreadyBuilt);
    assert_eq!(filch_recruit::enlisted_before_setup(), 1);
}
