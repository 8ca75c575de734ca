//! Submitting jobs, looking at them, and what can be done to them.

use reqwest::Method;
use serde_json::{Value, json};

use crate::client::{Place, eventually, read};

const ID: &str = "01890000-0000-7000-8000-0000000000a1";

#[tokio::test]
async fn a_job_is_shown_as_it_was_submitted() {
    let place = Place::start().await;
    let text = r#"{"kind": "resize", "args": {"big": 12345678901234567890123, "b": [1,  2]},
        "queue": "img", "priority": 7, "retry": 5, "timeout": "90s", "key": "once"}"#;
    let request =
        place.request(Method::POST, "/v1/jobs").header("content-type", "application/json");
    let answer = read(request.body(text).send().await.unwrap()).await;
    assert_eq!(answer.status, 201);
    let receipt = answer.ok();
    assert_eq!((&receipt["seq"], &receipt["new"]), (&json!(1), &json!(true)));

    let id = receipt["id"].as_str().unwrap();
    let request = place.request(Method::GET, &format!("/v1/jobs/{id}"));
    let shown = request.send().await.unwrap().text().await.unwrap();
    assert!(shown.contains(r#""args":{"big": 12345678901234567890123, "b": [1,  2]}"#), "{shown}");
    let job = place.job(id).await;
    for (field, value) in [
        ("state", json!("queued")),
        ("queue", json!("img")),
        ("kind", json!("resize")),
        ("priority", json!(7)),
        ("timeout", json!("1m30s")),
        ("key", json!("once")),
        ("attempts", json!(0)),
    ] {
        assert_eq!(job[field], value, "{field}");
    }
    assert_eq!(job["retry"]["max"], 5);
    assert_eq!(job["why"]["code"], "no-worker");
    // The end of an id is enough.
    assert_eq!(place.job(&id[28..]).await["id"], id);
}

#[tokio::test]
async fn the_same_id_is_the_same_job_and_another_body_a_conflict() {
    let place = Place::start().await;
    let job = json!({"id": ID, "kind": "k"});
    assert_eq!(place.post("/v1/jobs", &job).await.status, 201);
    let again = place.post("/v1/jobs", &job).await;
    assert_eq!(again.status, 200);
    let again = again.ok();
    assert_eq!((&again["id"], &again["new"]), (&json!(ID), &json!(false)));
    let other = json!({"id": ID, "kind": "other"});
    place.post("/v1/jobs", &other).await.refused(409, "id-conflict");

    let keyed = json!({"kind": "k", "key": "once"});
    let first = place.post("/v1/jobs", &keyed).await.ok();
    let second = place.post("/v1/jobs", &keyed).await.ok();
    assert_eq!((&first["id"], &second["new"]), (&second["id"], &json!(false)));
    let other = json!({"kind": "k", "key": "once", "args": 1});
    place.post("/v1/jobs", &other).await.refused(409, "key-conflict");
}

#[tokio::test]
async fn ids_are_derived_from_the_idempotency_key() {
    let place = Place::start().await;
    let submit = async |body: Value, key: &str| {
        let request = place.request(Method::POST, "/v1/jobs").header("idempotency-key", key);
        read(request.json(&body).send().await.unwrap()).await
    };
    let one = submit(json!({"kind": "k"}), "a").await.ok();
    let again = submit(json!({"kind": "k"}), "a").await.ok();
    assert_eq!((&one["id"], &again["new"]), (&again["id"], &json!(false)));
    submit(json!({"kind": "other"}), "a").await.refused(409, "id-conflict");

    let array = json!([{"kind": "k"}, {"kind": "l"}]);
    let first = submit(array.clone(), "b").await.ok();
    let second = submit(array, "b").await.ok();
    assert_eq!(first["jobs"][1]["id"], second["jobs"][1]["id"]);
    assert_eq!(second["jobs"][1]["new"], false);
    assert_ne!(first["jobs"][0]["id"], one["id"]);
}

#[tokio::test]
async fn an_array_is_submitted_all_or_none() {
    let place = Place::start().await;
    let array = json!([{"kind": "a"}, {"run": ["true"]}, {"kind": "c"}]);
    let answer = place.post("/v1/jobs", &array).await;
    assert_eq!(answer.status, 201);
    let jobs = answer.ok()["jobs"].as_array().unwrap().len();
    assert_eq!(jobs, 3);

    let bad = json!([{"kind": "a"}, {"kind": "b", "retry": {"max": 0}}]);
    let problem = place.post("/v1/jobs", &bad).await.refused(422, "invalid");
    assert_eq!(problem["at"], "/1/retry/max");
    let bad = json!([{"kind": "a"}, {"kind": "b", "colour": "red"}]);
    let problem = place.post("/v1/jobs", &bad).await.refused(422, "invalid");
    assert_eq!(problem["at"], "/1");
    let loose = json!([{"kind": "a"}, {"kind": "b", "after": [ID]}]);
    place.post("/v1/jobs", &loose).await.refused(404, "unknown-parent");
    let all = place.get("/v1/jobs").await.ok();
    assert_eq!(all["jobs"].as_array().unwrap().len(), 3, "what was refused left nothing behind");
}

#[tokio::test]
async fn a_job_is_run_cancelled_prioritised_and_retried() {
    let place = Place::start().await;
    let waiting = place.submit(&json!({"kind": "k", "at": "2099-01-01T00:00:00Z"})).await;
    assert_eq!(place.job(&waiting).await["state"], "scheduled");
    let path = format!("/v1/jobs/{waiting}/priority");
    place.send(Method::PUT, &path, &json!({"priority": -3})).await.ok();
    assert_eq!(place.job(&waiting).await["priority"], -3);
    place.poke(&format!("/v1/jobs/{waiting}/cancel")).await.ok();
    let job = place.job(&waiting).await;
    assert_eq!((&job["state"], &job["reason"]), (&json!("cancelled"), &json!("request")));
    place.poke(&format!("/v1/jobs/{waiting}/cancel")).await.ok();
    place.poke(&format!("/v1/jobs/{waiting}/retry")).await.refused(409, "wrong-state");
    place.send(Method::PUT, &path, &json!({"priority": 1})).await.refused(409, "wrong-state");

    let mut worker = place.worker("00000000000000a1");
    let job = json!({"kind": "k", "retry": {"max": 1}});
    let dead = place.submit_dead(&mut worker, &job).await;
    let shown = place.job(&dead).await;
    assert_eq!((&shown["state"], &shown["error"]), (&json!("dead"), &json!("no")));
    place.poke(&format!("/v1/jobs/{dead}/cancel")).await.refused(409, "wrong-state");
    place.poke(&format!("/v1/jobs/{dead}/retry")).await.ok();
    let claimed = worker.claim("10s").await.ok();
    let hold = &claimed["jobs"][0]["job"];
    worker.report(&json!({"job": hold, "ending": "finished", "result": {"n": 1}})).await.ok();
    let shown = place.ended(&dead).await;
    assert_eq!((&shown["state"], &shown["result"]), (&json!("succeeded"), &json!({"n": 1})));
    assert_eq!(shown["ledger"].as_array().unwrap().len(), 2);
    assert_eq!(shown["failures"].as_array().unwrap().len(), 1);

    let nobody = "/v1/jobs/01890000-0000-7000-8000-00000000ffff";
    place.get(nobody).await.refused(404, "not-found");
    place.poke(&format!("{nobody}/cancel")).await.refused(404, "not-found");
    place.get("/v1/jobs/zz").await.refused(400, "bad-id");
    place.get("/v1/jobs/ffff").await.refused(404, "not-found");
}

#[tokio::test]
async fn a_job_that_a_worker_could_not_start_shows_why() {
    let place = Place::start().await;
    let id = place.submit(&json!({"kind": "k"})).await;
    let mut worker = place.worker("00000000000000a1");
    let hold = worker.claim("10s").await.ok()["jobs"][0]["job"].clone();
    let error = "cannot make a file for the result in /nonesuch";
    // Without slots, so that it does not get the job again.
    worker.slots = 0;
    worker.report(&json!({"job": hold, "ending": "unstarted", "error": error})).await.ok();
    worker.claim("0s").await.ok();
    eventually("it is queued", async || place.job(&id).await["state"] == "queued").await;
    let job = place.job(&id).await;
    let why = job["why"]["text"].as_str().unwrap();
    assert!(why.ends_with(&format!("; worker {} could not start it: {error}", worker.id)), "{why}");
    assert_eq!(job["ledger"][0]["error"], error, "{job}");
    assert_eq!(job["ledger"][0]["outcome"], "unstarted", "{job}");
    // Once another worker has it, that is history.
    let mut other = place.worker("00000000000000a2");
    other.claim("10s").await.ok();
    let job = place.job(&id).await;
    assert!(!job["why"]["text"].as_str().unwrap().contains(error), "{job}");
}

#[tokio::test]
async fn waiting_for_a_job_ends_with_the_job() {
    let place = Place::start().await;
    let id = place.submit(&json!({"kind": "k"})).await;
    let started = std::time::Instant::now();
    let job = place.get(&format!("/v1/jobs/{id}?wait=50ms")).await.ok();
    assert_eq!(job["state"], "queued");
    assert!(started.elapsed() >= std::time::Duration::from_millis(50));
    place.get(&format!("/v1/jobs/{id}?wait=soon")).await.refused(422, "invalid");

    let path = format!("/v1/jobs/{id}?wait=30s");
    let (job, ()) = tokio::join!(place.get(&path), async {
        let mut worker = place.worker("00000000000000a1");
        let claimed = worker.claim("10s").await.ok();
        worker.report(&json!({"job": claimed["jobs"][0]["job"], "ending": "finished"})).await.ok();
    });
    assert_eq!(job.ok()["state"], "succeeded");
}

#[tokio::test]
async fn lists_go_in_both_directions_and_are_filtered() {
    for place in [Place::start().await, Place::on_disk().await] {
        let jobs: Vec<Value> = (0..10)
            .map(|index| json!({"kind": format!("k{}", index % 2), "queue": format!("q{}", index % 5)}))
            .collect();
        place.post("/v1/jobs", &Value::from(jobs)).await.ok();
        let seqs = async |query: &str| {
            let page = place.get(&format!("/v1/jobs?{query}")).await.ok();
            let jobs = page["jobs"].as_array().unwrap();
            let seqs: Vec<u64> = jobs.iter().map(|job| job["seq"].as_u64().unwrap()).collect();
            (seqs, page["next"].as_u64())
        };
        assert_eq!(seqs("limit=4").await, (vec![1, 2, 3, 4], Some(4)));
        assert_eq!(seqs("limit=4&after=4").await, (vec![5, 6, 7, 8], Some(8)));
        assert_eq!(seqs("limit=4&after=8").await, (vec![9, 10], None));
        assert_eq!(seqs("limit=4&before=0").await, (vec![10, 9, 8, 7], Some(7)));
        assert_eq!(seqs("limit=9&before=4").await, (vec![3, 2, 1], None));
        assert_eq!(seqs("kind=k1&queue=q1").await, (vec![2], None));
        assert_eq!(seqs("state=dead").await, (vec![], None));
        assert_eq!(seqs("state=QUEUED,dead").await.0.len(), 10);
        assert_eq!(seqs("since=2099-01-01T00:00:00Z").await, (vec![], None));
        assert_eq!(seqs("since=2019-01-01T00:00:00Z").await.0.len(), 10);

        let mut worker = place.worker("00000000000000a1");
        worker.claim("10s").await.ok();
        worker.heartbeat().await.ok();
        eventually("a job runs", async || seqs("state=RUNNING").await.0 == [1]).await;
        assert_eq!(seqs("state=queued").await.0.len(), 9);

        place.get("/v1/jobs?after=1&before=2").await.refused(422, "invalid");
        place.get("/v1/jobs?state=happy").await.refused(422, "invalid");
        place.get("/v1/jobs?since=yesterday").await.refused(422, "invalid");
        let problem = place.get("/v1/jobs?sate=dead").await.refused(400, "bad-query");
        assert!(problem["title"].as_str().unwrap().contains("`sate`"), "{problem}");
        let problem = place.get("/v1/jobs?limit=many").await.refused(400, "bad-query");
        assert!(problem["title"].as_str().unwrap().contains("limit"), "{problem}");
    }
}

#[tokio::test]
async fn the_output_of_a_job_is_stored_and_shown() {
    let place = Place::start().await;
    let id = place.submit(&json!({"kind": "k"})).await;
    let mut worker = place.worker("00000000000000a1");
    let claimed = worker.claim("10s").await.ok();
    let hold = &claimed["jobs"][0]["job"];
    let path = format!("/v1/jobs/{id}/log?follow=true");
    let (log, _) = tokio::join!(place.get(&path), async {
        worker.report(&json!({"job": hold, "ending": "finished", "log": "hello\n"})).await.ok()
    });
    assert_eq!(log.kind, "application/x-ndjson");
    assert_eq!(log.ok(), json!({"stream": "stdout", "text": "hello\n"}));
    let log = place.get(&format!("/v1/jobs/{id}/log")).await.ok();
    assert_eq!(log["text"], "hello\n");
    place.get("/v1/jobs/01890000-0000-7000-8000-00000000ffff/log").await.refused(404, "not-found");
    place.get(&format!("/v1/jobs/{id}/log?tail=5")).await.refused(400, "bad-query");
}
