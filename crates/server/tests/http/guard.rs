//! Requests that are refused: other hosts and origins, and bodies that are not JSON.

use reqwest::Method;
use serde_json::json;

use crate::client::{Place, read};

#[tokio::test]
async fn other_names_of_this_machine_are_refused() {
    let place = Place::start().await;
    for host in ["evil.example", "evil.example:80", "127.0.0.1", "localhost.evil.example"] {
        let request = place.request(Method::GET, "/v1/status").header("host", host);
        read(request.send().await.unwrap()).await.refused(421, "wrong-host");
    }
    let host = format!("localhost:{}", place.server.address().port());
    let request = place.request(Method::GET, "/v1/status").header("host", host);
    read(request.send().await.unwrap()).await.ok();
}

#[tokio::test]
async fn other_origins_can_read_and_change_nothing() {
    let place = Place::start().await;
    for origin in ["http://evil.example", "https://127.0.0.1:1", "null"] {
        let request = place.request(Method::POST, "/v1/jobs").header("origin", origin);
        let request = request.json(&json!({"kind": "k"}));
        read(request.send().await.unwrap()).await.refused(403, "wrong-origin");
    }
    let request = place.request(Method::GET, "/v1/work").header("origin", "http://evil.example");
    let request = request.header("connection", "upgrade").header("upgrade", "websocket");
    read(request.send().await.unwrap()).await.refused(403, "wrong-origin");
    let request = place.request(Method::POST, "/v1/jobs").header("origin", place.url(""));
    read(request.json(&json!({"kind": "k"})).send().await.unwrap()).await.ok();
    // Without CORS a page of another site cannot read what it is answered.
    let request = place.request(Method::GET, "/v1/jobs").header("origin", "http://evil.example");
    let response = request.send().await.unwrap();
    assert!(response.headers().get("access-control-allow-origin").is_none());
    assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    assert_eq!(response.headers()["cache-control"], "no-store");
}

#[tokio::test]
async fn bodies_without_a_json_content_type_are_refused() {
    let place = Place::start().await;
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonp"] {
        let request = place.request(Method::POST, "/v1/jobs").header("content-type", kind);
        let request = request.body("{\"kind\": \"k\"}");
        read(request.send().await.unwrap()).await.refused(415, "not-json");
    }
    let request = place.request(Method::POST, "/v1/jobs").body("{\"kind\": \"k\"}");
    read(request.send().await.unwrap()).await.refused(415, "not-json");
    let request = place.request(Method::POST, "/v1/jobs");
    let request = request.header("content-type", "Application/JSON; charset=utf-8");
    read(request.body("{\"kind\": \"k\"}").send().await.unwrap()).await.ok();
}

#[tokio::test]
async fn all_errors_are_problem_documents() {
    let place = Place::start().await;
    place.get("/v2/jobs").await.refused(404, "not-found");
    place.get("/").await.refused(404, "not-found");
    let answer = place.send(Method::DELETE, "/v1/jobs", &json!({})).await;
    answer.refused(405, "method-not-allowed");
    let answer = place.get("/v1/work").await;
    assert_eq!(answer.body["code"], "no-websocket", "{answer:?}");
    for path in ["/v1/status", "/v1/queues", "/v1/workers", "/v1/strategy", "/metrics", "/readyz"] {
        let problem = place.get(&format!("{path}?colour=red")).await.refused(400, "bad-query");
        assert!(problem["title"].as_str().unwrap().contains("`colour`"), "{problem}");
    }
    let request =
        place.request(Method::POST, "/v1/jobs").header("content-type", "application/json");
    read(request.body("{\"kind\": ").send().await.unwrap()).await.refused(400, "malformed");
    let request =
        place.request(Method::POST, "/v1/jobs").header("content-type", "application/json");
    read(request.body(&b"{\"kind\": \"\xff\"}"[..]).send().await.unwrap())
        .await
        .refused(400, "malformed");
}
