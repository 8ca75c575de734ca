//! Throughput of the same slots in one process and in several.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use serde_json::json;

use super::drain::submit;
use super::{Figure, Report, rounded};
use crate::processes::{TempFolder, server, wait_for_workers, wait_until_drained, worker};

#[derive(Args)]
pub(super) struct SplitArgs {
    /// Number of jobs per run
    #[arg(long, default_value_t = 200_000, value_name = "N")]
    jobs: u64,
    /// Total number of slots
    #[arg(long, default_value_t = 8, value_name = "N")]
    slots: u32,
    /// Data directory [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub(super) async fn run(options: &SplitArgs) -> Result<Report> {
    let &SplitArgs { jobs, slots, .. } = options;
    let mut figures = Vec::new();
    let mut syncs = 0;
    let mut whole = None;
    for processes in [1, 2, 4, 8].into_iter().filter(|processes| *processes <= slots) {
        let folder = TempFolder::new("filch-bench", options.folder.as_deref())?;
        let (_server, client) = server(folder.path()).await?;
        submit(&client, jobs, 100, 2).await?;
        let began = Instant::now();
        let started = (0..processes).map(|_| worker(client.url(), slots / processes));
        let _workers = started.collect::<Result<Vec<_>>>()?;
        wait_for_workers(&client, processes.into()).await?;
        let rate = jobs as f64 / (wait_until_drained(&client).await? - began).as_secs_f64();
        let whole = *whole.get_or_insert(rate);
        let what = format!("{slots} slots in {processes} processes");
        figures.push(Figure::new(&what, rounded(rate, 0), "jobs/s"));
        if processes > 1 {
            let share = rounded(rate / whole, 2);
            figures.push(Figure::new(what + " vs. one", share, "times").at_least(0.9));
        }
        syncs += client.status().await?.syncs;
    }
    Ok(Report {
        v: 1,
        bench: "split",
        settings: json!({ "jobs": jobs, "slots": slots }),
        syncs,
        figures,
    })
}
