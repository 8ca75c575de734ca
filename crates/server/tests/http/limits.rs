//! Every bound, at it and one beyond it.

use reqwest::Method;
use serde_json::{Value, json};

use crate::client::{Answer, Place, read};

async fn post(place: &Place, path: &str, kind: &str, body: String) -> Answer {
    let request = place.request(Method::POST, path).header("content-type", kind).body(body);
    read(request.send().await.unwrap()).await
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
    // The same without a length that is said before.
    let piece = Ok::<_, std::io::Error>(padded((1 << 20) + 1));
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter([piece]));
    let request = place.request(Method::POST, "/v1/jobs").header("content-type", JSON).body(body);
    read(request.send().await.unwrap()).await.refused(413, "body-too-large");
}

#[tokio::test]
async fn an_array_or_a_flow_has_more() {
    let place = Place::start().await;
    let array = format!("[{{\"kind\": \"k\"}}{}]", " ".repeat(2 << 20));
    post(&place, "/v1/jobs", JSON, array).await.ok();
    let flow = format!(
        "{{\"name\": \"n\", \"jobs\": {{\"a\": {{\"kind\": \"k\"}}}}{}}}",
        " ".repeat(2 << 20)
    );
    post(&place, "/v1/flows", JSON, flow).await.ok();
    let array = format!("[{{\"kind\": \"k\"}}{}]", " ".repeat(128 << 20));
    post(&place, "/v1/jobs", JSON, array).await.refused(413, "body-too-large");
}

#[tokio::test]
async fn an_array_has_ten_thousand_jobs() {
    let place = Place::start().await;
    let jobs = |count: usize| Value::from(vec![json!({"kind": "k"}); count]);
    let taken = place.post("/v1/jobs", &jobs(10_000)).await.ok();
    assert_eq!(taken["jobs"].as_array().unwrap().len(), 10_000);
    place.post("/v1/jobs", &jobs(10_001)).await.refused(413, "too-many-jobs");
    assert_eq!(place.get("/v1/status").await.ok()["jobs"], 10_000);
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
}

#[tokio::test]
async fn a_payload_has_a_quarter_of_a_mebibyte() {
    let place = Place::start().await;
    let job = |bytes: usize| json!({"kind": "k", "args": "x".repeat(bytes)});
    place.post("/v1/jobs", &job((256 << 10) - 20)).await.ok();
    let problem = place.post("/v1/jobs", &job(256 << 10)).await.refused(413, "payload-too-large");
    assert_eq!(problem["at"], "/args");
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
    let queue = format!("/v1/queues/{long}");
    place.send(Method::PATCH, &queue, &json!({})).await.refused(422, "name-too-long");
    let flow = json!({"name": long, "jobs": {"a": {"kind": "k"}}});
    place.post("/v1/flows", &flow).await.refused(422, "name-too-long");
    let flow = json!({"name": "n", "jobs": {long.as_str(): {"kind": "k"}}});
    place.post("/v1/flows", &flow).await.refused(422, "name-too-long");
    let request =
        place.request(Method::POST, "/v1/jobs").header("idempotency-key", "k".repeat(201));
    let answer = read(request.json(&json!({"kind": "k"})).send().await.unwrap()).await;
    answer.refused(422, "name-too-long");
    let claim = json!({"number": 1, "slots": 1, "queues": [long]});
    place.post("/v1/work/00000000000000a1/claim", &claim).await.refused(422, "name-too-long");
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
    post(&place, "/v1/flows", JSON, flow(1_000, &parents[..1_000])).await.ok();
}

#[tokio::test]
async fn workers_over_plain_http_have_bounds_of_their_own() {
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
