//! `filch job cancel`, `retry` and `priority`: what can be done to jobs that are named.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use filch_api::client::{Client, Error};
use filch_api::job::Job;
use serde::Serialize;

use crate::confirm::{Caution, jobs};
use crate::document::{self, Json};
use crate::output::{data, talk};
use crate::select::{self, short};
use crate::table::Column::Text;
use crate::{exit, table};

/// Cancel jobs: what has not started never does, what runs is stopped
#[derive(Args)]
#[command(after_help = "Examples:
  filch job cancel @last
  filch job list --state queued --queue img --all --jsonl | jq -r .id | filch job cancel --yes -")]
pub(super) struct Cancel {
    #[command(flatten)]
    caution: Caution,
    #[command(flatten)]
    form: Json,
    #[arg(required = true, value_name = "SEL", help = select::HELP_MANY)]
    jobs: Vec<String>,
}

/// Give dead jobs new attempts
#[derive(Args)]
#[command(after_help = "Example:
  filch job retry 3f2a 77c0

`filch dead retry` takes filters, for many jobs at once.")]
pub(super) struct Retry {
    #[command(flatten)]
    form: Json,
    #[arg(required = true, value_name = "SEL", help = select::HELP_MANY)]
    jobs: Vec<String>,
}

/// Give a job another priority; higher is sooner
#[derive(Args)]
#[command(after_help = "Example:
  filch job priority @last 10

Priorities count under the strategy of that name: `filch queue strategy priority`.")]
pub(super) struct Priority {
    #[command(flatten)]
    form: Json,
    #[arg(value_name = "SEL", help = select::HELP)]
    job: String,
    /// The new priority
    #[arg(value_name = "N", allow_negative_numbers = true)]
    priority: i16,
}

pub(super) async fn cancel(client: &Client, options: &Cancel) -> Result<ExitCode> {
    let chosen = select::many(client, &options.jobs).await?;
    if options.caution.dry_run {
        let rows: Vec<Vec<String>> =
            chosen.iter().map(|job| vec![short(&job.id), job.state.clone()]).collect();
        table::list(&[Text("id"), Text("state")], &rows)?;
        talk(format_args!("{} would be cancelled", jobs(chosen.len() as u64)));
        return Ok(ExitCode::SUCCESS);
    }
    options.caution.confirm(&format!("cancel {}?", jobs(chosen.len() as u64)))?;
    for_each(&chosen, options.form, "cancelled", async |id| client.cancel(id).await).await
}

pub(super) async fn retry(client: &Client, options: &Retry) -> Result<ExitCode> {
    let chosen = select::many(client, &options.jobs).await?;
    for_each(&chosen, options.form, "retried", async |id| client.retry(id).await).await
}

pub(super) async fn priority(client: &Client, options: &Priority) -> Result<ExitCode> {
    let chosen = select::many(client, std::slice::from_ref(&options.job)).await?;
    let set = async |id: &str| client.set_priority(id, options.priority).await;
    for_each(&chosen, options.form, "changed", set).await
}

#[derive(Serialize)]
struct Document {
    count: u64,
    ids: Vec<String>,
}

/// Does it to each, prints the ids of those it was done to, and ends with the code of the first that it
/// could not be done to.
async fn for_each(
    chosen: &[Job],
    form: Json,
    done: &str,
    act: impl AsyncFn(&str) -> Result<(), Error>,
) -> Result<ExitCode> {
    let (mut ids, mut code) = (Vec::new(), 0);
    for job in chosen {
        match act(&job.id).await {
            Ok(()) => {
                if !form.json {
                    data(&format!("{}\n", job.id))?;
                }
                ids.push(job.id.clone());
            }
            Err(error) => {
                talk(format_args!("error: {}: {error}", short(&job.id)));
                code = if code == 0 { exit::code_of(&error) } else { code };
            }
        }
    }
    talk(format_args!("{} {done}", jobs(ids.len() as u64)));
    if form.json {
        document::print(Document { count: ids.len() as u64, ids })?;
    }
    Ok(ExitCode::from(code))
}
