//! Time until a worker that joins a loaded cluster runs its first stolen job.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use filch_api::job::Job;
use filch_api::submission::Submission;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::{Figure, Report, rounded};
use crate::builtin_kinds::micros;
use crate::processes::{
    TempFolder, loaded_worker, server, wait_for_workers, wait_until_drained, worker,
};

#[derive(Args)]
pub(super) struct NewcomerArgs {
    /// Number of jobs on the first worker; doubled until the new worker has stolen one
    #[arg(long, default_value_t = 400, value_name = "N")]
    jobs: usize,
    /// Duration of each job in milliseconds
    #[arg(long, default_value_t = 5, value_name = "MS")]
    length: u64,
    /// Data directory [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// The result of a job of kind `sleep`.
#[derive(Deserialize)]
struct Slept {
    pid: u32,
    started_us: u64,
}

pub(super) async fn run(options: &NewcomerArgs) -> Result<Report> {
    let mut jobs = options.jobs;
    loop {
        if let Some(report) = measure(options, jobs).await? {
            return Ok(report);
        }
        // On a busy machine a process may take longer to start than all jobs to run.
        jobs *= 2;
    }
}

/// Returns nothing if all jobs ended before the newcomer could steal one.
async fn measure(options: &NewcomerArgs, jobs: usize) -> Result<Option<Report>> {
    let folder = TempFolder::new("filch-bench", options.folder.as_deref())?;
    let (_server, client) = server(folder.path()).await?;
    let _loaded = loaded_worker(client.url(), 2, jobs)?;
    wait_for_workers(&client, 1).await?;
    let submissions: Vec<Submission> = (0..jobs)
        .map(|_| Submission {
            kind: Some("sleep".into()),
            args: RawValue::from_string(format!("{{\"ms\":{}}}", options.length)).ok(),
            ..Submission::default()
        })
        .collect();
    let receipts = client.submit_all(&submissions).await?;
    // All jobs are in the worker's deque, so that the newcomer can only steal.
    let is_loaded = async {
        loop {
            let queues = client.queues().await?;
            if queues.iter().all(|queue| queue.ready == 0) {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    is_loaded.await?;
    let joined = micros();
    let newcomer = worker(client.url(), 2)?;
    wait_until_drained(&client).await?;

    let mut first = None;
    let mut stolen = 0_u32;
    for receipt in &receipts {
        let job: Job = client.job(&receipt.id).await?;
        let result = job.details.and_then(|details| details.result).context("no result")?;
        let slept: Slept =
            serde_json::from_str(result.get()).context("unexpected result of a job")?;
        if slept.pid == newcomer.pid() {
            stolen += 1;
            let wait = slept.started_us.saturating_sub(joined);
            first = Some(first.map_or(wait, |first: u64| first.min(wait)));
        }
    }
    let Some(first) = first else { return Ok(None) };
    let status = client.status().await?;
    Ok(Some(Report {
        v: 1,
        bench: "newcomer",
        settings: json!({ "jobs": jobs, "length_ms": options.length }),
        syncs: status.syncs,
        figures: vec![
            Figure::new(
                "from starting the process to its first stolen job",
                rounded(first as f64 / 1e3, 1),
                "ms",
            )
            .at_most(50.0),
            Figure::new("jobs run by the newcomer", f64::from(stolen), "jobs"),
            Figure::new("steals", status.steals as f64, ""),
        ],
    }))
}
