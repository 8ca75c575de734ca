//! Malformed requests, each to one of the endpoints that take a body.

use std::io;

use filch_api::cluster::QueueUpdate;
use filch_api::dead::Selection;
use filch_api::flow::Flow;
use filch_api::json::check_depth;
use filch_api::submission::Submission;
use filch_api::work::{Claim, Heartbeat, Reports};
use filch_e2e::random::TestRandom;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::mutate::mutate;
use crate::malformed::within;

/// An endpoint, a body that it accepts, and whether it accepts another one.
struct Endpoint {
    line: &'static str,
    kind: &'static str,
    valid: &'static str,
    is_valid: fn(&[u8]) -> bool,
}

const JSON: &str = "application/json";

/// A job with every field except those that refer to other jobs.
const JOB: &str = r#"{"id": "01890000-0000-7000-8000-00000000beef", "run": ["echo", "hello"],
    "args": {"a": [1, "two"]}, "env": {"A": "1"}, "dir": "/", "queue": "default", "priority": 7,
    "when": "all-done", "otherwise": "hold", "at": "2026-01-31T12:00:00Z",
    "retry": {"max": 3, "backoff": "fixed", "base": "2s", "cap": "5m"}, "timeout": "90s",
    "key": "storm", "traceparent": "00-1-1-00"}"#;

const ENDPOINTS: &[Endpoint] = &[
    Endpoint { line: "POST /v1/jobs", kind: JSON, valid: JOB, is_valid: is_body },
    Endpoint {
        line: "POST /v1/jobs",
        kind: JSON,
        valid: r#"[{"kind": "k"}, {"run": ["x"], "retry": 2}]"#,
        is_valid: is_body,
    },
    Endpoint {
        line: "POST /v1/flows",
        kind: JSON,
        valid: r#"{"name": "n", "jobs": {"a": {"kind": "k"}, "b": {"run": ["x"], "after": ["a"]}}}"#,
        is_valid: |body| {
            check_depth(body).is_ok()
                && Flow::read(body).is_ok_and(|flow| flow.validate(None).is_ok())
        },
    },
    Endpoint {
        line: "POST /v1/dead/retry",
        kind: JSON,
        valid: r#"{"queue": "q", "kind": "k", "since": "2026-01-31T12:00:00Z", "dry_run": true}"#,
        is_valid: |body| parses::<Selection>(body, |_| true),
    },
    Endpoint {
        line: "POST /v1/dead/discard",
        kind: JSON,
        valid: r#"{"ids": ["01890000-0000-7000-8000-00000000beef"], "dry_run": true}"#,
        is_valid: |body| parses::<Selection>(body, |_| true),
    },
    Endpoint {
        line: "PATCH /v1/queues/held",
        kind: JSON,
        valid: r#"{"paused": true, "limit": 7, "weight": 2}"#,
        is_valid: |body| parses::<QueueUpdate>(body, |_| true),
    },
    Endpoint {
        line: "POST /v1/work/00000000000000a1/claim",
        kind: JSON,
        valid: r#"{"instance": "i", "number": 1, "slots": 1, "queues": ["q"], "holds": [[7, 1]],
            "wait": "1ms"}"#,
        is_valid: |body| parses::<Claim>(body, |claim| claim.check().is_ok()),
    },
    Endpoint {
        line: "POST /v1/work/00000000000000a1/heartbeat",
        kind: JSON,
        valid: r#"{"instance": "i", "holds": [[7, 1]], "stopping": [[7, 1]]}"#,
        is_valid: |body| parses::<Heartbeat>(body, |heartbeat| heartbeat.check().is_ok()),
    },
    Endpoint {
        line: "POST /v1/work/00000000000000a1/report",
        kind: JSON,
        valid: r#"{"instance": "i", "reports": [{"job": [7, 1], "ending": "failed", "error": "no",
            "forever": true, "log": "text"}, {"job": [8, 1], "ending": "finished", "result": [1]}]}"#,
        is_valid: |body| parses::<Reports>(body, |reports| reports.check().is_ok()),
    },
    Endpoint { line: "POST /v1/jobs", kind: "application/x-ndjson", valid: JOB, is_valid: is_line },
];

fn parses<T: DeserializeOwned>(body: &[u8], is_valid: impl FnOnce(T) -> bool) -> bool {
    check_depth(body).is_ok() && serde_json::from_slice(body).is_ok_and(is_valid)
}

fn is_valid_job(job: Submission) -> bool {
    job.validate(filch_api::id::new_job).is_ok()
}

fn is_body(body: &[u8]) -> bool {
    is_job(body) || parses::<Vec<Submission>>(body, |jobs| jobs.into_iter().all(is_valid_job))
}

fn is_job(body: &[u8]) -> bool {
    parses(body, is_valid_job)
}

/// The lines before the first bad one would be accepted.
fn is_line(body: &[u8]) -> bool {
    let mut lines = body.split(|&byte| byte == b'\n');
    let first = lines.find(|line| !line.iter().all(u8::is_ascii_whitespace));
    first.is_none_or(is_job)
}

