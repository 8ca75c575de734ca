//! What happens, as server-sent events: in order, from where a reader left off, or anew.

use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::client::{Place, eventually};

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
        let mut request = place.request(Method::GET, "/v1/events");
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, text: String::new() }
    }

    async fn next(&mut self) -> Event {
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
                return read;
            }
            let piece = self.response.chunk().await.unwrap().expect("events go on");
            self.text += std::str::from_utf8(&piece).unwrap();
        }
    }
}

#[tokio::test]
async fn what_happens_is_told_in_order() {
    let place = Place::start().await;
    let mut reader = Reader::open(&place, None).await;
    let id = place.submit(&json!({"kind": "k", "queue": "q"})).await;
    let submitted = reader.next().await;
    assert_eq!(
        submitted.data,
        json!({"event": "submitted", "id": id, "seq": 1, "queue": "q", "kind": "k"})
    );
    let mut worker = place.worker("00000000000000a1");
    let claimed = worker.claim("10s").await.ok();
    let moved = reader.next().await;
    assert_eq!(
        moved.data,
        json!({"event": "moved", "cause": "claim", "to": "00000000000000a1", "jobs": [1]})
    );
    worker.report(&json!({"job": claimed["jobs"][0]["job"], "ending": "finished"})).await.ok();
    let changed = reader.next().await;
    assert_eq!(
        (&changed.data["event"], &changed.data["state"]),
        (&json!("changed"), &json!("succeeded"))
    );
    assert!(submitted.id < moved.id && moved.id < changed.id);
}

#[tokio::test]
async fn a_reader_goes_on_where_it_was_cut_off_as_long_as_somebody_listened() {
    let place = Place::start().await;
    let mut first = Reader::open(&place, None).await;
    let mut cut = Reader::open(&place, None).await;
    place.submit(&json!({"kind": "a"})).await;
    let seen = cut.next().await;
    assert_eq!(seen.data["kind"], "a");
    drop(cut);
    place.submit(&json!({"kind": "b"})).await;
    place.submit(&json!({"kind": "c"})).await;
    let mut again = Reader::open(&place, Some(&seen.id)).await;
    assert_eq!(again.next().await.data["kind"], "b");
    assert_eq!(again.next().await.data["kind"], "c");
    assert_eq!(first.next().await.data["kind"], "a");
}

#[tokio::test]
async fn whoever_was_away_too_long_is_told_to_look_anew() {
    let place = Place::start().await;
    let mut reader = Reader::open(&place, None).await;
    place.submit(&json!({"kind": "a"})).await;
    let seen = reader.next().await;
    drop(reader);
    // Without listeners nothing is held. That nobody listens is noticed with the next event.
    eventually("nobody listens any more", async || {
        place.submit(&json!({"kind": "b"})).await;
        let mut again = Reader::open(&place, Some(&seen.id)).await;
        let is_reset = again.next().await.name == "reset";
        drop(again);
        is_reset
    })
    .await;
    for id in ["0.0", "nonsense"] {
        let mut again = Reader::open(&place, Some(id)).await;
        let reset = again.next().await;
        assert_eq!((reset.name.as_str(), &reset.data), ("reset", &json!({})));
        place.submit(&json!({"kind": "after"})).await;
        let next = again.next().await;
        assert_eq!(next.data["kind"], "after", "{next:?}");
        assert!(!next.id.is_empty());
    }
}

#[tokio::test]
async fn a_stream_ends_when_the_server_stops() {
    let place = Place::start().await;
    let mut reader = Reader::open(&place, None).await;
    place.server.stop().await;
    while let Ok(Some(_)) = reader.response.chunk().await {}
}
