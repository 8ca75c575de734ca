//! A worker that has not heard of its server for too long stops what it runs, and comes back: that is
//! nobody's fault, least of all the jobs'.

use std::time::Duration;

use filch_e2e::process::Process;
use filch_e2e::runs;
use filch_e2e::stage::retry;
use filch_e2e::until::{until, when};

use crate::{id, stage, until_state};

const JOBS: usize = 8;

/// However long it stands still: no lease runs out while nobody can be heard.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_stopped_for_want_of_a_server_is_not_charged() {
    stop(Duration::from_secs(5), Duration::from_secs(6), |server, _| server).await;
}

/// It goes on before its lease is over.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_guardian_kills_is_not_charged() {
    stop(Duration::from_secs(10), Duration::ZERO, |_, worker| worker).await;
}

/// One of the two stands still until nothing runs, and for so long after that.
async fn stop(
    lease: Duration,
    longer: Duration,
    whom: impl for<'a> Fn(&'a Process, &'a Process) -> &'a Process,
) {
    let stage = stage();
    let server = stage.server(Some(&format!("{}s", lease.as_secs()))).await;
    let worker = stage.worker(&server.url, JOBS as u32, &[]);
    let gate = stage.path("gate");
    let job = |_| {
        let mut job = stage.job(&["until", gate.to_str().unwrap()]);
        // One that is charged is dead.
        job.retry = Some(retry(1));
        job
    };
    let jobs: Vec<_> = (0..JOBS).map(job).collect();
    stage.submit(&server, &jobs).await;

    // Worker and guardian both see to it that nothing runs after seven tenths of the lease.
    for job in &jobs {
        until_state(&server.client, &id(job), "running").await;
        until("it has begun", async || when(runs::of(&stage.runs(), &id(job)).len() == 1)).await;
    }
    let still = whom(&server.process, &worker);
    still.freeze();
    until("none runs any more", async || when(worker.jobs().is_empty())).await;
    tokio::time::sleep(longer).await;
    still.thaw();

    std::fs::write(&gate, "").unwrap();
    for job in &jobs {
        let (job, details) = until_state(&server.client, &id(job), "succeeded").await;
        assert_eq!(job.attempts, 1, "{details:?}");
        let outcomes: Vec<_> = details.failures.iter().map(|it| it.outcome.as_str()).collect();
        assert_eq!(outcomes, ["interrupted"]);
    }
    assert_eq!(server.client.status().await.unwrap().lost, 0);
    assert_eq!(stage.judge(server).await.repeated, JOBS);
}
