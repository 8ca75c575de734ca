//! `VolatileHash`: fields that expire.

use std::time::{Duration, Instant};

use filch_recruit::redis::VolatileHash;
use filch_recruit::{Duty, SideJob as _};
use redis::Commands as _;

use crate::interposed::Interposed;
use crate::server::{LONG, Server};
use crate::slice;

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn a_field_is_returned_until_it_expires() {
    let server = Server::start();
    let mut connection = server.connect();
    let hash = VolatileHash::new("sessions");
    hash.set(&mut connection, "a", "ada", HOUR).expect("it is set");
    hash.set(&mut connection, "b", "bob", Duration::ZERO).expect("it is set");
    hash.set(&mut connection, "for ever", 1, Duration::MAX).expect("it is set");
    assert_eq!(hash.get(&mut connection, "a"), Ok(Some("ada".to_owned())));
    assert_eq!(hash.get::<String>(&mut connection, "b"), Ok(None));
    assert_eq!(hash.get(&mut connection, "for ever"), Ok(Some(1)));
    assert_eq!(hash.get::<String>(&mut connection, "none"), Ok(None));
    assert_eq!(hash.remove(&mut connection, "a"), Ok(true));
    assert_eq!(hash.remove(&mut connection, "a"), Ok(false));
    assert_eq!(hash.get::<String>(&mut connection, "a"), Ok(None));
}

#[test]
fn a_field_expires_by_the_clock_of_the_server_without_a_reaper() {
    let server = Server::start();
    let mut connection = server.connect();
    let hash = VolatileHash::new("sessions");
    hash.set(&mut connection, "a", "ada", Duration::from_millis(50)).expect("it is set");
    let begun = Instant::now();
    while hash.get::<String>(&mut connection, "a").expect("it is read").is_some() {
        assert!(begun.elapsed() < LONG, "it does not expire");
    }
    assert_eq!(connection.hlen("{sessions}:fields"), Ok(1), "it is hidden, but not removed");
}

#[test]
fn setting_a_field_again_replaces_its_expiry() {
    let server = Server::start();
    let mut connection = server.connect();
    let hash = VolatileHash::new("sessions");
    hash.set(&mut connection, "a", 1, Duration::ZERO).expect("it is set");
    hash.set(&mut connection, "a", 2, HOUR).expect("it is set");
    assert_eq!(hash.reap(&mut connection), Ok(0));
    assert_eq!(hash.get(&mut connection, "a"), Ok(Some(2)));
}

#[test]
fn a_slice_removes_at_most_its_limit_oldest_first() {
    let server = Server::start();
    let mut connection = server.connect();
    let hash = VolatileHash::new("sessions");
    for field in 0..12 {
        hash.set(&mut connection, field, "x", Duration::ZERO).expect("it is set");
    }
    hash.set(&mut connection, "alive", "x", HOUR).expect("it is set");
    let reaper = hash.reaper(server.client());
    for (duty, gone) in [(Duty::Done, 5), (Duty::Done, 10), (Duty::Done, 12), (Duty::NoWork, 12)] {
        assert_eq!(reaper.recruited(&mut slice()).expect("it works"), duty);
        let mut left: Vec<String> = (gone..12).map(|field| field.to_string()).collect();
        left.push("alive".to_owned());
        assert_eq!(connection.hlen("{sessions}:fields"), Ok(left.len()));
        assert_eq!(connection.zrange("{sessions}:expiries", 0, -1), Ok(left));
    }
    assert_eq!(hash.limit(0).reap(&mut connection), Ok(0), "a limit of 0 counts as 1");
}

#[test]
fn on_contention_a_slice_gives_up_at_once() {
    let server = Server::start();
    let hash = VolatileHash::new("sessions");
    let mut other = server.connect();
    for field in ["a", "b"] {
        hash.set(&mut other, field, "old", Duration::ZERO).expect("it is set");
    }
    let before = || hash.set(&mut other, "a", "new", HOUR).expect("it is set");
    let mut contended = Interposed::new(server.connect(), before);
    assert_eq!(hash.reap(&mut contended), Ok(0), "it removes nothing: a field was set again");
    assert_eq!(contended.transactions, 1, "it is not retried");
    let mut connection = contended.connection;
    assert_eq!(hash.get(&mut connection, "a"), Ok(Some("new".to_owned())));
    assert_eq!(hash.reap(&mut connection), Ok(1), "the next slice continues");
    assert_eq!(hash.get(&mut connection, "a"), Ok(Some("new".to_owned())));
}

