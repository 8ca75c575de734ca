//! Tokens: made, listed, ended; and what ends with them.

use std::sync::Arc;

use filch_store::{OwnerNote, Sqlite, Store, Transient};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::client::{Answer, LEASE, PATIENCE, Place, eventually, read};

async fn send(request: RequestBuilder) -> Answer {
    read(request.send().await.unwrap()).await
}

/// Makes a token with this one, or without any; its id and itself.
async fn make(place: &Place, by: Option<&str>, wanted: Value) -> (String, String) {
    let mut request = place.request(Method::POST, "/v1/tokens").json(&wanted);
    if let Some(by) = by {
        request = request.bearer_auth(by);
    }
    let made = send(request).await.ok();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&made["token"]["id"]), text(&made["secret"]))
}

async fn revoke(place: &Place, by: &str, id: &str) -> Answer {
    send(place.request(Method::POST, &format!("/v1/tokens/{id}/revoke")).bearer_auth(by)).await
}

async fn get(place: &Place, by: &str, path: &str) -> Answer {
    send(place.request(Method::GET, path).bearer_auth(by)).await
}

#[tokio::test]
async fn after_the_first_token_every_request_needs_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("filch.db");
    let open = || Arc::new(Sqlite::open(&file, &OwnerNote::this_process()).unwrap());
    let place = Place::with(open(), LEASE, None).await;
    place.get("/v1/status").await.ok();
    // A token of another server does no harm as long as none is required.
    let stranger = format!("filch_00000000_{}", "0".repeat(64));
    get(&place, &stranger, "/v1/status").await.ok();
    let problem = place.post("/v1/tokens", &json!({"role": "view"})).await;
    problem.refused(409, "first-token");
    let (id, admin) = make(&place, None, json!({"role": "admin", "name": "Ada"})).await;
    place.get("/v1/status").await.refused(401, "no-token");
    get(&place, &stranger, "/v1/status").await.refused(401, "bad-token");
    get(&place, &admin, "/v1/status").await.ok();
    let listed = get(&place, &admin, "/v1/tokens").await.ok();
    assert_eq!(listed["tokens"][0]["name"], "Ada");
    assert!(!listed.to_string().contains(&admin[15..]), "{listed}");

    // The first one's end opens no door, nor does a restart.
    revoke(&place, &admin, &id).await.ok();
    get(&place, &admin, "/v1/status").await.refused(401, "bad-token");
    place.get("/v1/status").await.refused(401, "no-token");
    place.server.stop().await;
    drop(place);
    // The last request may still hold the file for a moment.
    let is_free = async || Sqlite::open(&file, &OwnerNote::this_process()).is_ok();
    eventually("the file is let go of", is_free).await;
    let reopened: Arc<dyn Store> = open();
    let place = Place::with(reopened, LEASE, None).await;
    place.get("/v1/status").await.refused(401, "no-token");
    get(&place, &admin, "/v1/status").await.refused(401, "bad-token");
    // The process itself needs no stored token.
    let insider = place.server.insider();
    get(&place, insider.reveal(), "/v1/tokens").await.ok();
}

#[tokio::test]
async fn changes_by_another_server_over_the_same_store_are_taken_over() {
    let store = Transient::default();
    let one = Place::with(Arc::new(store.clone()), LEASE, None).await;
    let other = Place::with(Arc::new(store), LEASE, None).await;
    other.get("/v1/status").await.ok();
    let (_, admin) = make(&one, None, json!({"role": "admin"})).await;
    let (id, viewer) = make(&one, Some(&admin), json!({"role": "view"})).await;
    eventually("both need a token", async || other.get("/v1/status").await.status == 401).await;
    let is_known = async || get(&other, &viewer, "/v1/status").await.status == 200;
    eventually("both know the second token", is_known).await;
    let events = other.request(Method::GET, "/v1/events").bearer_auth(&viewer);
    let mut events = events.send().await.unwrap();
    revoke(&one, &admin, &id).await.ok();
    let until_end = async { while events.chunk().await.unwrap().is_some() {} };
    tokio::time::timeout(PATIENCE, until_end).await.expect("the stream ends");
    get(&other, &viewer, "/v1/status").await.refused(401, "bad-token");
    get(&other, &admin, "/v1/status").await.ok();
}

