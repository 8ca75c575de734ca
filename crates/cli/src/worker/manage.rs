//! `filch worker list`, `drain` and `stop`: the workers that are connected to a server.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use filch_api::client::Client;
use filch_api::cluster::{Worker, WorkerStop};
use filch_api::submission::Span;
use filch_scheduler::time::Millis;
use serde::Serialize;

use crate::confirm::ConfirmOptions;
use crate::document::{self, Json, JsonOrLines};
use crate::exit::{self, Exit};
use crate::output::{data, message};
use crate::select::short;
use crate::suggest::did_you_mean;
use crate::table;
use crate::table::Column::{Number, State, Text};
use crate::usage::Usage;

/// List workers
#[derive(Args)]
#[command(after_help = "Example:
  filch worker list --jsonl | jq -r 'select(.state == \"disconnected\").id'")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    form: JsonOrLines,
}

/// Drain workers: finish running jobs, return the others, then exit
#[derive(Args)]
#[command(after_help = "Examples:
  filch worker drain 5b1e
  filch worker drain --all --yes")]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    confirm: ConfirmOptions,
    #[command(flatten)]
    form: Json,
    /// Select all workers
    #[arg(long, conflicts_with = "workers")]
    all: bool,
    /// Workers: ids, at least the last 4 digits of each, or names
    #[arg(required_unless_present = "all", value_name = "WORKER")]
    workers: Vec<String>,
}

/// Stop workers: finish running jobs within a grace period, return the others, then exit
#[derive(Args)]
#[command(after_help = "\
Jobs that still run after the grace period are stopped and returned; this does not count as an
attempt. If the worker is part of `filch up`, the server keeps running.

Examples:
  filch worker stop 5b1e
  filch worker stop --now builder-7
  filch worker stop --all --grace 5m --wait --yes")]
pub(crate) struct StopArgs {
    #[command(flatten)]
    confirm: ConfirmOptions,
    #[command(flatten)]
    form: Json,
    /// Grace period for running jobs
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = filch_api::span::read)]
    grace: Duration,
    /// Stop running jobs at once
    #[arg(long, conflicts_with = "grace")]
    now: bool,
    /// Wait until the workers have exited
    #[arg(long)]
    wait: bool,
    /// Select all workers
    #[arg(long, conflicts_with = "workers")]
    all: bool,
    /// Workers: ids, at least the last 4 digits of each, or names
    #[arg(required_unless_present = "all", value_name = "WORKER")]
    workers: Vec<String>,
}

#[derive(Serialize)]
struct Workers {
    workers: Vec<Worker>,
}

pub(crate) async fn list(client: &Client, options: &ListArgs) -> Result<ExitCode> {
    let workers = client.workers().await?;
    document::list(options.form, workers, |workers| Workers { workers }, show)?;
    Ok(ExitCode::SUCCESS)
}

fn show(workers: &[Worker]) -> Result<()> {
    let row = |worker: &Worker| {
        vec![
            short(&worker.id),
            worker.name.clone().unwrap_or_else(|| "-".to_owned()),
            worker.state.clone(),
            worker.slots.to_string(),
            worker.held.saturating_sub(worker.waiting.into()).to_string(),
            worker.waiting.to_string(),
            worker.queues.as_ref().map_or_else(|| "all".to_owned(), |queues| queues.join(",")),
            worker.kinds.as_ref().map_or_else(|| "-".to_owned(), |kinds| kinds.join(",")),
        ]
    };
    let columns = [
        Text("id"),
        Text("name"),
        State("state"),
        Number("slots"),
        Number("running"),
        Number("waiting"),
        Text("queues"),
        Text("kinds"),
    ];
    table::list(&columns, &workers.iter().map(row).collect::<Vec<_>>())
}

#[derive(Serialize)]
struct Drained {
    count: usize,
    ids: Vec<String>,
}

