//! Queues, the order of work, workers, and the server itself.

use reqwest::Method;
use serde_json::json;

use crate::client::{Place, eventually};

#[tokio::test]
async fn queues_have_pauses_limits_and_weights() {
    let place = Place::start().await;
    assert_eq!(place.get("/v1/queues").await.ok(), json!({"queues": []}));
    let usual = json!({"paused": false, "limit": 0, "weight": 1});
    let unchanged = place.send(Method::PATCH, "/v1/queues/new", &usual).await.ok();
    let new =
        json!({"name": "new", "paused": false, "limit": null, "weight": 1, "ready": 0, "owned": 0});
    assert_eq!(unchanged, new, "as it would be in any case");
    let queue = "/v1/queues/im%C3%A4ge%2F1";
    let change = json!({"paused": true, "limit": 2, "weight": 3});
    let changed = place.send(Method::PATCH, queue, &change).await.ok();
    let whole =
        json!({"name": "imäge/1", "paused": true, "limit": 2, "weight": 3, "ready": 0, "owned": 0});
    assert_eq!(changed, whole);
    assert_eq!(place.get("/v1/queues").await.ok()["queues"], json!([whole]));

    place.submit(&json!({"kind": "k", "queue": "imäge/1"})).await;
    let mut worker = place.worker("00000000000000a1");
    assert_eq!(worker.claim("0s").await.ok()["jobs"], json!([]), "nothing is taken from it");
    place.send(Method::PATCH, queue, &json!({"paused": false, "limit": 0})).await.ok();
    assert_eq!(worker.claim("10s").await.ok()["jobs"].as_array().unwrap().len(), 1);
    let queue_now = place.get("/v1/queues").await.ok()["queues"][0].clone();
    assert_eq!((&queue_now["owned"], &queue_now["limit"]), (&json!(1), &json!(null)));

    let problem = place.send(Method::PATCH, queue, &json!({"weight": 0})).await;
    assert_eq!(problem.refused(422, "invalid")["at"], "/weight");
    place.send(Method::PATCH, queue, &json!({"pause": true})).await.refused(422, "invalid");
    place.send(Method::PATCH, queue, &json!([true, 2, 3])).await.refused(422, "invalid");
    place.send(Method::PATCH, "/v1/queues/%FF", &change).await.refused(400, "bad-path");
    place.send(Method::PATCH, "/v1/queues/%00", &change).await.refused(422, "invalid");
}

#[tokio::test]
async fn the_strategy_can_be_changed() {
    let place = Place::start().await;
    assert_eq!(place.get("/v1/strategy").await.ok(), json!({"strategy": "priority"}));
    for strategy in ["fifo", "round-robin", "fair", "priority"] {
        let wanted = json!({"strategy": strategy});
        assert_eq!(place.send(Method::PUT, "/v1/strategy", &wanted).await.ok(), wanted);
        assert_eq!(place.get("/v1/strategy").await.ok(), wanted);
    }
    let wanted = json!({"strategy": "luck"});
    let problem = place.send(Method::PUT, "/v1/strategy", &wanted).await.refused(422, "invalid");
    assert!(problem["title"].as_str().unwrap().contains("fifo"), "{problem}");

    place.send(Method::PUT, "/v1/strategy", &json!({"strategy": "fifo"})).await.ok();
    place.submit(&json!({"kind": "first"})).await;
    place.submit(&json!({"kind": "urgent", "priority": 100})).await;
    let mut worker = place.worker("00000000000000a1");
    assert_eq!(worker.claim("10s").await.ok()["jobs"][0]["kind"], "first");
}

#[tokio::test]
async fn workers_are_listed_and_drained() {
    let place = Place::start().await;
    let mut worker = place.worker("00000000000000a1");
    worker.slots = 3;
    place.submit(&json!({"kind": "k"})).await;
    worker.claim("10s").await.ok();
    let listed = place.get("/v1/workers").await.ok()["workers"][0].clone();
    let expected = json!({"id": "00000000000000a1", "state": "connected", "slots": 3, "held": 1, "waiting": 1});
    assert_eq!(listed, expected);
    place.poke("/v1/workers/00000000000000a1/drain").await.ok();
    assert_eq!(place.get("/v1/workers").await.ok()["workers"][0]["state"], "draining");
    assert_eq!(worker.heartbeat().await.ok()["drain"], true);
    let claimed = worker.claim("10s").await.ok();
    assert_eq!((&claimed["drain"], &claimed["jobs"]), (&json!(true), &json!([])));
    worker.goodbye().await.ok();
    assert_eq!(place.get("/v1/workers").await.ok(), json!({"workers": []}));
    place.poke("/v1/workers/00000000000000a1/drain").await.refused(404, "not-found");
    place.poke("/v1/workers/a1/drain").await.refused(400, "bad-id");
}

#[tokio::test]
async fn the_status_of_the_server_is_shown() {
    let place = Place::on_disk().await;
    assert_eq!(place.get("/healthz").await.ok(), json!("ok\n"));
    assert_eq!(place.get("/readyz").await.ok(), json!("ok\n"));
    place.submit(&json!({"kind": "k"})).await;
    let status = place.get("/v1/status").await.ok();
    assert_eq!((&status["jobs"], &status["lease_ms"]), (&json!(1), &json!(600_000)));
    assert!(status["syncs"].as_u64().unwrap() > 0);
    place.server.stop().await;
    let refused = place.request(Method::GET, "/v1/status").send().await;
    assert!(refused.is_err(), "the server does not listen any more");
}

#[tokio::test]
async fn requests_that_wait_are_answered_when_the_server_stops() {
    let place = Place::start().await;
    let id = place.submit(&json!({"kind": "k", "queue": "other"})).await;
    let path = format!("/v1/jobs/{id}?wait=60s");
    let claim = json!({"number": 1, "slots": 1, "wait": "60s", "queues": ["none"]});
    let waited = std::time::Instant::now();
    let (job, claimed, ()) = tokio::join!(
        place.get(&path),
        place.post("/v1/work/00000000000000a1/claim", &claim),
        async {
            eventually("both have arrived", async || {
                place.get("/v1/workers").await.ok()["workers"][0]["id"] == "00000000000000a1"
            })
            .await;
            place.server.stop().await;
        }
    );
    job.refused(503, "stopping");
    claimed.refused(503, "stopping");
    assert!(waited.elapsed() < std::time::Duration::from_secs(60), "neither waited to its end");
}
