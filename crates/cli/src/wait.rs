//! `filch wait`: waits until jobs have ended; the exit code is their outcome.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use filch_api::client::Client;
use filch_api::job::Job;
use serde::Serialize;

use crate::connection::Connection;
use crate::document::{self, JsonOrLines};
use crate::escape::escaped;
use crate::exit::{self, Exit};
use crate::output::{data, message};
use crate::progress::Progress;
use crate::runtime::block_on_interruptible;
use crate::select;

const AFTER_HELP: &str = "\
Prints each job with its state when it has ended. Exit codes: 0 all succeeded, 100 one failed,
102 one was cancelled and none failed, 124 timed out. If stdin holds no ids, the exit code is 0.

Examples:
  filch wait @last
  filch wait --timeout 10m 3f2a 77c0
  filch wait queue:img state:queued,leased,running
  filch submit --array 1-100 -- ./render.sh {index} | filch wait -";

/// Wait until jobs have ended; the exit code is their outcome
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    connection: Connection,
    /// Maximum time to wait
    #[arg(long, value_name = "DURATION", value_parser = filch_api::span::read)]
    timeout: Option<Duration>,
    #[command(flatten)]
    form: JsonOrLines,
    #[arg(required = true, value_name = "JOB", help = select::HELP_MANY)]
    jobs: Vec<String>,
}

/// The longest time that one request waits on the server.
const ROUND: Duration = Duration::from_secs(30);

pub(crate) fn run(options: WaitArgs) -> Result<ExitCode> {
    block_on_interruptible(wait(options))
}

async fn wait(options: WaitArgs) -> Result<ExitCode> {
    let deadline = options.timeout.map(|timeout| Instant::now() + timeout);
    let client = options.connection.client()?;
    let jobs = select::many(&client, &options.jobs).await?;
    let ids: Vec<String> = jobs.into_iter().map(|job| job.id).collect();
    if ids.is_empty() {
        message(format_args!("nothing to wait for: stdin holds no job ids"));
    }
    for_all(&client, &ids, deadline, options.form).await
}

#[derive(Serialize)]
struct Document {
    jobs: Vec<Job>,
}

/// Waits for the jobs one after the other, which takes no longer than waiting for all at once.
pub(crate) async fn for_all(
    client: &Client,
    ids: &[String],
    deadline: Option<Instant>,
    form: JsonOrLines,
) -> Result<ExitCode> {
    let mut ended = Vec::new();
    let (mut failed, mut cancelled) = (false, false);
    let total = ids.len() as u64;
    let mut progress = Progress::of(Some(total), "ended");
    for (count, id) in (0..).zip(ids) {
        let ending = until(client, id, deadline);
        let job = progress.beside(count, ending).await?;
        let Some(job) = job else {
            progress.end();
            if form.json {
                document::print(Document { jobs: ended })?;
            }
            let text = format!("timed out waiting for {}", select::short(id));
            let help = format!("`filch why {}` explains what it waits for", select::short(id));
            return Err(Exit::new(exit::WAIT_TIMED_OUT, format!("{text}\n  help: {help}")).into());
        };
        failed |= job.state == "dead";
        cancelled |= job.state == "cancelled";
        progress.show(count + 1);
        show(&job, form)?;
        if form.json {
            ended.push(job);
        }
    }
    progress.end();
    if form.json {
        document::print(Document { jobs: ended })?;
    }
    Ok(ExitCode::from(match (failed, cancelled) {
        (true, _) => exit::JOB_FAILED,
        (false, true) => exit::JOB_CANCELLED,
        (false, false) => 0,
    }))
}

/// The job once it has ended; `None` if the deadline came first.
pub(crate) async fn until(
    client: &Client,
    id: &str,
    deadline: Option<Instant>,
) -> Result<Option<Job>> {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        // Asked once more even after the deadline: the job may have ended by now.
        let job = client.wait(id, left.map_or(ROUND, |left| left.min(ROUND))).await?;
        if job.ended_at.is_some() {
            return Ok(Some(job));
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Ok(None);
        }
    }
}

fn show(job: &Job, form: JsonOrLines) -> Result<()> {
    let details = job.details.as_deref();
    if let Some(error) = details.and_then(|details| details.error.as_deref())
        && job.state == "dead"
    {
        message(format_args!("{}: {}", select::short(&job.id), escaped(error)));
    }
    match form {
        JsonOrLines { json: true, .. } => Ok(()),
        JsonOrLines { jsonl: true, .. } => document::line(job),
        _ => data(&format!("{}\t{}\n", select::short(&job.id), job.state)),
    }
}
