//! What running jobs print, and whose word counts for it.

use filch_api::session::UpFrame;
use filch_scheduler::id::MessageNo;
use filch_scheduler::message::ToWorker;
use filch_server::Embedded;
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::Place;

const OWNER: &str = "80000000000000a1";
const OTHER: &str = "80000000000000b2";

/// A worker by hand, over a connection within the process.
struct Worker {
    id: &'static str,
    said: u64,
    wire: Embedded,
}

impl Worker {
    async fn come(place: &Place, id: &'static str, want: u32) -> Self {
        let mut worker = Self { id, said: 0, wire: place.server.connect() };
        worker.say(json!({"hello": {"kind": "new", "slots": 1, "want": want}})).await;
        worker
    }

    /// Sends a message, and waits for its acknowledgement.
    async fn say(&mut self, message: Value) {
        self.said += 1;
        let frame =
            json!({"worker": self.id, "session": 1, "number": self.said, "messages": [message]});
        self.send(frame).await;
        let renewed = ToWorker::Renewed(MessageNo(self.said));
        while !self.wire.down.recv().await.unwrap().messages.contains(&renewed) {}
    }

    /// Sends output of a job, and waits until it was received.
    async fn print(&mut self, name: &str, job: [u64; 2], text: &str) {
        let output = json!([{"job": job, "stream": "stdout", "text": text}]);
        self.send(json!({"worker": name, "session": 0, "output": output})).await;
        self.say(json!("heartbeat")).await;
    }

    async fn send(&self, frame: Value) {
        let frame: UpFrame = serde_json::from_value(frame).unwrap();
        self.wire.up.send(frame).await.unwrap();
    }
}

async fn log(place: &Place, id: &str) -> String {
    let request = place.request(Method::GET, &format!("/v1/jobs/{id}/log"));
    let lines = request.send().await.unwrap().text().await.unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.map(|line| line["text"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn only_the_owner_of_a_job_adds_output() {
    let place = Place::start().await;
    let mut owner = Worker::come(&place, OWNER, 1).await;
    let mut other = Worker::come(&place, OTHER, 0).await;
    let id = place.submit(&json!({"kind": "k"})).await;
    assert_eq!(place.job(&id).await["state"], "leased");

    other.print(OTHER, [1, 1], "not its job").await;
    other.print(OTHER, [1, u64::MAX], "not its job").await;
    other.print(OTHER, [2, 1], "no job").await;
    owner.print(OWNER, [1, 2], "no such fence").await;
    assert_eq!(log(&place, &id).await, "");
    owner.print(OWNER, [1, 1], "mine").await;
    assert_eq!(log(&place, &id).await, "mine");
    other.print(OWNER, [1, 1], "in another's name").await;
    assert_eq!(log(&place, &id).await, "mine");

    owner.say(json!({"finished": [[1, 1]]})).await;
    place.ended(&id).await;
    owner.print(OWNER, [1, 1], "too late").await;
    assert_eq!(log(&place, &id).await, "mine");
}

#[tokio::test]
async fn only_the_owner_of_a_job_sets_its_result() {
    let place = Place::start().await;
    let mut owner = Worker::come(&place, OWNER, 1).await;
    let mut other = Worker::come(&place, OTHER, 0).await;
    let id = place.submit(&json!({"kind": "k"})).await;
    assert_eq!(place.job(&id).await["state"], "leased");

    // Both on their way at once: the owner's end is decided while the other has not been answered.
    other.said += 1;
    let forged = json!({"job": [1, 1], "ending": "finished", "result": "forged"});
    let forged = json!({"worker": OTHER, "session": 1, "number": other.said,
        "messages": [{"report": forged}]});
    other.send(forged).await;
    owner.say(json!({"finished": [[1, 1]]})).await;
    let ended = place.ended(&id).await;
    assert_eq!(ended["result"], Value::Null, "{ended}");
}
