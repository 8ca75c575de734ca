//! Flows: taken all or none, by name.

use reqwest::Method;
use serde_json::{Value, json};

use crate::client::{Answer, Place, read};

fn report() -> Value {
    json!({"name": "report", "jobs": {
        "join": {"kind": "join", "after": ["map-1", "map-2"], "when": "all-succeeded"},
        "map-1": {"kind": "map", "after": ["fetch"]},
        "map-2": {"kind": "map", "after": ["fetch"]},
        "fetch": {"run": ["./fetch.sh"]}
    }})
}

async fn submit(place: &Place, key: &str, flow: &Value) -> Answer {
    let request = place.request(Method::POST, "/v1/flows").header("idempotency-key", key);
    read(request.json(flow).send().await.unwrap()).await
}

#[tokio::test]
async fn a_flow_runs_in_the_order_of_its_dependencies() {
    let place = Place::start().await;
    let answer = place.post("/v1/flows", &report()).await;
    assert_eq!(answer.status, 201);
    let flow = answer.ok();
    assert_eq!(flow["name"], "report");
    let id = |name: &str| flow["jobs"][name]["id"].as_str().unwrap().to_owned();
    let join = place.job(&id("join")).await;
    assert_eq!(join["state"], "blocked");
    assert_eq!(join["after"], json!([id("map-1"), id("map-2")]));

    let mut worker = place.worker("00000000000000a1");
    let mut order = Vec::new();
    for _ in 0..4 {
        let claimed = worker.claim("10s").await.ok();
        order.push(claimed["jobs"][0]["kind"].as_str().unwrap().to_owned());
        let hold = &claimed["jobs"][0]["job"];
        worker.report(&json!({"job": hold, "ending": "finished"})).await.ok();
    }
    assert_eq!(order, ["command", "map", "map", "join"]);
    assert_eq!(place.ended(&id("join")).await["state"], "succeeded");
}

#[tokio::test]
async fn the_same_key_is_the_same_flow() {
    let place = Place::start().await;
    let first = submit(&place, "k", &report()).await;
    assert_eq!(first.status, 201);
    let first = first.ok();
    let second = submit(&place, "k", &report()).await;
    assert_eq!(second.status, 200);
    let second = second.ok();
    for name in ["join", "map-1", "map-2", "fetch"] {
        assert_eq!(first["jobs"][name]["id"], second["jobs"][name]["id"]);
        assert_eq!(second["jobs"][name]["new"], false);
    }
    let mut other = report();
    other["jobs"]["fetch"]["run"] = json!(["./other.sh"]);
    let problem = submit(&place, "k", &other).await.refused(409, "id-conflict");
    assert_eq!(problem["at"], "/jobs/fetch");
}

#[tokio::test]
async fn a_flow_may_depend_on_existing_jobs_only() {
    let place = Place::start().await;
    let parent = place.submit(&json!({"kind": "p"})).await;
    let flow = json!({"name": "n", "jobs": {"a": {"kind": "k", "after": [parent]}}});
    let taken = place.post("/v1/flows", &flow).await.ok();
    let job = place.job(taken["jobs"]["a"]["id"].as_str().unwrap()).await;
    assert_eq!(job["state"], "blocked");

    let nobody = "01890000-0000-7000-8000-00000000ffff";
    let flow = json!({"name": "n", "jobs": {"a": {"kind": "k", "after": [nobody]}}});
    let problem = place.post("/v1/flows", &flow).await.refused(404, "unknown-parent");
    assert_eq!(problem["at"], "/jobs/a");
    assert!(problem["title"].as_str().unwrap().contains(nobody), "{problem}");
}

#[tokio::test]
async fn invalid_flows_are_refused_by_name_and_leave_nothing() {
    let place = Place::start().await;
    // As text: the cycle is reported from the first job on.
    let flow = r#"{"name": "n", "jobs": {
        "map": {"kind": "k", "after": ["join"]}, "join": {"kind": "k", "after": ["map"]}
    }}"#;
    let request = place.request(Method::POST, "/v1/flows");
    let request = request.header("content-type", "application/json").body(flow);
    let problem = read(request.send().await.unwrap()).await.refused(422, "cycle");
    assert_eq!(problem["title"], "the flow has a cycle: map -> join -> map");
    let flow = json!({"name": "n", "jobs": {
        "fetch": {"kind": "k"}, "map": {"kind": "k", "after": ["fecth"]}
    }});
    let problem = place.post("/v1/flows", &flow).await.refused(404, "unknown-parent");
    assert_eq!(problem["help"], "did you mean \"fetch\"?");
    assert_eq!(problem["at"], "/jobs/map/after/0");
    place.post("/v1/flows", &json!({"name": "n", "jobs": {}})).await.refused(422, "invalid");
    place.post("/v1/flows", &json!({"jobs": {}})).await.refused(422, "invalid");
    place.post("/v1/flows", &json!([])).await.refused(422, "invalid");
    assert_eq!(place.get("/v1/status").await.ok()["jobs"], 0);
}

#[tokio::test]
async fn a_flow_of_a_hundred_thousand_jobs_gets_one_response() {
    let place = Place::start().await;
    let mut text = String::from("{\"name\": \"wide\", \"jobs\": {\"first\": {\"kind\": \"k\"}");
    for index in 1..100_000 {
        text += &format!(",\"j{index}\": {{\"kind\": \"k\", \"after\": [\"first\"]}}");
    }
    text += "}}";
    let send = async |text: String| {
        let request = place.request(Method::POST, "/v1/flows");
        let request = request.header("content-type", "application/json").body(text);
        read(request.send().await.unwrap()).await
    };
    let flow = send(text.clone()).await.ok();
    assert_eq!(flow["jobs"].as_object().unwrap().len(), 100_000);
    let one_more = text.replace("}}}", "},\"last\": {\"kind\": \"k\"}}}");
    send(one_more).await.refused(413, "too-many-jobs");
}
