//! A disk that fills up: new jobs are refused while reports are still accepted; when there is no
//! space even for reports, they wait; and when space is freed everything continues by itself.

use std::path::Path;

use filch_api::client::Error;
use filch_api::submission::Submission;
use filch_e2e::jobs::{id, jobs, until_state};
use filch_e2e::runs;
use filch_e2e::since_boot;
use filch_e2e::small_disk::SmallDisk;
use filch_e2e::test_env::{TestEnv, TestServer};
use filch_e2e::until::{until, when};
use rustix::process::Signal;

use crate::test_env;

/// Space for the default reserve and its ballast, twice.
const DISK: u64 = 200 << 20;
/// Less than the default reserve, more than the ballast.
const LITTLE: u64 = 40 << 20;

/// How many reports come when there is no space at all; each has a result of 250 kB.
const REPORTS: usize = 24;

const LEASE: &str = "10s";
/// Two leases and a little more.
const LONGER_MICROS: u64 = 21_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_jobs_takes_reports_and_recovers_when_space_is_freed() {
    let env = test_env();
    let small = SmallDisk::make(&env, DISK).await;
    let mut server = env.server_with(&small.options(), Some(LEASE)).await;
    let worker = env.worker(&server.url, 3 + REPORTS as u32, &[]);
    let ballast = small.path("filch.db.ballast");
    until("the ballast is there", async || when(ballast.exists())).await;
    let gates = ["1", "2", "3", "4"].map(|name| env.path(name));
    let waits_for = |gate: &Path| with_large_result(env.job(&["until", gate.to_str().unwrap()]));
    let mut work: Vec<Submission> = gates.iter().map(|gate| waits_for(gate)).collect();
    // More than fits into the space that the log already takes, however large it has become.
    let reports: Vec<Submission> = (1..REPORTS).map(|_| waits_for(&gates[2])).collect();
    let waiting: Vec<String> = reports.iter().chain([&work[2]]).map(id).collect();
    work.extend(reports);
    env.submit(&server, &work).await;
    until("all run", async || when(worker.jobs().len() == work.len())).await;

    // Nearly full: no new jobs, but running ones may end.
    small.fill("film", LITTLE);
    until("new jobs are refused", async || refusal(&env, &server).await).await;
    open(&gates[0]);
    done(&env, &server, &id(&work[0])).await;
    assert!(ballast.exists());

    // Full: the ballast is removed to make space.
    small.fill("film", 0);
    open(&gates[1]);
    done(&env, &server, &id(&work[1])).await;
    assert!(!ballast.exists(), "it was removed");

    // No space at all: reports wait and running jobs go on, also for longer than a lease.
    small.fill("film", 0);
    open(&gates[2]);
    until("the server waits", async || when(server.stderr().contains("commits are paused"))).await;
    let full = since_boot();
    until("some leases are over", async || when(since_boot() - full > LONGER_MICROS)).await;
    assert_eq!(server.process.ended(), None, "{}", server.stderr());
    until("only the last one still runs", async || when(worker.jobs().len() == 1)).await;

    // Space again: nothing else has to be done.
    std::fs::remove_file(small.path("film")).unwrap();
    for waiting in &waiting {
        done(&env, &server, waiting).await;
    }
    assert!(server.stderr().contains("disk space is available again"), "{}", server.stderr());
    open(&gates[3]);
    done(&env, &server, &id(&work[3])).await;
    work_again(&env, &server).await;
    until("the ballast is there for the next time", async || when(ballast.exists())).await;
    for job in &work {
        let runs = runs::of(&env.runs(), &id(job));
        assert_eq!(runs.len(), 1, "{runs:?}");
    }
    assert_eq!(server.client.status().await.unwrap().lost, 0);

    // A crash on a full disk loses nothing.
    small.fill("film", 0);
    let known = jobs(&server.client).await;
    server.process.kill();
    server.restart(&env).await;
    assert_eq!(jobs(&server.client).await.len(), known.len());
    until("new jobs are refused", async || refusal(&env, &server).await).await;
    std::fs::remove_file(small.path("film")).unwrap();
    work_again(&env, &server).await;
    drop(worker);
    server.process.signal(Signal::TERM);
    assert!(server.process.end().await.success(), "{}", server.stderr());
    env.verify(&small.options(), &env.path("data")).await;
    let checked = env.check_data(&small.copied(&env));
    assert!(checked.jobs >= work.len() + 2 && checked.repeated == 0, "{checked:?}");
}

fn with_large_result(mut job: Submission) -> Submission {
    let script = r#""$0" "$@" && printf '"%0250000d"' 0 > "$FILCH_RESULT""#;
    let command = job.run.unwrap();
    job.run = Some(["sh", "-c", script].map(str::to_owned).into_iter().chain(command).collect());
    job
}

fn open(gate: &Path) {
    std::fs::write(gate, "").unwrap();
}

/// Jobs are accepted again, and run.
async fn work_again(env: &TestEnv, server: &TestServer) {
    let receipt = until("jobs are accepted again", async || {
        server.client.submit(&env.job(&["run", "0"])).await.ok()
    })
    .await;
    env.client_log.acknowledged(&receipt.id);
    done(env, server, &receipt.id).await;
}

/// Waits until a job has succeeded, and records that the server confirmed it.
async fn done(env: &TestEnv, server: &TestServer, id: &str) {
    let (job, _) = until_state(&server.client, id, "succeeded").await;
    env.client_log.shown(&job);
}

/// `Some` if a job is refused because the disk is full.
async fn refusal(env: &TestEnv, server: &TestServer) -> Option<()> {
    match server.client.submit(&env.job(&["run", "0"])).await {
        Ok(receipt) => {
            env.client_log.acknowledged(&receipt.id);
            None
        }
        Err(Error::Refused(problem)) => {
            let text = problem.to_string();
            assert_eq!(problem.status, 507, "{text}");
            assert!(text.contains("bytes are free"), "{text}");
            assert!(text.contains("free disk space"), "{text}");
            Some(())
        }
        Err(other) => panic!("{other}"),
    }
}
