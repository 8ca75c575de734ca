//! Who may do what: every operation of the OpenAPI document, tried by everybody. What is expected
//! stands in the table of docs/security.md, and nowhere else.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::client::{Answer, Place, read};

/// A line of the table: the cell of each kind of client.
type Line = BTreeMap<String, String>;

const ROLES: [&str; 5] = ["submit", "work", "view", "operate", "admin"];

fn table() -> BTreeMap<String, Line> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let page = std::fs::read_to_string(path).unwrap();
    let cells = |line: &str| -> Vec<String> {
        let line = line.trim().trim_matches('|');
        line.split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect()
    };
    let mut lines = page.lines().skip_while(|line| !line.starts_with("| operation |"));
    let heading = cells(lines.next().expect("docs/security.md has the table"));
    let rows = lines.skip(1).take_while(|line| line.starts_with('|')).map(cells);
    let named = |row: Vec<String>| (row[0].clone(), heading.iter().cloned().zip(row).collect());
    rows.map(named).collect()
}

/// A server with a job, and clients with different tokens.
struct MatrixEnv {
    place: Place,
    admin: String,
    job: String,
}

impl MatrixEnv {
    async fn start() -> Self {
        let place = Place::start().await;
        let job = place.submit(&json!({"kind": "k", "queue": "other"})).await;
        let admin = place.post("/v1/tokens", &json!({"role": "admin"})).await.ok();
        let admin = admin["secret"].as_str().unwrap().to_owned();
        Self { place, admin, job }
    }

    async fn make(&self, wanted: Value) -> String {
        let request = self.place.request(Method::POST, "/v1/tokens").bearer_auth(&self.admin);
        let made = read(request.json(&wanted).send().await.unwrap()).await.ok();
        made["secret"].as_str().unwrap().to_owned()
    }

    /// Asks for an operation in a way that changes little.
    async fn ask(&self, operation: &str, method: &str, path: &str, token: Option<&str>) -> Answer {
        // A worker's id belongs to its token.
        let id = token.and_then(|token| token.get(6..14));
        let id = id.and_then(|id| u32::from_str_radix(id, 16).ok()).unwrap_or(0xa1);
        let worker = format!("{id:016x}");
        let path = path
            .replace("/v1/jobs/{id}", &format!("/v1/jobs/{}", self.job))
            .replace("{worker}", &worker)
            .replace("/v1/workers/{id}", "/v1/workers/00000000000000a1")
            .replace("{name}", "other")
            .replace("{id}", "00000000");
        let body = match operation {
            "submitJobs" => Some(json!({"kind": "k", "queue": "other"})),
            "submitFlow" => {
                Some(json!({"name": "f", "jobs": {"a": {"kind": "k", "queue": "other"}}}))
            }
            "setPriority" => Some(json!({"priority": 1})),
            "retryDead" | "discardDead" => Some(json!({"queue": "other"})),
            "setQueue" => Some(json!({"weight": 1})),
            "purgeQueue" => Some(json!({"dry_run": true})),
            "stopWorker" => Some(json!({})),
            "setStrategy" => Some(json!({"strategy": "priority"})),
            "claim" => Some(json!({"instance": "i", "number": 1, "slots": 0, "queues": ["other"]})),
            "heartbeat" => Some(json!({"instance": "i", "holds": []})),
            "report" => {
                Some(json!({"instance": "i", "reports": [{"job": [999, 1], "ending": "finished"}]}))
            }
            "goodbye" => Some(json!({"instance": "i"})),
            "makeToken" => Some(json!({"role": "view"})),
            _ => None,
        };
        let mut request = self.place.request(method.to_uppercase().parse().unwrap(), &path);
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let request = match body {
            Some(body) => request.json(&body),
            None => request.header("content-length", "0"),
        };
        let response = request.send().await.unwrap();
        if operation == "events" && response.status().is_success() {
            // Nothing is waited for that may never come.
            return Answer { status: 200, kind: String::new(), body: Value::Null };
        }
        read(response).await
    }
}

/// Every operation: its name, its method and its path.
fn operations(document: &Value) -> Vec<(String, String, String)> {
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let name = operation["operationId"].as_str().unwrap();
            operations.push((name.to_owned(), method.clone(), path.clone()));
        }
    }
    operations
}

#[track_caller]
fn check(answer: &Answer, expected: &str, cell: &str) {
    match expected {
        "yes" => {
            // Nothing else is wrong with the request, but for what it is about, and that it is no
            // socket.
            let is_let_in = matches!(answer.status, 200..300 | 404 | 409 | 410);
            let is_no_socket = answer.body["code"] == "no-websocket";
            assert!(is_let_in || is_no_socket, "{cell}: {answer:?}");
        }
        "" => {
            let status = if cell.contains("without") { 401 } else { 403 };
            assert_eq!(answer.status, status, "{cell}: {answer:?}");
            assert!(answer.body["help"].as_str().is_some_and(|help| help.contains("token")));
        }
        other => panic!("{cell}: what does {other:?} mean?"),
    }
}

