//! Working over plain HTTP: claims, heartbeats, reports, and everything that can go wrong with
//! them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use filch_store::{Store, Transient};
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::{LEASE, Place, eventually, with_instance};

#[tokio::test]
async fn a_worker_claims_runs_and_reports() {
    let place = Place::start().await;
    let job = json!({"run": ["echo", "hi"], "env": {"A": "1"}, "args": [1], "timeout": "5s"});
    let id = place.submit(&job).await;
    let mut worker = place.worker("00000000000000a1");
    let mut claimed = worker.claim("10s").await.ok();
    // The rank depends on when the job was submitted.
    let assignment = claimed["jobs"][0].as_object_mut().unwrap();
    assert!(assignment.remove("era").is_some_and(|era| era.is_u64()));
    assert!(assignment.remove("rank").is_some_and(|rank| rank.is_i64()));
    let expected = json!({
        "jobs": [{"job": [1, 1], "id": id, "queue": "default", "kind": "command", "attempt": 1,
            "timeout_ms": 5_000, "work": {"run": ["echo", "hi"], "args": [1], "env": {"A": "1"}}}],
        "cancel": [], "drain": false, "lease_ms": 600_000
    });
    assert_eq!(claimed, expected);
    assert_eq!(place.job(&id).await["state"], "leased");
    let answer = worker.heartbeat().await.ok();
    let expected = json!({"keep": [[1, 1]], "cancel": [], "drain": false, "lease_ms": 600_000});
    assert_eq!(answer, expected);
    eventually("it runs", async || place.job(&id).await["state"] == "running").await;
    let report = json!({"job": [1, 1], "ending": "finished", "result": 7});
    let answered = worker.report(&report).await.ok();
    assert_eq!(answered, json!({"accepted": [[1, 1]], "refused": []}));
    // Once more: the answer may have been lost.
    assert_eq!(worker.report(&report).await.ok(), json!({"accepted": [[1, 1]], "refused": []}));
    assert_eq!(place.job(&id).await["result"], 7);
    worker.goodbye().await.ok();
    worker.goodbye().await.ok();
    assert_eq!(place.get("/v1/workers").await.ok(), json!({"workers": []}));
}

#[tokio::test]
async fn a_claim_waits_for_a_job_until_its_timeout() {
    let place = Place::start().await;
    let mut worker = place.worker("00000000000000a1");
    let before = Instant::now();
    assert_eq!(worker.claim("0s").await.ok()["jobs"], json!([]));
    assert_eq!(worker.claim("100ms").await.ok()["jobs"], json!([]));
    assert!(before.elapsed() >= Duration::from_millis(100));
    let (claimed, id) =
        tokio::join!(worker.claim("60s"), async { place.submit(&json!({"kind": "k"})).await });
    assert_eq!(claimed.ok()["jobs"][0]["id"], id.as_str());
    // Without a free slot there is nothing to wait for.
    let before = Instant::now();
    assert_eq!(worker.claim("60s").await.ok()["jobs"], json!([]));
    assert!(before.elapsed() < Duration::from_secs(60), "it did not wait to its end");
}

#[tokio::test]
async fn the_same_claim_number_gets_the_same_answer() {
    let place = Place::start().await;
    place.submit(&json!({"kind": "a"})).await;
    place.submit(&json!({"kind": "b"})).await;
    let mut worker = place.worker("00000000000000a1");
    worker.slots = 1;
    let first = worker.claim("10s").await.ok();
    worker.holds.clear();
    assert_eq!(worker.claim_again("10s").await.ok(), first);
    assert_eq!(worker.claim_again("10s").await.ok(), first);
    assert_eq!(place.get("/v1/workers").await.ok()["workers"][0]["held"], 1);
    let claim = json!({"number": 0, "slots": 1});
    place.post(&worker.path("claim"), &claim).await.refused(422, "invalid");
    worker.number = 5;
    worker.claim("0s").await.ok();
    worker.number = 3;
    worker.claim_again("0s").await.refused(409, "old-number");
}

#[tokio::test]
async fn jobs_of_a_lost_response_are_assigned_again() {
    let place = Place::start().await;
    let id = place.submit(&json!({"kind": "a"})).await;
    let mut worker = place.worker("00000000000000a1");
    let first = worker.claim("10s").await.ok();
    // The answer is lost, and the worker goes on.
    worker.holds.clear();
    let second = worker.claim("0s").await.ok();
    assert_eq!(second["jobs"], first["jobs"]);
    // And again: this time it wants nothing, and what it does not have goes back to the queue.
    worker.holds.clear();
    worker.slots = 0;
    assert_eq!(worker.claim("0s").await.ok()["jobs"], json!([]));
    eventually("it is queued", async || place.job(&id).await["state"] == "queued").await;
    worker.slots = 1;
    let third = worker.claim("10s").await.ok();
    assert_eq!(third["jobs"][0]["job"], json!([1, 3]));
}

