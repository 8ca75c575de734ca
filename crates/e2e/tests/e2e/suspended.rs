//! A server that is suspended while a job ends: the worker's lease runs out, it comes back under
//! another id, and what it reports for the older one is kept whole.

use filch_e2e::jobs::{id, until_state};
use filch_e2e::proxy::Proxy;
use filch_e2e::runs;
use filch_e2e::since_boot;
use filch_e2e::until::{until, when};

use crate::test_env;

const LEASE: &str = "5s";
/// Longer than the lease: by then the worker may not use its old id any more.
const LONGER_MICROS: u64 = 6_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_ends_while_the_server_is_suspended_keeps_its_result() {
    let env = test_env();
    let server = env.server(Some(LEASE)).await;
    let proxy = Proxy::to(server.address()).await;
    let worker = env.worker(&proxy.url(), 1, &[]);
    let gate = env.path("gate");
    let mut job = env.job(&["until", gate.to_str().unwrap()]);
    let script = r#""$0" "$@" && printf '{"answer":42}' > "$FILCH_RESULT""#;
    let command = job.run.take().unwrap();
    job.run = Some(["sh", "-c", script].map(str::to_owned).into_iter().chain(command).collect());
    env.submit(&server, std::slice::from_ref(&job)).await;
    until("it runs", async || when(worker.jobs().len() == 1)).await;

    // The connection is cut, too: what the worker reports over it under its old id never arrives.
    proxy.cut().await;
    server.process.freeze();
    std::fs::write(&gate, "").unwrap();
    until("it has ended", async || when(worker.jobs().is_empty())).await;
    let ended = since_boot();
    until("the lease is over", async || when(since_boot() - ended > LONGER_MICROS)).await;
    proxy.mend();
    server.process.thaw();

    let (shown, details) = until_state(&server.client, &id(&job), "succeeded").await;
    env.client_log.shown(&shown);
    let result = details.result.expect("it has a result");
    assert_eq!(result.get(), r#"{"answer":42}"#);
    let runs = runs::of(&env.runs(), &id(&job));
    // If the worker came back too late, it has run again; either way it has a result.
    assert!(!runs.is_empty(), "{runs:?}");
    drop(worker);
    env.stop_and_check(server).await;
}