pub(crate) async fn drain(client: &Client, options: &DrainArgs) -> Result<ExitCode> {
    let mut chosen = chosen(client, &options.workers, options.all).await?;
    // Workers that are draining already need no second request.
    chosen.retain(|worker| !options.all || worker.state != "draining");
    let count = counted(chosen.len());
    if options.confirm.dry_run {
        show(&chosen)?;
        message(format_args!("{count} would be drained"));
        return Ok(ExitCode::SUCCESS);
    }
    confirm_stop(options.confirm, &format!("drain {count}"), &options.workers)?;
    for worker in &chosen {
        client.drain(&worker.id).await?;
        if !options.form.json {
            data(&format!("{}\n", worker.id))?;
        }
    }
    message(format_args!("{count} draining"));
    if options.form.json {
        let ids = chosen.into_iter().map(|worker| worker.id).collect::<Vec<_>>();
        document::print(Drained { count: ids.len(), ids })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// How often `--wait` checks whether the workers have exited.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) async fn stop(client: &Client, options: &StopArgs) -> Result<ExitCode> {
    let chosen = chosen(client, &options.workers, options.all).await?;
    let count = counted(chosen.len());
    if options.confirm.dry_run {
        show(&chosen)?;
        message(format_args!("{count} would be stopped"));
        return Ok(ExitCode::SUCCESS);
    }
    confirm_stop(options.confirm, &format!("stop {count}"), &options.workers)?;
    let grace = if options.now { Duration::ZERO } else { options.grace };
    let millis = u32::try_from(grace.as_millis()).unwrap_or(u32::MAX);
    let stop = WorkerStop { grace: Some(Span(Millis(millis))) };
    for worker in &chosen {
        client.stop_worker(&worker.id, &stop).await?;
        if !options.form.json {
            data(&format!("{}\n", worker.id))?;
        }
    }
    message(format_args!("{count} stopping"));
    let ids = chosen.into_iter().map(|worker| worker.id).collect::<Vec<_>>();
    if options.wait {
        let is_there = |worker: &Worker| ids.contains(&worker.id);
        while client.workers().await?.iter().any(is_there) {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    if options.form.json {
        document::print(Drained { count: ids.len(), ids })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks for confirmation. `--all` requires one, since it may select more workers than expected.
fn confirm_stop(confirm: ConfirmOptions, what: &str, named: &[String]) -> Result<()> {
    if named.is_empty() { confirm.require(what) } else { confirm.confirm(&format!("{what}?")) }
}

fn counted(count: usize) -> String {
    match count {
        1 => "1 worker".to_owned(),
        count => format!("{count} workers"),
    }
}

/// The named workers, each once; or all.
async fn chosen(client: &Client, words: &[String], all: bool) -> Result<Vec<Worker>> {
    let workers = client.workers().await?;
    if all {
        return Ok(workers);
    }
    let mut chosen: Vec<Worker> = Vec::new();
    for word in words {
        let worker = find(&workers, word)?;
        if chosen.iter().all(|other| other.id != worker.id) {
            chosen.push(worker.clone());
        }
    }
    Ok(chosen)
}

/// The full id of a worker. A full id may belong to a worker that has left.
pub(crate) async fn resolve_id(client: &Client, word: &str) -> Result<String> {
    if filch_api::id::read_worker(word).is_some() {
        return Ok(word.to_ascii_lowercase());
    }
    Ok(find(&client.workers().await?, word)?.id.clone())
}

/// How many digits of an id are needed at least.
const SUFFIX_MIN: usize = 4;

fn find<'a>(workers: &'a [Worker], word: &str) -> Result<&'a Worker> {
    let digits = word.to_ascii_lowercase();
    let help = "list the workers with `filch worker list`";
    if word.trim().is_empty() {
        return Err(Usage::new("the worker name is empty", help).into());
    }
    let mut called = workers.iter().filter(|worker| worker.name.as_deref() == Some(word));
    match (called.next(), called.next()) {
        (Some(worker), None) => return Ok(worker),
        (Some(_), Some(_)) => {
            let text = format!("several workers have the name {word}\n  help: use an id; {help}");
            return Err(Exit::new(exit::CONFLICT, text).into());
        }
        (None, _) => {}
    }
    if digits.len() < SUFFIX_MIN || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let names: Vec<&str> = workers.iter().filter_map(|worker| worker.name.as_deref()).collect();
        let near = did_you_mean(word, &names);
        let text = format!(
            "no worker with the name or id {word:?}{near}\n  help: write at least the last 4 digits of \
             its id; {help}"
        );
        return Err(Exit::new(exit::NOT_FOUND, text).into());
    }
    let mut fitting = workers.iter().filter(|worker| worker.id.ends_with(&digits));
    match (fitting.next(), fitting.next()) {
        (Some(worker), None) => Ok(worker),
        (None, _) => {
            Err(Exit::new(exit::NOT_FOUND, format!("no worker {word}\n  help: {help}")).into())
        }
        (Some(_), Some(_)) => {
            let text =
                format!("the ids of several workers end with {word}\n  help: write more digits");
            Err(Exit::new(exit::CONFLICT, text).into())
        }
    }
}
