//! A disk that fills up: new jobs are refused while reports are still taken; when there is no room even for
//! these they wait; and with room again everything goes on by itself.

use std::path::Path;

use filch_api::client::Error;
use filch_api::submission::Submission;
use filch_e2e::runs;
use filch_e2e::since_boot;
use filch_e2e::small::Small;
use filch_e2e::stage::{Server, Stage};
use filch_e2e::until::{until, when};
use rustix::process::Signal;

use crate::{id, jobs, stage, until_state, verify};

/// Room for the usual reserve and its ballast, twice.
const DISK: u64 = 200 << 20;
/// Less than the usual reserve, more than the ballast.
const LITTLE: u64 = 40 << 20;

const LEASE: &str = "4s";
/// Two leases and a little.
const LONGER_MICROS: u64 = 9_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_takes_reports_and_goes_on_when_there_is_room() {
    let stage = stage();
    let small = Small::make(&stage, DISK).await;
    let mut server = stage.server_in(&small.manner(), Some(LEASE)).await;
    let worker = stage.worker(&server.url, 4, &[]);
    let ballast = small.path("filch.db.ballast");
    assert!(ballast.exists(), "there is room for it");
    let gates = ["1", "2", "3", "4"].map(|name| stage.path(name));
    let work = gates.each_ref().map(|gate| stage.job(&["until", gate.to_str().unwrap()]));
    let work = work.map(with_large_result);
    stage.submit(&server, &work).await;
    until("all run", async || when(worker.jobs().len() == work.len())).await;

    // Nearly full: nothing new, but what runs may end.
    small.fill("film", LITTLE);
    until("new jobs are refused", async || refusal(&stage, &server).await).await;
    open(&gates[0]);
    done(&stage, &server, &id(&work[0])).await;
    assert!(ballast.exists());

    // Quite full: what was held back for this makes room.
    small.fill("film", 0);
    open(&gates[1]);
    done(&stage, &server, &id(&work[1])).await;
    assert!(!ballast.exists(), "it was thrown overboard");

    // No room at all: a report waits, and what runs goes on, also for longer than a lease.
    small.fill("film", 0);
    open(&gates[2]);
    until("the server waits", async || when(server.said().contains("waiting for room"))).await;
    let full = since_boot();
    until("some leases are over", async || when(since_boot() - full > LONGER_MICROS)).await;
    assert_eq!(server.process.ended(), None, "{}", server.said());
    assert_eq!(worker.jobs().len(), 1, "the last one still runs");

    // Room again: nothing else has to be done.
    std::fs::remove_file(small.path("film")).unwrap();
    done(&stage, &server, &id(&work[2])).await;
    assert!(server.said().contains("disk space is available again"), "{}", server.said());
    open(&gates[3]);
    done(&stage, &server, &id(&work[3])).await;
    work_again(&stage, &server).await;
    until("what is held back for the next time", async || when(ballast.exists())).await;
    for job in &work {
        let runs = runs::of(&stage.runs(), &id(job));
        assert_eq!(runs.len(), 1, "{runs:?}");
    }
    assert_eq!(server.client.status().await.unwrap().lost, 0);

    // A crash on a full disk loses nothing either.
    small.fill("film", 0);
    let known = jobs(&server.client).await;
    server.process.kill();
    server.restart(&stage).await;
    assert_eq!(jobs(&server.client).await.len(), known.len());
    refusal(&stage, &server).await.unwrap();
    std::fs::remove_file(small.path("film")).unwrap();
    work_again(&stage, &server).await;
    drop(worker);
    server.process.signal(Signal::TERM);
    assert!(server.process.end().await.success(), "{}", server.said());
    verify(&stage, &small.manner()).await;
    let judged = stage.judge_kept(&small.copied(&stage));
    assert!(judged.jobs >= work.len() + 2 && judged.repeated == 0, "{judged:?}");
}

/// So that what it reports does not fit into what the log has taken up before.
fn with_large_result(mut job: Submission) -> Submission {
    let script = r#""$0" "$@" && printf '"%0250000d"' 0 > "$FILCH_RESULT""#;
    let command = job.run.unwrap();
    job.run = Some(["sh", "-c", script].map(str::to_owned).into_iter().chain(command).collect());
    job
}

fn open(gate: &Path) {
    std::fs::write(gate, "").unwrap();
}

/// Jobs are taken again, and done.
async fn work_again(stage: &Stage, server: &Server) {
    let receipt = until("jobs are taken again", async || {
        server.client.submit(&stage.job(&["run", "0"])).await.ok()
    })
    .await;
    stage.clients.acknowledged(&receipt.id);
    done(stage, server, &receipt.id).await;
}

/// Waits until a job is done, and remembers that this was told.
async fn done(stage: &Stage, server: &Server, id: &str) {
    let (job, _) = until_state(&server.client, id, "succeeded").await;
    stage.clients.shown(&job);
}

/// Says so if a job is refused because the disk is full.
async fn refusal(stage: &Stage, server: &Server) -> Option<()> {
    match server.client.submit(&stage.job(&["run", "0"])).await {
        Ok(receipt) => {
            stage.clients.acknowledged(&receipt.id);
            None
        }
        Err(Error::Refused(problem)) => {
            let said = problem.to_string();
            assert_eq!(problem.status, 507, "{said}");
            assert!(said.contains("bytes are free on the server's disk"), "{said}");
            assert!(said.contains("make room on the disk"), "{said}");
            Some(())
        }
        Err(other) => panic!("{other}"),
    }
}
