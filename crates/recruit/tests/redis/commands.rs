//! What is asked of a server is what Redis 6.0 has already, and so has Valkey.

use std::collections::BTreeSet;
use std::time::Duration;

use filch_recruit::redis::{QueueSource, QueueTracker, QueuedRow, VolatileHash};
use filch_recruit::{SideError, SideJob as _};
use redis::Commands as _;

use crate::monitor::{Monitor, Said};
use crate::server::Server;
use crate::slice;

type Version = (u8, u8);

const OLDEST: Version = (6, 0);

/// Every command, with the words that are options of it, and since when a server knows all of that, with
/// several members at once where we send several.
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

/// One row that is queued, and then done.
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

/// One row after the other.
struct Endless;

impl QueueSource for Endless {
    fn next_after(&self, row: Option<u64>, _: usize) -> Result<Vec<QueuedRow>, SideError> {
        Ok(vec![QueuedRow { row: row.map_or(0, |row| row + 1), id: "bob".to_owned() }])
    }

    fn no_longer_queued(&self, _: &[String]) -> Result<Vec<String>, SideError> {
        Ok(vec![])
    }
}

/// Everything there is, with something to do and with nothing.
fn do_everything(server: &Server) {
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

/// The command and its options: what is ours is in lower case, or a number.
fn shape(words: &[String]) -> String {
    let is_word = |word: &&String| word.chars().all(|char| char.is_ascii_uppercase());
    let words: Vec<&str> = words.iter().filter(is_word).map(String::as_str).collect();
    words.join(" ")
}

#[test]
fn nothing_is_asked_that_the_oldest_server_does_not_know() {
    let server = Server::start();
    let mut connection = server.connect();
    let monitor = Monitor::new(&server);
    do_everything(&server);
    // Who connects says of what library it is, and does not mind a server that does not know of that.
    let is_greeting = |said: &Said| said.words[0] == "CLIENT";
    let said = monitor.all(&mut connection);
    let used: BTreeSet<String> =
        said.iter().filter(|said| !is_greeting(said)).map(|said| shape(&said.words)).collect();
    let known: BTreeSet<String> = KNOWN.iter().map(|(command, _)| (*command).to_owned()).collect();
    assert_eq!(used, known);
    for (command, since) in &KNOWN {
        assert!(*since <= OLDEST, "{command} came with {since:?}");
    }
}
