//! `filch dead groups`: dead jobs by what went wrong, with the command that tries a group again.

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

/// Group dead jobs by what went wrong, the largest group first
#[derive(Args)]
#[command(after_help = "\
Errors of one queue and one kind are alike if they differ only in numbers, ids, paths, addresses and
times. Codes count: `exit code 1` and `exit code 137` are two groups. The error of a command is how
it ended, and the last line that it wrote to stderr.

Examples:
  filch dead groups --since 24h
  filch dead retry --group 1f9a0c33b2e7")]
pub(crate) struct GroupsArgs {
    /// Only jobs of this queue
    #[arg(long, short, value_name = "NAME")]
    queue: Option<String>,
    /// Only jobs of this kind; commands are of the kind `command`
    #[arg(long, short, value_name = "KIND")]
    kind: Option<String>,
    /// Only those that died since this moment (2026-01-31T12:00:00Z) or within this span (1h)
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// So many groups at most
    #[arg(long, short = 'n', value_name = "N", default_value_t = 50,
          value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    #[command(flatten)]
    form: JsonOrLines,
}

pub(super) async fn run(client: &Client, options: &GroupsArgs) -> Result<ExitCode> {
    let GroupsArgs { queue, kind, since, limit, form } = options;
    let (queue, kind, since) = (queue.clone(), kind.clone(), since.clone());
    let terms = JobFilter { state: None, queue, kind, since };
    let found = client.dead_groups(&format!("limit={limit}{}", terms.query()?)).await?;
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
            "{} are in smaller groups: --limit N shows more",
            count_jobs(found.rest)
        ));
    }
    if let Some(first) = found.groups.first() {
        message(format_args!("  try: {}", first.retry));
    }
    Ok(ExitCode::SUCCESS)
}
