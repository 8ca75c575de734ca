//! Stealing between processes: a newcomer takes half of what another has not started.

use filch_e2e::runs;
use filch_e2e::until::{until, when};

use crate::{id, make_greedy, show, stage};

const JOBS: usize = 24;

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_steals_from_who_has_taken_too_much() {
    let stage = stage();
    let server = stage.server(None).await;
    let first = stage.worker(&server.url, 1, &[]);
    make_greedy(&server).await;

    // Jobs wait on one worker behind one that does not end.
    let gate = stage.path("gate");
    let endless = stage.job(&["until", gate.to_str().unwrap()]);
    let others = (1..JOBS).map(|_| stage.job(&["run", "20"]));
    let jobs: Vec<_> = [endless].into_iter().chain(others).collect();
    stage.submit(&server, &jobs).await;
    until("one job runs and some wait behind it", async || {
        let held = server.client.workers().await.unwrap()[0].held;
        when(first.jobs().iter().any(|job| job.id == id(&jobs[0])) && held > 1)
    })
    .await;
    assert_eq!(server.client.status().await.unwrap().steals, 0);

    // A newcomer does all that nobody has taken, and then what was taken and not begun.
    let newcomer = stage.worker(&server.url, 1, &[]);
    until("only the endless job is left", async || {
        when(server.client.status().await.unwrap().jobs == 1)
    })
    .await;
    std::fs::write(gate, "").unwrap();
    until("everything is done", async || when(server.client.status().await.unwrap().jobs == 0))
        .await;

    let status = server.client.status().await.unwrap();
    assert!(status.steals > 0 && status.stolen >= status.steals, "{status:?}");
    assert_eq!((status.stale, status.lost), (0, 0));
    let mut moved = 0;
    for (index, job) in jobs.iter().enumerate() {
        let (shown, details) = show(&server.client, &id(job)).await;
        let runs = runs::of(&stage.runs(), &shown.id);
        let [run] = &runs[..] else { panic!("it was run once: {runs:?}") };
        // A theft of what has not started is no attempt.
        assert_eq!((shown.state.as_str(), shown.attempts, run.attempt), ("succeeded", 1, 1));
        assert_eq!(shown.fence, run.fence, "who ran it was its last owner");
        let worker = if index == 0 { &first } else { &newcomer };
        assert_eq!(run.worker, worker.pid(), "{details:?}");
        moved += u64::from(run.fence > 1);
    }
    assert!(moved >= status.stolen, "what was stolen has changed hands: {moved} {status:?}");
    assert_eq!(stage.judge(server).await.repeated, 0);
}
