//! `filch dead`: the dead letters, jobs that have used all attempts.

mod groups;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use filch_api::client::{Client, path};
use filch_api::dead::{Count, DeadJob, Selection};
use filch_api::time::Moment;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::confirm::{ConfirmOptions, count_jobs};
use crate::document::{self, Json, JsonOrLines};
use crate::escape::escaped;
use crate::filter::{JobFilter, is_filter};
use crate::output::{data, message, report_error};
use crate::paging::{self, ListedJob, PageSource};
use crate::select::{self, short};
use crate::table::Column::{self, Number, Text};
use crate::usage::Usage;
use crate::{exit, moment};

const AFTER_HELP: &str = "\
Examples:
  filch dead list --since 24h
  filch dead groups
  filch dead retry --group 1f9a0c33b2e7
  filch dead retry --kind resize --since 1h --dry-run
  filch dead retry --dry-run kind:resize since:1h
  filch dead retry 3f2a 77c0
  filch dead discard --queue img --yes";

/// Manage dead jobs (all attempts used)
#[derive(Subcommand)]
#[command(after_help = AFTER_HELP)]
pub(crate) enum DeadCommand {
    /// List dead jobs
    List {
        #[command(flatten)]
        filter: DeadFilter,
        #[command(flatten)]
        count: paging::ListLimit,
        #[command(flatten)]
        form: JsonOrLines,
    },
    Groups(groups::GroupsArgs),
    /// Retry dead jobs with a new set of attempts
    Retry(DeadSelection),
    /// Delete dead jobs permanently
    Discard(DeadSelection),
}

/// Filter options
#[derive(Args, Clone, Debug)]
pub(crate) struct DeadFilter {
    /// Only jobs of this queue
    #[arg(long, short, value_name = "NAME")]
    queue: Option<String>,
    /// Only jobs of this kind (commands have the kind `command`)
    #[arg(long, short, value_name = "KIND")]
    kind: Option<String>,
    /// Only jobs that died since this time (2026-01-31T12:00:00Z) or this long ago (1h)
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only jobs of this error group: a fingerprint from `filch dead groups`
    #[arg(long, value_name = "FINGERPRINT", value_parser = fingerprint)]
    group: Option<String>,
}

fn fingerprint(text: &str) -> Result<String, String> {
    match filch_api::fingerprint::is_one(text) {
        true => Ok(text.to_owned()),
        false => {
            Err("expected a fingerprint from `filch dead groups`: twelve hexadecimal digits"
                .to_owned())
        }
    }
}

impl DeadFilter {
    /// Adds the filters from the arguments; each field may be given once.
    fn joined(&self, filter: &JobFilter) -> Result<Self> {
        let mut all = JobFilter {
            state: filter.state.clone(),
            kind: self.kind.clone(),
            queue: self.queue.clone(),
            since: self.since.clone(),
        };
        for (field, value) in
            [("kind", &filter.kind), ("queue", &filter.queue), ("since", &filter.since)]
        {
            if let Some(value) = value {
                all.add(field, value)?;
            }
        }
        if let Some(state) = all.state.filter(|state| state != "dead") {
            let text = format!("`filch dead` only selects dead jobs, not state:{state}");
            return Err(Usage::new(text, "use `filch job` for other states").into());
        }
        let JobFilter { kind, queue, since, .. } = all;
        Ok(Self { kind, queue, since, group: self.group.clone() })
    }
}

/// Which dead jobs to select
#[derive(Args)]
pub(crate) struct DeadSelection {
    #[command(flatten)]
    filter: DeadFilter,
    /// Select all dead jobs
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    confirm: ConfirmOptions,
    #[command(flatten)]
    form: Json,
    #[arg(value_name = "JOB", help = select::HELP_MANY)]
    jobs: Vec<String>,
}

pub(crate) async fn run(client: &Client, command: DeadCommand) -> Result<ExitCode> {
    match command {
        DeadCommand::List { filter, count, form } => list(client, filter, count, form).await,
        DeadCommand::Groups(options) => groups::run(client, &options).await,
        DeadCommand::Retry(choice) => act(client, &choice, Act::Retry).await,
        DeadCommand::Discard(choice) => act(client, &choice, Act::Discard).await,
    }
}

async fn list(
    client: &Client,
    filter: DeadFilter,
    count: paging::ListLimit,
    form: JsonOrLines,
) -> Result<ExitCode> {
    let DeadFilter { queue, kind, since, group } = filter;
    let mut query = JobFilter { state: None, queue, kind, since }.query()?;
    if let Some(group) = &group {
        query.push_str(&format!("&group={}", path(group)));
    }
    let source = PageSource { client, path: "/v1/dead", direction: "after", query };
    paging::print_jobs::<Box<RawValue>>(&source, count, form).await?;
    Ok(ExitCode::SUCCESS)
}

