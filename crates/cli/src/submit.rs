//! `filch submit`: submits commands as durable jobs, one or many, without waiting for them.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, stdin};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use filch_api::client::Client;
use filch_api::submission::Submission;
use filch_api::{id, limits};

use crate::bulk::{Bulk, Printer, report_existing};
use crate::connection::Connection;
use crate::document::{self, JsonOrLines};
use crate::job_options::{CommandOptions, JobOptions};
use crate::output::data;
use crate::runtime::block_on_interruptible;
use crate::template::{ArrayIndexes, Placeholders};
use crate::usage::Usage;

const AFTER_HELP: &str = "\
With --array and --each-line, {index} in the command is replaced by the number of the job. With
--each-line, {line} is replaced by the line and {stem} by the file name in it, without directories
and extension. The environment has FILCH_INDEX and FILCH_LINE. An array of up to 10,000 jobs is
submitted atomically. With --key, submitting again creates no duplicates.

Examples:
  filch submit -- ./report.sh
  filch submit --after @last --at 1h -- ./cleanup.sh
  filch submit --array 1-1000 -- ./render.sh --frame {index}
  ls *.png | filch submit --each-line - -- convert {line} {stem}.jpg
  filch wait $(filch submit -- make test)";

/// Submit a command as a durable job and print its id
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct SubmitArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    job: JobOptions,
    #[command(flatten)]
    how: CommandOptions,
    /// Job array: one job for each number (1-1000, 0-99:10 or 1,4,7-9)
    #[arg(long, value_name = "NUMBERS", value_parser = ArrayIndexes::read)]
    array: Option<ArrayIndexes>,
    /// Submit one job for each line of this file (- for stdin)
    #[arg(long, value_name = "FILE", conflicts_with = "array")]
    each_line: Option<PathBuf>,
    #[command(flatten)]
    form: JsonOrLines,
    /// The command and its arguments (no shell is involved)
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

pub(crate) fn run(options: SubmitArgs) -> Result<ExitCode> {
    block_on_interruptible(submit(options))
}

async fn submit(options: SubmitArgs) -> Result<ExitCode> {
    let client = options.connection.client()?;
    // Opened before the server is asked, so that a missing file is reported first.
    let lines = options.each_line.as_deref().map(open).transpose()?;
    let job = options.job.submission(&client).await?;
    let template = options.how.command(&options.command, job)?;
    let SubmitArgs { array, form, .. } = options;
    let key = template.key.clone();
    match (array, lines) {
        (None, None) => one(&client, &template, form).await,
        (Some(indexes), _) if indexes.count() <= limits::ARRAY_JOBS as u64 => {
            array_at_once(&client, &template, &indexes, form).await
        }
        (Some(indexes), _) => {
            let total = Some(indexes.count());
            let jobs = indexes.iter();
            let jobs =
                jobs.map(move |index| Ok(Some(Placeholders { index, line: None }.fill(&template))));
            Bulk { client: &client, key, total, form }.send(jobs).await
        }
        (None, Some((lines, name))) => {
            let jobs = (1..).zip(lines.lines()).map(move |(index, line)| {
                let line = line.map_err(|error| unread(index, &name, error))?;
                let own = Placeholders { index, line: Some(&line) };
                Ok((!line.trim().is_empty()).then(|| own.fill(&template)))
            });
            Bulk { client: &client, key, total: None, form }.send(jobs).await
        }
    }
}

/// Submits one job.
pub(crate) async fn one(client: &Client, job: &Submission, form: JsonOrLines) -> Result<ExitCode> {
    let receipt = client.submit(job).await?;
    report_existing(u64::from(!receipt.new), 1);
    match form {
        JsonOrLines { json: true, .. } => document::print(&receipt)?,
        JsonOrLines { jsonl: true, .. } => document::line(&receipt)?,
        _ => data(&format!("{}\n", receipt.id))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Submits an array atomically.
async fn array_at_once(
    client: &Client,
    template: &Submission,
    indexes: &ArrayIndexes,
    form: JsonOrLines,
) -> Result<ExitCode> {
    let jobs = (0..).zip(indexes.iter()).map(|(position, index)| {
        let key = template.key.as_deref();
        let id = key.map_or_else(id::new_job, |key| template.keyed_id(key, position));
        let own = Placeholders { index, line: None }.fill(template);
        Submission { id: Some(id::job(id)), key: None, ..own }
    });
    let jobs: Vec<Submission> = jobs.collect();
    let receipts = client.submit_all(&jobs).await?;
    let known = receipts.iter().filter(|receipt| !receipt.new).count();
    report_existing(known as u64, receipts.len() as u64);
    let mut printer = Printer::new(form, Some(indexes.count()));
    printer.print(receipts.iter().filter_map(|receipt| id::read_job(&receipt.id)).collect())?;
    printer.close()?;
    Ok(ExitCode::SUCCESS)
}

/// The error for a line that cannot be read.
pub(crate) fn unread(number: u64, name: &str, error: std::io::Error) -> anyhow::Error {
    if error.kind() == ErrorKind::InvalidData {
        let help = "jobs are stored as JSON, which is UTF-8; put binary data into a file and pass its path";
        return Usage::new(format!("line {number} of {name} is not UTF-8"), help).into();
    }
    anyhow::Error::new(error).context(format!("cannot read line {number} of {name}"))
}

/// A reader, and its name in error messages.
type NamedReader = (Box<dyn BufRead + Send>, String);

/// Opens a file, or stdin for `-`.
pub(crate) fn open(path: &Path) -> Result<NamedReader> {
    if path == Path::new("-") {
        let lines: Box<dyn Read + Send> = Box::new(stdin());
        return Ok((Box::new(BufReader::new(lines)), "stdin".into()));
    }
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| {
        Usage::new(format!("cannot read {name}: {error}"), "name a file, or - for stdin")
    })?;
    Ok((Box::new(BufReader::new(file)), name))
}
