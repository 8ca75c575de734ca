//! What happens, as server-sent events: in order, from where a reader left off, or anew.

use std::sync::Arc;

use filch_store::{OwnerNote, Sqlite};
use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::client::{LEASE, Place};

/// A reader of events.
struct Reader {
    response: Response,
    text: String,
}

/// One event: its id, its name and its data.
#[derive(Debug, Default)]
struct Event {
    id: String,
    name: String,
    data: Value,
}

impl Reader {
    async fn open(place: &Place, last: Option<&str>) -> Self {
        Self::ask(place, "", last).await
    }

    async fn ask(place: &Place, query: &str, last: Option<&str>) -> Self {
        let mut request = place.request(Method::GET, &format!("/v1/events{query}"));
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut reader = Self { response, text: String::new() };
        let begin = reader.next().await;
        assert!(begin.data.is_null() && !begin.id.is_empty(), "where it begins: {begin:?}");
        reader
    }

    /// What there is until the server has no more to tell.
    async fn rest(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(event) = self.try_next().await {
            events.push(event);
        }
        events
    }

    async fn next(&mut self) -> Event {
        self.try_next().await.expect("events go on")
    }

    async fn try_next(&mut self) -> Option<Event> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let mut read = Event::default();
                for line in event.lines() {
                    match line.split_once(": ").unwrap() {
                        ("id", id) => read.id = id.into(),
                        ("event", name) => read.name = name.into(),
                        ("data", data) => read.data = serde_json::from_str(data).unwrap(),
                        other => panic!("{other:?}"),
                    }
                }
                self.text = rest.to_owned();
                return Some(read);
            }
            let piece = self.response.chunk().await.unwrap()?;
            self.text += std::str::from_utf8(&piece).unwrap();
        }
    }
}

#[tokio::test]
async fn events_are_sent_in_order() {
    let place = Place::start().await;
    let mut reader = Reader::open(&place, None).await;
    let id = place.submit(&json!({"kind": "k", "queue": "q"})).await;
    let submitted = reader.next().await;
    let at = |event: &Event| event.data["at"].clone();
    assert_eq!(
        submitted.data,
        json!({"event": "submitted", "at": at(&submitted), "id": id, "seq": 1, "queue": "q", "kind": "k"})
    );
    let mut worker = place.worker("00000000000000a1");
    let claimed = worker.claim("10s").await.ok();
    let moved = reader.next().await;
    assert_eq!(
        moved.data,
        json!({"event": "moved", "at": at(&moved), "cause": "claim", "to": "00000000000000a1",
            "jobs": [1], "ids": [id]})
    );
    worker.report(&json!({"job": claimed["jobs"][0]["job"], "ending": "finished"})).await.ok();
    let changed = reader.next().await;
    assert_eq!(
        (&changed.data["event"], &changed.data["state"], &changed.data["id"]),
        (&json!("changed"), &json!("succeeded"), &json!(id))
    );
    assert_eq!(changed.data["attempts"], 1, "it was the first that succeeded");
    assert_eq!((&changed.data["queue"], &changed.data["kind"]), (&json!("q"), &json!("k")));
    assert!(submitted.id < moved.id && moved.id < changed.id);
}

#[tokio::test]
async fn a_reader_resumes_after_a_disconnect() {
    let place = Place::start().await;
    let mut cut = Reader::open(&place, None).await;
    place.submit(&json!({"kind": "a"})).await;
    let seen = cut.next().await;
    assert_eq!(seen.data["kind"], "a");
    drop(cut);
    // Events are held even without readers.
    place.submit(&json!({"kind": "b"})).await;
    place.submit(&json!({"kind": "c"})).await;
    let mut again = Reader::open(&place, Some(&seen.id)).await;
    assert_eq!(again.next().await.data["kind"], "b");
    assert_eq!(again.next().await.data["kind"], "c");
}

#[tokio::test]
async fn a_reader_that_was_away_too_long_gets_a_reset() {
    let place = Place::start().await;
    let mut reader = Reader::open(&place, None).await;
    place.submit(&json!({"kind": "a"})).await;
    let seen = reader.next().await;
    drop(reader);
    // More than are held.
    for _ in 0..2 {
        let jobs: Vec<Value> = (0..9_000).map(|_| json!({"kind": "b"})).collect();
        place.post("/v1/jobs", &Value::from(jobs)).await.ok();
    }
    let mut again = Reader::open(&place, Some(&seen.id)).await;
    assert_eq!(again.next().await.name, "reset");
    assert_eq!(again.next().await.data["kind"], "b", "held events are sent at once");
    for id in ["0.0", "nonsense"] {
        let mut again = Reader::open(&place, Some(id)).await;
        let reset = again.next().await;
        assert_eq!((reset.name.as_str(), &reset.data), ("reset", &json!({})));
        assert!(!again.next().await.id.is_empty());
    }
    // One that is of another store.
    let mut again = Reader::open(&place, Some("999999999.0")).await;
    assert_eq!(again.next().await.name, "reset");
    place.submit(&json!({"kind": "after"})).await;
    assert_eq!(again.next().await.data["kind"], "after");
}

