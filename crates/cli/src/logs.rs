//! `filch logs`: what a job has printed, as it printed it.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use filch_api::client::Printed;
use filch_api::session::Stream;
use serde::Serialize;

use crate::document;
use crate::place::Place;
use crate::run::print;
use crate::runtime::ask;
use crate::select;

const AFTER_HELP: &str = "\
What the job printed on stderr goes to stderr, byte for byte. Of a job that has ended long ago both
are kept together, and of a long output the beginning and the end.

Examples:
  filch logs @last
  filch logs -f 3f2a
  filch logs --jsonl 3f2a | jq -r 'select(.stream == \"stderr\").text'";

/// Show what a job has printed
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    /// Go on until the job has ended
    #[arg(long, short)]
    follow: bool,
    /// Print one JSON object a line, with the stream and the text
    #[arg(long)]
    jsonl: bool,
    #[arg(value_name = "SEL", help = select::HELP)]
    job: String,
}

#[derive(Serialize)]
struct Line {
    stream: Stream,
    text: String,
}

pub(crate) fn run(options: Options) -> Result<ExitCode> {
    ask(async {
        let client = options.place.client()?;
        let id = select::one(&client, &options.job).await?;
        let mut failed = None;
        let show = |printed: Printed| {
            if !options.jsonl {
                return print(printed);
            }
            let line = Line { stream: printed.stream, text: printed.text };
            if let Err(error) = document::line(&line) {
                failed.get_or_insert(error);
            }
        };
        client.log(&id, options.follow, show).await?;
        failed.map_or(Ok(ExitCode::SUCCESS), Err)
    })
}
