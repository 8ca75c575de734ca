//! The workers of a few lines under `examples/`, run as they are.

use std::cell::RefCell;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use filch_store::{Store, Transient};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::client::{PATIENCE, Place, eventually};

/// One of the examples, at work for a server.
struct Example {
    child: Child,
}

impl Example {
    fn start(place: &Place, name: &str) -> Self {
        let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples");
        let program = if name.ends_with(".py") { "python3" } else { "bash" };
        let child = Command::new(program)
            .arg(root.join(name))
            .arg(place.url(""))
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self { child }
    }

    fn terminate(&self) {
        let pid = self.child.id().unwrap().to_string();
        let killed = std::process::Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        assert!(killed.success());
    }

    async fn left(mut self) {
        let left = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        let status = left.expect("it ends on SIGTERM").unwrap();
        assert!(status.success(), "{status}");
    }
}

async fn log_of(place: &Place, id: &str) -> String {
    let log = place.get(&format!("/v1/jobs/{id}/log")).await.ok();
    log["text"].as_str().unwrap_or_default().to_owned()
}

/// Everything that a worker must do.
async fn works(name: &str) {
    let store: Arc<dyn Store> = Arc::new(Transient::default());
    // Heartbeats are due ten times a lease: no machine stalls for all of it.
    let place = Place::with(Arc::clone(&store), Duration::from_secs(20), None).await;
    let jobs = json!([
        {"run": ["printf", "%s|", "a\tb", "c\nd", "", "back\\slash \"quoted\" 100%"]},
        {"run": ["sh", "-c", "cat; echo \"$GREETING $FILCH_FENCE\"; pwd"], "args": {"n": [1, 2]},
            "env": {"GREETING": "hello there"}, "dir": "/tmp"},
        {"kind": "print", "args": "just\tprinted"},
        {"run": ["sh", "-c", "echo oops >&2; exit 3"], "retry": 1},
        {"run": ["sleep", "100"], "timeout": "300ms", "retry": 1},
        {"run": ["/no/such/program"], "retry": 1},
    ]);
    let taken = place.post("/v1/jobs", &jobs).await.ok();
    let ids: Vec<String> = taken["jobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["id"].as_str().unwrap().to_owned())
        .collect();
    let example = Example::start(&place, name);
    for (index, (state, error)) in [
        ("succeeded", ""),
        ("succeeded", ""),
        ("succeeded", ""),
        ("dead", "exit code 3"),
        ("dead", "timed out"),
        ("dead", ""),
    ]
    .into_iter()
    .enumerate()
    {
        let job = place.ended(&ids[index]).await;
        assert_eq!(job["state"], state, "{name}: {job}");
        let text = job["error"].as_str().unwrap_or_default();
        assert!(text.contains(error), "{name}: {job}");
    }
    let log = log_of(&place, &ids[0]).await;
    assert_eq!(log.trim_end(), "a\tb|c\nd||back\\slash \"quoted\" 100%|", "{name}");
    let log = log_of(&place, &ids[1]).await;
    assert!(log.replace(", ", ",").starts_with("{\"n\":") && log.contains("[1,"), "{name}: {log}");
    assert!(log.ends_with("hello there 1\n/tmp\n"), "{name}: {log}");
    assert!(log_of(&place, &ids[2]).await.contains("just"), "{name}");
    assert_eq!(log_of(&place, &ids[3]).await, "oops\n", "{name}");

    outlives_its_lease(&place, name).await;
    is_cancelled(&place, name).await;
    drains(&place, example, name).await;
    assert_eq!(place.get("/v1/status").await.ok()["lost"], 0, "{name} was there all the time");
}

/// A job that lasts longer than a lease stays with its worker.
async fn outlives_its_lease(place: &Place, name: &str) {
    let id = place.submit(&json!({"run": ["sleep", "22"]})).await;
    let job = place.ended(&id).await;
    assert_eq!(job["state"], "succeeded", "{name}: {job}");
    assert_eq!(job["ledger"].as_array().unwrap().len(), 1, "{name}: {job}");
}

/// A cancelled job is stopped, with all that it has started.
async fn is_cancelled(place: &Place, name: &str) {
    let marker = format!("4{:09}", std::process::id());
    let script = format!("sleep {marker} & sleep {marker}");
    let id = place.submit(&json!({"run": ["sh", "-c", script]})).await;
    eventually("it runs", async || place.job(&id).await["state"] == "running").await;
    place.poke(&format!("/v1/jobs/{id}/cancel")).await.ok();
    assert_eq!(place.job(&id).await["state"], "cancelled", "{name}");
    eventually("nothing of it is left", async || !is_running(&marker)).await;
}

fn is_running(marker: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.into_iter().any(|process| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).split('\0').any(|word| word == marker)
    })
}