/// Only digests are stored: the file contains no token.
#[tokio::test]
async fn no_token_is_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("filch.db");
    let store = Arc::new(Sqlite::open(&file, &OwnerNote::this_process()).unwrap());
    let place = Place::with(store, LEASE, None).await;
    let (id, admin) = make(&place, None, json!({"role": "admin"})).await;
    let secret = admin.rsplit('_').next().unwrap();
    let mut is_id_there = false;
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        let holds = |text: &str| bytes.windows(text.len()).any(|bytes| bytes == text.as_bytes());
        assert!(!holds(secret), "the token is in the file");
        is_id_there |= holds(&id);
    }
    assert!(is_id_there, "the test looks at the wrong files");
}

#[tokio::test]
async fn waiting_requests_and_streams_end_when_the_token_is_revoked() {
    let place = Place::start().await;
    let (_, admin) = make(&place, None, json!({"role": "admin"})).await;
    let (id, viewer) = make(&place, Some(&admin), json!({"role": "view"})).await;
    let (worker_id, worker) = make(&place, Some(&admin), json!({"role": "work"})).await;
    let submit = place.request(Method::POST, "/v1/jobs").bearer_auth(&admin);
    let job = send(submit.json(&json!({"kind": "k", "queue": "other"}))).await.ok();
    let job = job["id"].as_str().unwrap();

    let events = place.request(Method::GET, "/v1/events").bearer_auth(&viewer);
    let mut events = events.send().await.unwrap();
    let log = place.request(Method::GET, &format!("/v1/jobs/{job}/log?follow=true"));
    let mut log = log.bearer_auth(&viewer).send().await.unwrap();
    let path = format!("/v1/jobs/{job}?wait=60s");
    let claim =
        json!({"instance": "i", "number": 1, "slots": 1, "wait": "60s", "queues": ["none"]});
    let claiming = place.request(Method::POST, "/v1/work/00000000000000a1/claim");
    let (waited, claimed, ()) = tokio::join!(
        get(&place, &viewer, &path),
        send(claiming.bearer_auth(&worker).json(&claim)),
        async {
            let is_claiming = async || {
                let workers = get(&place, &admin, "/v1/workers").await.ok();
                workers["workers"].as_array().is_some_and(|workers| !workers.is_empty())
            };
            eventually("the worker is there", is_claiming).await;
            revoke(&place, &admin, &id).await.ok();
            revoke(&place, &admin, &worker_id).await.ok();
        }
    );
    waited.refused(401, "bad-token");
    claimed.refused(401, "bad-token");
    let until_end = async {
        while events.chunk().await.unwrap().is_some() {}
        while log.chunk().await.unwrap().is_some() {}
    };
    tokio::time::timeout(PATIENCE, until_end).await.expect("the streams end");
    revoke(&place, &admin, &id).await.refused(404, "not-found");
    let problem = revoke(&place, &admin, "a b").await.refused(404, "not-found");
    assert_eq!(problem["title"], "no active token \"a b\"");
}

/// A submit that sends lines goes on for as long as the client likes, but not beyond its token.
#[tokio::test]
async fn lines_that_are_sent_after_the_revocation_are_not_taken() {
    let place = Place::start().await;
    let (_, admin) = make(&place, None, json!({"role": "admin"})).await;
    let (id, submitter) = make(&place, Some(&admin), json!({"role": "submit"})).await;
    let (lines, body) = tokio::sync::mpsc::channel::<Result<&str, std::io::Error>>(4);
    let body = futures_util::stream::unfold(body, |mut body| async move {
        body.recv().await.map(|line| (line, body))
    });
    let request = place.request(Method::POST, "/v1/jobs").bearer_auth(&submitter);
    let request =
        request.header("idempotency-key", "x").header("content-type", "application/x-ndjson");
    lines.send(Ok("{\"kind\": \"before\"}\n")).await.unwrap();
    let mut answers = request.body(reqwest::Body::wrap_stream(body)).send().await.unwrap();
    let first = answers.chunk().await.unwrap().unwrap();
    assert_eq!(first, "{\"lines\":1,\"new\":1}\n");

    revoke(&place, &admin, &id).await.ok();
    // The server may have closed the connection already.
    let _ = lines.send(Ok("{\"kind\": \"after\"}\n")).await;
    let mut rest = Vec::new();
    let until_end = async {
        while let Some(more) = answers.chunk().await.unwrap() {
            rest.extend_from_slice(&more);
        }
    };
    tokio::time::timeout(PATIENCE, until_end).await.expect("the response ends");
    let problem: Value = serde_json::from_slice(&rest).unwrap();
    assert_eq!((&problem["status"], &problem["code"]), (&json!(401), &json!("bad-token")));
    let listed = get(&place, &admin, "/v1/jobs").await.ok();
    assert_eq!(listed["jobs"].as_array().map(Vec::len), Some(1), "{listed}");
}

