//! `filch dead groups`: dead jobs grouped by error, with the command that retries a group.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use filch_api::client::Client;

use crate::confirm::count_jobs;
use crate::document::{self, JsonOrLines};
use crate::filter::JobFilter;
use crate::output::message;
use crate::select::short;
use crate::table::Column::{Number, Text};
use crate::{moment, table};

/// Group dead jobs by error, the largest group first
#[derive(Args)]
#[command(after_help = "\
A group has one queue, one kind, and errors that differ only in numbers, ids, paths, addresses and
times. Exit codes matter: `exit code 1` and `exit code 137` are two groups. The error of a command
is its exit code or signal and the last line that it wrote to stderr.

Examples:
  filch dead groups --since 24h
  filch dead retry --group 1f9a0c33b2e7")]
pub(crate) struct GroupsArgs {
    /// Only jobs of this queue
    #[arg(long, short, value_name = "NAME")]
    queue: Option<String>,
    /// Only jobs of this kind (commands have the kind `command`)
    #[arg(long, short, value_name = "KIND")]
    kind: Option<String>,
    /// Only jobs that died since this time (2026-01-31T12:00:00Z) or this long ago (1h)
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Print at most this many groups
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    #[command(flatten)]
    form: JsonOrLines,
}

pub(super) async fn run(client: &Client, options: &GroupsArgs) -> Result<ExitCode> {
    let GroupsArgs { queue, kind, since, limit, form } = options;
    let (queue, kind, since) = (queue.clone(), kind.clone(), since.clone());
    let filter = JobFilter { state: None, queue, kind, since };
    let found = client.dead_groups(&format!("limit={limit}{}", filter.query()?)).await?;
    if form.json {
        document::print(&found)?;
        return Ok(ExitCode::SUCCESS);
    }
    if form.jsonl {
        found.groups.iter().try_for_each(document::line)?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<Vec<String>> = found
        .groups
        .iter()
        .map(|group| {
            vec![
                group.fingerprint.clone(),
                group.count.to_string(),
                group.queue.clone(),
                group.kind.clone(),
                moment::cell(group.newest),
                short(&group.example),
                group.error.clone(),
            ]
        })
        .collect();
    let columns = [
        Text("group"),
        Number("jobs"),
        Text("queue"),
        Text("kind"),
        Text("newest"),
        Text("example"),
        Text("error"),
    ];
    table::list(&columns, &rows)?;
    if found.rest > 0 {
        message(format_args!(
            "{} are in smaller groups: use --limit N to see them",
            count_jobs(found.rest)
        ));
    }
    if let Some(first) = found.groups.first() {
        message(format_args!("  try: {}", first.retry));
    }
    Ok(ExitCode::SUCCESS)
}
