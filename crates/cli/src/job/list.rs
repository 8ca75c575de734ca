//! `filch job list`: lists the newest jobs, or those that match a filter.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use filch_api::client::Client;
use filch_api::job::Job;

use crate::document::{self, JsonOrLines};
use crate::escape::command;
use crate::filter::JobFilter;
use crate::moment;
use crate::paging::{self, ListLimit, ListedJob, PageSource};
use crate::select::short;
use crate::table::Column::{self, Number, Rest, State, Text};

const AFTER_HELP: &str = "\
States: blocked, scheduled, queued, leased, running, succeeded, dead, cancelled. The names PENDING,
QUEUED, RUNNING, SUCCESS, COMPLETED and FAILED of other systems are accepted, too.

Examples:
  filch job list
  filch job list state:queued,leased queue:img
  filch job list --state dead --since 1h --all --jsonl | jq -r .id";

/// List jobs, the newest first
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    filter: FilterOptions,
    /// Only jobs in these states (comma-separated)
    #[arg(long, short, value_name = "STATES")]
    state: Option<String>,
    #[command(flatten)]
    count: ListLimit,
    /// List the oldest first
    #[arg(long)]
    reverse: bool,
    #[command(flatten)]
    form: JsonOrLines,
    /// Filters: state:dead, kind:resize, queue:img, since:1h
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
}

/// Filter options
#[derive(Args, Clone, Debug)]
struct FilterOptions {
    /// Only jobs of this queue
    #[arg(long, short, value_name = "NAME")]
    queue: Option<String>,
    /// Only jobs of this kind (commands have the kind `command`)
    #[arg(long, short, value_name = "KIND")]
    kind: Option<String>,
    /// Only jobs submitted since this time (2026-01-31T12:00:00Z) or this long ago (1h)
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
}

pub(super) async fn run(client: &Client, options: &ListArgs) -> Result<ExitCode> {
    let filter = options.job_filter()?;
    let query = format!("&command=true{}", filter.query()?);
    let direction = if options.reverse { "after" } else { "before" };
    let source = PageSource { client, path: "/v1/jobs", direction, query };
    let shown = paging::print_jobs::<Job>(&source, options.count, options.form).await?;
    if shown == 0 {
        filter.suggest(client).await?;
    }
    Ok(ExitCode::SUCCESS)
}

impl ListArgs {
    /// The filter from options and arguments.
    fn job_filter(&self) -> Result<JobFilter> {
        let mut filter = JobFilter::read(&self.filters)?;
        let FilterOptions { queue, kind, since } = &self.filter;
        for (field, flag) in
            [("state", &self.state), ("queue", queue), ("kind", kind), ("since", since)]
        {
            if let Some(value) = flag {
                filter.add(field, value)?;
            }
        }
        Ok(filter)
    }
}

impl ListedJob for Job {
    const COLUMNS: &[Column] = &[
        Text("id"),
        State("state"),
        Text("queue"),
        Text("kind"),
        Number("attempts"),
        Text("submitted"),
        Text("worker"),
        Rest("command"),
    ];

    fn row(&self) -> Result<Vec<String>> {
        let command = match &self.command[..] {
            [] => "-".to_owned(),
            words => command(words),
        };
        Ok(vec![
            short(&self.id),
            self.state.clone(),
            self.queue.clone(),
            self.kind.clone(),
            self.attempts.to_string(),
            moment::cell(self.submitted_at),
            self.worker.as_deref().map_or_else(|| "-".to_owned(), short),
            command,
        ])
    }

    fn line(&self) -> Result<()> {
        document::line(self)
    }
}
