//! `filch logs`: what a job has printed, as it printed it.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use filch_api::client::Printed;
use filch_api::session::OutputStream;
use serde::Serialize;

use crate::connection::Connection;
use crate::document::{self, JsonOrLines};
use crate::group::with_client;
use crate::output::{self, Bytes};
use crate::select;

const AFTER_HELP: &str = "\
What the job printed on stderr goes to stderr, byte for byte; on a terminal, whatever that would
obey (colours, the cursor, the title) is shown as an escape unless --raw is given. Of a job that
has ended long ago both are kept together, and of a long output the beginning and the end.

Examples:
  filch logs @last
  filch logs -f 3f2a
  filch logs --jsonl 3f2a | jq -r 'select(.stream == \"stderr\").text'";

/// Show what a job has printed
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct LogsArgs {
    #[command(flatten)]
    connection: Connection,
    /// Go on until the job has ended
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    form: JsonOrLines,
    /// Byte for byte, also on a terminal: only for jobs that are trusted
    #[arg(long, conflicts_with_all = ["json", "jsonl"])]
    raw: bool,
    #[arg(value_name = "SEL", help = select::HELP)]
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
        let bytes = if options.raw { Bytes::Raw } else { Bytes::Harmless };
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
                _ => output::printed(&printed, bytes),
            }
        };
        client.log(&id, options.follow, show).await?;
        if options.form.json {
            document::print(Document { pieces })?;
        }
        failed.map_or(Ok(ExitCode::SUCCESS), Err)
    })
}
