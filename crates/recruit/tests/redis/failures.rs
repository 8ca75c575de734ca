//! After a failure nothing is retried, and the next recruit continues.

use std::io::Read as _;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use filch_recruit::redis::{QueueSource, QueueTracker, QueuedRow, VolatileHash};
use filch_recruit::{Contended, Duty, Enlisted, Rate, Recruiter, SideError, SideJob as _, Slice};
use redis::{Client, Commands as _};

use crate::server::{LONG, Server};
use crate::slice;

#[test]
fn a_killed_server_fails_a_slice_and_a_later_one_reconnects() {
    let mut server = Server::start();
    let hash = VolatileHash::new("sessions");
    let job = hash.reaper(server.socket_client());
    let recruiter = Recruiter::builder()
        .unbounded()
        .job("reap", Rate::ALL, job)
        .budget(LONG, LONG)
        .build()
        .expect("it makes sense");
    let job = "reap";
    hash.set(&mut server.connect(), "a", "x", Duration::ZERO).expect("it is set");
    assert_eq!(recruiter.enlist(), Enlisted::Recruited { job });
    server.kill();
    assert_eq!(recruiter.enlist(), Enlisted::Failed { job }, "the connection breaks");
    assert_eq!(recruiter.enlist(), Enlisted::Failed { job }, "no answer");
    server.start_again();
    assert_eq!(recruiter.enlist(), Enlisted::NoWork { job }, "it is running, and empty");
    hash.set(&mut server.connect(), "b", "x", Duration::ZERO).expect("it is set");
    assert_eq!(recruiter.enlist(), Enlisted::Recruited { job });
}

/// A server that accepts connections, reads a little and closes them; and their number.
fn hangs_up() -> (Client, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let port = listener.local_addr().expect("it is bound").port();
    let count = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&count);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            counter.fetch_add(1, SeqCst);
            // It sends no answer.
            let _ = stream.expect("a connection").read(&mut [0; 1024]);
        }
    });
    (Client::open(("127.0.0.1", port)).expect("it is an address"), count)
}

#[test]
fn a_failed_connection_is_not_retried() {
    let (client, count) = hangs_up();
    let reaper = VolatileHash::new("sessions").reaper(client);
    for round in 1..=3 {
        reaper.recruited(&mut slice()).expect_err("no answer");
        assert_eq!(count.load(SeqCst), round);
    }
}

#[test]
fn an_unresponsive_server_times_out_with_the_slice() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let port = listener.local_addr().expect("it is bound").port();
    let client = Client::open(("127.0.0.1", port)).expect("it is an address");
    let reaper = VolatileHash::new("sessions").reaper(client);
    // If it waited for an answer, it would wait forever.
    reaper.recruited(&mut Slice::new(Duration::from_millis(20))).expect_err("no answer");
}

#[test]
fn a_server_that_stops_responding_times_out_with_the_slice() {
    let server = Server::start();
    let hash = VolatileHash::new("sessions");
    let reaper = hash.reaper(server.client());
    assert_eq!(reaper.recruited(&mut slice()).expect("it works"), Duty::NoWork);
    server.signal("STOP");
    // If it waited for an answer, it would wait forever.
    reaper.recruited(&mut Slice::new(Duration::from_millis(20))).expect_err("no answer");
    server.signal("CONT");
    assert_eq!(reaper.recruited(&mut slice()).expect("it works"), Duty::NoWork);
}

#[test]
fn keys_of_another_type_are_an_error_and_stay_unchanged() {
    let server = Server::start();
    let mut connection = server.connect();
    for wrong in ["fields", "expiries"] {
        let hash = VolatileHash::new(wrong);
        let key = format!("{{{wrong}}}:{wrong}");
        hash.set(&mut connection, "a", "x", Duration::ZERO).expect("it is set");
        let () = connection.set(&key, "a text").expect("it is set");
        hash.set(&mut connection, "b", "x", Duration::ZERO).expect_err("the key holds a string");
        hash.get::<String>(&mut connection, "a").expect_err("the key holds a string");
        hash.remove(&mut connection, "b").expect_err("the key holds a string");
        let reaper = hash.reaper(server.client());
        let error = reaper.recruited(&mut slice()).expect_err("the key holds a string");
        assert!(error.to_string().contains("WRONGTYPE"), "{error}");
        assert_eq!(connection.get(&key), Ok("a text".to_owned()));
    }
    let tracker = QueueTracker::new("q");
    let () = connection.set("{q}:queued", "a text").expect("it is set");
    tracker.is_queued(&mut connection, "a").expect_err("the key holds a string");
    tracker.add(&mut connection, &Fine).expect_err("the key holds a string");
    tracker.remove(&mut connection, &Fine).expect_err("the key holds a string");
}

struct Fine;

impl QueueSource for Fine {
    fn next_after(&self, row: Option<u64>, _: usize) -> Result<Vec<QueuedRow>, SideError> {
        Ok(vec![QueuedRow { row: row.map_or(0, |row| row + 1), id: "a".to_owned() }])
    }

