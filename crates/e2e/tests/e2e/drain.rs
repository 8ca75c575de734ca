//! SIGTERM: what waits goes to others, what runs finishes, nothing is counted.

use filch_api::job::{Details, Job};
use filch_e2e::runs;
use filch_e2e::until::{until, when};
use rustix::process::Signal;

use crate::{id, make_greedy, show, stage, until_state};

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_told_to_leave_hands_over_and_finishes() {
    let stage = stage();
    let server = stage.server(None).await;
    let mut leaving = stage.worker(&server.url, 1, &["--queues", "default"]);
    make_greedy(&server).await;
    let gates = [stage.path("gate"), stage.path("other-gate")];
    let [gate, other_gate] = gates.each_ref().map(|gate| gate.to_str().unwrap());

    let running = stage.job(&["until", gate]);
    let waiting: Vec<_> = (0..6).map(|_| stage.job(&["run", "1"])).collect();
    let all: Vec<_> = [running.clone()].into_iter().chain(waiting.clone()).collect();
    stage.submit(&server, &all).await;
    until("one job runs and some wait behind it", async || {
        let held = server.client.workers().await.unwrap()[0].held;
        when(leaving.jobs().iter().any(|job| job.id == id(&running)) && held > 1)
    })
    .await;

    // The other one has no time to steal, because it has a job of its own that only it may run.
    let mut busy = stage.job(&["until", other_gate]);
    busy.queue = Some("other".to_owned());
    stage.submit(&server, &[busy]).await;
    let staying = stage.worker(&server.url, 1, &["--queues", "default,other"]);
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
    assert_eq!(leaving.ended(), None, "it does not leave before its work is done");

    // What waited is done elsewhere while the leaving one still works.
    std::fs::write(other_gate, "").unwrap();
    for job in &waiting {
        assert_done(until_state(&server.client, &id(job), "succeeded").await);
        let runs = runs::of(&stage.runs(), &id(job));
        assert_eq!(runs.iter().map(|run| run.worker).collect::<Vec<_>>(), [staying.pid()]);
    }
    assert_eq!(leaving.ended(), None);

    std::fs::write(gate, "").unwrap();
    assert!(leaving.end().await.success());
    assert_done(until_state(&server.client, &id(&running), "succeeded").await);
    let runs = runs::of(&stage.runs(), &id(&running));
    assert_eq!(runs.len(), 1, "{runs:?}");
    assert!(runs[0].end.is_some());
    let status = server.client.status().await.unwrap();
    assert_eq!((status.lost, status.stale, status.workers), (0, 0, 1), "{status:?}");
    assert_eq!(stage.judge(server).await.repeated, 0);
}

/// At the first attempt, and nothing else was ever noted.
fn assert_done((job, details): (Job, Details)) {
    assert_eq!(job.attempts, 1, "{job:?}");
    assert_eq!(details.failures, [], "{job:?}");
}
