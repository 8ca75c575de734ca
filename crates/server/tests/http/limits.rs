//! Bounds on what requests bring, at it and one beyond it: what is beyond has an error of its own,
//! and changes nothing. What a server lets in at once is in `bounds`.

use futures_util::StreamExt as _;
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::{Answer, Place, read};

async fn post(place: &Place, path: &str, kind: &str, body: String) -> Answer {
    let request = place.request(Method::POST, path).header("content-type", kind).body(body);
    read(request.send().await.unwrap()).await
}

/// How many jobs have been taken; what is refused adds none.
async fn taken(place: &Place) -> u64 {
    place.get("/v1/status").await.ok()["jobs"].as_u64().unwrap()
}

const JSON: &str = "application/json";
const LINES: &str = "application/x-ndjson";

#[tokio::test]
async fn one_object_has_a_mebibyte() {
    let place = Place::start().await;
    let padded = |bytes: usize| {
        let job = "{\"kind\": \"k\"}";
        format!("{job}{}", " ".repeat(bytes - job.len()))
    };
    post(&place, "/v1/jobs", JSON, padded(1 << 20)).await.ok();
    for path in ["/v1/jobs", "/v1/dead/retry", "/v1/work/00000000000000a1/claim"] {
        let answer = post(&place, path, JSON, padded((1 << 20) + 1)).await;
        answer.refused(413, "body-too-large");
    }
    // The same without a `Content-Length`.
    let piece = Ok::<_, std::io::Error>(padded((1 << 20) + 1));
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter([piece]));
    let request = place.request(Method::POST, "/v1/jobs").header("content-type", JSON).body(body);
    read(request.send().await.unwrap()).await.refused(413, "body-too-large");
    assert_eq!(taken(&place).await, 1);
}

#[tokio::test]
async fn an_array_or_a_flow_has_128_mebibytes() {
    let place = Place::start().await;
    for (path, text) in [
        ("/v1/jobs", "[{\"kind\": \"k\"}]"),
        ("/v1/flows", "{\"name\": \"n\", \"jobs\": {\"a\": {\"kind\": \"k\"}}}"),
    ] {
        let before = taken(&place).await;
        let padded = |bytes: usize| format!("{text}{}", " ".repeat(bytes - text.len()));
        let answer = post(&place, path, JSON, padded((128 << 20) + 1)).await;
        answer.refused(413, "body-too-large");
        assert_eq!(taken(&place).await, before, "{path}");
        post(&place, path, JSON, padded(128 << 20)).await.ok();
        assert_eq!(taken(&place).await, before + 1, "{path}");
    }
}

#[tokio::test]
async fn a_flow_has_a_hundred_thousand_jobs() {
    let place = Place::start().await;
    let flow = |count: usize| {
        let jobs: Vec<String> =
            (0..count).map(|index| format!("\"{index}\":{{\"kind\":\"k\"}}")).collect();
        format!("{{\"name\":\"n\",\"jobs\":{{{}}}}}", jobs.join(","))
    };
    let problem = post(&place, "/v1/flows", JSON, flow(100_001)).await;
    assert_eq!(problem.refused(413, "too-many-jobs")["at"], "/jobs");
    assert_eq!(taken(&place).await, 0);
    post(&place, "/v1/flows", JSON, flow(100_000)).await.ok();
    assert_eq!(taken(&place).await, 100_000);
}

/// Lines have no bound altogether: here are more bytes than any array may have, then more jobs.
#[tokio::test]
async fn lines_have_no_bound() {
    let place = Place::start().await;
    let padding = " ".repeat((1 << 20) - 100);
    let lines = futures_util::stream::iter(0..130).map(move |line| {
        let id = format!("01890000-0000-7000-8000-{line:012x}");
        Ok::<_, std::io::Error>(format!("{{\"kind\": \"k\", \"id\": \"{id}\"{padding}}}\n"))
    });
    let body = reqwest::Body::wrap_stream(lines);
    let request = place.request(Method::POST, "/v1/jobs").header("content-type", LINES).body(body);
    let answer = request.send().await.unwrap().text().await.unwrap();
    assert!(!answer.contains("code"), "{answer}");
    assert_eq!(taken(&place).await, 130);

    let line = |number| {
        format!("{{\"kind\": \"k\", \"id\": \"01890000-0000-7000-8000-{number:012x}\"}}\n")
    };
    let lines: String = (130..10_131).map(line).collect();
    let request = place.request(Method::POST, "/v1/jobs").header("content-type", LINES).body(lines);
    let answer = request.send().await.unwrap().text().await.unwrap();
    assert!(!answer.contains("code"), "{answer}");
    assert_eq!(taken(&place).await, 10_131);
}

