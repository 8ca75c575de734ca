//! `filch worker list` and `drain`: the workers that a server knows.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use filch_api::client::Client;
use filch_api::cluster::Worker;
use serde::Serialize;

use crate::confirm::Caution;
use crate::document::{self, Json, JsonOrLines};
use crate::exit::{self, Exit};
use crate::output::{data, talk};
use crate::select::short;
use crate::table;
use crate::table::Column::{Number, Text};
use crate::usage::Usage;

/// List workers
#[derive(Args)]
#[command(after_help = "Example:
  filch worker list --jsonl | jq -r 'select(.state == \"disconnected\").id'")]
pub(crate) struct List {
    #[command(flatten)]
    form: JsonOrLines,
}

/// Let workers finish what they run, give back the rest and leave
#[derive(Args)]
#[command(after_help = "Examples:
  filch worker drain 5b1e
  filch worker drain --all --yes")]
pub(crate) struct Drain {
    #[command(flatten)]
    caution: Caution,
    #[command(flatten)]
    form: Json,
    /// Every worker
    #[arg(long, conflicts_with = "workers")]
    all: bool,
    /// Workers: ids, or at least the last 4 digits of each
    #[arg(required_unless_present = "all", value_name = "ID")]
    workers: Vec<String>,
}

#[derive(Serialize)]
struct Workers {
    workers: Vec<Worker>,
}

pub(crate) async fn list(client: &Client, options: &List) -> Result<ExitCode> {
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
            worker.state.clone(),
            worker.slots.to_string(),
            worker.held.to_string(),
            worker.waiting.to_string(),
        ]
    };
    let columns = [Text("id"), Text("state"), Number("slots"), Number("held"), Number("waiting")];
    table::list(&columns, &workers.iter().map(row).collect::<Vec<_>>())
}

#[derive(Serialize)]
struct Drained {
    count: usize,
    ids: Vec<String>,
}

pub(crate) async fn drain(client: &Client, options: &Drain) -> Result<ExitCode> {
    let workers = client.workers().await?;
    let mut chosen: Vec<Worker> = Vec::new();
    if options.all {
        chosen.extend(workers.into_iter().filter(|worker| worker.state != "draining"));
    } else {
        for word in &options.workers {
            let worker = find(&workers, word)?;
            if chosen.iter().all(|other| other.id != worker.id) {
                chosen.push(worker.clone());
            }
        }
    }
    let count = match chosen.len() {
        1 => "1 worker".to_owned(),
        count => format!("{count} workers"),
    };
    if options.caution.dry_run {
        show(&chosen)?;
        talk(format_args!("{count} would be drained"));
        return Ok(ExitCode::SUCCESS);
    }
    options.caution.confirm(&format!("drain {count}?"))?;
    for worker in &chosen {
        client.drain(&worker.id).await?;
        if !options.form.json {
            data(&format!("{}\n", worker.id))?;
        }
    }
    talk(format_args!("{count} told to leave"));
    if options.form.json {
        let ids = chosen.into_iter().map(|worker| worker.id).collect::<Vec<_>>();
        document::print(Drained { count: ids.len(), ids })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The fewest digits that name a worker.
const SUFFIX_MIN: usize = 4;

fn find<'a>(workers: &'a [Worker], word: &str) -> Result<&'a Worker> {
    let digits = word.to_ascii_lowercase();
    let help = "`filch worker list` shows who is there";
    if digits.len() < SUFFIX_MIN || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let text = format!("{word:?} is no id of a worker");
        return Err(Usage::new(text, format!("write at least its last 4 digits; {help}")).into());
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
