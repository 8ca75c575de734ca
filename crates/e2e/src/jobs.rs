//! What the API shows of jobs, for tests that wait for it.

use filch_api::client::Client;
use filch_api::job::{Details, Job};
use filch_api::submission::Submission;
use filch_api::time::Moment;
use filch_scheduler::time::Wall;

use crate::until::until;
use crate::wall;

/// The id under which a job is submitted.
///
/// # Panics
/// If the server is to choose it.
#[must_use]
pub fn id(job: &Submission) -> String {
    job.id.clone().expect("jobs of tests have ids")
}

/// This time tomorrow.
#[must_use]
pub fn tomorrow() -> Moment {
    Moment(Wall(wall().0 + 24 * 3_600 * 1_000))
}

/// Every job in the store, in the order of submission.
///
/// # Panics
/// If the server does not answer.
pub async fn jobs(client: &Client) -> Vec<Job> {
    let mut jobs = Vec::new();
    let mut after = 0;
    loop {
        let page = client.jobs(&format!("limit=1000&after={after}")).await;
        let page = page.expect("the server lists jobs");
        jobs.extend(page.jobs);
        match page.next {
            Some(next) => after = next,
            None => return jobs,
        }
    }
}

/// A job with its details.
///
/// # Panics
/// If the server does not show it.
pub async fn show(client: &Client, id: &str) -> (Job, Details) {
    let mut job = client.job(id).await.expect("the server shows a job");
    let details = job.details.take().expect("a single job is shown with its details");
    (job, *details)
}

/// Waits until a job is in this state.
///
/// # Panics
/// If it ends in another state.
pub async fn until_state(client: &Client, id: &str, state: &str) -> (Job, Details) {
    until(&format!("job {id} is {state}"), async || {
        let (job, details) = show(client, id).await;
        let is_there = job.state == state;
        assert!(is_there || job.ended_at.is_none(), "not {state}: {job:?} {details:?}");
        is_there.then_some((job, details))
    })
    .await
}

/// The outcomes of the attempts that did not succeed.
#[must_use]
pub fn outcomes(details: &Details) -> Vec<&str> {
    details.failures.iter().map(|failure| failure.outcome.as_str()).collect()
}
