//! What a server lets in at once, made small for these tests; and the page of all bounds, of which
//! each has a test.

use std::sync::Arc;
use std::time::Duration;

use filch_server::Bounds;
use filch_store::{CLIENT_READS_MAX, Store as _, TokenChange, TokenRow, Transient};
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::client::{LEASE, PATIENCE, Place, eventually};

#[tokio::test]
async fn a_stalled_body_times_out() {
    let body_silence = Duration::from_millis(200);
    let place = Place::bounded(Bounds { body_silence, ..Bounds::default() }).await;
    let mut stream = TcpStream::connect(place.server.address()).await.unwrap();
    let head = format!(
        "POST /v1/jobs HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
         content-length: 100\r\nconnection: close\r\n\r\n{{\"kind\"",
        place.server.address()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("too-slow"), "{answer}");
    assert!(answer.contains("for 200ms"), "{answer}");
    assert_eq!(place.get("/v1/status").await.ok()["jobs"], 0);
}

/// Connects, and begins to send an array of this length.
async fn begin_array(place: &Place, length: usize, begin: &str) -> TcpStream {
    let mut stream = TcpStream::connect(place.server.address()).await.unwrap();
    let head = format!(
        "POST /v1/jobs HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n{begin}",
        place.server.address()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// Clients that announce large bodies and do not send them do not keep others from sending theirs.
#[tokio::test]
async fn a_large_body_gets_its_place_by_what_was_received() {
    let place = Place::start().await;
    let mut slow = Vec::new();
    for _ in 0..8 {
        slow.push(begin_array(&place, 2 << 20, "[").await);
    }
    place.get("/v1/status").await.ok();
    let padding = "x".repeat(200 << 10);
    let jobs: Vec<_> = (0..8).map(|_| json!({"kind": "k", "args": padding})).collect();
    let taken = place.post("/v1/jobs", &json!(jobs)).await.ok();
    assert_eq!(taken["jobs"].as_array().map(Vec::len), Some(8));
}

#[tokio::test]
async fn a_large_body_that_comes_too_slowly_loses_its_place() {
    let body_silence = Duration::from_millis(500);
    let place = Place::bounded(Bounds { body_silence, ..Bounds::default() }).await;
    let begin = format!("[{}", " ".repeat(1 << 20));
    let stream = begin_array(&place, 4 << 20, &begin).await;
    let (mut answers, mut body) = stream.into_split();
    let drip = async {
        // Never silent for long, and always less than a kilobyte a second.
        while body.write_all(b" ").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let answered = async {
        let mut answer = Vec::new();
        // The server may close the connection while a byte is on its way.
        let _ = answers.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    };
    let both = async { tokio::join!(drip, answered).1 };
    let answer = tokio::time::timeout(PATIENCE, both).await.expect("it is refused");
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("too-slow"), "{answer}");
}

#[tokio::test]
async fn the_number_of_workers_over_plain_http_is_limited() {
    let place = Place::bounded(Bounds { plain_workers: 2, ..Bounds::default() }).await;
    let (mut first, mut second) =
        (place.worker("00000000000000a1"), place.worker("00000000000000a2"));
    first.claim("0s").await.ok();
    second.claim("0s").await.ok();
    let problem = place.worker("00000000000000a3").claim("0s").await;
    let problem = problem.refused(503, "too-many-workers");
    assert!(problem["title"].as_str().unwrap().starts_with("2 workers "), "{problem}");
    first.claim("0s").await.ok();
    // A worker that leaves frees its place.
    second.goodbye().await.ok();
    place.worker("00000000000000a3").claim("0s").await.ok();
}

/// Asks whether the server lives, and leaves the connection open.
async fn ask(stream: &mut TcpStream) {
    let host = stream.peer_addr().unwrap();
    let request = format!("GET /healthz HTTP/1.1\r\nhost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
}

async fn answered(stream: &mut TcpStream) {
    let mut answer = [0; 15];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
}

#[tokio::test]
async fn connections_beyond_the_limit_wait() {
    let place = Place::bounded(Bounds { connections: 2, ..Bounds::default() }).await;
    let mut inside = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(place.server.address()).await.unwrap();
        ask(&mut stream).await;
        answered(&mut stream).await;
        inside.push(stream);
    }
    let mut outside = TcpStream::connect(place.server.address()).await.unwrap();
    ask(&mut outside).await;
    let early = tokio::time::timeout(Duration::from_millis(300), answered(&mut outside)).await;
    assert!(early.is_err(), "there was no room for it");
    inside.pop();
    tokio::time::timeout(Duration::from_secs(60), answered(&mut outside)).await.unwrap();
}

#[tokio::test]
async fn the_number_of_readers_is_limited() {
    let place = Place::bounded(Bounds { readers: 2, ..Bounds::default() }).await;
    let job = place.submit(&json!({"kind": "k"})).await;
    let events = place.request(Method::GET, "/v1/events").send().await.unwrap();
    let path = format!("/v1/jobs/{job}/log?follow=true");
    let log = place.request(Method::GET, &path).send().await.unwrap();
    assert_eq!((events.status().as_u16(), log.status().as_u16()), (200, 200));
    let problem = place.get("/v1/events").await.refused(503, "too-many-readers");
    assert!(problem["title"].as_str().unwrap().starts_with("2 clients "), "{problem}");
    place.get(&path).await.refused(503, "too-many-readers");
    // A reader that leaves frees its place.
    drop(events);
    let is_free = async || {
        place.request(Method::GET, "/v1/events").send().await.unwrap().status().as_u16() == 200
    };
    eventually("a place is free", is_free).await;
}

#[tokio::test]
async fn the_number_of_tokens_is_limited() {
    let store = Arc::new(Transient::default());
    let row = |number: u32| TokenRow {
        id: format!("{number:08x}"),
        name: String::new(),
        role: "view".to_owned(),
        queues: Vec::new(),
        digest: [0; 32],
        created_at: filch_scheduler::time::Wall(0),
        expires_at: None,
        revoked_at: Some(filch_scheduler::time::Wall(0)),
    };
    for number in 0..10_000 - 1 {
        assert!(store.change_token(&TokenChange::Create(row(number)), None).unwrap());
    }
    let place = Place::with(store, LEASE, None).await;
    let insider = place.server.insider();
    let make = async || {
        let request = place.request(Method::POST, "/v1/tokens").bearer_auth(insider.reveal());
        crate::client::read(request.json(&json!({"role": "view"})).send().await.unwrap()).await
    };
    make().await.ok();
    make().await.refused(409, "too-many-tokens");
}

/// Every row of the page, and the test that tries it.
const TRIED: [(&str, &str); 21] = [
    ("a body with one object", "one_object_has_a_mebibyte"),
    ("array or flow", "an_array_or_a_flow_has_128_mebibytes"),
    ("line", "a_line_has_a_mebibyte"),
    ("payload of a job (`args`, `run`, `env`)", "a_payload_has_a_quarter_of_a_mebibyte"),
    ("jobs in an array", "an_array_has_ten_thousand_jobs"),
    ("jobs in a flow", "a_flow_has_a_hundred_thousand_jobs"),
    ("dependencies in a flow", "a_flow_has_a_million_edges"),
    ("levels of JSON", "json_has_sixty_four_levels"),
    ("name of a queue, kind, key, job of a flow", "names_have_two_hundred_bytes"),
    ("result, log; error of a report", "workers_over_plain_http_have_separate_limits"),
    ("the same over a WebSocket", "the_bounds_of_reports_are_enforced"),
    ("ids, holds or reports in a request", "workers_over_plain_http_have_separate_limits"),
    (
        "slots and queues of a worker over plain HTTP",
        "workers_over_plain_http_have_separate_limits",
    ),
    ("workers over plain HTTP", "the_number_of_workers_over_plain_http_is_limited"),
    ("pause within a body", "a_stalled_body_times_out"),
    ("bodies above 1 MiB at once", "a_large_body_gets_its_place_by_what_was_received"),
    ("30 s of a body above 1 MiB, at least", "a_large_body_that_comes_too_slowly_loses_its_place"),
    ("connections", "connections_beyond_the_limit_wait"),
    ("readers of events and logs at once", "the_number_of_readers_is_limited"),
    ("reads of the store at once", "reads_beyond_the_limit_are_busy_and_the_server_goes_on"),
    ("tokens, including expired and revoked ones", "the_number_of_tokens_is_limited"),
];

#[test]
fn every_bound_on_the_page_has_its_test() {
    let page = include_str!("../../../../docs/api.md");
    let (_, rest) = page.split_once("\n## Bounds\n").unwrap();
    let (table, _) = rest.split_once("\n## ").unwrap();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter_map(|line| {
            Some(line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect())
        })
        .skip(1)
        .collect();
    let named: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(named, TRIED.map(|(row, _)| row));

    let sources = [
        include_str!("bounds.rs"),
        include_str!("limits.rs"),
        include_str!("reads.rs"),
        include_str!("../../../api/src/session.rs"),
    ];
    for (_, test) in TRIED {
        let head = format!("fn {test}()");
        assert!(sources.iter().any(|source| source.contains(&head)), "no test {test}");
    }
    // And every code is looked for by one of them.
    for code in rows.iter().flat_map(|row| row[2].split('`').skip(1).step_by(2)) {
        let quoted = format!("\"{code}\"");
        assert!(sources.iter().any(|source| source.contains(&quoted)), "no test for {code}");
    }
    let at_most = |row: &str| rows.iter().find(|it| it[0] == row).unwrap()[1].replace(',', "");
    let bounds = Bounds::default();
    assert_eq!(at_most("connections"), bounds.connections.to_string());
    assert_eq!(at_most("workers over plain HTTP"), bounds.plain_workers.to_string());
    assert_eq!(at_most("reads of the store at once"), CLIENT_READS_MAX.to_string());
    assert_eq!(at_most("readers of events and logs at once"), bounds.readers.to_string());
    let silence = format!("{} s", bounds.body_silence.as_secs());
    assert_eq!(at_most("pause within a body"), silence);
}
