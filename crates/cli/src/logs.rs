//! `filch logs`: prints the output of a job.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use filch_api::client::Printed;
use filch_api::session::OutputStream;
use serde::Serialize;

use crate::connection::Connection;
use crate::document::{self, JsonOrLines};
use crate::group::with_client;
use crate::output::{self, Escaping};
use crate::select;

const AFTER_HELP: &str = "\
The job's stdout goes to stdout and its stderr to stderr, byte for byte. On a terminal, control
sequences (colors, cursor, title) are escaped unless --raw is given. Some time after the job has
ended, only its stored output is left: both streams merged, and the beginning and end if it is long.

Examples:
  filch logs @last
  filch logs -f 3f2a
  filch logs --jsonl 3f2a | jq -r 'select(.stream == \"stderr\").text'";

/// Print the output of a job
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    connection: Connection,
    /// Follow the output until the job has ended
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    form: JsonOrLines,
    /// Do not escape control sequences on a terminal (only for trusted jobs)
    #[arg(long, conflicts_with_all = ["json", "jsonl"])]
    raw: bool,
    #[arg(value_name = "JOB", help = select::HELP)]
    job: String,
}

#[derive(Serialize)]
struct Document {
    pieces: Vec<Line>,
}

#[derive(Serialize)]
struct Line {
    stream: OutputStream,
    text: String,
}

pub(crate) fn run(options: LogsArgs) -> Result<ExitCode> {
    with_client(&options.connection, async |client| {
        let id = select::one(client, &options.job).await?;
        let escaping = if options.raw { Escaping::Raw } else { Escaping::OnTerminal };
        let (mut failed, mut pieces) = (None, Vec::new());
        let show = |printed: Printed| {
            let line = || Line { stream: printed.stream, text: printed.text.clone() };
            match options.form {
                JsonOrLines { json: true, .. } => pieces.push(line()),
                JsonOrLines { jsonl: true, .. } => {
                    if let Err(error) = document::line(&line()) {
                        failed.get_or_insert(error);
                    }
                }
                _ => output::printed(&printed, escaping),
            }
        };
        client.log(&id, options.follow, show).await?;
        if options.form.json {
            document::print(Document { pieces })?;
        }
        failed.map_or(Ok(ExitCode::SUCCESS), Err)
    })
}
