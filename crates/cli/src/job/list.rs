//! `filch job list`: the newest jobs, or those that a filter lets through.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use filch_api::client::Client;
use filch_api::job::Job;
use filch_api::limits;
use serde::Serialize;

use crate::document::{self, JsonOrLines};
use crate::escape::command;
use crate::filter::Terms;
use crate::moment;
use crate::output::talk;
use crate::select::short;
use crate::table;
use crate::table::Column::{self, Number, Rest, State, Text};

const AFTER_HELP: &str = "\
States: blocked, scheduled, queued, leased, running, succeeded, dead, cancelled; also PENDING,
QUEUED, RUNNING, SUCCESS, COMPLETED and FAILED, as other systems call them.

Examples:
  filch job list
  filch job list state:queued,leased queue:img
  filch job list --state dead --since 1h --all --jsonl | jq -r .id";

/// List jobs, the newest first
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Options {
    #[command(flatten)]
    filter: Filter,
    /// Only jobs in these states, with commas between them
    #[arg(long, short, value_name = "STATES")]
    state: Option<String>,
    /// So many at most
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50, conflicts_with = "all")]
    limit: u64,
    /// All of them
    #[arg(long)]
    all: bool,
    /// The oldest first
    #[arg(long)]
    reverse: bool,
    #[command(flatten)]
    form: JsonOrLines,
    /// What they have in common: state:dead, kind:resize, queue:img, since:1h
    #[arg(value_name = "TERM")]
    terms: Vec<String>,
}

/// Which jobs are meant
#[derive(Args, Clone, Debug)]
struct Filter {
    /// Only jobs of this queue
    #[arg(long, short, value_name = "NAME")]
    queue: Option<String>,
    /// Only jobs of this kind; commands are of the kind `command`
    #[arg(long, short, value_name = "KIND")]
    kind: Option<String>,
    /// Only jobs submitted since this moment (2026-01-31T12:00:00Z) or within this span (1h)
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
}

pub(super) async fn run(client: &Client, options: &Options) -> Result<ExitCode> {
    let terms = options.terms()?;
    let query = terms.query()?;
    let direction = if options.reverse { "after" } else { "before" };
    let base = format!("/v1/jobs?command=true{query}");
    let limit = if options.all { u64::MAX } else { options.limit };
    let count = pages(client, &base, direction, limit, options.form).await?;
    if count == 0 {
        terms.suggest(client).await?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Options {
    /// What is said by flags and by words.
    fn terms(&self) -> Result<Terms> {
        let mut terms = Terms::read(&self.terms)?;
        let Filter { queue, kind, since } = &self.filter;
        for (field, flag) in
            [("state", &self.state), ("queue", queue), ("kind", kind), ("since", since)]
        {
            if let Some(value) = flag {
                terms.add(field, value)?;
            }
        }
        Ok(terms)
    }
}

#[derive(Serialize)]
struct Document {
    jobs: Vec<Job>,
    /// Whether there are more than were asked for.
    more: bool,
}

async fn pages(
    client: &Client,
    base: &str,
    direction: &str,
    limit: u64,
    form: JsonOrLines,
) -> Result<u64> {
    let mut jobs: Vec<Job> = Vec::new();
    let (mut count, mut next) = (0, Some(0));
    while let Some(from) = next
        && count < limit
    {
        let most = (limit - count).min(limits::PAGE_JOBS as u64);
        let page: filch_api::client::Page =
            client.get(&format!("{base}&{direction}={from}&limit={most}")).await?;
        count += page.jobs.len() as u64;
        next = page.next;
        // Lines are passed on page by page, so that any number of jobs fits.
        if form.jsonl {
            for job in &page.jobs {
                document::line(job)?;
            }
        } else {
            jobs.extend(page.jobs);
        }
    }
    let more = next.is_some();
    if form.json {
        document::print(Document { jobs, more })?;
    } else if !form.jsonl {
        let rows: Vec<Vec<String>> = jobs.iter().map(row).collect();
        table::list(&COLUMNS, &rows)?;
        if more {
            talk(format_args!("there are more: --limit N or --all shows them"));
        }
    }
    Ok(count)
}

const COLUMNS: [Column; 8] = [
    Text("id"),
    State("state"),
    Text("queue"),
    Text("kind"),
    Number("attempts"),
    Text("submitted"),
    Text("worker"),
    Rest("command"),
];

/// A job as a row of a table.
fn row(job: &Job) -> Vec<String> {
    vec![
        short(&job.id),
        job.state.clone(),
        job.queue.clone(),
        job.kind.clone(),
        job.attempts.to_string(),
        moment::cell(job.submitted_at),
        job.worker.as_deref().map_or_else(|| "-".to_owned(), short),
        if job.command.is_empty() { "-".to_owned() } else { command(&job.command) },
    ]
}
