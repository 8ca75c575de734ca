//! Submitting lines of JSON: in chunks, answered one by one, however many.

use reqwest::{Body, Method};
use serde_json::{Value, json};

use crate::client::Place;

/// Sends lines and returns the lines that were answered.
async fn send(place: &Place, key: Option<&str>, body: impl Into<Body>) -> Vec<Value> {
    let mut request = place
        .request(Method::POST, "/v1/jobs")
        .header("content-type", "application/x-ndjson")
        .body(body);
    if let Some(key) = key {
        request = request.header("idempotency-key", key);
    }
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 200);
    let text = response.text().await.unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Bytes of memory that this process has in use.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[tokio::test]
async fn lines_are_submitted_in_chunks_and_recognised_when_repeated() {
    let place = Place::start().await;
    let text = "{\"kind\": \"a\"}\n\n{\"kind\": \"b\"}\n{\"kind\": \"c\"}";
    let answers = send(&place, Some("k"), text).await;
    assert_eq!(answers, [json!({"lines": 4, "new": 3})]);
    let again = send(&place, Some("k"), text).await;
    assert_eq!(again, [json!({"lines": 4, "new": 0})]);
    let without = send(&place, None, text).await;
    assert_eq!((&without[0]["code"], &without[0]["at"]), (&json!("invalid"), &json!("line 1")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_lines_before_a_bad_one_are_kept() {
    const LINES: u64 = 50_000;
    const BAD: u64 = 30_864;
    let place = Place::on_disk().await;
    // Each line has twelve kilobytes, made as it is sent: 370 megabytes up to the bad one.
    let padding = "x".repeat(12_000);
    let pieces = (0..LINES / 100).map(move |piece| {
        let mut text = String::new();
        for line in piece * 100 + 1..=piece * 100 + 100 {
            let kind = if line == BAD { "" } else { "k" };
            text += &format!("{{\"kind\": \"{kind}\", \"args\": [{line}, \"{padding}\"]}}\n");
        }
        Ok::<_, std::io::Error>(text)
    });
    let before = resident();
    let body = Body::wrap_stream(futures_util::stream::iter(pieces));
    let answers = send(&place, Some("many"), body).await;
    let grown = resident().saturating_sub(before);

    let (problem, chunks) = answers.split_last().unwrap();
    assert_eq!(problem["code"], "invalid", "{problem}");
    assert_eq!(problem["at"], format!("line {BAD}/kind"));
    let kept = chunks.last().unwrap()["lines"].as_u64().unwrap();
    assert!(chunks.len() > 3 && kept < BAD && kept > BAD - 2 * 4_096, "{kept}");
    let new: u64 = chunks.iter().map(|chunk| chunk["new"].as_u64().unwrap()).sum();
    assert_eq!(new, kept);
    assert_eq!(place.get("/v1/status").await.ok()["jobs"], kept);
    // Some payloads are cached, and each job takes some memory; the rest is on disk.
    assert!(grown < 230 << 20, "{grown} bytes more");
}

#[tokio::test]
async fn slow_lines_are_answered_before_the_last_one() {
    let place = Place::start().await;
    let (sender, receiver) = tokio::sync::mpsc::channel::<std::io::Result<String>>(1);
    let body = futures_util::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|item| (item, receiver))
    });
    let request = place
        .request(Method::POST, "/v1/jobs")
        .header("content-type", "application/x-ndjson")
        .header("idempotency-key", "k")
        .body(Body::wrap_stream(body));
    let sending = tokio::spawn(request.send());
    sender.send(Ok("{\"kind\": \"a\"}\n".into())).await.unwrap();
    let mut response = sending.await.unwrap().unwrap();
    let first = response.chunk().await.unwrap().unwrap();
    assert_eq!(first, "{\"lines\":1,\"new\":1}\n");
    sender.send(Ok("{\"kind\": \"b\"}\n".into())).await.unwrap();
    drop(sender);
    let second = response.chunk().await.unwrap().unwrap();
    assert_eq!(second, "{\"lines\":2,\"new\":1}\n");
    assert_eq!(response.chunk().await.unwrap(), None);
}

#[tokio::test]
async fn an_invalid_or_conflicting_line_ends_the_request() {
    let place = Place::start().await;
    let answers = send(&place, Some("k"), "{\"kind\": \"a\"}\nnonsense\n").await;
    assert_eq!((&answers[0]["code"], &answers[0]["at"]), (&json!("malformed"), &json!("line 2")));
    let id = "01890000-0000-7000-8000-0000000000a1";
    place.submit(&json!({"id": id, "kind": "a"})).await;
    let answers = send(&place, None, format!("{{\"id\": \"{id}\", \"kind\": \"b\"}}\n")).await;
    assert_eq!(answers[0]["code"], "id-conflict");
    assert_eq!(answers.len(), 1);
}
