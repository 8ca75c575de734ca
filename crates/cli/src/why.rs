//! `filch why`: explains what a job waits for, and which command would change it.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use filch_api::job::{Job, Reasoning};
use serde::Serialize;

use crate::connection::Connection;
use crate::document::{self, Json};
use crate::escape::escaped;
use crate::group::with_client;
use crate::output::data;
use crate::select::{self, short};

const AFTER_HELP: &str = "\
Example:
  $ filch why 3f2a
  queued: queue img has 4 of 4 slots busy; 17 jobs ahead; about 40 s at the current rate
    try: filch queue set img --limit N";

/// Explain why a job is not running, and how to change it
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct WhyArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    form: Json,
    #[arg(value_name = "JOB", help = select::HELP)]
    job: String,
}

#[derive(Serialize)]
struct Document<'a> {
    id: &'a str,
    state: &'a str,
    #[serde(flatten)]
    why: &'a Reasoning,
}

pub(crate) fn run(options: WhyArgs) -> Result<ExitCode> {
    with_client(&options.connection, async |client| {
        let job = client.job(&select::one(client, &options.job).await?).await?;
        let why = reasoning(&job);
        if options.form.json {
            document::print(Document { id: &job.id, state: &job.state, why: &why })?;
        } else {
            data(&text(&job, &why))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// The server's explanation of a live job. For an ended job, the stored outcome is the explanation.
fn reasoning(job: &Job) -> Reasoning {
    let details = job.details.as_deref();
    let said = details.and_then(|details| details.why.clone());
    let is_ended = job.ended_at.is_some();
    said.filter(|_| !is_ended).unwrap_or_else(|| {
        let error = details.and_then(|details| details.error.as_deref());
        let (text, help) = match (job.state.as_str(), job.reason.as_deref()) {
            ("succeeded", _) => ("the job has succeeded".to_owned(), None),
            ("cancelled", Some("condition")) => {
                let text = "its dependencies did not meet its condition".to_owned();
                (text, Some(format!("filch job show {}", short(&job.id))))
            }
            ("cancelled", _) => ("cancelled by a user".to_owned(), None),
            ("dead", reason) => {
                let attempts = match job.attempts {
                    1 => "the only attempt".to_owned(),
                    count => format!("{count} attempts"),
                };
                let last = match (error, reason) {
                    (Some(error), _) => format!(": {error}"),
                    (None, Some("worker-lost")) => ": the worker was lost each time".to_owned(),
                    (None, _) => String::new(),
                };
                (
                    format!("{attempts} failed{last}"),
                    Some(format!("filch job retry {}", short(&job.id))),
                )
            }
            (state, _) => (format!("the job is {state}"), None),
        };
        let code = if is_ended { "ended" } else { "unknown" }.to_owned();
        Reasoning { code, text, help, turn: None }
    })
}

fn text(job: &Job, why: &Reasoning) -> String {
    let mut text = format!("{}: {}\n", job.state, escaped(&why.text));
    if let Some(help) = &why.help {
        text.push_str(&format!("  try: {}\n", escaped(help)));
    }
    text
}
