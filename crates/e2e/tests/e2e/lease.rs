//! A worker's death with the usual lease: how long its job waits for another.

use std::time::Duration;

use filch_e2e::until::{until, when};
use filch_e2e::{runs, since_boot};

use crate::{id, stage, until_state};

/// An orphan runs again within the lease and a second. How much longer it takes on a machine with much
/// else to do is not for a test to say; that it is no sooner than a lease after it was submitted is.
const LEASE: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_worker_s_job_runs_again_on_another() {
    let stage = stage();
    let server = stage.server(None).await;
    let mut workers = [stage.worker(&server.url, 1, &[]), stage.worker(&server.url, 1, &[])];
    let gate = stage.path("gate");
    let job = stage.job(&["until", gate.to_str().unwrap()]);
    let submitted = since_boot();
    stage.submit(&server, std::slice::from_ref(&job)).await;
    let job = id(&job);
    let runs = || runs::of(&stage.runs(), &job);
    until("it runs", async || when(runs().len() == 1)).await;

    let busy = workers.iter_mut().find(|worker| !worker.jobs().is_empty()).unwrap();
    let dead = busy.pid();
    busy.kill();

    until("the dead worker's child is dead", async || when(!runs()[0].process.is_alive())).await;
    assert_eq!(runs().len(), 1, "nobody has it yet");
    let second = until("it runs again", async || runs().get(1).cloned()).await;
    let waited = Duration::from_micros(second.start - submitted);
    println!("it ran again after {waited:?}");
    assert!(waited >= LEASE, "it ran again after {waited:?}");
    assert!(second.worker != dead && second.attempt == 2, "{second:?}");

    std::fs::write(gate, "").unwrap();
    let (job, details) = until_state(&server.client, &job, "succeeded").await;
    assert_eq!(job.attempts, 2, "the one that was lost counts: {details:?}");
    let outcomes: Vec<_> = details.failures.iter().map(|it| it.outcome.as_str()).collect();
    assert_eq!(outcomes, ["lost"]);
    let status = server.client.status().await.unwrap();
    assert_eq!((status.lost, status.workers), (1, 1), "{status:?}");
    assert_eq!(stage.judge(server).await.repeated, 1);
}
