//! Throughput: many empty jobs are submitted, then drained.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use filch_api::client::Client;
use serde_json::json;

use super::{Figure, Report, rounded};
use crate::processes::{TempFolder, server, wait_for_workers, wait_until_drained, worker};

#[derive(Args)]
pub(super) struct DrainArgs {
    /// Number of jobs
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    jobs: u64,
    /// Bytes of arguments per job
    #[arg(long, default_value_t = 100, value_name = "N")]
    payload: usize,
    /// Number of worker processes
    #[arg(long, default_value_t = 1, value_name = "N")]
    workers: u32,
    /// Slots of each worker
    #[arg(long, default_value_t = 2, value_name = "N")]
    slots: u32,
    /// Number of concurrent submit requests
    #[arg(long, default_value_t = 2, value_name = "N")]
    clients: u64,
    /// Data directory [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub(super) async fn run(options: &DrainArgs) -> Result<Report> {
    let &DrainArgs { jobs, payload, workers, slots, clients, .. } = options;
    let folder = TempFolder::new("filch-bench", options.folder.as_deref())?;
    let (first, client) = server(folder.path()).await?;

    let began = Instant::now();
    submit(&client, jobs, payload, clients).await?;
    let submitted = began.elapsed();
    let memory = first.memory()?;
    let syncs = client.status().await?.syncs;

    // Like a crash: the process is killed without a shutdown.
    drop(first);
    let restarting = Instant::now();
    let (_server, client) = server(folder.path()).await?;
    let restarted = restarting.elapsed();

    let started = (0..workers).map(|_| worker(client.url(), slots));
    let began = Instant::now();
    let _workers = started.collect::<Result<Vec<_>>>()?;
    wait_for_workers(&client, workers.into()).await?;
    let drained = wait_until_drained(&client).await? - began;

    let rate = |span: Duration| rounded(jobs as f64 / span.as_secs_f64(), 0);
    Ok(Report {
        v: 1,
        bench: "drain",
        settings: json!({
            "jobs": jobs, "payload_bytes": payload, "worker_processes": workers,
            "slots_each": slots, "submitting_requests": clients, "store": "a file, synced at every commit",
        }),
        syncs: syncs + client.status().await?.syncs,
        figures: vec![
            Figure::new("submit", rate(submitted), "jobs/s"),
            Figure::new("drain", rate(drained), "jobs/s"),
            Figure::new("submit, then drain", rate(submitted + drained), "jobs/s")
                .at_least(100_000.0),
            Figure::new(
                "server memory with all jobs queued",
                rounded(memory as f64 / 1e6, 1),
                "MB",
            )
            .at_most(400.0),
            Figure::new("from kill -9 to serving again", rounded(restarted.as_secs_f64(), 3), "s")
                .at_most(4.0),
        ],
    })
}

/// Submits jobs as JSON lines, in several concurrent requests.
pub(super) async fn submit(client: &Client, jobs: u64, payload: usize, clients: u64) -> Result<()> {
    let requests = (0..clients).map(|index| {
        let count = jobs / clients + u64::from(index < jobs % clients);
        let client = client.clone();
        tokio::spawn(async move { client.submit_lines(lines(count, payload), None, |_| {}).await })
    });
    for request in requests.collect::<Vec<_>>() {
        request.await??;
    }
    Ok(())
}

/// Lines per chunk of a request body.
const CHUNK_LINES: u64 = 1_024;

/// JSON lines, generated on demand.
fn lines(count: u64, payload: usize) -> impl futures_util::Stream<Item = std::io::Result<Vec<u8>>> {
    let tail =
        format!("\",\"kind\":\"noop\",\"args\":\"{}\"}}\n", "x".repeat(payload.saturating_sub(2)));
    futures_util::stream::unfold(count, move |left| {
        let some = left.min(CHUNK_LINES);
        let mut chunk = Vec::with_capacity(some as usize * (tail.len() + 48));
        for _ in 0..some {
            chunk.extend_from_slice(b"{\"id\":\"");
            chunk.extend_from_slice(filch_api::id::job(filch_api::id::new_job()).as_bytes());
            chunk.extend_from_slice(tail.as_bytes());
        }
        std::future::ready((some > 0).then_some((Ok(chunk), left - some)))
    })
}