/// A request with an unclear or wrong length.
fn with_wrong_length(random: &mut TestRandom, address: &str) -> Vec<u8> {
    let head = format!("POST /v1/jobs HTTP/1.1\r\nhost: {address}\r\ncontent-type: {JSON}\r\n");
    let text = match random.below(9) {
        0 => format!("{head}content-length: {}\r\n\r\n{JOB}", JOB.len() - 9),
        1 => format!("{head}content-length: {}\r\n\r\n{JOB}", JOB.len() + 9),
        2 => format!("{head}content-length: 99999999999999999999\r\n\r\n{JOB}"),
        3 => format!("{head}content-length: -1\r\n\r\n{JOB}"),
        4 => format!("{head}content-length: 5\r\ncontent-length: 6\r\n\r\n{JOB}"),
        5 => format!("{head}transfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n{JOB}"),
        6 => format!("{head}transfer-encoding: chunked\r\n\r\n5\r\n{JOB}\r\n0\r\n\r\n"),
        7 => format!("{head}x: {}\r\n\r\n", "y".repeat(1 << (10 + random.below(10)))),
        _ => return (0..random.below(300)).map(|_| random.draw() as u8).collect(),
    };
    text.into_bytes()
}

/// Sends this many requests.
///
/// # Panics
/// If one of them is accepted, or is answered with a server error.
pub(super) async fn requests(address: &str, mut random: TestRandom, count: u64) {
    let mut connection = None;
    let mut sent = 0;
    while sent < count {
        if random.below(16) == 0 {
            let bytes = with_wrong_length(&mut random, address);
            let stream = TcpStream::connect(address).await.expect("the server listens");
            for status in within(all(stream, &bytes)).await {
                assert!((400..500).contains(&status), "{status}: {}", shown(&bytes));
            }
            sent += 1;
            continue;
        }
        let endpoint = &ENDPOINTS[random.below(ENDPOINTS.len() as u64) as usize];
        let body = mutate(&mut random, endpoint.valid);
        if (endpoint.is_valid)(&body) {
            continue;
        }
        let head = format!(
            "{} HTTP/1.1\r\nhost: {address}\r\ncontent-type: {}\r\ncontent-length: {}\r\n\r\n",
            endpoint.line,
            endpoint.kind,
            body.len()
        );
        let bytes = [head.as_bytes(), &body].concat();
        let stream = match connection.take() {
            Some(stream) => stream,
            None => TcpStream::connect(address).await.expect("the server listens"),
        };
        let (answer, stream) = within(one(stream, &bytes)).await.expect("an answer");
        if endpoint.kind == JSON {
            assert!((400..500).contains(&answer.status), "{}: {}", answer.status, shown(&bytes));
        } else {
            // Errors in lines come after the status.
            let text = String::from_utf8_lossy(&answer.body);
            assert!(
                answer.status == 200 && text.contains("\"status\":4"),
                "{text}: {}",
                shown(&bytes)
            );
        }
        connection = answer.is_kept_open.then_some(stream);
        sent += 1;
    }
}

fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().take(2_000).collect()
}

struct Response {
    status: u16,
    body: Vec<u8>,
    is_kept_open: bool,
}

/// Sends one request and reads the response. Returns the connection for the next one.
async fn one(mut stream: TcpStream, bytes: &[u8]) -> io::Result<(Response, TcpStream)> {
    // The server may answer before it has read everything, and close the connection.
    let _ = stream.write_all(bytes).await;
    let mut read = Vec::new();
    loop {
        if let Some(answer) = parse(&read) {
            return Ok((answer, stream));
        }
        let mut piece = [0; 4_096];
        match stream.read(&mut piece).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => read.extend_from_slice(&piece[..length]),
        }
    }
}

/// The status codes of all responses until the connection is closed.
async fn all(mut stream: TcpStream, bytes: &[u8]) -> Vec<u16> {
    // If the server has closed the connection, it has answered.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut read = Vec::new();
    let _ = stream.read_to_end(&mut read).await;
    let text = String::from_utf8_lossy(&read);
    let answers = text.split("HTTP/1.1 ").skip(1);
    answers.map(|answer| answer[..3].parse().expect("a status")).collect()
}

/// The response, if it has arrived completely.
fn parse(read: &[u8]) -> Option<Response> {
    let end = read.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
    let status = head[9..12].parse().expect("a status");
    let header = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(field, _)| *field == name).map(|(_, value)| value.to_owned())
    };
    let body = read[end..].to_vec();
    let is_whole = match header("content-length") {
        Some(length) => body.len() >= length.parse().expect("a length"),
        None => body.ends_with(b"0\r\n\r\n"),
    };
    let is_kept_open = header("connection").is_none_or(|connection| connection != "close");
    is_whole.then_some(Response { status, body, is_kept_open })
}
