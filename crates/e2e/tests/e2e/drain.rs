//! Graceful shutdown of a worker: on SIGTERM it hands unstarted jobs back, finishes those that run,
//! and no attempt is charged.

use filch_api::job::{Details, Job};
use filch_e2e::jobs::{id, show, until_state};
use filch_e2e::runs;
use filch_e2e::test_env::LONG_LEASE;
use filch_e2e::until::{until, when};
use rustix::process::Signal;

use crate::test_env;

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_worker_hands_back_unstarted_jobs_and_finishes_its_own() {
    let env = test_env();
    let server = env.server(Some(LONG_LEASE)).await;
    // The grace is longer than any stall of the machine.
    let options = ["--queues", "default", "--hold", "8", "--grace", "1d"];
    let mut leaving = env.worker(&server.url, 1, &options);
    let gates = [env.path("gate"), env.path("other-gate")];
    let [gate, other_gate] = gates.each_ref().map(|gate| gate.to_str().unwrap());

    let running = env.job(&["until", gate]);
    let waiting: Vec<_> = (0..6).map(|_| env.job(&["run", "1"])).collect();
    let all: Vec<_> = [running.clone()].into_iter().chain(waiting.clone()).collect();
    env.submit(&server, &all).await;
    until("one job runs and some wait behind it", async || {
        let held = server.client.workers().await.unwrap().first()?.held;
        when(leaving.jobs().iter().any(|job| job.id == id(&running)) && held > 1)
    })
    .await;

    // The other worker does not steal, because its slot is taken by a job that only it may run.
    let mut busy = env.job(&["until", other_gate]);
    busy.queue = Some("other".to_owned());
    env.submit(&server, &[busy]).await;
    let staying = env.worker(&server.url, 1, &["--queues", "default,other"]);
    until("the other is busy", async || when(staying.jobs().len() == 1)).await;
    assert_eq!(server.client.status().await.unwrap().steals, 0);

    leaving.signal(Signal::TERM);
    for job in &waiting {
        let (job, _) = until_state(&server.client, &id(job), "queued").await;
        assert_eq!((job.attempts, job.worker), (0, None));
    }
    let (job, _) = show(&server.client, &id(&running)).await;
    assert!(job.ended_at.is_none() && job.worker.is_some(), "{job:?}");
    let is_draining = |it: &filch_api::cluster::Worker| it.state == "draining" && it.held == 1;
    let workers = server.client.workers().await.unwrap();
    assert!(workers.iter().any(is_draining), "{workers:?}");
    assert_eq!(leaving.ended(), None, "it does not exit before its job is done");

    // The other worker runs the jobs that were handed back while the draining one is still busy.
    std::fs::write(other_gate, "").unwrap();
    for job in &waiting {
        assert_done(until_state(&server.client, &id(job), "succeeded").await);
        let runs = runs::of(&env.runs(), &id(job));
        assert_eq!(runs.iter().map(|run| run.worker).collect::<Vec<_>>(), [staying.pid()]);
    }
    assert_eq!(leaving.ended(), None);

    std::fs::write(gate, "").unwrap();
    assert!(leaving.end().await.success());
    assert_done(until_state(&server.client, &id(&running), "succeeded").await);
    let runs = runs::of(&env.runs(), &id(&running));
    assert_eq!(runs.len(), 1, "{runs:?}");
    assert!(runs[0].end.is_some());
    let status = server.client.status().await.unwrap();
    assert_eq!((status.lost, status.stale, status.workers), (0, 0, 1), "{status:?}");
    assert_eq!(env.stop_and_check(server).await.repeated, 0);
}

/// It succeeded at the first attempt, with no other outcome recorded.
fn assert_done((job, details): (Job, Details)) {
    assert_eq!(job.attempts, 1, "{job:?}");
    assert_eq!(details.failures, [], "{job:?}");
}
