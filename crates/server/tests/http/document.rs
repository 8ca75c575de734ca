//! The OpenAPI document: what is committed is what is served.

use std::path::Path;

use crate::client::Place;

/// With FILCH_BLESS=1 the committed file is written anew.
#[tokio::test]
async fn the_openapi_document_is_the_committed_one() {
    let place = Place::start().await;
    let response = place.request(reqwest::Method::GET, "/openapi.json").send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/json");
    let served = response.text().await.unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/openapi.json");
    if std::env::var_os("FILCH_BLESS").is_some_and(|bless| bless == "1") {
        std::fs::write(&path, &served).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        served == committed,
        "the API has changed: look at the change, and run this again with FILCH_BLESS=1"
    );
}

/// Every reference leads somewhere, every operation has a name of its own, says how it is refused,
/// and is there.
#[tokio::test]
async fn every_operation_of_the_document_exists_and_is_described() {
    let place = Place::start().await;
    let document = place.get("/openapi.json").await.ok();
    assert_eq!(document["openapi"], "3.1.0");
    let text = document.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1) {
        let pointer = reference.split('"').next().unwrap();
        assert!(document.pointer(pointer).is_some(), "nothing at {pointer}");
    }
    let mut names = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap();
            assert!(!names.contains(&name), "{name} twice");
            names.push(name);
            for field in ["summary", "tags"] {
                assert!(operation.get(field).is_some(), "{method} {path} has no {field}");
            }
            let responses = operation["responses"].as_object().unwrap();
            assert!(responses.contains_key("default"), "{method} {path}");
            let is_described = |response: &serde_json::Value| {
                response.get("$ref").is_some()
                    || response["description"].as_str().is_some_and(|text| !text.is_empty())
            };
            assert!(responses.values().all(is_described), "{method} {path}");
            if path == "/v1/events" {
                continue;
            }
            let method = method.to_uppercase().parse().unwrap();
            let path = path.replace("{worker}", "00000000000000a1").replace(['{', '}'], "");
            let request = place.request(method, &path).header("content-length", "0");
            let answer = crate::client::read(request.send().await.unwrap()).await;
            let is_missing =
                answer.status == 405 || answer.body["title"].as_str() == Some("unknown path");
            assert!(!is_missing, "{path}: {answer:?}");
        }
    }
    assert!(names.len() >= 27, "{names:?}");
}

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api.md");
    std::fs::read_to_string(path).unwrap()
}

/// The examples of docs/api.md, one after another, as somebody would type them.
#[tokio::test]
async fn the_examples_on_the_page_work() {
    let place = Place::start().await;
    let page = page();
    let mut script = String::from("set -euo pipefail\n");
    for block in page.split("```sh\n").skip(1) {
        script += block.split("```").next().unwrap();
    }
    let address = place.server.address().to_string();
    let script = script
        .replace("127.0.0.1:7420", &address)
        .replace("curl -s ", "curl -sS --fail-with-body ");
    let output =
        tokio::process::Command::new("bash").arg("-c").arg(&script).output().await.unwrap();
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}\n{complained}");
    for piece in [
        "\"seq\":2,\"new\":true}{",
        "\"seq\":2,\"new\":false}",
        "{\"lines\":10000,\"new\":",
        "\"fetch\":{\"id\":\"",
        "\"code\":\"no-worker\"",
        "{\"done\":true}",
        "{\"count\":0}",
        "{\"keep\":[[5,1]],\"cancel\":[],\"drain\":false,\"lease_ms\":600000}",
        "{\"accepted\":[[5,1]],\"refused\":[]}",
        "args\t{\"invoice\": 7}",
        "filch_jobs ",
    ] {
        assert!(said.contains(piece), "no {piece}\n{said}");
    }
}

/// Every code that is given anywhere is explained on the page.
#[test]
fn every_code_is_on_the_page() {
    let page = page();
    let codes = page.split("## Error codes").nth(1).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = 0;
    for folder in ["src/http", "../api/src", "../api/src/flow_file"] {
        let entries = std::fs::read_dir(root.join(folder)).unwrap();
        for file in entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
            let text = std::fs::read_to_string(file).unwrap();
            for call in text.split("Problem::new(").chain(text.split("Self::new(")).skip(1) {
                let mut words = call.split('"');
                let status = words.next().unwrap_or_default();
                let is_call = status.trim().trim_end_matches(',').parse::<u16>().is_ok();
                if let Some(code) = words.next().filter(|_| is_call) {
                    found += 1;
                    assert!(codes.contains(&format!("`{code}`")), "`{code}` is not explained");
                }
            }
        }
    }
    assert!(found > 30, "{found}");
}