#[test]
fn fields_without_an_expiry_are_removed() {
    let server = Server::start();
    let mut connection = server.connect();
    let hash = VolatileHash::new("sessions");
    // Long enough that Redis does not return all fields in one scan.
    let value = "x".repeat(100);
    for field in 0..200 {
        hash.set(&mut connection, field, &value, HOUR).expect("it is set");
    }
    // Some lose their expiry.
    let lost: Vec<u32> = (0..200).filter(|field| field % 4 == 0).collect();
    let () = connection.zrem("{sessions}:expiries", &lost).expect("it works");
    let reaper = hash.reaper(server.client());
    let begun = Instant::now();
    let mut left: usize = 200;
    while left > 150 {
        let duty = reaper.recruited(&mut slice()).expect("it works");
        let now: usize = connection.hlen("{sessions}:fields").expect("it answers");
        assert!(left - now <= 5, "{left}, then {now}");
        assert_eq!(duty == Duty::Done, now < left);
        left = now;
        assert!(begun.elapsed() < LONG, "fields stay");
    }
    assert_eq!(reaper.recruited(&mut slice()).expect("it works"), Duty::NoWork);
    assert_eq!(connection.zcard("{sessions}:expiries"), Ok(150));
    for field in 0..200 {
        let value = hash.get::<String>(&mut connection, field).expect("it is read");
        assert_eq!(value.is_none(), field % 4 == 0, "{field}");
    }
}

#[test]
fn a_partly_written_field_is_removed() {
    let server = Server::start();
    let mut connection = server.connect();
    let hash = VolatileHash::new("sessions");
    let () = connection.set("{sessions}:expiries", "a text").expect("it is set");
    hash.set(&mut connection, "a", "x", HOUR).expect_err("the key holds a string");
    assert_eq!(connection.hlen("{sessions}:fields"), Ok(1), "Redis does not roll back");
    let () = connection.del("{sessions}:expiries").expect("it works");
    let reaper = hash.reaper(server.client());
    assert_eq!(reaper.recruited(&mut slice()).expect("it works"), Duty::Done);
    assert_eq!(connection.exists("{sessions}:fields"), Ok(false));
}

#[test]
fn no_key_stays_watched() {
    let server = Server::start();
    let hash = VolatileHash::new("sessions");
    let (mut connection, mut other) = (server.connect(), server.connect());
    let unwatched = |connection: &mut redis::Connection, other: &mut redis::Connection| {
        hash.set(other, "a", "x", HOUR).expect("it is set");
        // It would be aborted if a key were watched.
        let sent: Option<(String,)> =
            redis::pipe().atomic().ping().query(connection).expect("it works");
        assert!(sent.is_some());
    };
    assert_eq!(hash.reap(&mut connection), Ok(0));
    unwatched(&mut connection, &mut other);
    hash.set(&mut other, "b", "x", Duration::ZERO).expect("it is set");
    assert_eq!(hash.reap(&mut connection), Ok(1));
    unwatched(&mut connection, &mut other);
    let () = other.set("{wrong}:expiries", "a text").expect("it is set");
    VolatileHash::new("wrong").reap(&mut connection).expect_err("the key holds a string");
    let () = other.set("{wrong}:expiries", "another").expect("it is set");
    unwatched(&mut connection, &mut other);
}

#[test]
fn fields_and_values_can_be_any_bytes() {
    let server = Server::start();
    let mut connection = server.connect();
    let hash = VolatileHash::new("bytes");
    let bytes: &[u8] = &[0, 255, b'\r', b'\n'];
    hash.set(&mut connection, bytes, bytes, HOUR).expect("it is set");
    assert_eq!(hash.get(&mut connection, bytes), Ok(Some(bytes.to_vec())));
    hash.set(&mut connection, bytes, bytes, Duration::ZERO).expect("it is set");
    assert_eq!(hash.reap(&mut connection), Ok(1));
    assert_eq!(connection.exists("{bytes}:fields"), Ok(false));
}