    fn no_longer_queued(&self, ids: &[String]) -> Result<Vec<String>, SideError> {
        Ok(ids.to_vec())
    }
}

/// A queue that cannot be read.
#[derive(Default)]
struct Broken {
    calls: AtomicU32,
    panics: bool,
}

impl Broken {
    fn fail<T>(&self) -> Result<T, SideError> {
        self.calls.fetch_add(1, SeqCst);
        assert!(!self.panics, "planned");
        Err("no database".into())
    }
}

impl QueueSource for &Broken {
    fn next_after(&self, _: Option<u64>, _: usize) -> Result<Vec<QueuedRow>, SideError> {
        self.fail()
    }

    fn no_longer_queued(&self, _: &[String]) -> Result<Vec<String>, SideError> {
        self.fail()
    }
}

#[test]
fn a_failing_queue_is_not_retried() {
    let server = Server::start();
    let mut connection = server.connect();
    let () = connection.sadd("{q}:queued", "a").expect("it is set");
    let broken = Broken::default();
    let tracker = QueueTracker::new("q");
    let scraper = tracker.scraper(server.client(), &broken);
    for round in 1..=10 {
        let error = scraper.recruited(&mut slice()).expect_err("the queue fails");
        assert_eq!(error.to_string(), "no database");
        assert_eq!(broken.calls.load(SeqCst), round);
    }
    tracker.add(&mut connection, &&broken).expect_err("the queue fails");
    assert_eq!(tracker.is_queued(&mut connection, "a"), Ok(true));
}

#[test]
fn a_panicking_queue_leaves_the_job_usable() {
    static PANICS: Broken = Broken { calls: AtomicU32::new(0), panics: true };
    let server = Server::start();
    let () = server.connect().sadd("{q}:queued", "a").expect("it is set");
    let scraper = QueueTracker::new("q").scraper(server.client(), &PANICS);
    let builder =
        Recruiter::builder().unbounded().job("scrape", Rate::ALL, scraper).budget(LONG, LONG);
    let recruiter = builder.build().expect("it makes sense");
    for round in 1..=3 {
        assert_eq!(recruiter.enlist(), Enlisted::Failed { job: "scrape" });
        assert_eq!(PANICS.calls.load(SeqCst), round);
    }
    assert_eq!(recruiter.stats().jobs[0].counts.panicked, 3);
}

/// Holds the connection until the test continues.
struct Slow(Arc<Barrier>);

impl QueueSource for Slow {
    fn next_after(&self, _: Option<u64>, _: usize) -> Result<Vec<QueuedRow>, SideError> {
        self.0.wait();
        self.0.wait();
        Ok(vec![])
    }

    fn no_longer_queued(&self, _: &[String]) -> Result<Vec<String>, SideError> {
        self.next_after(None, 0).map(|_| vec![])
    }
}

#[test]
fn a_recruit_does_not_wait_for_a_connection_in_use() {
    let server = Server::start();
    // So that both adding and removing ask the queue.
    let () = server.connect().sadd("{q}:queued", "a").expect("it is set");
    let barrier = Arc::new(Barrier::new(2));
    let scraper = QueueTracker::new("q").scraper(server.client(), Slow(Arc::clone(&barrier)));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| scraper.recruited(&mut slice()).expect("no error"));
        barrier.wait();
        // The other thread has it, and waits for this one.
        let error = scraper.recruited(&mut slice()).expect_err("it is in use");
        assert!(error.is::<Contended>(), "{error}");
        barrier.wait();
        assert_eq!(first.join().expect("the thread does not panic"), Duty::NoWork);
    });
}

/// A queue during whose calls another client changes the set.
struct Interfering(Client);

impl Interfering {
    fn interfere(&self) -> Result<(), SideError> {
        Ok(self.0.get_connection()?.sadd("{q}:queued", "other")?)
    }
}

impl QueueSource for Interfering {
    fn next_after(&self, row: Option<u64>, limit: usize) -> Result<Vec<QueuedRow>, SideError> {
        self.interfere()?;
        Fine.next_after(row, limit)
    }

    fn no_longer_queued(&self, ids: &[String]) -> Result<Vec<String>, SideError> {
        self.interfere()?;
        Ok(ids.to_vec())
    }
}

#[test]
fn an_aborted_transaction_is_counted_as_contended() {
    let server = Server::start();
    let () = server.connect().sadd("{q}:queued", "a").expect("it is set");
    let scraper = QueueTracker::new("q").scraper(server.client(), Interfering(server.client()));
    let builder =
        Recruiter::builder().unbounded().job("scrape", Rate::ALL, scraper).budget(LONG, LONG);
    let recruiter = builder.build().expect("it makes sense");
    // For adding and for removing; an identifier must be new to cause contention.
    let mut connection = server.connect();
    for round in 1..=10 {
        assert_eq!(recruiter.enlist(), Enlisted::Dismissed);
        assert_eq!(recruiter.stats().jobs[0].counts.contended, round);
        let () = connection.srem("{q}:queued", "other").expect("it works");
    }
}
