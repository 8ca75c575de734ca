//! `filch job cancel`, `retry` and `priority`.

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
use crate::select::{self, Selected, short};
use crate::table::Column::{State, Text};
use crate::{exit, table};

/// Cancel jobs; running ones are stopped
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
    #[arg(required = true, value_name = "JOB", help = select::HELP_MANY)]
    jobs: Vec<String>,
}

/// Retry dead jobs with a new set of attempts
#[derive(Args)]
#[command(after_help = "Examples:
  filch job retry 3f2a 77c0
  filch job retry --dry-run kind:resize since:1h")]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    confirm: ConfirmOptions,
    #[command(flatten)]
    form: Json,
    #[arg(required = true, value_name = "JOB", help = select::HELP_MANY)]
    jobs: Vec<String>,
}

/// Change the priority of a job; higher runs sooner
#[derive(Args)]
#[command(after_help = "Example:
  filch job priority @last 10

Priorities take effect with the strategy `priority`: `filch queue strategy priority`.")]
pub(crate) struct PriorityArgs {
    #[command(flatten)]
    form: Json,
    #[arg(value_name = "JOB", help = select::HELP)]
    job: String,
    /// The new priority
    #[arg(value_name = "N")]
    priority: i16,
}

pub(super) async fn cancel(client: &Client, options: &CancelArgs) -> Result<ExitCode> {
    let mut selected = select::choose(client, &options.jobs).await?;
    if selected.filter.is_some() {
        selected.jobs.retain(|job| job.ended_at.is_none());
    }
    if !options.confirm.confirm_selection("cancel", "cancelled", &selected, options.form)? {
        return Ok(ExitCode::SUCCESS);
    }
    for_each(&selected.jobs, options.form, "cancelled", async |id| client.cancel(id).await).await
}

pub(super) async fn retry(client: &Client, options: &RetryArgs) -> Result<ExitCode> {
    let mut selected = select::choose(client, &options.jobs).await?;
    if selected.filter.is_some() {
        selected.jobs.retain(|job| job.state == "dead");
    }
    // A retry of jobs named by id needs no confirmation: they can be cancelled again.
    let confirm = match &selected.filter {
        Some(_) => options.confirm,
        None => ConfirmOptions { yes: true, ..options.confirm },
    };
    if !confirm.confirm_selection("retry", "retried", &selected, options.form)? {
        return Ok(ExitCode::SUCCESS);
    }
    for_each(&selected.jobs, options.form, "retried", async |id| client.retry(id).await).await
}

impl ConfirmOptions {
    /// Whether to go ahead. With `--dry-run` the jobs are only listed.
    fn confirm_selection(
        &self,
        verb: &str,
        done: &str,
        selected: &Selected,
        form: Json,
    ) -> Result<bool> {
        let count = selected.jobs.len() as u64;
        let filter = selected.filter.as_ref().map(ToString::to_string);
        self.confirm_jobs(verb, count, filter.as_deref())?;
        if !self.dry_run {
            return Ok(true);
        }
        if form.json {
            let ids = selected.jobs.iter().map(|job| job.id.clone()).collect();
            document::print(Document { count, ids, dry_run: true })?;
        } else {
            let row = |job: &Job| vec![short(&job.id), job.state.clone()];
            let rows: Vec<Vec<String>> = selected.jobs.iter().map(row).collect();
            table::list(&[Text("id"), State("state")], &rows)?;
        }
        message(format_args!("{} would be {done}", count_jobs(count)));
        Ok(false)
    }
}

pub(super) async fn priority(client: &Client, options: &PriorityArgs) -> Result<ExitCode> {
    let selected = select::many(client, std::slice::from_ref(&options.job)).await?;
    let set = async |id: &str| client.set_priority(id, options.priority).await;
    for_each(&selected, options.form, "changed", set).await
}

#[derive(Serialize)]
struct Document {
    count: u64,
    ids: Vec<String>,
    dry_run: bool,
}

/// How many requests are in flight at once.
const CONCURRENCY: usize = 16;

/// Applies `act` to each job, prints the ids of those that succeeded, and returns the exit code of
/// the first failure.
async fn for_each(
    selected: &[Job],
    form: Json,
    done: &'static str,
    act: impl AsyncFn(&str) -> Result<(), Error>,
) -> Result<ExitCode> {
    let (mut ids, mut code) = (Vec::new(), 0);
    let mut progress = Progress::of(Some(selected.len() as u64), done);
    // Concurrent requests share commits.
    let answers = stream::iter(selected).map(async |job| (job, act(&job.id).await));
    let mut answers = std::pin::pin!(answers.buffered(CONCURRENCY));
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
