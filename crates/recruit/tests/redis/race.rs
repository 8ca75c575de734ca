//! Many recruits reap at the same time, and each field is removed exactly once.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::process::{Command, Stdio};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use filch_recruit::redis::{Reaper, VolatileHash};
use filch_recruit::{Contended, Duty, SideJob as _};
use redis::{Commands as _, Connection};

use crate::monitor::{Executed, Monitor};
use crate::server::{LONG, Server};
use crate::slice;

const FIELDS: usize = 300;
/// The variable with the address of the server, for the child processes.
const VARIABLE: &str = "RECRUIT_TEST_REDIS";

fn fill(connection: &mut Connection) -> VolatileHash {
    let hash = VolatileHash::new("race");
    for field in 0..FIELDS {
        hash.set(connection, field, "x", Duration::ZERO).expect("it is set");
    }
    hash.set(connection, "alive", "x", Duration::from_secs(3600)).expect("it is set");
    hash
}

/// The result of a slice, or `None` on contention.
fn recruit(reaper: &Reaper) -> Option<Duty> {
    match reaper.recruited(&mut slice()) {
        Ok(duty) => Some(duty),
        Err(error) if error.is::<Contended>() => None,
        Err(error) => panic!("unexpected error: {error}"),
    }
}

/// Checks that each field was removed once; returns how many clients took part.
fn check(mut connection: Connection, monitor: Monitor) -> usize {
    let (mut removals, mut clients) = (BTreeMap::<String, u32>::new(), BTreeSet::new());
    for Executed { client, words } in monitor.all(&mut connection) {
        let [command, key, fields @ ..] = &words[..] else { continue };
        if [command, key] == ["HDEL", "{race}:fields"] {
            clients.insert(client);
            fields.iter().for_each(|field| *removals.entry(field.clone()).or_default() += 1);
        }
    }
    assert_eq!(removals.len(), FIELDS);
    assert!(removals.values().all(|times| *times == 1), "{removals:?}");
    assert_eq!(connection.hkeys("{race}:fields"), Ok(vec!["alive".to_owned()]));
    assert_eq!(connection.zcard("{race}:expiries"), Ok(1));
    clients.len()
}

#[test]
fn four_threads_reap_each_field_once() {
    let server = Server::start();
    let mut connection = server.connect();
    let hash = fill(&mut connection);
    let monitor = Monitor::new(&server);
    let barrier = Arc::new(Barrier::new(4));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (reaper, barrier) = (hash.reaper(server.client()), Arc::clone(&barrier));
            let mut connection = server.connect();
            std::thread::spawn(move || {
                barrier.wait();
                let begun = Instant::now();
                while connection.zcard("{race}:expiries") != Ok(1) {
                    recruit(&reaper);
                    assert!(begun.elapsed() < LONG, "fields stay");
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("the thread does not panic"));
    check(connection, monitor);
}

#[test]
fn two_processes_reap_each_field_once() {
    let server = Server::start();
    let mut connection = server.connect();
    fill(&mut connection);
    let monitor = Monitor::new(&server);
    let program = env::current_exe().expect("it is running");
    let process = || {
        Command::new(&program)
            .args(["--exact", "race::a_process_that_reaps"])
            .env(VARIABLE, server.url())
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts")
    };
    for mut child in [process(), process()] {
        assert!(child.wait().expect("it is ours").success());
    }
    assert_eq!(check(connection, monitor), 2, "both took part");
}

/// The child process of the test above; on its own it does nothing.
#[test]
fn a_process_that_reaps() {
    let Ok(url) = env::var(VARIABLE) else { return };
    let client = redis::Client::open(url).expect("it is an address");
    let mut connection = client.get_connection().expect("it answers");
    let reaper = VolatileHash::new("race").reaper(client);
    let begun = Instant::now();
    let mut has_reaped = false;
    while connection.zcard("{race}:expiries") != Ok(1) {
        let duty = recruit(&reaper);
        assert!(begun.elapsed() < LONG, "fields stay");
        // After its first success each process waits for the other's: otherwise the first to start
        // might remove all fields.
        if duty == Some(Duty::Done) && !has_reaped {
            has_reaped = true;
            let () = connection.incr("reaping", 1).expect("it works");
            while connection.get("reaping") != Ok(2) {
                assert!(begun.elapsed() < LONG, "the other process does not reap");
            }
        }
    }
}
