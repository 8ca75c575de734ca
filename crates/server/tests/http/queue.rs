//! One queue, closely; and taking out of it what waits.

use reqwest::Method;
use serde_json::json;

use crate::client::{Place, eventually};

#[tokio::test]
async fn a_queue_shows_its_jobs_and_what_limits_it() {
    let place = Place::start().await;
    place.get("/v1/queues/img").await.refused(404, "not-found");
    let first = place.submit(&json!({"kind": "k", "queue": "img"})).await;
    for job in [
        json!({"kind": "k", "queue": "img"}),
        json!({"kind": "k", "queue": "img", "at": "2099-01-01T00:00:00Z"}),
        json!({"kind": "k", "queue": "img", "after": [first]}),
        json!({"kind": "k", "queue": "other", "at": "2099-01-01T00:00:00Z"}),
    ] {
        place.submit(&job).await;
    }
    let seen = place.get("/v1/queues/img").await.ok();
    let depth = json!({"blocked": 1, "scheduled": 1, "queued": 2, "leased": 0, "running": 0});
    assert_eq!(seen["depth"], depth);
    assert_eq!(seen["oldest"]["id"], first.as_str());
    assert_eq!((&seen["why"]["code"], &seen["workers"]), (&json!("no-worker"), &json!(0)));

    let mut worker = place.worker("00000000000000a1");
    let claimed = worker.claim("10s").await.ok();
    let seen = place.get("/v1/queues/img").await.ok();
    assert_eq!(seen["depth"]["queued"], 1);
    assert_eq!(seen["holders"], json!([{"worker": "00000000000000a1", "held": 1}]));
    assert_eq!((&seen["why"]["code"], &seen["slots"]), (&json!("busy"), &json!(1)), "{seen}");

    let set = async |change| place.send(Method::PATCH, "/v1/queues/img", &change).await.ok();
    set(json!({"limit": 1})).await;
    assert_eq!(place.get("/v1/queues/img").await.ok()["why"]["code"], "limit");
    set(json!({"paused": true})).await;
    let why = &place.get("/v1/queues/img").await.ok()["why"];
    assert_eq!((&why["code"], &why["help"]), (&json!("paused"), &json!("filch queue resume img")));

    worker.report(&json!({"job": claimed["jobs"][0]["job"], "ending": "finished"})).await.ok();
    assert_eq!(place.get("/v1/queues/img").await.ok()["ended_last_minute"], 1);
    let idle = place.get("/v1/queues/other").await.ok();
    assert_eq!((&idle["why"]["code"], &idle["ended_last_minute"]), (&json!("idle"), &json!(0)));
}

#[tokio::test]
async fn a_queued_job_shows_how_many_are_ahead_and_the_throughput() {
    let place = Place::start().await;
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(place.submit(&json!({"kind": "k", "queue": "img"})).await);
    }
    let why = async |id: &str| place.job(id).await["why"].clone();
    let last = ids[19].as_str();
    assert_eq!(why(last).await["turn"], json!({"ahead": 19}), "no worker serves it");
    place.send(Method::PATCH, "/v1/queues/img", &json!({"limit": 1})).await.ok();
    let mut worker = place.worker("00000000000000a1");
    let mut claimed = worker.claim("10s").await.ok();
    let said = "queue img has 1 of 1 slots busy; 18 jobs ahead";
    assert_eq!(why(last).await["text"], said, "nothing has ended yet");
    for _ in 0..2 {
        let job = &claimed["jobs"][0]["job"];
        worker.report(&json!({"job": job, "ending": "finished"})).await.ok();
        claimed = worker.claim("10s").await.ok();
    }
    let seen = why(last).await;
    assert_eq!((&seen["code"], &seen["turn"]["ahead"]), (&json!("limit"), &json!(16)), "{seen}");
    let rate = seen["turn"]["per_minute"].as_u64().expect("two have ended");
    assert!((1..=60).contains(&rate), "two in a minute: {seen}");
    assert!(seen["turn"]["in_ms"].as_u64().is_some_and(|ms| ms >= 17_000), "{seen}");
    let text = seen["text"].as_str().expect("a sentence");
    assert!(text.contains("busy; 16 jobs ahead; about "), "{text}");
    let next = why(&ids[3]).await;
    assert!(next["text"].as_str().is_some_and(|text| text.contains("; it is next; about ")));
    // A pause stops it at any rate.
    place.send(Method::PATCH, "/v1/queues/img", &json!({"paused": true})).await.ok();
    assert_eq!(why(last).await["turn"], json!({"ahead": 16}));
}

#[tokio::test]
async fn a_purge_cancels_waiting_jobs_and_leaves_running_ones() {
    let place = Place::on_disk().await;
    let running = place.submit(&json!({"kind": "k", "queue": "q"})).await;
    let mut worker = place.worker("00000000000000a1");
    let claimed = worker.claim("10s").await.ok();
    worker.heartbeat().await.ok();
    // Jobs that are held for a while are reported as started.
    eventually("it runs", async || {
        worker.heartbeat().await.ok();
        place.job(&running).await["state"] == "running"
    })
    .await;
    let jobs: Vec<_> = (0..1_500).map(|_| json!({"kind": "k", "queue": "q"})).collect();
    let taken = place.post("/v1/jobs", &json!(jobs)).await.ok();
    let parent = taken["jobs"][3]["id"].as_str().unwrap().to_owned();
    let late =
        place.submit(&json!({"kind": "k", "queue": "q", "at": "2099-01-01T00:00:00Z"})).await;
    let child = place.submit(&json!({"kind": "k", "queue": "r", "after": [parent]})).await;
    let hopeful = json!({"kind": "k", "queue": "r", "after": [parent], "when": "all-done"});
    let hopeful = place.submit(&hopeful).await;
    let other = place.submit(&json!({"kind": "k", "queue": "r"})).await;

    let path = "/v1/queues/q/purge";
    let dry = json!({"dry_run": true});
    assert_eq!(place.post(path, &dry).await.ok(), json!({"count": 1_501}));
    let only = json!({"states": ["scheduled"]});
    assert_eq!(place.post(path, &only).await.ok(), json!({"count": 1}));
    assert_eq!(place.job(&late).await["state"], "cancelled");
    assert_eq!(place.post(path, &json!({})).await.ok(), json!({"count": 1_500}));
    assert_eq!(place.post(path, &json!({})).await.ok(), json!({"count": 0}));
    assert_eq!(place.job(&running).await["state"], "running");
    assert_eq!(place.job(&parent).await["state"], "cancelled");
    assert_eq!(place.job(&child).await["state"], "cancelled", "it asked for success");
    assert_eq!(place.job(&hopeful).await["state"], "queued", "it asked for an end");
    assert_eq!(place.job(&other).await["state"], "queued", "it is in another queue");

    let stopping = json!({"holds": worker.holds, "stopping": worker.holds});
    let running = json!({"states": ["running"]});
    let (purged, ()) = tokio::join!(place.post(path, &running), async {
        eventually("the worker gets the cancel", async || {
            let answer = place.post(&worker.path("heartbeat"), &stopping).await.ok();
            answer["cancel"] == json!([claimed["jobs"][0]["job"]])
        })
        .await;
    });
    assert_eq!(purged.ok(), json!({"count": 1}));
    place.post(path, &json!({"states": ["dead"]})).await.refused(422, "invalid");
    place.post(path, &json!({"states": []})).await.refused(422, "invalid");
    place.post(path, &json!({"state": "queued"})).await.refused(422, "invalid");
}