#[tokio::test]
async fn a_repeated_claim_gets_the_answer_that_its_client_missed() {
    let place = Place::start().await;
    let mut worker = place.worker("00000000000000a1");
    tokio::select! {
        early = worker.claim("30s") => panic!("{early:?}"),
        () = eventually("its claim has arrived", async || {
            place.get("/v1/workers").await.ok()["workers"][0]["id"] == "00000000000000a1"
        }) => {}
    }
    let id = place.submit(&json!({"kind": "k"})).await;
    eventually("it is assigned", async || place.job(&id).await["state"] == "leased").await;
    let claimed = worker.claim_again("30s").await.ok();
    assert_eq!(claimed["jobs"][0]["id"], id.as_str());
    assert_eq!(claimed["jobs"][0]["job"], json!([1, 1]));
}

#[tokio::test]
async fn a_worker_has_as_many_jobs_as_slots_and_those_of_its_queues() {
    let place = Place::start().await;
    for index in 0..6 {
        place.submit(&json!({"kind": "k", "queue": format!("q{}", index % 2)})).await;
    }
    let path = "/v1/work/00000000000000a1/claim";
    let mut holds: Vec<Value> = Vec::new();
    for (number, slots, queues, brought) in [
        (1, 2, json!(["q0"]), vec![1, 3]),
        (2, 2, json!(["q0"]), vec![]),
        (3, 3, json!(["q1", "other"]), vec![2]),
        (4, 10, json!(null), vec![4, 5, 6]),
        (5, 1, json!(null), vec![]),
    ] {
        let claim = json!({"number": number, "slots": slots, "queues": queues, "holds": holds});
        let claimed = place.post(path, &claim).await.ok();
        let jobs = claimed["jobs"].as_array().unwrap();
        let seqs: Vec<u64> = jobs.iter().map(|job| job["job"][0].as_u64().unwrap()).collect();
        assert_eq!(seqs, brought, "claim {number}");
        holds.extend(jobs.iter().map(|job| job["job"].clone()));
        assert_eq!(claimed["cancel"], json!([]));
    }
    let shown = place.get("/v1/workers").await.ok();
    assert_eq!(shown["workers"][0]["held"], 6);
}

#[tokio::test]
async fn a_cancel_arrives_with_the_next_heartbeat_and_is_confirmed_by_a_report() {
    let place = Place::start().await;
    let id = place.submit(&json!({"kind": "k"})).await;
    let mut worker = place.worker("00000000000000a1");
    worker.claim("10s").await.ok();
    worker.heartbeat().await.ok();
    let cancel = format!("/v1/jobs/{id}/cancel");
    let (cancelled, ()) = tokio::join!(place.poke(&cancel), async {
        eventually("it is to be stopped", async || {
            worker.heartbeat().await.ok()["cancel"] == json!([[1, 1]])
        })
        .await;
        let stopped = json!({"job": [1, 1], "ending": "stopped"});
        assert_eq!(worker.report(&stopped).await.ok()["accepted"], json!([[1, 1]]));
    });
    cancelled.ok();
    assert_eq!(place.job(&id).await["state"], "cancelled");
    assert_eq!(place.get("/v1/workers").await.ok()["workers"][0]["held"], 0);

    // A worker that reports that it is stopping a job need not have stopped it.
    let id = place.submit(&json!({"kind": "k"})).await;
    worker.claim("10s").await.ok();
    let cancel = format!("/v1/jobs/{id}/cancel");
    let (cancelled, ()) = tokio::join!(place.poke(&cancel), async {
        eventually("it is to be stopped", async || {
            worker.heartbeat().await.ok()["cancel"] == json!([[2, 1]])
        })
        .await;
        let heartbeat = json!({"holds": [[2, 1]], "stopping": [[2, 1]]});
        place.post("/v1/work/00000000000000a1/heartbeat", &heartbeat).await.ok();
    });
    cancelled.ok();
    let late = json!({"job": [2, 1], "ending": "finished"});
    let answered = worker.report(&late).await.ok();
    assert_eq!(answered["refused"][0]["job"], json!([2, 1]), "{answered}");
    assert_eq!(place.job(&id).await["state"], "cancelled");
}

