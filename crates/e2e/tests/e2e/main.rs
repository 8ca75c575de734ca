//! The program `filch` as its users have it: processes on a machine, some of which die.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod clock;
mod double_billing;
mod drain;
mod fence;
mod full;
mod idle;
mod kills;
mod lease;
mod load;
mod partitions;
mod points;
mod power;
mod run;
mod steal;
mod storm;
mod sync;
mod terms;
mod two_machines;
mod zombies;

use filch_api::client::Client;
use filch_api::job::{Details, Job};
use filch_api::submission::Submission;
use filch_api::time::Moment;
use filch_e2e::stage::{Manner, Server, Stage, retry};
use filch_e2e::until::{until, when};
use filch_e2e::wall;
use filch_scheduler::time::Wall;

fn stage() -> Stage {
    Stage::new(env!("CARGO_BIN_EXE_filch-e2e-job"))
}

/// The id under which a job is submitted.
fn id(job: &Submission) -> String {
    job.id.clone().unwrap()
}

/// The same time on the next day.
fn tomorrow() -> Moment {
    Moment(Wall(wall().0 + 24 * 3_600 * 1_000))
}

/// Stops the server, and looks whether what it leaves is sound.
async fn assert_sound(stage: &Stage, server: Server) {
    stage.stop(server).await;
}

/// Looks whether what a server keeps is the ledger of a history in which every promise was kept.
async fn verify(stage: &Stage, manner: &Manner) {
    stage.verify(manner, &stage.path("data")).await;
}

/// Every job that the server knows.
async fn jobs(client: &Client) -> Vec<Job> {
    let mut jobs = Vec::new();
    let mut after = 0;
    loop {
        let page = client.jobs(&format!("limit=1000&after={after}")).await.unwrap();
        jobs.extend(page.jobs);
        match page.next {
            Some(next) => after = next,
            None => return jobs,
        }
    }
}

/// A job and everything that is kept of it.
async fn show(client: &Client, id: &str) -> (Job, Details) {
    let mut job = client.job(id).await.unwrap();
    let details = job.details.take().unwrap();
    (job, *details)
}

/// Waits until a job is in this state.
async fn until_state(client: &Client, id: &str, state: &str) -> (Job, Details) {
    until(&format!("job {id} is {state}"), async || {
        let (job, details) = show(client, id).await;
        let is_there = job.state == state;
        assert!(is_there || job.ended_at.is_none(), "not {state}: {job:?} {details:?}");
        is_there.then_some((job, details))
    })
    .await
}

/// Lets the only worker take many jobs ahead: a worker takes as many as it could run while an answer is
/// on its way, and jobs of a kind that nobody knows take no time at all.
async fn make_greedy(server: &Server) {
    let unknown = |_| Submission {
        kind: Some("nobody-knows".to_owned()),
        retry: Some(retry(1)),
        ..Submission::default()
    };
    let unknown: Vec<Submission> = (0..64).map(unknown).collect();
    server.client.submit_all(&unknown).await.unwrap();
    until("jobs of an unknown kind have failed", async || {
        when(server.client.status().await.unwrap().jobs == 0)
    })
    .await;
}