#[tokio::test]
async fn every_cell_of_the_role_table_is_true() {
    let env = MatrixEnv::start().await;
    let mut tokens: BTreeMap<&str, String> = BTreeMap::new();
    for role in ROLES {
        tokens.insert(role, env.make(json!({"role": role})).await);
    }
    let document = env.ask("openapi", "get", "/openapi.json", Some(&env.admin)).await.ok();
    let operations = operations(&document);
    let mut table = table();
    let mut cells = 0;
    for (name, method, path) in &operations {
        let line = table.remove(name);
        let line = line.unwrap_or_else(|| panic!("docs/security.md has no line for {name}"));
        let answer = env.ask(name, method, path, None).await;
        check(&answer, &line["without"], &format!("{name} without a token"));
        let security = &document["paths"][path][method]["security"];
        assert_eq!(*security == json!([{}]), line["without"] == "yes", "{name}: {security}");
        cells += 1;
        for role in ROLES {
            let answer = env.ask(name, method, path, Some(&tokens[role])).await;
            check(&answer, &line[role], &format!("{name} as {role}"));
            cells += 1;
        }
    }
    assert!(table.is_empty(), "there is nothing of the name {:?}", table.keys());
    assert!(operations.len() >= 31 && cells == operations.len() * 6, "{cells}");
}

/// Invalid tokens are refused everywhere except where no token is needed.
#[tokio::test]
async fn invalid_tokens_are_refused_everywhere() {
    let env = MatrixEnv::start().await;
    let expired = env.make(json!({"role": "admin", "expires": "1ms"})).await;
    let revoked = env.make(json!({"role": "admin"})).await;
    let path = format!("/v1/tokens/{}/revoke", &revoked[6..14]);
    let request = env.place.request(Method::POST, &path).bearer_auth(&env.admin);
    read(request.send().await.unwrap()).await.ok();
    tokio::time::sleep(Duration::from_millis(5)).await;
    let mut forged = env.admin.clone();
    let last = if forged.ends_with('0') { "1" } else { "0" };
    forged.replace_range(forged.len() - 1.., last);
    let document = env.ask("openapi", "get", "/openapi.json", Some(&env.admin)).await.ok();
    let table = table();
    for (name, method, path) in operations(&document) {
        let is_open = table[&name]["without"] == "yes";
        for (kind, token, why) in [
            ("expired", &*expired, "expired"),
            ("revoked", &*revoked, "revoked"),
            ("forged", &*forged, "unknown token"),
            ("strange", "filch_nonsense", "malformed token"),
        ] {
            let answer = env.ask(&name, &method, &path, Some(token)).await;
            if is_open {
                assert_eq!(answer.status, 200, "{name} {kind}: {answer:?}");
            } else {
                let problem = answer.refused(401, "bad-token");
                assert!(problem["title"].as_str().unwrap().contains(why), "{name}: {problem}");
            }
        }
    }
}

/// A token for one queue, in front of what is in another.
#[tokio::test]
async fn tokens_for_one_queue_reach_no_other() {
    let env = MatrixEnv::start().await;
    let document = env.ask("openapi", "get", "/openapi.json", Some(&env.admin)).await.ok();
    let table = table();
    let roles = &ROLES[..4];
    for role in roles {
        let token = env.make(json!({"role": role, "queues": ["mine"]})).await;
        for (name, method, path) in operations(&document) {
            let line = &table[&name];
            if line[*role] != "yes" {
                continue;
            }
            let cell = format!("{name} as {role} for another queue");
            let answer = env.ask(&name, &method, &path, Some(&token)).await;
            match &*line["with --queue"] {
                "yes" => check(&answer, "yes", &cell),
                "no" => drop(answer.refused(403, "wrong-queue")),
                // A worker sends its queues once it is connected.
                "its queues" if name == "work" => check(&answer, "yes", &cell),
                "its queues" if method == "get" && !path.contains('{') => {
                    assert_eq!(answer.status, 200, "{cell}: {answer:?}");
                    assert!(!answer.body.to_string().contains("other"), "{cell}: {answer:?}");
                }
                "its queues" => {
                    let code =
                        if path.contains("/jobs/{id}") { "not-found" } else { "wrong-queue" };
                    assert_eq!(answer.body["code"], code, "{cell}: {answer:?}");
                }
                other => panic!("{cell}: what does {other:?} mean?"),
            }
        }
    }
}
