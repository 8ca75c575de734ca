//! `filch enqueue`: submits typed jobs for workers that handle their kind, one or one per line.

use std::io::BufRead as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use filch_api::submission::Submission;
use serde_json::value::RawValue;

use crate::bulk::Bulk;
use crate::connection::Connection;
use crate::document::JsonOrLines;
use crate::job_options::JobOptions;
use crate::runtime::block_on_interruptible;
use crate::submit::{one, open, unread};
use crate::usage::Usage;

const AFTER_HELP: &str = "\
With -, each line of stdin holds the arguments of one job. Lines are sent while they are read, and
ids are printed as jobs become durable. With --key, submitting again creates no duplicates: the same
key and line number are the same job.

Examples:
  filch enqueue resize '{\"path\": \"a.png\", \"width\": 80}'
  filch enqueue --queue img --retry 5 --key monday resize - < images.jsonl";

/// Submit a typed job with JSON arguments and print its id
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct EnqueueArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    job: JobOptions,
    #[command(flatten)]
    form: JsonOrLines,
    /// Kind of the job; a worker must handle it
    kind: String,
    /// Arguments, any JSON value (- to read one job per line from stdin)
    #[arg(value_name = "JSON")]
    arguments: Option<String>,
}

pub(crate) fn run(options: EnqueueArgs) -> Result<ExitCode> {
    block_on_interruptible(enqueue(options))
}

async fn enqueue(options: EnqueueArgs) -> Result<ExitCode> {
    let EnqueueArgs { connection, job, form, kind, arguments } = options;
    let client = connection.client()?;
    let template = Submission { kind: Some(kind), ..job.submission(&client).await? };
    if arguments.as_deref() != Some("-") {
        let args = arguments.as_deref().map(|text| read("the arguments", text)).transpose()?;
        return one(&client, &Submission { args, ..template }, form).await;
    }
    let key = template.key.clone();
    let (lines, name) = open(Path::new("-"))?;
    let jobs = (1_u64..).zip(lines.lines()).map(move |(number, line)| {
        let line = line.map_err(|error| unread(number, &name, error))?;
        if line.trim().is_empty() {
            return Ok(None);
        }
        let args = Some(read(&format!("line {number} of {name}"), &line)?);
        Ok(Some(Submission { args, ..template.clone() }))
    });
    Bulk { client: &client, key, total: None, form }.send(jobs).await
}

fn read(what: &str, text: &str) -> Result<Box<RawValue>> {
    serde_json::from_str(text).map_err(|error| {
        // The input is a single line, and the caller names it.
        let (error, column) = (error.to_string(), error.column());
        let error = error.split(" at line ").next().unwrap_or_default();
        let help = r#"write JSON, for example '{"path": "a.png"}', '[1, 2]' or '"text"'"#;
        Usage::new(format!("{what}: invalid JSON: {error} at column {column}"), help).into()
    })
}
