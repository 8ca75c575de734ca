//! The example of `docs/protocol.md`, played against a server, and the schema of the frames.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::client::{PATIENCE, Place};
use crate::socket::{PROTOCOL, ask};

/// Sends a text frame, masked with zeros, which change nothing.
async fn send(stream: &mut TcpStream, text: &str) {
    let length = u16::try_from(text.len()).unwrap();
    let mut frame = vec![0x81];
    match u8::try_from(length) {
        Ok(short) if short < 126 => frame.push(0x80 | short),
        _ => {
            frame.push(0x80 | 126);
            frame.extend(length.to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(text.as_bytes());
    stream.write_all(&frame).await.unwrap();
}

/// Receives a text frame.
async fn receive(stream: &mut TcpStream) -> Value {
    let first = stream.read_u8().await.unwrap();
    assert_eq!(first, 0x81, "one whole text frame");
    let length = match stream.read_u8().await.unwrap() {
        126 => usize::from(stream.read_u16().await.unwrap()),
        short => usize::from(short),
    };
    let mut text = vec![0; length];
    stream.read_exact(&mut text).await.unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// Without the values that differ from run to run.
fn without_variable_parts(mut frame: Value) -> Value {
    for message in frame["messages"].as_array_mut().unwrap() {
        if let Some(reconcile) = message.get_mut("reconcile") {
            reconcile["lease_ms"] = json!(0);
        }
        if let Some(jobs) = message.get_mut("assign") {
            for job in jobs.as_array_mut().unwrap() {
                (job["era"], job["rank"]) = (json!(0), json!(0));
            }
        }
    }
    frame
}

#[tokio::test]
async fn the_documented_exchange_works() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocol.md");
    let page = std::fs::read_to_string(page).unwrap();
    let example = page.split("```frames\n").nth(1).unwrap().split("```").next().unwrap();

    let place = Place::start().await;
    let id = "01890000-0000-7000-8000-0000000000a1";
    let job = json!({"id": id, "kind": "resize", "args": {"width": 80}});
    place.post("/v1/jobs", &job).await.ok();
    let (mut stream, head) = ask(&place, PROTOCOL).await;
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    for line in example.lines() {
        match line.split_at(2) {
            ("> ", frame) => send(&mut stream, frame).await,
            ("< ", frame) => {
                let expected: Value = serde_json::from_str(frame).unwrap();
                let received = tokio::time::timeout(PATIENCE, receive(&mut stream)).await.unwrap();
                assert_eq!(
                    without_variable_parts(received),
                    without_variable_parts(expected),
                    "{line}"
                );
            }
            _ => panic!("a line of the example begins with `> ` or `< `: {line}"),
        }
    }
    let job = place.get(&format!("/v1/jobs/{id}")).await.ok();
    assert_eq!((&job["state"], &job["result"]), (&json!("succeeded"), &json!({"width": 80})));
}

#[tokio::test]
async fn the_schema_of_the_frames_is_served() {
    let place = Place::start().await;
    let schema = place.get("/worker-protocol.json").await.ok();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    for frame in ["UpFrame", "DownFrame", "WireReport", "WireAssignment"] {
        assert!(schema["$defs"][frame].is_object(), "{frame}");
    }
}
