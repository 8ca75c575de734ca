//! `filch job show` and `filch job result`: everything that is stored about a job, and its result.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use filch_api::client::Client;
use filch_api::job::{Details, Job};
use filch_api::span;
use serde::Serialize;
use serde_json::value::RawValue;

use super::ledger;
use crate::document::{self, Json};
use crate::escape::command;
use crate::exit::{self, Exit};
use crate::output::data;
use crate::select::{self, short};
use crate::{moment, table};

/// Show a job in detail
#[derive(Args)]
#[command(after_help = "Examples:
  filch job show @last
  filch job show --json 3f2a | jq .ledger")]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    form: Json,
    #[arg(value_name = "JOB", help = select::HELP)]
    job: String,
}

pub(super) async fn run(client: &Client, options: &ShowArgs) -> Result<ExitCode> {
    let job = client.job(&select::one(client, &options.job).await?).await?;
    if options.form.json {
        document::print(&job)?;
    } else {
        table::facts(&facts(&job))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn facts(job: &Job) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("id", job.id.clone()),
        (
            "state",
            match &job.reason {
                Some(reason) => format!("{} ({reason})", job.state),
                None => job.state.clone(),
            },
        ),
        ("queue", job.queue.clone()),
        ("kind", job.kind.clone()),
        ("priority", job.priority.to_string()),
    ];
    let details = job.details.as_deref();
    let max = details.map_or(0, |details| details.retry.max);
    facts.push(("attempts", format!("{} of {max}", job.attempts)));
    facts.push(("fence", job.fence.to_string()));
    facts.push(("submitted", moment::cell(job.submitted_at)));
    facts.extend(job.due_at.map(|due| ("due", moment::cell(due))));
    facts.extend(job.ended_at.map(|ended| ("ended", moment::cell(ended))));
    facts.extend(job.worker.clone().map(|worker| ("worker", worker)));
    facts.extend(job.progress.map(|percent| ("progress", format!("{percent}%"))));
    if let Some(details) = details {
        add(&mut facts, details);
    }
    facts
}

fn add(facts: &mut Vec<(&'static str, String)>, details: &Details) {
    let raw = |value: &RawValue| value.get().to_owned();
    facts.extend(details.run.as_deref().map(|words| ("command", command(words))));
    facts.extend(details.dir.clone().map(|dir| ("dir", dir)));
    if !details.env.is_empty() {
        facts.push(("env", details.env.join(" ")));
    }
    facts.extend(details.args.as_deref().map(|args| ("args", raw(args))));
    facts.extend(details.key.clone().map(|key| ("key", key)));
    facts.extend(details.timeout.map(|timeout| ("timeout", span::write(timeout.0.duration()))));
    if !details.after.is_empty() {
        let parents: Vec<String> = details.after.iter().map(|parent| short(parent)).collect();
        facts.push(("after", parents.join(" ")));
    }
    if details.older_left_out {
        facts.push(("ledger", "(older entries are left out)".to_owned()));
    }
    facts.extend(ledger::sentences(details).into_iter().map(|words| ("ledger", words)));
    facts.extend(details.why.as_ref().map(|why| ("why", why.text.clone())));
    facts.extend(details.result.as_deref().map(|result| ("result", raw(result))));
}

/// Print the result of a job as JSON
#[derive(Args)]
#[command(after_help = "\
The result of a command is the content of the file $FILCH_RESULT, or else its last line of output if
that is JSON. The result of other jobs is the value that their handler returned. Exit codes: 100 the
job failed, 102 it was cancelled, 4 it has not ended.

Example:
  filch job result @last | jq .total")]
pub(crate) struct ResultArgs {
    #[command(flatten)]
    form: Json,
    #[arg(value_name = "JOB", help = select::HELP)]
    job: String,
}

#[derive(Serialize)]
struct Document<'a> {
    id: &'a str,
    state: &'a str,
    result: Option<&'a RawValue>,
}

pub(super) async fn result(client: &Client, options: &ResultArgs) -> Result<ExitCode> {
    let job = client.job(&select::one(client, &options.job).await?).await?;
    let details = job.details.as_deref();
    let result = details.and_then(|details| details.result.as_deref());
    if job.ended_at.is_none() {
        let text = format!("{} has not ended: its state is {}", short(&job.id), job.state);
        let help = format!("wait for it with `filch wait {}`", short(&job.id));
        return Err(Exit::new(exit::CONFLICT, format!("{text}\n  help: {help}")).into());
    }
    if options.form.json {
        document::print(Document { id: &job.id, state: &job.state, result })?;
    } else if let Some(result) = result {
        data(&format!("{}\n", result.get()))?;
    }
    match job.state.as_str() {
        "succeeded" => Ok(ExitCode::SUCCESS),
        "cancelled" => {
            Err(Exit::new(exit::JOB_CANCELLED, format!("{} was cancelled", short(&job.id))).into())
        }
        _ => {
            let error =
                details.and_then(|details| details.error.as_deref()).unwrap_or("no error message");
            let error = crate::escape::escaped(error);
            let text = format!("{} failed: {error}", short(&job.id));
            Err(Exit::new(exit::JOB_FAILED, text).into())
        }
    }
}
