//! Makespan of a few long jobs among many short ones, compared with an ideal schedule.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use filch_api::submission::Submission;
use serde_json::json;
use serde_json::value::RawValue;

use super::{Figure, Report, rounded};
use crate::processes::{TempFolder, server, wait_for_workers, wait_until_drained, worker};

#[derive(Args)]
pub(super) struct SkewArgs {
    /// Number of jobs
    #[arg(long, default_value_t = 400, value_name = "N")]
    jobs: usize,
    /// Number of worker processes
    #[arg(long, default_value_t = 4, value_name = "N")]
    workers: u32,
    /// Slots of each worker
    #[arg(long, default_value_t = 2, value_name = "N")]
    slots: u32,
    /// Data directory [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// Every hundredth job is long.
fn length_ms(index: usize) -> u64 {
    if index.is_multiple_of(100) { 1_000 } else { 2 }
}

pub(super) async fn run(options: &SkewArgs) -> Result<Report> {
    let &SkewArgs { jobs, workers, slots, .. } = options;
    let folder = TempFolder::new("filch-bench", options.folder.as_deref())?;
    let (_server, client) = server(folder.path()).await?;
    let started = (0..workers).map(|_| worker(client.url(), slots));
    let _workers = started.collect::<Result<Vec<_>>>()?;
    wait_for_workers(&client, workers.into()).await?;

    let submissions: Vec<Submission> = (0..jobs)
        .map(|index| Submission {
            kind: Some("sleep".into()),
            args: RawValue::from_string(format!("{{\"ms\":{}}}", length_ms(index))).ok(),
            ..Submission::default()
        })
        .collect();
    let began = Instant::now();
    client.submit_all(&submissions).await?;
    let makespan = (wait_until_drained(&client).await? - began).as_secs_f64();
    let ideal = greedy(jobs, (workers * slots) as usize) as f64 / 1e3;
    let status = client.status().await?;
    Ok(Report {
        v: 1,
        bench: "skew",
        settings: json!({
            "jobs": jobs, "long_every": 100, "long_ms": 1_000, "short_ms": 2,
            "worker_processes": workers, "slots_each": slots,
        }),
        syncs: status.syncs,
        figures: vec![
            Figure::new("makespan", rounded(makespan, 3), "s"),
            Figure::new("greedy schedule without overhead", rounded(ideal, 3), "s"),
            Figure::new("makespan / greedy schedule", rounded(makespan / ideal, 3), "times")
                .at_most(1.1),
            Figure::new("steals", status.steals as f64, ""),
        ],
    })
}

/// Assigns each job to the slot that is free first, without overhead.
fn greedy(jobs: usize, slots: usize) -> u64 {
    let mut free: BinaryHeap<Reverse<u64>> = (0..slots).map(|_| Reverse(0)).collect();
    for index in 0..jobs {
        let Reverse(at) = free.pop().expect("there is a slot");
        free.push(Reverse(at + length_ms(index)));
    }
    free.into_iter().map(|Reverse(at)| at).max().unwrap_or(0)
}
