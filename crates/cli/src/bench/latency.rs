//! Latency from submit to start on an idle cluster, one job at a time, also while retention runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use filch_api::submission::Submission;
use serde_json::json;

use super::{Figure, Report, rounded};
use crate::builtin_kinds::micros;
use crate::processes::{
    Environment, TempFolder, server, server_with, wait_for_workers, wait_until_drained, worker,
};

/// How many jobs are submitted at once.
const BATCH: usize = 1_000;

#[derive(Args)]
pub(super) struct LatencyArgs {
    /// Number of jobs
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    jobs: usize,
    /// Number of ended jobs that retention purges meanwhile
    #[arg(long, default_value_t = 0, value_name = "N")]
    overdue: usize,
    /// Data directory [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub(super) async fn run(options: &LatencyArgs) -> Result<Report> {
    let folder = TempFolder::new("filch-bench", options.folder.as_deref())?;
    if options.overdue > 0 {
        run_and_keep(folder.path(), options.overdue).await?;
    }
    let retention: &[&str] = if options.overdue > 0 { &["--retention", "1s"] } else { &[] };
    let (_server, client) = server_with(folder.path(), &Environment::Inherited, retention).await?;
    let _worker = worker(client.url(), 2)?;
    wait_for_workers(&client, 1).await?;
    let purged = async || anyhow::Ok(client.recruit().await?.found.jobs_purged);
    // The jobs have to be past their retention first.
    while options.overdue > 0 && purged().await? == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let purged_before = purged().await?;
    let mut waits = Vec::with_capacity(options.jobs);
    for _ in 0..options.jobs {
        let job = Submission { kind: Some("clock".into()), ..Submission::default() };
        let asked = micros();
        let receipt = client.submit(&job).await?;
        let job = client.wait(&receipt.id, Duration::from_secs(30)).await?;
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
    let mut figures = vec![
        Figure::new("submit to start, p50", at(0.5), "ms").at_most(1.0),
        Figure::new("submit to start, p99", at(0.99), "ms").at_most(4.0),
        Figure::new("submit to start, max", at(1.0), "ms"),
    ];
    if options.overdue > 0 {
        let purged = purged().await? - purged_before;
        figures.push(Figure::new("jobs purged meanwhile", purged as f64, "jobs"));
    }
    Ok(Report {
        v: 1,
        bench: "latency",
        settings: json!({
            "jobs": options.jobs, "overdue": options.overdue, "worker_processes": 1,
            "slots_each": 2,
        }),
        syncs: client.status().await?.syncs,
        figures,
    })
}

/// Runs this many jobs and leaves them in the store, for a server with a shorter retention.
async fn run_and_keep(data: &Path, jobs: usize) -> Result<()> {
    let (_server, client) = server(data).await?;
    let _worker = worker(client.url(), 2)?;
    let job = Submission { kind: Some("noop".into()), ..Submission::default() };
    for start in (0..jobs).step_by(BATCH) {
        client.submit_all(&vec![job.clone(); BATCH.min(jobs - start)]).await?;
    }
    wait_until_drained(&client).await?;
    Ok(())
}
