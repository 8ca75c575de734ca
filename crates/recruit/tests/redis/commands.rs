//! Only commands that Redis 6.0 and Valkey support are used.

use std::collections::BTreeSet;
use std::time::Duration;

use filch_recruit::redis::{QueueSource, QueueTracker, QueuedRow, VolatileHash};
use filch_recruit::{SideError, SideJob as _};
use redis::Commands as _;

use crate::monitor::{Executed, Monitor};
use crate::server::Server;
use crate::slice;

type Version = (u8, u8);

const OLDEST: Version = (6, 0);

/// Every command used, with its options, and the Redis version that introduced this form (with
/// several members at once where several are sent).
const KNOWN: [(&str, Version); 26] = [
    ("DEL", (1, 0)),
    ("EXEC", (1, 2)),
    ("EXISTS", (1, 0)),
    ("GET", (1, 0)),
    ("HDEL", (2, 4)),
    ("HGET", (2, 0)),
    ("HLEN", (2, 0)),
    ("HSCAN COUNT", (2, 8)),
    ("HSET", (2, 0)),
    ("MULTI", (1, 2)),
    ("PTTL", (2, 6)),
    ("SADD", (2, 4)),
    ("SET", (1, 0)),
    ("SET KEEPTTL", (6, 0)),
    ("SET PX", (2, 6)),
    ("SISMEMBER", (1, 0)),
    ("SRANDMEMBER", (2, 6)),
    ("SREM", (2, 4)),
    ("TIME", (2, 6)),
    ("UNWATCH", (2, 2)),
    ("WATCH", (2, 2)),
    ("ZADD", (1, 2)),
    ("ZCARD", (1, 2)),
    ("ZRANGEBYSCORE LIMIT", (1, 0)),
    ("ZREM", (2, 4)),
    ("ZSCORE", (1, 2)),
];

/// One row, which is queued and then done.
struct OneRow;

impl QueueSource for OneRow {
    fn next_after(&self, row: Option<u64>, _: usize) -> Result<Vec<QueuedRow>, SideError> {
        let rows = row.is_none().then(|| QueuedRow { row: 1, id: "ada".to_owned() });
        Ok(rows.into_iter().collect())
    }

    fn no_longer_queued(&self, ids: &[String]) -> Result<Vec<String>, SideError> {
        Ok(ids.to_vec())
    }
}

/// A queue without end.
struct Endless;

impl QueueSource for Endless {
    fn next_after(&self, row: Option<u64>, _: usize) -> Result<Vec<QueuedRow>, SideError> {
        Ok(vec![QueuedRow { row: row.map_or(0, |row| row + 1), id: "bob".to_owned() }])
    }

    fn no_longer_queued(&self, _: &[String]) -> Result<Vec<String>, SideError> {
        Ok(vec![])
    }
}

/// Calls every function, with work to do and without.
fn call_everything(server: &Server) {
    let mut connection = server.connect();
    let hash = VolatileHash::new("hash");
    for ttl in [Duration::ZERO, Duration::from_secs(3600)] {
        hash.set(&mut connection, "a", "x", ttl).expect("it is set");
        hash.get::<String>(&mut connection, "a").expect("it is read");
        hash.reap(&mut connection).expect("it works");
    }
    hash.remove(&mut connection, "a").expect("it works");
    for field in ["without an expiry", "another"] {
        let () = connection.hset("{hash}:fields", field, "x").expect("it is set");
        hash.reaper(server.client()).recruited(&mut slice()).expect("it works");
    }
    let tracker = QueueTracker::new("queue");
    for _ in 0..2 {
        tracker.add(&mut connection, &OneRow).expect("it works");
        tracker.is_queued(&mut connection, "ada").expect("it answers");
        tracker.remove(&mut connection, &OneRow).expect("it works");
    }
    let tracker = tracker.rescan_every(Duration::from_secs(3600));
    for _ in 0..2 {
        tracker.add(&mut connection, &Endless).expect("it works");
    }
    tracker.rescan(&mut connection).expect("it works");
    tracker.scraper(server.client(), OneRow).recruited(&mut slice()).expect("it works");
}

/// The command and its options; keys and values are in lower case, or numbers.
fn shape(words: &[String]) -> String {
    let is_word = |word: &&String| word.chars().all(|char| char.is_ascii_uppercase());
    let words: Vec<&str> = words.iter().filter(is_word).map(String::as_str).collect();
    words.join(" ")
}

#[test]
fn all_commands_are_supported_by_the_oldest_server() {
    let server = Server::start();
    let mut connection = server.connect();
    let monitor = Monitor::new(&server);
    call_everything(&server);
    // On connecting, the client library sends its name, and ignores an error.
    let is_client_info = |executed: &Executed| executed.words[0] == "CLIENT";
    let executed = monitor.all(&mut connection);
    let used: BTreeSet<String> = executed
        .iter()
        .filter(|executed| !is_client_info(executed))
        .map(|executed| shape(&executed.words))
        .collect();
    let known: BTreeSet<String> = KNOWN.iter().map(|(command, _)| (*command).to_owned()).collect();
    assert_eq!(used, known);
    for (command, since) in &KNOWN {
        assert!(*since <= OLDEST, "{command} came with {since:?}");
    }
}