#[tokio::test]
async fn an_array_has_ten_thousand_jobs() {
    let place = Place::start().await;
    let jobs = |count: usize| Value::from(vec![json!({"kind": "k"}); count]);
    let receipts = place.post("/v1/jobs", &jobs(10_000)).await.ok();
    assert_eq!(receipts["jobs"].as_array().unwrap().len(), 10_000);
    place.post("/v1/jobs", &jobs(10_001)).await.refused(413, "too-many-jobs");
    assert_eq!(taken(&place).await, 10_000);
}

#[tokio::test]
async fn a_line_has_a_mebibyte() {
    let place = Place::start().await;
    let line = |bytes: usize| {
        let job = "{\"kind\": \"k\", \"id\": \"01890000-0000-7000-8000-0000000000a1\"}";
        format!("{job}{}\n", " ".repeat(bytes - job.len()))
    };
    assert_eq!(post(&place, "/v1/jobs", LINES, line(1 << 20)).await.ok()["new"], 1);
    for body in [line((1 << 20) + 1), line(3 << 20)] {
        let answer = post(&place, "/v1/jobs", LINES, body).await.ok();
        assert_eq!((&answer["code"], &answer["at"]), (&json!("line-too-long"), &json!("line 1")));
    }
    assert_eq!(taken(&place).await, 1);
}

#[tokio::test]
async fn a_payload_has_a_quarter_of_a_mebibyte() {
    let place = Place::start().await;
    // What is kept is {"args":"xxx"}.
    let args = |bytes: usize| json!({"kind": "k", "args": "x".repeat(bytes - 11)});
    // What is kept is {"run":["xxx"]}.
    let run = |bytes: usize| json!({"run": ["x".repeat(bytes - 12)]});
    place.post("/v1/jobs", &args(256 << 10)).await.ok();
    place.post("/v1/jobs", &run(256 << 10)).await.ok();
    for job in [args((256 << 10) + 1), run((256 << 10) + 1)] {
        let problem = place.post("/v1/jobs", &job).await.refused(413, "payload-too-large");
        assert_eq!(problem["at"], "/args");
        // All or none.
        let several = json!([{"kind": "k"}, job]);
        let problem = place.post("/v1/jobs", &several).await.refused(413, "payload-too-large");
        assert_eq!(problem["at"], "/1/args");
    }
    assert_eq!(taken(&place).await, 2);
}

#[tokio::test]
async fn json_has_sixty_four_levels() {
    let place = Place::start().await;
    let nested = |depth: usize| {
        format!("{{\"kind\": \"k\", \"args\": {}{}}}", "[".repeat(depth), "]".repeat(depth))
    };
    post(&place, "/v1/jobs", JSON, nested(63)).await.ok();
    post(&place, "/v1/jobs", JSON, nested(64)).await.refused(400, "too-deep");
    post(&place, "/v1/jobs", JSON, nested(100_000)).await.refused(400, "too-deep");
    post(&place, "/v1/dead/retry", JSON, nested(64)).await.refused(400, "too-deep");
    let flow = format!("{{\"name\": \"n\", \"jobs\": {{\"a\": {}}}}}", nested(64));
    post(&place, "/v1/flows", JSON, flow).await.refused(400, "too-deep");
    let answer = post(&place, "/v1/jobs", LINES, nested(64) + "\n").await.ok();
    assert_eq!((&answer["code"], &answer["at"]), (&json!("too-deep"), &json!("line 1")));
    assert_eq!(taken(&place).await, 1);
}