#[tokio::test]
async fn a_job_cancelled_while_its_claim_is_lost_is_released() {
    let place = Place::start().await;
    let id = place.submit(&json!({"kind": "k"})).await;
    let mut worker = place.worker("00000000000000a1");
    worker.claim("10s").await.ok();
    worker.holds.clear();
    let cancel = format!("/v1/jobs/{id}/cancel");
    let (cancelled, ()) = tokio::join!(place.poke(&cancel), async {
        eventually("it is cancelled", async || place.job(&id).await["state"] == "cancelled").await;
        assert_eq!(worker.claim("0s").await.ok()["jobs"], json!([]));
    });
    cancelled.ok();
}

#[tokio::test]
async fn a_worker_that_was_silent_for_a_lease_is_lost() {
    let store: Arc<dyn Store> = Arc::new(Transient::default());
    let place = Place::with(Arc::clone(&store), Duration::from_secs(3), None).await;
    let id = place.submit(&json!({"kind": "k"})).await;
    let mut worker = place.worker("00000000000000a1");
    worker.claim("10s").await.ok();
    eventually("it is lost", async || place.get("/v1/status").await.ok()["lost"] == 1).await;
    let problem = worker.heartbeat().await.refused(410, "gone");
    assert!(problem["help"].as_str().unwrap().contains("new id"), "{problem}");
    let finished = json!({"job": [1, 1], "ending": "finished"});
    worker.report(&finished).await.refused(410, "gone");
    worker.claim("0s").await.refused(410, "gone");
    worker.goodbye().await.ok();
    place.server.stop().await;

    // With a lease that is not lost meanwhile.
    let place = Place::with(store, LEASE, None).await;
    let mut other = place.worker("00000000000000a2");
    let claimed = other.claim("10s").await.ok();
    assert_eq!(claimed["jobs"][0]["job"], json!([1, 3]), "its start was confirmed: {claimed}");
    let job = place.job(&id).await;
    assert_eq!(job["state"], "running", "that a suspect runs is stored before it is given");
    other.goodbye().await.ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_renew_the_lease_of_a_worker() {
    let store: Arc<dyn Store> = Arc::new(Transient::default());
    // The lease of a silent worker ends in any case. The other worker sends a heartbeat as soon as
    // the last is answered, in the process of the server, so that it never misses a whole lease.
    let place = Place::with(store, Duration::from_secs(10), None).await;
    let held = place.submit(&json!({"kind": "held"})).await;
    let mut beating = place.worker("00000000000000a1");
    beating.claim("10s").await.ok();
    let beat_until = async |lost: u64| {
        eventually("a silent worker is lost", async || {
            assert_eq!(beating.heartbeat().await.ok()["keep"], json!([[1, 1]]));
            place.get("/v1/status").await.ok()["lost"] == lost
        })
        .await;
    };
    // Each silent worker comes after the one before it is lost, so two leases pass.
    for (lost, id) in [(1, "00000000000000b1"), (2, "00000000000000b2")] {
        let abandoned = place.submit(&json!({"kind": "abandoned"})).await;
        let mut silent = place.worker(id);
        let claimed = silent.claim("10s").await.ok();
        assert_eq!(claimed["jobs"][0]["id"], abandoned.as_str(), "{claimed}");
        beat_until(lost).await;
        assert_eq!(place.job(&abandoned).await["state"], "queued");
        silent.heartbeat().await.refused(410, "gone");
        place.poke(&format!("/v1/jobs/{abandoned}/cancel")).await.ok();
    }
    let job = place.job(&held).await;
    assert_eq!(job["ledger"].as_array().unwrap().len(), 1, "it never changed hands: {job}");
    let finished = json!({"job": [1, 1], "ending": "finished"});
    assert_eq!(beating.report(&finished).await.ok()["accepted"], json!([[1, 1]]));
    assert_eq!(place.job(&held).await["state"], "succeeded");
}

#[tokio::test]
async fn a_worker_keeps_its_jobs_across_a_restart_of_the_server() {
    let store: Arc<dyn Store> = Arc::new(Transient::default());
    let place = Place::with(Arc::clone(&store), LEASE, None).await;
    let kept = place.submit(&json!({"kind": "kept"})).await;
    let lost = place.submit(&json!({"kind": "lost"})).await;
    let mut worker = place.worker("00000000000000a1");
    worker.slots = 2;
    worker.claim("10s").await.ok();
    // The answer brought both, and only the first arrived before the server was gone.
    let holds = vec![json!([1, 1])];
    place.server.stop().await;

    let place = Place::with(store, LEASE, None).await;
    let heartbeat = json!({"holds": holds});
    let answer = place.post("/v1/work/00000000000000a1/heartbeat", &heartbeat).await.ok();
    assert_eq!((&answer["keep"], &answer["cancel"]), (&json!([[1, 1]]), &json!([])));
    let report = json!({"reports": [{"job": [1, 1], "ending": "finished"}]});
    let answered = place.post("/v1/work/00000000000000a1/report", &report).await.ok();
    assert_eq!(answered["accepted"], json!([[1, 1]]));
    let claim = json!({"number": 2, "slots": 2, "holds": []});
    let claimed = place.post("/v1/work/00000000000000a1/claim", &claim).await.ok();
    assert_eq!(claimed["jobs"][0]["job"], json!([2, 1]), "under the same fence: {claimed}");
    assert_eq!(place.job(&kept).await["state"], "succeeded");
    assert_eq!(place.job(&lost).await["ledger"].as_array().unwrap().len(), 1);
    // A worker that holds nothing has not noticed anything.
    let claim = json!({"number": 17, "slots": 1, "holds": []});
    place.post("/v1/work/00000000000000b2/claim", &claim).await.ok();
}

#[tokio::test]
async fn a_worker_must_stop_jobs_that_it_does_not_own() {
    let place = Place::start().await;
    place.submit(&json!({"kind": "k"})).await;
    let mut worker = place.worker("00000000000000a1");
    worker.claim("10s").await.ok();
    worker.holds = vec![json!([1, 1]), json!([1, 9]), json!([77, 1])];
    let answer = worker.heartbeat().await.ok();
    assert_eq!(answer["keep"], json!([[1, 1]]));
    assert_eq!(answer["cancel"], json!([[1, 9], [77, 1]]));
    let answered = worker.report(&json!({"job": [1, 9], "ending": "stopped"})).await.ok();
    assert_eq!(answered["refused"], json!([{"job": [1, 9], "current": 1}]));
    let answered = worker.report(&json!({"job": [77, 1], "ending": "finished"})).await.ok();
    assert_eq!(answered["refused"], json!([{"job": [77, 1]}]));
    // An unknown worker that lists jobs is refused.
    let heartbeat = json!({"holds": [[1, 1]]});
    place.post("/v1/work/00000000000000ff/heartbeat", &heartbeat).await.refused(410, "gone");
}

#[tokio::test]
async fn failed_snoozed_interrupted_and_dropped_jobs_continue() {
    let place = Place::start().await;
    let job = json!({"kind": "k", "retry": {"max": 2, "backoff": "none"}});
    let id = place.submit(&job).await;
    let mut worker = place.worker("00000000000000a1");
    for (ending, attempts) in [
        (json!({"ending": "dropped"}), 0),
        (json!({"ending": "interrupted"}), 0),
        (json!({"ending": "snoozed", "wait": "10ms"}), 0),
        (json!({"ending": "failed", "error": "first"}), 1),
        (json!({"ending": "failed"}), 2),
    ] {
        let claimed = worker.claim("10s").await.ok();
        let mut report = ending.clone();
        report["job"] = claimed["jobs"][0]["job"].clone();
        assert_eq!(claimed["jobs"][0]["attempt"], if attempts == 2 { 2 } else { 1 });
        worker.report(&report).await.ok();
        assert_eq!(place.job(&id).await["attempts"], attempts, "{ending}");
    }
    let job = place.job(&id).await;
    assert_eq!(
        (&job["state"], &job["error"]),
        (&json!("dead"), &json!("the worker gave no reason"))
    );
    for bad in [
        json!({"job": [1, 1], "ending": "snoozed"}),
        json!({"job": [1, 1], "ending": "finished", "error": "no"}),
        json!({"job": [1, 1], "ending": "failed", "result": 1}),
        json!({"job": [1, 1], "ending": "happy"}),
        json!({"job": [1], "ending": "finished"}),
    ] {
        worker.report(&bad).await.refused(422, "invalid");
    }
    let nothing = json!({"reports": []});
    place.post(&worker.path("report"), &nothing).await.refused(422, "invalid");
}

#[tokio::test]
async fn plain_text_responses_have_lines() {
    let place = Place::start().await;
    let job = json!({"run": ["printf", "a\tb\n", "", "back\\slash"], "env": {"A": "x y"},
        "dir": "/tmp", "args": {"n": 1}, "timeout": "2s"});
    let id = place.submit(&job).await;
    let ask = async |verb: &str, body: Value| {
        let path = format!("/v1/work/00000000000000a1/{verb}");
        let request = place.request(Method::POST, &path).header("accept", "text/plain");
        let body = with_instance(&path, &body);
        let response = request.json(&body).send().await.unwrap();
        assert!(response.headers()["content-type"].to_str().unwrap().starts_with("text/plain"));
        response.text().await.unwrap()
    };
    let claimed = ask("claim", json!({"number": 1, "slots": 1, "wait": "10s"})).await;
    let expected = format!(
        "lease_ms\t600000\njob\t1 1\nid\t{id}\nqueue\tdefault\nkind\tcommand\nattempt\t1\n\
         timeout_ms\t2000\nargs\t{{\"n\":1}}\ndir\t/tmp\nenv\tA=x y\n\
         run\tprintf\nrun\ta\\tb\\n\nrun\t\nrun\tback\\\\slash\n"
    );
    assert_eq!(claimed, expected);
    let answer = ask("heartbeat", json!({"holds": [[1, 1], [9, 9]]})).await;
    assert_eq!(answer, "lease_ms\t600000\nkeep\t1 1\ncancel\t9 9\n");
}

/// Two processes with the same made-up id and claim number must not get the same job.
#[tokio::test]
async fn a_second_process_with_the_same_worker_id_is_refused() {
    let place = Place::start().await;
    place.submit(&json!({"kind": "k"})).await;
    let path = |verb: &str| format!("/v1/work/00000000000000a1/{verb}");
    let claim = |instance: &str| json!({"instance": instance, "number": 1, "slots": 1});
    let first = place.post(&path("claim"), &claim("one")).await.ok();
    assert_eq!(first["jobs"][0]["job"], json!([1, 1]));
    for (verb, body) in [
        ("claim", claim("two")),
        ("heartbeat", json!({"instance": "two", "holds": [[1, 1]]})),
        ("report", json!({"instance": "two", "reports": [{"job": [1, 1], "ending": "finished"}]})),
        ("goodbye", json!({"instance": "two"})),
    ] {
        let problem = place.post(&path(verb), &body).await.refused(409, "worker-id-in-use");
        assert_eq!(problem["help"], "choose a random id for each process", "{verb}");
    }
    assert_eq!(place.post(&path("claim"), &claim("one")).await.ok(), first);
    for instance in ["", &"x".repeat(65)] {
        let problem = place.post(&path("claim"), &claim(instance)).await.refused(422, "invalid");
        assert_eq!(problem["at"], "/instance");
    }
    let request = place.request(Method::POST, &path("claim"));
    let missing = request.json(&json!({"number": 1, "slots": 1})).send().await.unwrap();
    assert_eq!(missing.status(), 422);
    // After its goodbye the id is free.
    place.post(&path("goodbye"), &json!({"instance": "one"})).await.ok();
    place.post(&path("heartbeat"), &json!({"instance": "two"})).await.refused(410, "gone");
}

#[tokio::test]
async fn worker_ids_are_sixteen_digits_and_not_reserved_ones() {
    let place = Place::start().await;
    let claim = json!({"number": 1, "slots": 1});
    for id in ["a1", "00000000000000zz", "8000000000000001", "0000000000000000"] {
        place.post(&format!("/v1/work/{id}/claim"), &claim).await.refused(400, "bad-id");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_workers_share_many_jobs_and_each_job_is_run_once() {
    let place = Place::start().await;
    let jobs = 2_000_u64;
    place.post("/v1/jobs", &Value::from(vec![json!({"kind": "k"}); jobs as usize])).await.ok();
    let run = async |index: u64| {
        let mut worker = place.worker(&format!("{:016x}", 0xa0 + index));
        worker.slots = 1 + (index as u32) % 3;
        let mut done = Vec::new();
        loop {
            let claimed = worker.claim("500ms").await.ok();
            let jobs = claimed["jobs"].as_array().unwrap().clone();
            if jobs.is_empty() {
                return done;
            }
            for job in jobs {
                let report = json!({"job": job["job"], "ending": "finished"});
                assert_eq!(worker.report(&report).await.ok()["accepted"], json!([job["job"]]));
                done.push(job["job"][0].as_u64().unwrap());
            }
        }
    };
    let all = tokio::join!(run(0), run(1), run(2), run(3), run(4), run(5));
    let mut done = [all.0, all.1, all.2, all.3, all.4, all.5].concat();
    done.sort_unstable();
    assert_eq!(done, (1..=jobs).collect::<Vec<_>>());
}