#[tokio::test]
async fn only_requested_events_are_sent() {
    let place = Place::start().await;
    let a = place.submit(&json!({"kind": "a", "queue": "q"})).await;
    let b = place.submit(&json!({"kind": "b", "queue": "q"})).await;
    place.submit(&json!({"kind": "a", "queue": "r"})).await;
    let mut worker = place.worker("00000000000000a1");
    worker.slots = 3;
    let mut jobs = Vec::new();
    while jobs.len() < 3 {
        jobs.extend(worker.claim("10s").await.ok()["jobs"].as_array().unwrap().clone());
    }
    for job in &jobs {
        worker.report(&json!({"job": job["job"], "ending": "finished"})).await.ok();
    }
    let past = async |query: &str| {
        let query = format!("?follow=false&since=2019-01-01T00:00:00Z{query}");
        let events = Reader::ask(&place, &query, None).await.rest().await;
        // Its store is new, so this server has seen every event.
        assert!(events.iter().all(|event| event.name != "reset"), "{events:?}");
        events.into_iter().map(|event| event.data).collect::<Vec<_>>()
    };
    let words = |events: &[Value]| {
        let word = |event: &Value| match event["event"].as_str().unwrap() {
            "moved" => event["ids"].to_string(),
            "changed" => event["state"].as_str().unwrap().to_owned(),
            other => other.to_owned(),
        };
        events.iter().map(word).collect::<Vec<String>>()
    };
    let whole =
        |id: &str| ["submitted".to_owned(), json!([id]).to_string(), "succeeded".to_owned()];
    assert_eq!(words(&past("&kind=b").await), whole(&b));
    assert_eq!(words(&past(&format!("&job={a}")).await), whole(&a));
    assert_eq!(words(&past("&queue=q&kind=a").await), whole(&a));
    assert_eq!(past("&queue=nothing").await, [Value::Null; 0]);
    let of_worker = past("&worker=00000000000000a1").await;
    assert!(of_worker.iter().all(|event| event["event"] == "moved"), "{of_worker:?}");
    assert_eq!(past("&worker=00000000000000a2").await, [Value::Null; 0]);
    let all = past("").await;
    assert_eq!(all.iter().filter(|event| event["event"] == "changed").count(), 3);

    // From a moment on: nothing happened after that, and nothing was missed.
    let later = "?follow=false&since=2099-01-01T00:00:00Z";
    assert_eq!(Reader::ask(&place, later, None).await.rest().await.len(), 0);
    let first = all[0]["at"].as_str().unwrap();
    for (query, code, status) in [
        ("job=7", "bad-id", 400),
        ("worker=7", "bad-id", 400),
        ("since=now", "invalid", 422),
        ("qeue=q", "bad-query", 400),
    ] {
        place.get(&format!("/v1/events?{query}")).await.refused(status, code);
    }
    assert!(first.ends_with('Z'), "{first}");
}

#[tokio::test]
async fn events_from_before_a_restart_are_reported_as_gone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("filch.db");
    let open = || Arc::new(Sqlite::open(&file, &OwnerNote::this_process()).unwrap());
    let past = "?follow=false&since=2019-01-01T00:00:00Z";
    // Whoever still has the store of a server that was stopped does not keep the next one out of
    // it.
    let mut kept = Vec::new();
    for (is_first, names) in [(true, &[""][..]), (false, &["reset", ""][..])] {
        kept.push(open());
        let store = Arc::clone(kept.last().unwrap());
        let place = Place::with(store, LEASE, None).await;
        place.submit(&json!({"kind": "k", "key": is_first.to_string()})).await;
        let events = Reader::ask(&place, past, None).await.rest().await;
        let seen: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(seen, names);
        place.server.stop().await;
    }
}

#[tokio::test]
async fn the_history_of_a_job_is_shown_in_order() {
    let place = Place::on_disk().await;
    let mut worker = place.worker("00000000000000a1");
    let job = json!({"kind": "k", "retry": {"max": 2, "backoff": "none"}});
    let id = place.submit(&job).await;
    let job = worker.claim("10s").await.ok()["jobs"][0]["job"].clone();
    worker.report(&json!({"job": job, "ending": "failed", "error": "no luck"})).await.ok();
    let job = worker.claim("10s").await.ok()["jobs"][0]["job"].clone();
    worker.report(&json!({"job": job, "ending": "finished"})).await.ok();
    let seen = place.get(&format!("/v1/jobs/{id}/events")).await.ok();
    assert_eq!(
        (&seen["id"], &seen["state"], &seen["ended"]),
        (&json!(id), &json!("succeeded"), &json!(true))
    );
    let events = seen["events"].as_array().unwrap();
    let words: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(words[0], "submitted");
    assert_eq!(*words.last().unwrap(), "succeeded");
    assert_eq!(words.iter().filter(|word| **word == "claimed").count(), 2, "{words:?}");
    let failed = events.iter().find(|event| event["event"] == "attempt-failed").unwrap();
    assert_eq!(
        (&failed["error"], &failed["worker"]),
        (&json!("no luck"), &json!("00000000000000a1"))
    );
    let failed_at = words.iter().position(|word| *word == "attempt-failed");
    let claims = words.iter().enumerate().filter(|(_, word)| **word == "claimed");
    let second_claim = claims.map(|(place, _)| place).nth(1);
    assert!(failed_at < second_claim, "an attempt fails before the next begins: {words:?}");
    place
        .get("/v1/jobs/01890000-0000-7000-8000-00000000ffff/events")
        .await
        .refused(404, "not-found");
}

#[tokio::test]
async fn a_stream_ends_when_the_server_stops() {
    let place = Place::start().await;
    let mut reader = Reader::open(&place, None).await;
    place.server.stop().await;
    while let Ok(Some(_)) = reader.response.chunk().await {}
}
