//! `filch job list`: the newest jobs, or those that a filter lets through.

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
States: blocked, scheduled, queued, leased, running, succeeded, dead, cancelled; also PENDING,
QUEUED, RUNNING, SUCCESS, COMPLETED and FAILED, as other systems call them.

Examples:
  filch job list
  filch job list state:queued,leased queue:img
  filch job list --state dead --since 1h --all --jsonl | jq -r .id";

/// List jobs, the newest first
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    filter: Filter,
    /// Only jobs in these states, with commas between them
    #[arg(long, short, value_name = "STATES")]
    state: Option<String>,
    #[command(flatten)]
    count: ListLimit,
    /// The oldest first
    #[arg(long)]
    reverse: bool,
    #[command(flatten)]
    form: JsonOrLines,
    /// What they have in common: state:dead, kind:resize, queue:img, since:1h
    #[arg(value_name = "TERM")]
    filter_words: Vec<String>,
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

pub(super) async fn run(client: &Client, options: &ListArgs) -> Result<ExitCode> {
    let filter_words = options.filter_words()?;
    let query = format!("&command=true{}", filter_words.query()?);
    let direction = if options.reverse { "after" } else { "before" };
    let source = PageSource { client, path: "/v1/jobs", direction, query };
    let shown = paging::print_jobs::<Job>(&source, options.count, options.form).await?;
    if shown == 0 {
        filter_words.suggest(client).await?;
    }
    Ok(ExitCode::SUCCESS)
}

impl ListArgs {
    /// What is said by flags and by words.
    fn filter_words(&self) -> Result<JobFilter> {
        let mut filter_words = JobFilter::read(&self.filter_words)?;
        let Filter { queue, kind, since } = &self.filter;
        for (field, flag) in
            [("state", &self.state), ("queue", queue), ("kind", kind), ("since", since)]
        {
            if let Some(value) = flag {
                filter_words.add(field, value)?;
            }
        }
        Ok(filter_words)
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