#[tokio::test]
async fn names_have_two_hundred_bytes() {
    let place = Place::start().await;
    let (fits, long) = ("ä".repeat(100), "ä".repeat(100) + "x");
    for field in ["kind", "queue", "key"] {
        let mut job = json!({"kind": "k"});
        job[field] = json!(fits);
        place.post("/v1/jobs", &job).await.ok();
        job[field] = json!(long);
        let problem = place.post("/v1/jobs", &job).await.refused(422, "name-too-long");
        assert_eq!(problem["at"], format!("/{field}"));
    }
    let queue = |name: &str| format!("/v1/queues/{name}");
    place.send(Method::PATCH, &queue(&fits), &json!({})).await.ok();
    place.send(Method::PATCH, &queue(&long), &json!({})).await.refused(422, "name-too-long");
    let flow = |name: &str, job: &str| json!({"name": name, "jobs": {job: {"kind": "k"}}});
    place.post("/v1/flows", &flow(&fits, &fits)).await.ok();
    place.post("/v1/flows", &flow(&long, "a")).await.refused(422, "name-too-long");
    place.post("/v1/flows", &flow("n", &long)).await.refused(422, "name-too-long");
    let request =
        place.request(Method::POST, "/v1/jobs").header("idempotency-key", "k".repeat(201));
    let answer = read(request.json(&json!({"kind": "k"})).send().await.unwrap()).await;
    answer.refused(422, "name-too-long");
    let claim = json!({"number": 1, "slots": 1, "queues": [long]});
    place.post("/v1/work/00000000000000a1/claim", &claim).await.refused(422, "name-too-long");
    assert_eq!(taken(&place).await, 4, "what was refused has changed nothing");
}

#[tokio::test]
async fn a_flow_has_a_million_edges() {
    let place = Place::start().await;
    let parents: Vec<String> = (0..1_001).map(|index| format!("\"p{index}\"")).collect();
    let flow = |children: usize, parents: &[String]| {
        let mut jobs: Vec<String> =
            parents.iter().map(|name| format!("{name}: {{\"kind\": \"k\"}}")).collect();
        let after = parents.join(",");
        jobs.extend(
            (0..children)
                .map(|index| format!("\"c{index}\": {{\"kind\": \"k\", \"after\": [{after}]}}")),
        );
        format!("{{\"name\": \"n\", \"jobs\": {{{}}}}}", jobs.join(","))
    };
    let answer = post(&place, "/v1/flows", JSON, flow(1_000, &parents)).await;
    answer.refused(413, "too-many-edges");
    assert_eq!(taken(&place).await, 0);
    post(&place, "/v1/flows", JSON, flow(1_000, &parents[..1_000])).await.ok();
}

#[tokio::test]
async fn workers_over_plain_http_have_separate_limits() {
    let place = Place::start().await;
    let claim = "/v1/work/00000000000000a1/claim";
    let too_many = json!({"number": 1, "slots": 1_001});
    place.post(claim, &too_many).await.refused(422, "too-many-slots");
    let queues: Vec<String> = (0..1_001).map(|index| index.to_string()).collect();
    let too_many = json!({"number": 1, "slots": 1, "queues": queues});
    place.post(claim, &too_many).await.refused(422, "too-many-queues");
    let too_many = json!({"number": 1, "slots": 1, "holds": vec![json!([1, 1]); 10_001]});
    place.post(claim, &too_many).await.refused(413, "too-many-jobs");
    let reports = |field: &str, bytes: usize| {
        let ending = if field == "error" { "failed" } else { "finished" };
        let mut report = json!({"job": [1, 1], "ending": ending});
        report[field] = json!("x".repeat(bytes));
        json!({"reports": [report]})
    };
    let report = "/v1/work/00000000000000a1/report";
    for (field, code, bytes) in [
        ("result", "result-too-large", 256 << 10),
        ("log", "log-too-large", (256 << 10) + 1),
        ("error", "error-too-large", (64 << 10) + 1),
    ] {
        let problem = place.post(report, &reports(field, bytes)).await.refused(413, code);
        assert_eq!(problem["at"], format!("/reports/0/{field}"));
    }
    let ids = json!({"ids": vec!["01890000-0000-7000-8000-0000000000a1"; 10_001]});
    place.post("/v1/dead/retry", &ids).await.refused(413, "too-many-jobs");
}
