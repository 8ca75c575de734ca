//! `filch worker list`, `drain` and `stop`: the workers that a server knows.

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

/// Let workers finish what they run, give back the rest and leave
#[derive(Args)]
#[command(after_help = "Examples:
  filch worker drain 5b1e
  filch worker drain --all --yes")]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    confirm: ConfirmOptions,
    #[command(flatten)]
    form: Json,
    /// Every worker
    #[arg(long, conflicts_with = "workers")]
    all: bool,
    /// Workers: ids, or at least the last 4 digits of each
    #[arg(required_unless_present = "all", value_name = "ID")]
    workers: Vec<String>,
}

/// Stop workers: they finish what they run within the grace, hand back the rest, and their processes end
#[derive(Args)]
#[command(after_help = "\
What still runs when the grace is over is stopped and handed back; no attempt is charged for that. A
worker within `filch up` leaves, and the server goes on.

Examples:
  filch worker stop 5b1e
  filch worker stop --now builder-7
  filch worker stop --all --grace 5m --wait --yes")]
pub(crate) struct StopArgs {
    #[command(flatten)]
    confirm: ConfirmOptions,
    #[command(flatten)]
    form: Json,
    /// How long what runs may take
    #[arg(long, value_name = "SPAN", default_value = "30s", value_parser = filch_api::span::read)]
    grace: Duration,
    /// Stop what runs at once
    #[arg(long, conflicts_with = "grace")]
    now: bool,
    /// Wait until they have gone
    #[arg(long)]
    wait: bool,
    /// Every worker
    #[arg(long, conflicts_with = "workers")]
    all: bool,
    /// Workers: ids, at least the last 4 digits of each, or names
    #[arg(required_unless_present = "all", value_name = "NAME|ID")]
    workers: Vec<String>,
}

#[derive(Serialize)]
struct Workers {
    workers: Vec<Worker>,
}

pub(crate) async fn list(client: &Client, options: &ListArgs) -> Result<ExitCode> {
    let workers = client.workers().await?;
    if options.form.json {
        document::print(Workers { workers })?;
    } else if options.form.jsonl {
        workers.iter().try_for_each(document::line)?;
    } else {
        show(&workers)?;
    }
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
    // Those that are leaving already need not be told.
    chosen.retain(|worker| !options.all || worker.state != "draining");
    let count = counted(chosen.len());
    if options.confirm.dry_run {
        show(&chosen)?;
        message(format_args!("{count} would be drained"));
        return Ok(ExitCode::SUCCESS);
    }
    ask(options.confirm, &format!("drain {count}"), &options.workers)?;
    for worker in &chosen {
        client.drain(&worker.id).await?;
        if !options.form.json {
            data(&format!("{}\n", worker.id))?;
        }
    }
    message(format_args!("{count} told to leave"));
    if options.form.json {
        let ids = chosen.into_iter().map(|worker| worker.id).collect::<Vec<_>>();
        document::print(Drained { count: ids.len(), ids })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// How often it is looked whether they have gone.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) async fn stop(client: &Client, options: &StopArgs) -> Result<ExitCode> {
    let chosen = chosen(client, &options.workers, options.all).await?;
    let count = counted(chosen.len());
    if options.confirm.dry_run {
        show(&chosen)?;
        message(format_args!("{count} would be stopped"));
        return Ok(ExitCode::SUCCESS);
    }
    ask(options.confirm, &format!("stop {count}"), &options.workers)?;
    let grace = if options.now { Duration::ZERO } else { options.grace };
    let millis = u32::try_from(grace.as_millis()).unwrap_or(u32::MAX);
    let stop = WorkerStop { grace: Some(Span(Millis(millis))) };
    for worker in &chosen {
        client.stop_worker(&worker.id, &stop).await?;
        if !options.form.json {
            data(&format!("{}\n", worker.id))?;
        }
    }
    message(format_args!("{count} told to stop"));
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

/// Whether this is meant. All workers, when none is named, may be more than one thinks.
fn ask(confirm: ConfirmOptions, what: &str, named: &[String]) -> Result<()> {
    if named.is_empty() { confirm.require(what) } else { confirm.confirm(&format!("{what}?")) }
}

fn counted(count: usize) -> String {
    match count {
        1 => "1 worker".to_owned(),
        count => format!("{count} workers"),
    }
}

/// Those that are named, each once; or all.
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

/// The whole id of a worker that is known, or of one that is not there any more.
pub(crate) async fn resolve_id(client: &Client, word: &str) -> Result<String> {
    if filch_api::id::read_worker(word).is_some() {
        return Ok(word.to_ascii_lowercase());
    }
    Ok(find(&client.workers().await?, word)?.id.clone())
}

/// The fewest digits that name a worker.
const SUFFIX_MIN: usize = 4;

fn find<'a>(workers: &'a [Worker], word: &str) -> Result<&'a Worker> {
    let digits = word.to_ascii_lowercase();
    let help = "`filch worker list` shows who is there";
    if word.trim().is_empty() {
        return Err(Usage::new("the name of the worker is empty", help).into());
    }
    let mut called = workers.iter().filter(|worker| worker.name.as_deref() == Some(word));
    match (called.next(), called.next()) {
        (Some(worker), None) => return Ok(worker),
        (Some(_), Some(_)) => {
            let text = format!("several workers are called {word}\n  help: write its id; {help}");
            return Err(Exit::new(exit::CONFLICT, text).into());
        }
        (None, _) => {}
    }
    if digits.len() < SUFFIX_MIN || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let names: Vec<&str> = workers.iter().filter_map(|worker| worker.name.as_deref()).collect();
        let near = did_you_mean(word, &names);
        let text = format!(
            "no worker is called {word:?}, and it is no id of one{near}\n  help: write at least its \
             last 4 digits; {help}"
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
            let text = format!("several workers end with {word}\n  help: write more of its digits");
            Err(Exit::new(exit::CONFLICT, text).into())
        }
    }
}
