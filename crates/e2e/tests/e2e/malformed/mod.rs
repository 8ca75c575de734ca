//! Thousands of malformed requests and frames: the server rejects each of them, and what it stores
//! stays the same.
//!
//! A soak sends more of them, and checks that the server's memory does not grow.

mod http;
mod mutate;
mod socket;

use std::future::Future;
use std::net::Ipv4Addr;

use filch_api::client::Client;
use filch_api::submission::Submission;
use filch_e2e::faults;
use filch_e2e::jobs::{id, until_state};
use filch_e2e::random::TestRandom;
use filch_e2e::test_env::{TestEnv, TestServer, retry};
use filch_e2e::until::{TIMEOUT, until, when};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{IS_SOAK, MALFORMED, test_env};

/// Half of them requests, half of them frames.
const COUNT: u64 = MALFORMED / 2;

/// Connections of each kind at once.
const CLIENTS: u8 = 8;

/// The memory that the server may use more in the end than after the first tenth.
const GROWTH_BYTES: u64 = 32 << 20;

/// Fails if the server neither answers nor closes the connection.
async fn within<T>(future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(TIMEOUT, future).await;
    waited.expect("the server answers or closes the connection")
}

async fn send_malformed(address: &str, random: &mut TestRandom, count: u64) {
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let (one, other) = (random.fork(), random.fork());
        let (here, there) = (address.to_owned(), address.to_owned());
        let from = Ipv4Addr::new(127, 0, 1, number);
        clients.spawn(async move { http::requests(&here, one, count / u64::from(CLIENTS)).await });
        clients.spawn(async move {
            socket::frames(&there, from, other, count / u64::from(CLIENTS)).await;
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
}

/// Everything that the server shows of what it stores.
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

/// A job in the paused queue.
fn held(job: Value) -> Submission {
    Submission { queue: Some("held".to_owned()), ..serde_json::from_value(job).unwrap() }
}

/// Submits a job, waits for its end, and records it.
async fn run_job(env: &TestEnv, server: &TestServer, job: Submission, ending: &str) {
    env.submit(server, std::slice::from_ref(&job)).await;
    let (job, _) = until_state(&server.client, &id(&job), ending).await;
    env.client_log.shown(&job);
}

/// Makes jobs in every state that lasts; none of them can be claimed by a worker.
async fn make_jobs(env: &TestEnv, server: &TestServer) {
    env.limit(server, "held", 0).await;
    let queued = env.submit(server, &[held(json!({"kind": "k"}))]).await.remove(0).id;
    for job in [
        json!({"kind": "k", "after": [queued]}),
        json!({"kind": "k", "at": "2100-01-01T00:00:00Z"}),
        json!({"kind": "k", "priority": 5, "key": "k", "args": {"a": 1}}),
    ] {
        env.submit(server, &[held(job)]).await;
    }
    let _worker = env.worker(&server.url, 1, &[]);
    let hopeless = Submission { retry: Some(retry(1)), ..env.job(&["refuse", "0"]) };
    run_job(env, server, hopeless, "dead").await;
    run_job(env, server, env.job(&["run", "0"]), "succeeded").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_requests_and_frames_change_nothing() {
    let mut random = TestRandom::seeded();
    let env = test_env();
    let server = env.server(Some("4s")).await;
    let (client, address) = (&server.client, server.address());
    make_jobs(&env, &server).await;
    let no_worker = async || when(client.status().await.unwrap().workers == 0);
    until("the worker is gone", no_worker).await;
    let before = state(client).await;
    assert_eq!(before[0]["jobs"].as_array().unwrap().len(), 6);

    send_malformed(address, &mut random, COUNT / 10).await;
    let before_most = server.process.memory();
    send_malformed(address, &mut random, COUNT - COUNT / 10).await;
    until("all workers of these frames are gone", no_worker).await;
    if IS_SOAK {
        let growth = server.process.memory().saturating_sub(before_most);
        faults::measured("memory growth by malformed input", format!("{} KiB", growth >> 10));
        assert!(growth < GROWTH_BYTES, "{growth} bytes more than the {before_most} before");
    }
    faults::injected(2 * COUNT as usize, "malformed requests and frames");

    // Queues that only these frames have named are listed until the server has dropped the
    // sessions.
    until("no other queues are listed", async || when(state(client).await[2] == before[2])).await;
    assert_eq!(state(client).await, before);
    let log = server.stderr();
    assert!(!log.contains("panicked"), "{log}");
    let worker = env.worker(client.url(), 1, &[]);
    run_job(&env, &server, env.job(&["run", "0"]), "succeeded").await;
    drop(worker);
    let checked = env.stop_and_check(server).await;
    assert!(checked.jobs == 7 && checked.runs >= 3, "{checked:?}");
}
