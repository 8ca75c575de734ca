//! A dead worker's job runs again on another worker when the lease is over.

use std::time::Duration;

use filch_e2e::jobs::{id, outcomes, until_state};
use filch_e2e::until::until;
use filch_e2e::{runs, since_boot};

use crate::test_env;

/// The default lease.
const LEASE: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_workers_job_runs_again_on_another_after_its_lease() {
    let env = test_env();
    let server = env.server(None).await;
    let before = since_boot();
    let mut workers = [env.worker(&server.url, 1, &[]), env.worker(&server.url, 1, &[])];
    let gate = env.path("gate");
    let job = env.job(&["until", gate.to_str().unwrap()]);
    env.submit(&server, std::slice::from_ref(&job)).await;
    let job = id(&job);

    // A frozen worker cannot finish or lose what it runs before it is killed.
    let (dead, orphan) = until("a worker runs it", async || {
        let index = workers.iter().position(|worker| !worker.jobs().is_empty())?;
        workers[index].freeze();
        let orphan = workers[index].jobs().pop();
        if orphan.is_none() {
            workers[index].thaw();
        }
        Some((index, orphan?))
    })
    .await;
    let dead_pid = workers[dead].pid();
    workers[dead].kill();
    let next = until("it runs again", async || {
        runs::of(&env.runs(), &job).into_iter().find(|run| run.fence > orphan.fence)
    })
    .await;
    assert!(!orphan.process.is_alive(), "the guardian has killed the dead worker's command");
    assert_ne!(next.worker, dead_pid);
    // The dead worker's lease was renewed after the worker was started.
    let waited = Duration::from_micros(next.start - before);
    assert!(waited >= LEASE, "it ran again after {waited:?}");

    std::fs::write(gate, "").unwrap();
    let (job, details) = until_state(&server.client, &job, "succeeded").await;
    env.client_log.shown(&job);
    assert!(outcomes(&details).contains(&"lost"), "{details:?}");
    assert!(job.attempts >= 2, "the lost attempt counts: {details:?}");
    let status = server.client.status().await.unwrap();
    assert!(status.lost >= 1, "{status:?}");
    assert_eq!(env.stop_and_check(server).await.repeated, 1);
}
