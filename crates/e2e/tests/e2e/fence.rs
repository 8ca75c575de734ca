//! Jobs that are stopped because their worker heard nothing of the server for too long: no attempt
//! is charged, since neither the job nor the worker is at fault.

use std::time::Duration;

use filch_e2e::jobs::{id, outcomes, until_state};
use filch_e2e::process::Process;
use filch_e2e::test_env::retry;
use filch_e2e::until::{until, when};
use filch_e2e::{runs, since_boot};

use crate::test_env;

const JOBS: usize = 8;
/// A worker and its guardian each see to it that nothing runs after seven tenths of the lease.
const LEASE: Duration = Duration::from_secs(20);

/// However long the server is suspended, no lease ends meanwhile: after it was resumed, a worker
/// has a whole lease to be heard.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_stopped_because_the_server_was_suspended_are_not_charged() {
    let lost = suspend_until_jobs_stop(LEASE + Duration::from_secs(1), |server, _| server).await;
    assert_eq!(lost, 0, "no lease ends while the server is suspended");
}

/// Whether the worker is heard again before its lease is over or not.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_killed_by_the_guardian_of_a_suspended_worker_are_not_charged() {
    suspend_until_jobs_stop(Duration::ZERO, |_, worker| worker).await;
}

/// Suspends one of the two until no job runs, and at least for this long. Returns how many workers
/// the server has lost.
async fn suspend_until_jobs_stop(
    at_least: Duration,
    which: impl for<'a> Fn(&'a Process, &'a Process) -> &'a Process,
) -> u64 {
    let env = test_env();
    let server = env.server(Some(&format!("{}s", LEASE.as_secs()))).await;
    let worker = env.worker(&server.url, JOBS as u32, &[]);
    let gate = env.path("gate");
    let job = |_| {
        let mut job = env.job(&["until", gate.to_str().unwrap()]);
        // A charged attempt would be its last.
        job.retry = Some(retry(1));
        job
    };
    let jobs: Vec<_> = (0..JOBS).map(job).collect();
    env.submit(&server, &jobs).await;
    for job in &jobs {
        until_state(&server.client, &id(job), "running").await;
        until("it has begun", async || when(!runs::of(&env.runs(), &id(job)).is_empty())).await;
    }

    let suspended = which(&server.process, &worker);
    suspended.freeze();
    let since = since_boot();
    until("no job runs any more", async || when(worker.jobs().is_empty())).await;
    let span = at_least.as_micros() as u64;
    until("it was suspended for long enough", async || when(since_boot() - since >= span)).await;
    suspended.thaw();

    std::fs::write(&gate, "").unwrap();
    let mut stopped = Vec::new();
    for job in &jobs {
        let (job, details) = until_state(&server.client, &id(job), "succeeded").await;
        env.client_log.shown(&job);
        assert_eq!(job.attempts, 1, "{details:?}");
        stopped.push(outcomes(&details).join(","));
    }
    let lost = server.client.status().await.unwrap().lost;
    if lost == 0 {
        assert_eq!(stopped, ["interrupted"; JOBS]);
    }
    assert_eq!(env.stop_and_check(server).await.repeated, JOBS);
    lost
}