/// A dead job as raw JSON, so that its arguments are printed digit for digit.
impl ListedJob for Box<RawValue> {
    const COLUMNS: &[Column] =
        &[Text("id"), Text("queue"), Text("kind"), Number("attempts"), Text("died"), Text("error")];

    fn row(&self) -> Result<Vec<String>> {
        let DeadJob { job, error, .. } = serde_json::from_str(self.get())?;
        let died = job.ended_at.map_or_else(|| "-".to_owned(), moment::cell);
        Ok(vec![short(&job.id), job.queue, job.kind, job.attempts.to_string(), died, error])
    }

    fn line(&self) -> Result<()> {
        document::raw_line(self)
    }
}

#[derive(Clone, Copy)]
enum Act {
    Retry,
    Discard,
}

impl Act {
    const fn verb(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Discard => "discard",
        }
    }

    const fn done(self) -> &'static str {
        match self {
            Self::Retry => "retried",
            Self::Discard => "discarded",
        }
    }

    async fn carry_out(self, client: &Client, choice: &Selection) -> Result<Count> {
        Ok(match self {
            Self::Retry => client.dead_retry(choice).await?,
            Self::Discard => client.dead_discard(choice).await?,
        })
    }
}

#[derive(Serialize)]
struct Done<'a> {
    #[serde(flatten)]
    count: &'a Count,
    dry_run: bool,
}

async fn act(client: &Client, choice: &DeadSelection, act: Act) -> Result<ExitCode> {
    let selected = selection(client, choice, act).await?;
    let dry = Selection { dry_run: true, ..selected.clone() };
    let ConfirmOptions { dry_run, .. } = choice.confirm;
    let would = act.carry_out(client, &dry).await?;
    choice.confirm.confirm_jobs(act.verb(), would.count, common(&selected).as_deref())?;
    let count = if dry_run { would } else { act.carry_out(client, &selected).await? };
    for refusal in &count.refused {
        report_error(format_args!("{}", escaped(&refusal.title)));
    }
    let would_be = if dry_run { "would be " } else { "" };
    message(format_args!("{} {would_be}{}", count_jobs(count.count), act.done()));
    if choice.form.json {
        document::print(Done { count: &count, dry_run })?;
    } else {
        data(&format!("{}\n", count.count))?;
    }
    Ok(count.refused.first().map_or(ExitCode::SUCCESS, |refusal| {
        ExitCode::from(if refusal.code == "not-found" { exit::NOT_FOUND } else { exit::CONFLICT })
    }))
}

/// Selects by ids, by filters or by `--all`. Selecting nothing is an error, so that no command acts
/// on every dead job by accident.
async fn selection(client: &Client, choice: &DeadSelection, act: Act) -> Result<Selection> {
    let words = select::written(&choice.jobs)?;
    let (filter, names): (Vec<String>, Vec<String>) =
        words.into_iter().partition(|word| is_filter(word));
    let DeadFilter { queue, kind, since, group } =
        choice.filter.joined(&JobFilter::read(&filter)?)?;
    let is_filtered = queue.is_some()
        || kind.is_some()
        || since.is_some()
        || group.is_some()
        || !filter.is_empty();
    let ways = [!names.is_empty(), is_filtered, choice.all];
    let verb = act.verb();
    match ways.into_iter().filter(|way| *way).count() {
        1 => {}
        0 => {
            return Err(Usage::new(
                format!("no jobs selected to {verb}"),
                format!(
                    "write `filch dead {verb} ID...`, or use a filter like --kind resize, or --all"
                ),
            )
            .into());
        }
        _ => {
            return Err(Usage::new(
                format!("jobs to {verb} are selected in two ways"),
                "use either ids, or filters like --kind resize, or --all",
            )
            .into());
        }
    }
    let since = since.as_deref().map(|since| moment::ago("--since", since));
    let since: Option<Moment> = since.transpose()?;
    let ids = match names.is_empty() {
        true => None,
        false => {
            let chosen = select::many(client, &names).await?;
            Some(chosen.into_iter().map(|job| job.id).collect())
        }
    };
    // `state:dead` alone selects all dead jobs.
    let is_any = queue.is_none() && kind.is_none() && since.is_none() && group.is_none();
    let all = choice.all || is_filtered && is_any;
    Ok(Selection { ids, queue, kind, since, group, all, dry_run: false })
}

/// The filter as text; `None` if the jobs are named by id.
fn common(selected: &Selection) -> Option<String> {
    if selected.ids.is_some() {
        return None;
    }
    let filter = JobFilter {
        state: Some("dead".to_owned()),
        kind: selected.kind.clone(),
        queue: selected.queue.clone(),
        since: selected.since.as_ref().map(ToString::to_string),
    };
    let group = selected.group.as_ref().map(|group| format!(" group:{group}")).unwrap_or_default();
    Some(format!("{filter}{group}"))
}