/// Clients from before the first token are disconnected, too.
#[tokio::test]
async fn clients_without_a_token_are_disconnected_by_the_first_token() {
    let place = Place::start().await;
    let mut events = place.request(Method::GET, "/v1/events").send().await.unwrap();
    let claim = json!({"number": 1, "slots": 1, "wait": "60s"});
    let (claimed, ()) =
        tokio::join!(place.post("/v1/work/00000000000000a1/claim", &claim), async {
            let is_claiming = async || {
                let workers = place.get("/v1/workers").await.ok();
                workers["workers"].as_array().is_some_and(|workers| !workers.is_empty())
            };
            eventually("the worker is there", is_claiming).await;
            make(&place, None, json!({"role": "admin"})).await;
        });
    let problem = claimed.refused(401, "no-token");
    assert_eq!(problem["title"], "a token is required now");
    assert!(problem["help"].as_str().unwrap().contains("FILCH_TOKEN"), "{problem}");
    let until_end = async { while events.chunk().await.unwrap().is_some() {} };
    tokio::time::timeout(PATIENCE, until_end).await.expect("the stream ends");
}

#[tokio::test]
async fn waiting_requests_end_when_the_token_expires() {
    let place = Place::start().await;
    let (_, admin) = make(&place, None, json!({"role": "admin"})).await;
    let (_, short) = make(&place, Some(&admin), json!({"role": "view", "expires": "300ms"})).await;
    let request = place.request(Method::GET, "/v1/events").bearer_auth(&short);
    let mut events = request.send().await.unwrap();
    let until_end = async { while events.chunk().await.unwrap().is_some() {} };
    tokio::time::timeout(PATIENCE, until_end).await.expect("the stream ends");
    get(&place, &short, "/v1/status").await.refused(401, "bad-token");
}

/// Tenants of one server: jobs of other queues do not exist for a token that is limited to some.
#[tokio::test]
async fn jobs_of_other_tenants_do_not_exist() {
    let place = Place::start().await;
    let (_, admin) = make(&place, None, json!({"role": "admin"})).await;
    let limited = |role: &str| json!({"role": role, "queues": ["mine"]});
    let (_, submitter) = make(&place, Some(&admin), limited("submit")).await;
    let (_, operator) = make(&place, Some(&admin), limited("operate")).await;
    let submit = async |by: &str, job: Value| {
        send(place.request(Method::POST, "/v1/jobs").bearer_auth(by).json(&job)).await
    };
    let theirs = json!({"kind": "k", "queue": "theirs", "key": "invoice 7"});
    let theirs = submit(&admin, theirs).await.ok()["id"].as_str().unwrap().to_owned();
    let nobodys = "01900000-0000-7000-8000-000000000000";

    // The same answer, whether the job exists in another queue or not at all.
    for verb in ["cancel", "retry"] {
        for job in [theirs.as_str(), nobodys] {
            let request = place.request(Method::POST, &format!("/v1/jobs/{job}/{verb}"));
            let problem = send(request.bearer_auth(&operator)).await.refused(404, "not-found");
            assert_eq!(problem["title"], format!("no job {job}"));
        }
    }
    let child = async |parent: &str| {
        let job = json!({"kind": "k", "queue": "mine", "after": [parent]});
        submit(&submitter, job).await.refused(404, "unknown-parent")
    };
    let problem = child(&theirs).await;
    let title = problem["title"].as_str().unwrap().to_owned();
    let known = child(nobodys).await;
    let expected = known["title"].as_str().unwrap();
    let parent_of = |title: &str| title.rsplit(' ').next().map(str::to_owned);
    assert_eq!(parent_of(&title).as_deref(), Some(theirs.as_str()));
    assert_eq!(parent_of(expected).as_deref(), Some(nobodys));
    assert_eq!(problem["help"], known["help"]);

    // An id that is taken is a conflict, and says nothing about the job that has it.
    let same_id = json!({"kind": "k", "queue": "mine", "id": theirs});
    let problem = submit(&submitter, same_id).await.refused(409, "id-conflict");
    assert!(!problem.to_string().contains("theirs"), "{problem}");

    // A key that another queue uses is free.
    let same_key = json!({"kind": "k", "queue": "mine", "key": "invoice 7"});
    let mine = submit(&submitter, same_key.clone()).await.ok();
    assert_eq!((&mine["new"], mine["id"] == theirs), (&json!(true), false), "{mine}");
    let again = submit(&submitter, same_key).await.ok();
    assert_eq!((&again["new"], &again["id"]), (&json!(false), &mine["id"]), "{again}");

    // What a job waits for in another queue is not shown.
    let child = json!({"kind": "k", "queue": "mine", "after": [theirs]});
    let child = submit(&admin, child).await.ok()["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/jobs/{child}");
    let whole = get(&place, &admin, &path).await.ok();
    let part = get(&place, &submitter, &path).await.ok();
    let waits = |job: &Value| job["why"].to_string().contains(&theirs[28..]);
    assert!(waits(&whole) && !waits(&part), "{whole}\n{part}");
}

