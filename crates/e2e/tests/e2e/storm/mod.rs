//! A hundred thousand requests and frames that make no sense: the server refuses each of them, loses
//! nothing, keeps nothing, and goes on.

mod http;
mod mangle;
mod socket;

use std::future::Future;
use std::net::Ipv4Addr;
use std::time::Duration;

use filch_api::client::Client;
use filch_api::submission::Submission;
use filch_e2e::random::Random;
use filch_e2e::stage::{Server, Stage, retry};
use filch_e2e::until::{until, when};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{id, stage, until_state};

/// Of each.
const COUNT: u64 = 50_000;

/// So many talk at once.
const CROWD: u8 = 8;

/// What the server may hold more in the end than after the first of it.
const GROWTH_BYTES: u64 = 32 << 20;

/// Nothing takes longer than this, unless nobody answers.
async fn within<T>(future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(Duration::from_secs(60), future).await;
    waited.expect("the server answers, or hangs up")
}

async fn storm(address: &str, random: &mut Random, count: u64) {
    let mut crowd = JoinSet::new();
    for number in 0..CROWD {
        let (one, other) = (random.fork(), random.fork());
        let (here, there) = (address.to_owned(), address.to_owned());
        let from = Ipv4Addr::new(127, 0, 1, number);
        crowd.spawn(async move { http::requests(&here, one, count / u64::from(CROWD)).await });
        crowd.spawn(async move {
            socket::frames(&there, from, other, count / u64::from(CROWD)).await;
        });
    }
    while let Some(ended) = crowd.join_next().await {
        ended.unwrap();
    }
}

/// Bytes of memory that the process has in use.
fn memory(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// All that the server tells about what it keeps.
async fn state(client: &Client) -> Vec<Value> {
    let mut state = Vec::new();
    for path in ["/v1/jobs?limit=1000", "/v1/dead?limit=1000", "/v1/queues", "/v1/strategy"] {
        state.push(client.get::<Value>(path).await.unwrap());
    }
    for job in state[0]["jobs"].as_array().unwrap().clone() {
        let id = job["id"].as_str().unwrap();
        state.push(client.get(&format!("/v1/jobs/{id}")).await.unwrap());
    }
    state
}

/// A job in the queue that is paused.
fn held(job: Value) -> Submission {
    Submission { queue: Some("held".to_owned()), ..serde_json::from_value(job).unwrap() }
}

/// Submits a job and waits for its end, and remembers what was told.
async fn play(stage: &Stage, server: &Server, job: Submission, ending: &str) {
    stage.submit(server, std::slice::from_ref(&job)).await;
    let (job, _) = until_state(&server.client, &id(&job), ending).await;
    stage.clients.shown(&job);
}

/// Jobs in every state that lasts; none of them can be taken, whoever comes.
async fn furnish(stage: &Stage, server: &Server) {
    stage.limit(server, "held", 0).await;
    let queued = stage.submit(server, &[held(json!({"kind": "k"}))]).await.remove(0).id;
    for job in [
        json!({"kind": "k", "after": [queued]}),
        json!({"kind": "k", "at": "2100-01-01T00:00:00Z"}),
        json!({"kind": "k", "priority": 5, "key": "k", "args": {"a": 1}}),
    ] {
        stage.submit(server, &[held(job)]).await;
    }
    let _worker = stage.worker(&server.url, 1, &[]);
    let hopeless = Submission { retry: Some(retry(1)), ..stage.job(&["refuse", "0"]) };
    play(stage, server, hopeless, "dead").await;
    play(stage, server, stage.job(&["run", "0"]), "succeeded").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_malformed_requests_and_frames_change_nothing() {
    let mut random = Random::seeded();
    let stage = stage();
    let server = stage.server(Some("3s")).await;
    let (client, pid) = (&server.client, server.process.pid());
    let address = server.url.strip_prefix("http://").unwrap();
    furnish(&stage, &server).await;
    let nobody = async || when(client.status().await.unwrap().workers == 0);
    until("the worker is forgotten", nobody).await;
    let before = state(client).await;
    assert_eq!(before[0]["jobs"].as_array().unwrap().len(), 6);

    storm(address, &mut random, COUNT / 10).await;
    let little = memory(pid);
    storm(address, &mut random, COUNT - COUNT / 10).await;
    until("all strangers are forgotten", nobody).await;
    let grown = memory(pid).saturating_sub(little);
    assert!(grown < GROWTH_BYTES, "{grown} bytes more than the {little} of the beginning");

    assert_eq!(state(client).await, before);
    let said = server.said();
    assert!(!said.contains("panicked"), "{said}");
    let worker = stage.worker(client.url(), 1, &[]);
    play(&stage, &server, stage.job(&["run", "0"]), "succeeded").await;
    drop(worker);
    let judged = stage.judge(server).await;
    assert_eq!((judged.jobs, judged.runs), (7, 3), "{judged:?}");
}
