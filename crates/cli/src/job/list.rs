//! `filch job list`: the newest jobs, or those that a filter lets through.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use filch_api::client::{Client, path};
use filch_api::job::{Job, states};
use filch_api::limits;
use filch_scheduler::state::State;
use serde::Serialize;

use crate::document::{self, JsonOrLines};
use crate::moment;
use crate::output::talk;
use crate::select::short;
use crate::suggest::did_you_mean;
use crate::table;
use crate::table::Column::{self, Number, Text};
use crate::usage::Usage;

const AFTER_HELP: &str = "\
States: blocked, scheduled, queued, leased, running, succeeded, dead, cancelled; also PENDING,
QUEUED, RUNNING, SUCCESS, COMPLETED and FAILED, as other systems call them.

Examples:
  filch job list
  filch job list --state queued,leased --queue img
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
}

/// Which jobs are meant
#[derive(Args, Clone, Debug)]
pub(crate) struct Filter {
    /// Only jobs of this queue
    #[arg(long, short, value_name = "NAME")]
    pub(crate) queue: Option<String>,
    /// Only jobs of this kind; commands are of the kind `command`
    #[arg(long, short, value_name = "KIND")]
    pub(crate) kind: Option<String>,
    /// Only jobs submitted since this moment (2026-01-31T12:00:00Z) or within this span (1h)
    #[arg(long, value_name = "WHEN")]
    pub(crate) since: Option<String>,
}

impl Filter {
    /// As a part of a query.
    pub(crate) fn query(&self) -> Result<String> {
        let since = self.since.as_deref().map(|since| moment::ago("--since", since)).transpose()?;
        let fields = [
            ("queue", self.queue.clone()),
            ("kind", self.kind.clone()),
            ("since", since.map(|since| since.to_string())),
        ];
        let mut query = String::new();
        for (name, value) in fields {
            if let Some(value) = value {
                query.push_str(&format!("&{name}={}", path(&value)));
            }
        }
        Ok(query)
    }
}

pub(super) async fn run(client: &Client, options: &Options) -> Result<ExitCode> {
    let mut query = options.filter.query()?;
    if let Some(words) = &options.state {
        check(words)?;
        query.push_str(&format!("&state={}", path(words)));
    }
    let direction = if options.reverse { "after" } else { "before" };
    let base = format!("/v1/jobs?{}", query.trim_start_matches('&'));
    let limit = if options.all { u64::MAX } else { options.limit };
    pages(client, &base, direction, limit, options.form).await
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
) -> Result<ExitCode> {
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
    Ok(ExitCode::SUCCESS)
}

const COLUMNS: [Column; 7] = [
    Text("id"),
    Text("state"),
    Text("queue"),
    Text("kind"),
    Number("attempts"),
    Text("submitted"),
    Text("worker"),
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
    ]
}

/// Finds a word that is no state before anybody is asked.
fn check(words: &str) -> Result<()> {
    for word in words.split(',') {
        if states(word).is_none() {
            let known = State::ALL.map(State::word);
            let near = did_you_mean(&word.to_ascii_lowercase(), &known);
            return Err(Usage::new(
                format!("{word:?} is no state of a job{near}"),
                format!("states are {}", known.join(", ")),
            )
            .into());
        }
    }
    Ok(())
}