#[tokio::test]
async fn a_token_for_some_queues_sees_and_serves_only_these() {
    let place = Place::start().await;
    let (_, admin) = make(&place, None, json!({"role": "admin"})).await;
    let queues = json!(["a", "b"]);
    let wanted = |role: &str| json!({"role": role, "queues": queues});
    let (_, submitter) = make(&place, Some(&admin), wanted("submit")).await;
    let (_, viewer) = make(&place, Some(&admin), wanted("view")).await;
    let (_, operator) = make(&place, Some(&admin), wanted("operate")).await;
    let (_, worker) = make(&place, Some(&admin), wanted("work")).await;
    let submit = async |by: &str, jobs: Value| {
        send(place.request(Method::POST, "/v1/jobs").bearer_auth(by).json(&jobs)).await
    };
    submit(&admin, json!({"kind": "hidden", "queue": "c"})).await.ok();
    let mixed = json!([{"kind": "k", "queue": "a"}, {"kind": "k", "queue": "c"}]);
    submit(&submitter, mixed).await.refused(403, "wrong-queue");
    submit(&submitter, json!({"kind": "k"})).await.refused(403, "wrong-queue");
    let both = json!([{"kind": "k", "queue": "a"}, {"kind": "k", "queue": "b"}]);
    let jobs = submit(&submitter, both).await.ok();
    let id = jobs["jobs"][0]["id"].as_str().unwrap();
    let lines = "{\"kind\":\"k\",\"queue\":\"a\"}\n{\"kind\":\"k\",\"queue\":\"c\"}\n";
    let request = place.request(Method::POST, "/v1/jobs").bearer_auth(&submitter);
    let request =
        request.header("idempotency-key", "x").header("content-type", "application/x-ndjson");
    let said = request.body(lines).send().await.unwrap().text().await.unwrap();
    assert!(said.contains("\"wrong-queue\""), "{said}");

    // A client with role submit needs the full id.
    get(&place, &submitter, &format!("/v1/jobs/{id}")).await.ok();
    get(&place, &submitter, &format!("/v1/jobs/{}", &id[28..])).await.refused(403, "wrong-role");
    get(&place, &viewer, &format!("/v1/jobs/{}", &id[28..])).await.ok();

    let listed = get(&place, &viewer, "/v1/jobs").await.ok();
    assert_eq!(listed["jobs"].as_array().unwrap().len(), 2, "{listed}");
    get(&place, &viewer, "/v1/jobs?queue=c").await.refused(403, "wrong-queue");
    let claim = |number: u32, queues: Option<Value>| {
        let mut claim = json!({"instance": "i", "number": number, "slots": 9, "wait": "0s"});
        if let Some(queues) = queues {
            claim["queues"] = queues;
        }
        let request = place.request(Method::POST, "/v1/work/00000000000000a1/claim");
        send(request.bearer_auth(&worker).json(&claim))
    };
    claim(1, Some(json!(["a", "c"]))).await.refused(403, "wrong-queue");
    let claimed = claim(1, None).await.ok();
    let kinds: Vec<&str> = claimed["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["k", "k"], "{claimed}");
    let pause = async |queue: &str| {
        let request = place.request(Method::PATCH, &format!("/v1/queues/{queue}"));
        send(request.bearer_auth(&operator).json(&json!({"paused": true}))).await
    };
    pause("a").await.ok();
    pause("c").await.refused(403, "wrong-queue");
    let queues = get(&place, &viewer, "/v1/queues").await.ok();
    assert!(!queues.to_string().contains("\"c\""), "{queues}");
}

/// A worker id belongs to the token that introduced it, and a limited token names no foreign jobs.
#[tokio::test]
async fn a_limited_token_cannot_end_or_report_for_another_worker() {
    let place = Place::start().await;
    let (_, admin) = make(&place, None, json!({"role": "admin"})).await;
    let (_, owner) = make(&place, Some(&admin), json!({"role": "work"})).await;
    let wanted = json!({"role": "work", "queues": ["mine"]});
    let (_, other) = make(&place, Some(&admin), wanted).await;
    let job = json!({"kind": "k", "queue": "theirs"});
    let submit = place.request(Method::POST, "/v1/jobs").bearer_auth(&admin).json(&job);
    let id = send(submit).await.ok()["id"].as_str().unwrap().to_owned();
    let ask = async |token: &str, worker: &str, verb: &str, body: Value| {
        let mut body = body;
        body["instance"] = "i".into();
        let request = place.request(Method::POST, &format!("/v1/work/{worker}/{verb}"));
        send(request.bearer_auth(token).json(&body)).await
    };
    let (held, free) = ("00000000000000a1", "00000000000000b2");
    let claimed = ask(&owner, held, "claim", json!({"number": 1, "slots": 1, "wait": "10s"})).await;
    assert_eq!(claimed.ok()["jobs"][0]["job"], json!([1, 1]));
    let report = json!({"reports": [{"job": [1, 1], "ending": "finished"}]});
    let heartbeat = json!({"holds": [[1, 1]]});
    ask(&other, held, "goodbye", json!({})).await.refused(403, "wrong-token");
    ask(&other, held, "heartbeat", heartbeat.clone()).await.refused(403, "wrong-token");
    ask(&other, held, "report", report.clone()).await.refused(403, "wrong-token");
    ask(&other, free, "heartbeat", heartbeat).await.refused(403, "wrong-queue");
    ask(&other, free, "report", report.clone()).await.refused(403, "wrong-queue");
    let job = get(&place, &admin, &format!("/v1/jobs/{id}")).await.ok();
    assert_eq!(job["ledger"].as_array().unwrap().len(), 1, "it was not restarted: {job}");
    let answered = ask(&owner, held, "report", report).await.ok();
    assert_eq!(answered["accepted"], json!([[1, 1]]));
}

#[tokio::test]
async fn a_token_in_a_url_and_a_malformed_token_are_refused() {
    let place = Place::start().await;
    let (_, admin) = make(&place, None, json!({"role": "admin"})).await;
    for path in [format!("/v1/status?token={admin}"), format!("/v1/work?access_token={admin}")] {
        let problem = get(&place, &admin, &path).await.refused(400, "token-in-url");
        assert!(!problem.to_string().contains(&admin), "{problem}");
    }
    for value in ["Basic YTpi", "Bearer", "Bearer x", "bearer filch_", ""] {
        let request = place.request(Method::GET, "/v1/status").header("authorization", value);
        send(request).await.refused(401, "bad-token");
    }
    let request = place.request(Method::GET, "/v1/status");
    send(request.header("authorization", format!("bEARER {admin}"))).await.ok();
    let response = place.request(Method::GET, "/v1/status").send().await.unwrap();
    assert_eq!(response.headers()["www-authenticate"], "Bearer realm=\"filch\"");
    for (wanted, at) in [
        (json!({"role": "view", "queues": [""]}), "/queue"),
        (json!({"role": "admin", "queues": ["a"]}), "/queues"),
        (json!({"role": "view", "expires": "0s"}), "/expires"),
        (json!({"role": "view", "name": "\u{1b}[2J"}), "/name"),
    ] {
        let request = place.request(Method::POST, "/v1/tokens").bearer_auth(&admin).json(&wanted);
        assert_eq!(send(request).await.refused(422, "invalid")["at"], at);
    }
}

/// A token that was revoked does not keep its workers' ids.
#[tokio::test]
async fn a_worker_over_plain_http_may_change_its_token_after_a_revocation() {
    let place = Place::start().await;
    let (_, admin) = make(&place, None, json!({"role": "admin"})).await;
    let (old_id, old) = make(&place, Some(&admin), json!({"role": "work"})).await;
    let (_, new) = make(&place, Some(&admin), json!({"role": "work"})).await;
    let submit = place.request(Method::POST, "/v1/jobs").bearer_auth(&admin);
    send(submit.json(&json!({"kind": "k"}))).await.ok();
    let ask = async |by: &str, verb: &str, body: Value| {
        let path = format!("/v1/work/00000000000000a1/{verb}");
        send(place.request(Method::POST, &path).bearer_auth(by).json(&body)).await
    };
    let claim = json!({"instance": "i", "number": 1, "slots": 1});
    let claimed = ask(&old, "claim", claim).await.ok();
    let heartbeat = json!({"instance": "i", "holds": [claimed["jobs"][0]["job"]]});
    ask(&new, "heartbeat", heartbeat.clone()).await.refused(403, "wrong-token");
    revoke(&place, &admin, &old_id).await.ok();
    let answer = ask(&new, "heartbeat", heartbeat.clone()).await.ok();
    assert_eq!(answer["keep"], heartbeat["holds"]);
    ask(&old, "heartbeat", heartbeat).await.refused(401, "bad-token");
}

/// Jobs of other queues do not make the last digits of an own job ambiguous, and are not shown to
/// exist by them.
#[tokio::test]
async fn last_digits_mean_only_jobs_that_the_token_may_see() {
    let place = Place::start().await;
    let (_, admin) = make(&place, None, json!({"role": "admin"})).await;
    let (_, viewer) = make(&place, Some(&admin), json!({"role": "view", "queues": ["mine"]})).await;
    let submit = async |queue: &str, id: &str| {
        let job = json!({"kind": "k", "queue": queue, "id": id});
        send(place.request(Method::POST, "/v1/jobs").bearer_auth(&admin).json(&job)).await.ok();
    };
    submit("theirs", "01900000-0000-7000-8000-00000000aaaa").await;
    submit("theirs", "01900000-0000-7000-8000-00010000aaaa").await;
    let problem = get(&place, &viewer, "/v1/jobs/aaaa").await.refused(404, "not-found");
    let none = get(&place, &viewer, "/v1/jobs/bbbb").await.refused(404, "not-found");
    assert_eq!(problem["help"], none["help"]);
    let own = "01900000-0000-7000-8000-00020000aaaa";
    submit("mine", own).await;
    assert_eq!(get(&place, &viewer, "/v1/jobs/aaaa").await.ok()["id"], own);
    get(&place, &admin, "/v1/jobs/aaaa").await.refused(409, "ambiguous-id");
}

/// A token that may see only some queues sees of workers what concerns these.
#[tokio::test]
async fn a_limited_viewer_sees_no_foreign_jobs_or_queues_of_workers() {
    let place = Place::start().await;
    let (_, admin) = make(&place, None, json!({"role": "admin"})).await;
    let (_, viewer) = make(&place, Some(&admin), json!({"role": "view", "queues": ["mine"]})).await;
    let job = json!({"kind": "k", "queue": "theirs"});
    send(place.request(Method::POST, "/v1/jobs").bearer_auth(&admin).json(&job)).await.ok();
    let claim = json!({"instance": "i", "number": 1, "slots": 1, "wait": "60s",
                       "queues": ["mine", "theirs"]});
    let request = place.request(Method::POST, "/v1/work/00000000000000a1/claim");
    let claimed = send(request.bearer_auth(&admin).json(&claim)).await.ok();
    assert_eq!(claimed["jobs"].as_array().map(Vec::len), Some(1), "{claimed}");
    let seen = get(&place, &viewer, "/v1/workers").await.ok();
    assert!(!seen.to_string().contains("theirs"), "{seen}");
    let all = get(&place, &admin, "/v1/workers").await.ok();
    assert!(all.to_string().contains("theirs"), "{all}");
}