/// On SIGTERM it finishes its job and takes no more.
async fn drains(place: &Place, example: Example, name: &str) {
    // Only what has begun is finished: what was given and not read yet goes back.
    let folder = tempfile::tempdir().unwrap();
    let began = folder.path().join("began");
    let script = "touch \"$0\"; sleep 1";
    let last = place.submit(&json!({"run": ["sh", "-c", script, began]})).await;
    eventually("it runs", async || began.exists()).await;
    let left_over = place.submit(&json!({"run": ["true"]})).await;
    example.terminate();
    example.left().await;
    assert_eq!(place.ended(&last).await["state"], "succeeded", "{name}");
    assert_eq!(place.job(&left_over).await["state"], "queued", "{name}");
    assert_eq!(place.get("/v1/workers").await.ok(), json!({"workers": []}), "{name}");
    place.poke(&format!("/v1/jobs/{left_over}/cancel")).await.ok();
}

/// A worker whose server is away too long stops its job and comes back as another.
async fn gives_up_and_comes_back(name: &str) {
    let store: Arc<dyn Store> = Arc::new(Transient::default());
    let place = Place::with(Arc::clone(&store), Duration::from_secs(1), None).await;
    let marker = format!("5{:09}", std::process::id());
    let id = place.submit(&json!({"run": ["sleep", marker]})).await;
    let example = Example::start(&place, name);
    eventually("it runs", async || place.job(&id).await["state"] == "running").await;
    let ids = async || -> Vec<Value> {
        let workers = place.get("/v1/workers").await.ok()["workers"].clone();
        workers.as_array().unwrap().iter().map(|worker| worker["id"].clone()).collect()
    };
    // On a slow machine it may have been lost before, and may be meanwhile: in this order that is
    // known.
    let first = RefCell::new(Vec::new());
    eventually("it is there", async || {
        let ids = ids().await;
        *first.borrow_mut() = ids;
        !first.borrow().is_empty()
    })
    .await;
    let first = first.into_inner();
    let lost = async || place.get("/v1/status").await.ok()["lost"].as_u64().unwrap();
    let before = lost().await;
    let pid = example.child.id().unwrap().to_string();
    let signal = |signal: &str| {
        let sent = std::process::Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(sent.success());
    };
    // Suspended for longer than its lease: when it goes on, another worker may have its job.
    signal("-STOP");
    eventually("it is lost", async || lost().await > before).await;
    signal("-CONT");
    let others = async || {
        let ids = ids().await;
        !ids.is_empty() && ids.iter().all(|id| !first.contains(id))
    };
    eventually("it is back under a new id", others).await;
    eventually("the job runs again", async || {
        place.job(&id).await["state"] == "running" && is_running(&marker)
    })
    .await;
    place.poke(&format!("/v1/jobs/{id}/cancel")).await.ok();
    example.terminate();
    example.left().await;
}

#[tokio::test]
async fn the_worker_in_python_works() {
    works("worker.py").await;
}

#[tokio::test]
async fn the_worker_in_bash_works() {
    works("worker.sh").await;
}

#[tokio::test]
async fn the_worker_in_python_stops_jobs_that_it_has_lost() {
    gives_up_and_comes_back("worker.py").await;
}

#[tokio::test]
async fn the_worker_in_bash_stops_jobs_that_it_has_lost() {
    gives_up_and_comes_back("worker.sh").await;
}
