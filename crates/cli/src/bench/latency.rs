//! Latency from submit to start on an idle cluster, one job at a time.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use filch_api::submission::Submission;
use serde_json::json;

use super::{Figure, Report, rounded};
use crate::builtin_kinds::micros;
use crate::processes::{TempFolder, server, wait_for_workers, worker};

#[derive(Args)]
pub(super) struct LatencyArgs {
    /// Number of jobs
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    jobs: usize,
    /// Data directory [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub(super) async fn run(options: &LatencyArgs) -> Result<Report> {
    let folder = TempFolder::new("filch-bench", options.folder.as_deref())?;
    let (_server, client) = server(folder.path()).await?;
    let _worker = worker(client.url(), 2)?;
    wait_for_workers(&client, 1).await?;
    let mut waits = Vec::with_capacity(options.jobs);
    for _ in 0..options.jobs {
        let job = Submission { kind: Some("clock".into()), ..Submission::default() };
        let asked = micros();
        let receipt = client.submit(&job).await?;
        let job = client.wait(&receipt.id, std::time::Duration::from_secs(30)).await?;
        let result = job.details.and_then(|details| details.result);
        let result = result.context("the job has no result")?;
        let started: u64 =
            serde_json::from_str(result.get()).context("its result is not a number")?;
        waits.push(started.saturating_sub(asked));
    }
    waits.sort_unstable();
    let at = |share: f64| {
        let index = ((waits.len() - 1) as f64 * share).round() as usize;
        rounded(waits[index] as f64 / 1e3, 3)
    };
    Ok(Report {
        v: 1,
        bench: "latency",
        settings: json!({ "jobs": options.jobs, "worker_processes": 1, "slots_each": 2 }),
        syncs: client.status().await?.syncs,
        figures: vec![
            Figure::new("submit to start, p50", at(0.5), "ms").at_most(1.0),
            Figure::new("submit to start, p99", at(0.99), "ms").at_most(4.0),
            Figure::new("submit to start, max", at(1.0), "ms"),
        ],
    })
}
