//! `filch flow`: checks, draws and submits job graphs (DAGs) from files.

mod draw;
mod file;
mod graph;
mod svg;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Args, Subcommand};
use filch_api::client::{Client, FlowReceipt};
use filch_api::flow::Flow;
use filch_api::job::Job;
use serde::Serialize;

use crate::confirm::count_jobs;
use crate::connection::Connection;
use crate::document::{self, Json};
use crate::exit::{self, Exit};
use crate::group::Group;
use crate::output::{data, message};
use crate::progress::Progress;
use crate::runtime::block_on_interruptible;
use crate::select::short;
use crate::table::Column::Text;
use crate::wait::until;
use crate::{escape, table};

const AFTER_HELP: &str = "\
A flow in TOML (JSON and YAML have the same keys):
  name = \"report\"
  [defaults]                          # for jobs that do not set it
  retry = { max = 3, backoff = \"exponential\", base = \"2s\", cap = \"5m\" }
  [job.fetch]
  run = [\"./fetch.sh\", \"a.csv\"]       # a command, run in the directory of the file
  timeout = \"2m\"
  [job.join]
  after = [\"fetch\"]
  when = \"all-succeeded\"              # also any-succeeded, all-done, any-failed
  kind = \"join_report\"                # a typed job for a worker that handles it
  args = { out = \"report.html\" }

Examples:
  filch flow check report.toml
  filch flow show --svg report.toml > report.svg
  filch flow run --wait report.toml";

/// Check, draw or run a job graph (DAG) from a file
#[derive(Subcommand)]
#[command(after_help = AFTER_HELP)]
pub(crate) enum FlowCommand {
    Run(FlowRunArgs),
    /// Check a flow for errors (needs no server)
    Check {
        #[command(flatten)]
        source: file::Source,
        #[command(flatten)]
        form: Json,
    },
    /// Draw a flow (needs no server)
    Show {
        #[command(flatten)]
        source: file::Source,
        /// Print an SVG picture
        #[arg(long, conflicts_with_all = ["json", "dot"])]
        svg: bool,
        /// Print the graph for Graphviz
        #[arg(long, conflicts_with = "json")]
        dot: bool,
        #[command(flatten)]
        form: Json,
    },
}

/// Submit the jobs of a flow atomically and print their ids
#[derive(Args)]
pub(crate) struct FlowRunArgs {
    #[command(flatten)]
    source: file::Source,
    /// Wait until all jobs have ended; the exit code is their outcome
    #[arg(long)]
    wait: bool,
    /// Maximum time to wait
    #[arg(long, value_name = "DURATION", value_parser = filch_api::span::read, requires = "wait")]
    timeout: Option<Duration>,
    /// Idempotency key: submitting again with the same key returns the same jobs
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    #[command(flatten)]
    form: Json,
}

#[derive(Serialize)]
struct Checked<'a> {
    name: &'a str,
    jobs: usize,
    edges: usize,
}

pub(crate) fn run(group: Group<FlowCommand>) -> Result<ExitCode> {
    let Group { connection, command } = group;
    match command {
        FlowCommand::Run(options) => block_on_interruptible(submit(&connection, options)),
        FlowCommand::Check { source, form } => {
            let flow = source.flow()?;
            let edges = flow.jobs.iter().map(|(_, job)| job.after.len()).sum();
            let checked = Checked { name: &flow.name, jobs: flow.jobs.len(), edges };
            if form.json {
                document::print(checked)?;
            } else {
                let name = escape::escaped(&flow.name);
                let count = count_jobs(checked.jobs as u64);
                message(format_args!("{name} is valid: {count}, {edges} dependencies"));
            }
            Ok(ExitCode::SUCCESS)
        }
        FlowCommand::Show { source, svg, dot, form } => {
            let flow = source.flow()?;
            if form.json {
                document::print(&flow)?;
            } else if svg {
                data(&picture(&flow)?)?;
            } else {
                data(&if dot { draw::dot(&flow) } else { draw::text(&flow) })?;
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn picture(flow: &Flow) -> Result<String> {
    svg::draw(flow).ok_or_else(|| {
        let text = format!("{} are too many for a picture", count_jobs(flow.jobs.len() as u64));
        let help = "use --dot with Graphviz, or omit --svg for a list";
        Exit::new(exit::USAGE, format!("{text}\n  help: {help}")).into()
    })
}

async fn submit(connection: &Connection, options: FlowRunArgs) -> Result<ExitCode> {
    let flow = options.source.flow()?;
    let deadline = options.timeout.map(|timeout| Instant::now() + timeout);
    let client = connection.client()?;
    let receipt = client.submit_flow(&flow, options.key.as_deref()).await?;
    if receipt.jobs.values().all(|job| !job.new) {
        message(format_args!("this flow already exists"));
    }
    if options.wait {
        return wait(&client, &flow, &receipt, deadline, options.form).await;
    }
    if options.form.json {
        document::print(&receipt)?;
    } else {
        let rows: Vec<Vec<String>> = in_order(&flow, &receipt)
            .map(|(name, id)| vec![name.to_owned(), id.to_owned()])
            .collect();
        table::list(&[Text("job"), Text("id")], &rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Names and ids, in the order of the file.
fn in_order<'a>(
    flow: &'a Flow,
    receipt: &'a FlowReceipt,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    flow.jobs
        .iter()
        .filter_map(|(name, _)| receipt.jobs.get(name).map(|job| (name.as_str(), job.id.as_str())))
}

#[derive(Serialize)]
struct Ended<'a> {
    name: &'a str,
    jobs: Vec<EndedJob<'a>>,
}

#[derive(Serialize)]
struct EndedJob<'a> {
    name: &'a str,
    #[serde(flatten)]
    job: Job,
}

async fn wait(
    client: &Client,
    flow: &Flow,
    receipt: &FlowReceipt,
    deadline: Option<Instant>,
    form: Json,
) -> Result<ExitCode> {
    let mut ended = Vec::new();
    let (mut failed, mut cancelled) = (false, false);
    let mut progress = Progress::of(Some(receipt.jobs.len() as u64), "ended");
    for (count, (name, id)) in (0..).zip(in_order(flow, receipt)) {
        let ending = until(client, id, deadline);
        let Some(job) = progress.beside(count, ending).await? else {
            progress.end();
            let text = format!("timed out waiting for {}", escape::escaped(name));
            let help = format!("`filch why {}` explains what it waits for", short(id));
            return Err(Exit::new(exit::WAIT_TIMED_OUT, format!("{text}\n  help: {help}")).into());
        };
        let details = job.details.as_deref();
        if let ("dead", Some(error)) =
            (job.state.as_str(), details.and_then(|details| details.error.as_deref()))
        {
            message(format_args!("{}: {}", escape::escaped(name), escape::escaped(error)));
        }
        failed |= job.state == "dead";
        // A branch that was not taken does not count; the job it depends on does.
        cancelled |= job.state == "cancelled" && job.reason.as_deref() != Some("condition");
        if form.json {
            ended.push(EndedJob { name, job });
        } else {
            data(&format!("{}\t{}\t{}\n", escape::escaped(name), short(id), job.state))?;
        }
    }
    progress.end();
    if form.json {
        document::print(Ended { name: &flow.name, jobs: ended })?;
    }
    Ok(ExitCode::from(match (failed, cancelled) {
        (true, _) => exit::JOB_FAILED,
        (false, true) => exit::JOB_CANCELLED,
        (false, false) => 0,
    }))
}
