//! `filch job cancel`, `retry` and `priority`: what can be done to jobs that are named.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use filch_api::client::{Client, Error};
use filch_api::job::Job;
use futures_util::{StreamExt as _, stream};
use serde::Serialize;

use crate::confirm::{ConfirmOptions, count_jobs};
use crate::document::{self, Json};
use crate::output::{data, message, report_error};
use crate::progress::Progress;
use crate::select::{self, Chosen, short};
use crate::table::Column::{State, Text};
use crate::{exit, table};

/// Cancel jobs: what has not started never does, what runs is stopped
#[derive(Args)]
#[command(after_help = "Examples:
  filch job cancel @last
  filch job cancel --dry-run state:queued queue:img
  filch job cancel --yes state:queued queue:img")]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    confirm: ConfirmOptions,
    #[command(flatten)]
    form: Json,
    #[arg(required = true, value_name = "SEL", help = select::HELP_MANY)]
    jobs: Vec<String>,
}

/// Give dead jobs new attempts
#[derive(Args)]
#[command(after_help = "Examples:
  filch job retry 3f2a 77c0
  filch job retry --dry-run kind:resize since:1h")]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    confirm: ConfirmOptions,
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
pub(crate) struct PriorityArgs {
    #[command(flatten)]
    form: Json,
    #[arg(value_name = "SEL", help = select::HELP)]
    job: String,
    /// The new priority
    #[arg(value_name = "N")]
    priority: i16,
}

pub(super) async fn cancel(client: &Client, options: &CancelArgs) -> Result<ExitCode> {
    let mut chosen = select::choose(client, &options.jobs).await?;
    if chosen.terms.is_some() {
        chosen.jobs.retain(|job| job.ended_at.is_none());
    }
    if !options.confirm.agree("cancel", "cancelled", &chosen, options.form)? {
        return Ok(ExitCode::SUCCESS);
    }
    for_each(&chosen.jobs, options.form, "cancelled", async |id| client.cancel(id).await).await
}

pub(super) async fn retry(client: &Client, options: &RetryArgs) -> Result<ExitCode> {
    let mut chosen = select::choose(client, &options.jobs).await?;
    if chosen.terms.is_some() {
        chosen.jobs.retain(|job| job.state == "dead");
    }
    // Named one by one, there is nothing to think twice about: it can be cancelled again.
    let confirm = match &chosen.terms {
        Some(_) => options.confirm,
        None => ConfirmOptions { yes: true, ..options.confirm },
    };
    if !confirm.agree("retry", "retried", &chosen, options.form)? {
        return Ok(ExitCode::SUCCESS);
    }
    for_each(&chosen.jobs, options.form, "retried", async |id| client.retry(id).await).await
}

impl ConfirmOptions {
    /// Whether it may be done to these jobs. In a rehearsal they are only shown.
    fn agree(&self, verb: &str, done: &str, chosen: &Chosen, form: Json) -> Result<bool> {
        let count = chosen.jobs.len() as u64;
        let terms = chosen.terms.as_ref().map(ToString::to_string);
        self.confirm_jobs(verb, count, terms.as_deref())?;
        if !self.dry_run {
            return Ok(true);
        }
        if form.json {
            let ids = chosen.jobs.iter().map(|job| job.id.clone()).collect();
            document::print(Document { count, ids, dry_run: true })?;
        } else {
            let row = |job: &Job| vec![short(&job.id), job.state.clone()];
            let rows: Vec<Vec<String>> = chosen.jobs.iter().map(row).collect();
            table::list(&[Text("id"), State("state")], &rows)?;
        }
        message(format_args!("{} would be {done}", count_jobs(count)));
        Ok(false)
    }
}

pub(super) async fn priority(client: &Client, options: &PriorityArgs) -> Result<ExitCode> {
    let chosen = select::many(client, std::slice::from_ref(&options.job)).await?;
    let set = async |id: &str| client.set_priority(id, options.priority).await;
    for_each(&chosen, options.form, "changed", set).await
}

#[derive(Serialize)]
struct Document {
    count: u64,
    ids: Vec<String>,
    dry_run: bool,
}

/// So many requests are under way at once.
const TOGETHER: usize = 16;

/// Does it to each, prints the ids of those it was done to, and ends with the code of the first that it
/// could not be done to.
async fn for_each(
    chosen: &[Job],
    form: Json,
    done: &'static str,
    act: impl AsyncFn(&str) -> Result<(), Error>,
) -> Result<ExitCode> {
    let (mut ids, mut code) = (Vec::new(), 0);
    let mut progress = Progress::of(Some(chosen.len() as u64), done);
    // Several at once: what comes together is made durable together.
    let answers = stream::iter(chosen).map(async |job| (job, act(&job.id).await));
    let mut answers = std::pin::pin!(answers.buffered(TOGETHER));
    while let Some((job, answer)) = answers.next().await {
        match answer {
            Ok(()) => {
                if !form.json {
                    data(&format!("{}\n", job.id))?;
                }
                ids.push(job.id.clone());
                progress.show(ids.len() as u64);
            }
            Err(error) => {
                report_error(format_args!("{}: {error}", short(&job.id)));
                code = if code == 0 { exit::code_of(&error) } else { code };
            }
        }
    }
    progress.end();
    message(format_args!("{} {done}", count_jobs(ids.len() as u64)));
    if form.json {
        document::print(Document { count: ids.len() as u64, ids, dry_run: false })?;
    }
    Ok(ExitCode::from(code))
}
