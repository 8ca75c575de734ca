//! Stealing between processes: a new worker takes jobs that another one has claimed and not
//! started.

use filch_e2e::jobs::{id, show};
use filch_e2e::runs;
use filch_e2e::test_env::LONG_LEASE;
use filch_e2e::until::{until, when};

use crate::test_env;

const JOBS: usize = 24;
/// How many jobs the first worker claims beyond the one that it runs.
const HOLD: &str = "12";

#[tokio::test(flavor = "multi_thread")]
async fn a_new_worker_steals_unstarted_jobs_from_a_busy_one() {
    let env = test_env();
    let server = env.server(Some(LONG_LEASE)).await;
    let first = env.worker(&server.url, 1, &["--hold", HOLD]);

    // Jobs wait on one worker behind one that does not end. That one is submitted first, so it runs
    // first.
    let gate = env.path("gate");
    let endless = env.job(&["until", gate.to_str().unwrap()]);
    let others = (1..JOBS).map(|_| env.job(&["run", "20"]));
    let jobs: Vec<_> = [endless].into_iter().chain(others).collect();
    env.submit(&server, &jobs).await;
    until("one job runs and some wait behind it", async || {
        let held = server.client.workers().await.unwrap().first()?.held;
        when(first.jobs().iter().any(|job| job.id == id(&jobs[0])) && held > 1)
    })
    .await;
    assert_eq!(server.client.status().await.unwrap().steals, 0);

    // The new worker runs all jobs that are queued, and then steals those that wait on the first
    // one.
    let newcomer = env.worker(&server.url, 1, &[]);
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
        let runs = runs::of(&env.runs(), &shown.id);
        let [run] = &runs[..] else { panic!("it was run once: {runs:?}") };
        // Stealing a job that has not started counts no attempt.
        assert_eq!((shown.state.as_str(), shown.attempts, run.attempt), ("succeeded", 1, 1));
        assert_eq!(shown.fence, run.fence, "its last owner ran it");
        let worker = if index == 0 { &first } else { &newcomer };
        assert_eq!(run.worker, worker.pid(), "{details:?}");
        moved += u64::from(run.fence > 1);
    }
    assert!(moved >= status.stolen, "stolen jobs have changed owners: {moved} {status:?}");
    assert_eq!(env.stop_and_check(server).await.repeated, 0);
}
