//! Requests that make no sense, each to one of the doors that take a body.

use std::io;

use filch_api::cluster::QueueUpdate;
use filch_api::dead::Selection;
use filch_api::flow::Flow;
use filch_api::json::check_depth;
use filch_api::submission::Submission;
use filch_api::work::{Claim, Heartbeat, Reports};
use filch_e2e::random::Random;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::mangle::mangle;
use crate::storm::within;

/// A door, a body that it would take, and whether it would still take another one.
struct Door {
    line: &'static str,
    kind: &'static str,
    right: &'static str,
    is_right: fn(&[u8]) -> bool,
}

const JSON: &str = "application/json";

/// A job as it is submitted, with everything that can be said of one but what depends on others.
const JOB: &str = r#"{"id": "01890000-0000-7000-8000-00000000beef", "run": ["echo", "hello"],
    "args": {"a": [1, "two"]}, "env": {"A": "1"}, "dir": "/", "queue": "default", "priority": 7,
    "when": "all-done", "otherwise": "hold", "at": "2026-01-31T12:00:00Z",
    "retry": {"max": 3, "backoff": "fixed", "base": "2s", "cap": "5m"}, "timeout": "90s",
    "key": "storm", "traceparent": "00-1-1-00"}"#;

const DOORS: &[Door] = &[
    Door { line: "POST /v1/jobs", kind: JSON, right: JOB, is_right: is_body },
    Door {
        line: "POST /v1/jobs",
        kind: JSON,
        right: r#"[{"kind": "k"}, {"run": ["x"], "retry": 2}]"#,
        is_right: is_body,
    },
    Door {
        line: "POST /v1/flows",
        kind: JSON,
        right: r#"{"name": "n", "jobs": {"a": {"kind": "k"}, "b": {"run": ["x"], "after": ["a"]}}}"#,
        is_right: |body| {
            check_depth(body).is_ok()
                && Flow::read(body).is_ok_and(|flow| flow.validate(None).is_ok())
        },
    },
    Door {
        line: "POST /v1/dead/retry",
        kind: JSON,
        right: r#"{"queue": "q", "kind": "k", "since": "2026-01-31T12:00:00Z", "dry_run": true}"#,
        is_right: |body| reads::<Selection>(body, |_| true),
    },
    Door {
        line: "POST /v1/dead/discard",
        kind: JSON,
        right: r#"{"ids": ["01890000-0000-7000-8000-00000000beef"], "dry_run": true}"#,
        is_right: |body| reads::<Selection>(body, |_| true),
    },
    Door {
        line: "PATCH /v1/queues/held",
        kind: JSON,
        right: r#"{"paused": true, "limit": 7, "weight": 2}"#,
        is_right: |body| reads::<QueueUpdate>(body, |_| true),
    },
    Door {
        line: "POST /v1/work/00000000000000a1/claim",
        kind: JSON,
        right: r#"{"number": 1, "slots": 1, "queues": ["q"], "holds": [[7, 1]], "wait": "1ms"}"#,
        is_right: |body| reads::<Claim>(body, |claim| claim.check().is_ok()),
    },
    Door {
        line: "POST /v1/work/00000000000000a1/heartbeat",
        kind: JSON,
        right: r#"{"holds": [[7, 1]], "stopping": [[7, 1]]}"#,
        is_right: |body| reads::<Heartbeat>(body, |beat| beat.check().is_ok()),
    },
    Door {
        line: "POST /v1/work/00000000000000a1/report",
        kind: JSON,
        right: r#"{"reports": [{"job": [7, 1], "ending": "failed", "error": "no", "forever": true,
            "log": "text"}, {"job": [8, 1], "ending": "finished", "result": [1]}]}"#,
        is_right: |body| reads::<Reports>(body, |reports| reports.check().is_ok()),
    },
    Door { line: "POST /v1/jobs", kind: "application/x-ndjson", right: JOB, is_right: is_line },
];

fn reads<T: DeserializeOwned>(body: &[u8], judge: impl FnOnce(T) -> bool) -> bool {
    check_depth(body).is_ok() && serde_json::from_slice(body).is_ok_and(judge)
}

fn would_do(job: Submission) -> bool {
    job.validate(filch_api::id::new_job).is_ok()
}

fn is_body(body: &[u8]) -> bool {
    is_job(body) || reads::<Vec<Submission>>(body, |jobs| jobs.into_iter().all(would_do))
}

fn is_job(body: &[u8]) -> bool {
    reads(body, would_do)
}

/// What comes before the first bad line would be taken.
fn is_line(body: &[u8]) -> bool {
    let mut lines = body.split(|&byte| byte == b'\n');
    let first = lines.find(|line| !line.iter().all(u8::is_ascii_whitespace));
    first.is_none_or(is_job)
}

/// What is sent so that nothing can be made of where it ends.
fn misframed(random: &mut Random, address: &str) -> Vec<u8> {
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

/// Sends so many requests.
///
/// # Panics
/// If one of them is taken, or is answered with an error of the server's.
pub(super) async fn requests(address: &str, mut random: Random, count: u64) {
    let mut connection = None;
    let mut sent = 0;
    while sent < count {
        if random.below(16) == 0 {
            let bytes = misframed(&mut random, address);
            let stream = TcpStream::connect(address).await.expect("the server listens");
            for status in within(all(stream, &bytes)).await {
                assert!((400..500).contains(&status), "{status}: {}", shown(&bytes));
            }
            sent += 1;
            continue;
        }
        let door = &DOORS[random.below(DOORS.len() as u64) as usize];
        let body = mangle(&mut random, door.right);
        if (door.is_right)(&body) {
            continue;
        }
        let head = format!(
            "{} HTTP/1.1\r\nhost: {address}\r\ncontent-type: {}\r\ncontent-length: {}\r\n\r\n",
            door.line,
            door.kind,
            body.len()
        );
        let bytes = [head.as_bytes(), &body].concat();
        let stream = match connection.take() {
            Some(stream) => stream,
            None => TcpStream::connect(address).await.expect("the server listens"),
        };
        let (answer, stream) = within(one(stream, &bytes)).await.expect("an answer");
        if door.kind == JSON {
            assert!((400..500).contains(&answer.status), "{}: {}", answer.status, shown(&bytes));
        } else {
            // What is wrong with a line is said after the status.
            let text = String::from_utf8_lossy(&answer.body);
            assert!(
                answer.status == 200 && text.contains("\"status\":4"),
                "{text}: {}",
                shown(&bytes)
            );
        }
        connection = answer.goes_on.then_some(stream);
        sent += 1;
    }
}

fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().take(2_000).collect()
}

struct Answer {
    status: u16,
    body: Vec<u8>,
    goes_on: bool,
}

/// One request and its answer, with the connection for the next one.
async fn one(mut stream: TcpStream, bytes: &[u8]) -> io::Result<(Answer, TcpStream)> {
    stream.write_all(bytes).await?;
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

/// The statuses of all that is answered until nobody has anything more to say.
async fn all(mut stream: TcpStream, bytes: &[u8]) -> Vec<u16> {
    // Who is hung up on has been answered.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut read = Vec::new();
    let _ = stream.read_to_end(&mut read).await;
    let text = String::from_utf8_lossy(&read);
    let answers = text.split("HTTP/1.1 ").skip(1);
    answers.map(|answer| answer[..3].parse().expect("a status")).collect()
}

/// A whole answer, if it is there already.
fn parse(read: &[u8]) -> Option<Answer> {
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
    let goes_on = header("connection").is_none_or(|connection| connection != "close");
    is_whole.then_some(Answer { status, body, goes_on })
}
