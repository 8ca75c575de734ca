//! `filch recruit`: the side jobs of the server (retention), and their results.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Subcommand;
use filch_api::client::Client;
use filch_api::recruit::{Day, Recruit, SideJobStats};
use filch_api::span;
use serde::Serialize;

use crate::document::{self, Json};
use crate::output::data;
use crate::table;
use crate::table::Column::{Number, Text};

/// Show the side jobs that the server runs in idle moments (retention)
#[derive(Subcommand)]
#[command(after_help = "\
Ended jobs are purged after --retention of the server. No separate process is needed: the server
purges a slice of them every few commits and in its idle moments.

Examples:
  filch recruit list
  filch recruit report --json | jq .found")]
pub(crate) enum RecruitCommand {
    /// List side jobs: when they run and at which rate
    #[command(after_help = "Example:
  filch recruit list")]
    List(Json),
    /// Show what side jobs have done since the server started
    #[command(after_help = "Example:
  filch recruit report --json | jq .found.jobs_purged")]
    Report(Json),
}

/// A side job without its results.
#[derive(Serialize)]
struct Listed<'a> {
    job: &'a str,
    place: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_min: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_max: Option<f64>,
    share: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget_ms: Option<u64>,
}

impl<'a> From<&'a SideJobStats> for Listed<'a> {
    fn from(it: &'a SideJobStats) -> Self {
        Self {
            job: &it.job,
            place: &it.place,
            rate: it.rate,
            rate_min: it.rate_min,
            rate_max: it.rate_max,
            share: it.share,
            budget_ms: it.budget_ms,
        }
    }
}

#[derive(Serialize)]
struct List<'a> {
    jobs: Vec<Listed<'a>>,
}

pub(crate) async fn run(client: &Client, command: RecruitCommand) -> Result<ExitCode> {
    let recruit = client.recruit().await?;
    match command {
        RecruitCommand::List(form) => list(&recruit, form)?,
        RecruitCommand::Report(form) => report(&recruit, form)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(recruit: &Recruit, form: Json) -> Result<()> {
    if form.json {
        return document::print(List { jobs: recruit.jobs.iter().map(Listed::from).collect() });
    }
    let row = |it: &SideJobStats| {
        vec![
            it.job.clone(),
            runs_in(&it.place).to_owned(),
            it.rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.3}")),
            range(it.rate_min, it.rate_max),
            format!("{:.3}", it.share),
            it.budget_ms.map_or_else(|| "-".to_owned(), |budget| format!("{budget} ms/s")),
        ]
    };
    let columns = [
        Text("job"),
        Text("runs in"),
        Number("rate"),
        Number("min-max"),
        Number("share"),
        Number("budget"),
    ];
    table::list(&columns, &recruit.jobs.iter().map(row).collect::<Vec<_>>())
}

/// A range, or one number if both ends are equal.
fn range(least: Option<f64>, most: Option<f64>) -> String {
    match (least, most) {
        (Some(least), Some(most)) if least < most => format!("{least:.3}-{most:.3}"),
        (Some(least), Some(_)) => format!("{least:.3}"),
        _ => "-".to_owned(),
    }
}

/// When a side job runs.
fn runs_in(place: &str) -> &str {
    match place {
        "commits" => "every few commits",
        "idle" => "idle moments of the server",
        other => other,
    }
}

/// Whether anything is overdue, and for how long.
fn overdue(recruit: &Recruit) -> String {
    match recruit.overdue_ms.map(Duration::from_millis) {
        // Whole seconds are precise enough.
        Some(span) => format!("for {}", span::write(Duration::from_secs(span.as_secs()))),
        None if recruit.overdue => "yes".to_owned(),
        None => "no".to_owned(),
    }
}

fn report(recruit: &Recruit, form: Json) -> Result<()> {
    if form.json {
        return document::print(recruit);
    }
    let row = |it: &SideJobStats| {
        let mut row = vec![it.job.clone(), it.place.clone()];
        let counts = [
            it.enlisted,
            it.selected,
            it.recruited,
            it.no_work,
            it.failed,
            it.overrun,
            it.over_budget,
        ];
        row.extend(counts.map(|count| count.to_string()));
        row.push(format!("{:.3}", it.seconds));
        row
    };
    let columns = [
        Text("job"),
        Text("place"),
        Number("enlisted"),
        Number("selected"),
        Number("recruited"),
        Number("no work"),
        Number("failed"),
        Number("overrun"),
        Number("over budget"),
        Number("seconds"),
    ];
    table::list(&columns, &recruit.jobs.iter().map(row).collect::<Vec<_>>())?;
    data("\n")?;
    table::facts(&[
        ("retention", span::write(Duration::from_millis(recruit.retention_ms))),
        ("overdue", overdue(recruit)),
        ("jobs purged", recruit.found.jobs_purged.to_string()),
        ("lease rows trimmed", recruit.found.lease_rows_trimmed.to_string()),
        ("notes trimmed", recruit.found.notes_trimmed.to_string()),
    ])?;
    if recruit.days.is_empty() {
        return Ok(());
    }
    data("\n")?;
    let row = |it: &Day| {
        let mut row = vec![it.day.clone(), it.queue.clone()];
        row.extend([it.succeeded, it.dead, it.cancelled].map(|count| count.to_string()));
        row.push(format!("{:.3}", it.lifetime_seconds));
        row
    };
    let columns = [
        Text("purged on"),
        Text("queue"),
        Number("succeeded"),
        Number("dead"),
        Number("cancelled"),
        Number("total seconds from submission to end"),
    ];
    table::list(&columns, &recruit.days.iter().map(row).collect::<Vec<_>>())
}
