//! `filch queue`: lists, pauses, limits and purges queues, and sets the scheduling strategy.

use std::process::ExitCode;

use anyhow::Result;
use clap::builder::NonEmptyStringValueParser;
use clap::{Args, Subcommand, ValueEnum};
use filch_api::client::Client;
use filch_api::cluster::{self, Depth, Holding, Order, Queue, QueueDetail, QueueUpdate};
use serde::Serialize;

use crate::confirm::{ConfirmOptions, count_jobs};
use crate::document::{self, Json, JsonOrLines};
use crate::exit::{self, Exit};
use crate::filter::JobFilter;
use crate::output::{data, message};
use crate::select::short;
use crate::suggest::did_you_mean;
use crate::table::Column::{Number, State, Text};
use crate::{moment, name_list, table};

const AFTER_HELP: &str = "\
Examples:
  filch queue list
  filch queue show img
  filch queue pause img
  filch queue resume img
  filch queue purge img --dry-run
  filch queue set img --limit 4 --weight 3
  filch queue set img --limit none
  filch queue strategy fair";

/// Manage queues: pause, concurrency limit, weight, scheduling strategy
#[derive(Subcommand)]
#[command(after_help = AFTER_HELP)]
pub(crate) enum QueueCommand {
    /// List the queues that have jobs or settings
    List {
        #[command(flatten)]
        form: JsonOrLines,
    },
    /// Show a queue: jobs by state, their workers, and what limits its throughput
    Show {
        #[command(flatten)]
        form: Json,
        /// Name of the queue
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        queue: String,
    },
    /// Pause a queue: start no jobs until it is resumed (running jobs continue)
    Pause {
        #[command(flatten)]
        form: Json,
        /// Name of the queue
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        queue: String,
    },
    /// Resume a paused queue
    Resume {
        #[command(flatten)]
        form: Json,
        /// Name of the queue
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        queue: String,
    },
    Set(SetArgs),
    Purge(PurgeArgs),
    Strategy(StrategyArgs),
}

/// Cancel the waiting jobs of a queue; running jobs continue unless selected by --state
#[derive(Args)]
#[command(after_help = "\
Jobs submitted during the purge are not affected. Dependent jobs follow their condition: a job that
requires success is cancelled, too. Cancelled jobs are kept for the retention of the server.

Examples:
  filch queue purge img --dry-run
  filch queue purge img --state scheduled,blocked --yes
  filch queue purge img --state queued,leased,running")]
pub(crate) struct PurgeArgs {
    /// Only jobs in these states (comma-separated) [default: blocked,scheduled,queued,leased]
    #[arg(long, value_delimiter = ',', value_parser = name_list::parse, value_name = "STATES")]
    state: Option<Vec<String>>,
    #[command(flatten)]
    confirm: ConfirmOptions,
    #[command(flatten)]
    form: Json,
    /// Name of the queue
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    queue: String,
}

/// Set the concurrency limit or the weight of a queue
#[derive(Args)]
pub(crate) struct SetArgs {
    #[command(flatten)]
    form: Json,
    #[command(flatten)]
    change: Change,
    /// Name of the queue
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    queue: String,
}

#[derive(Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Change {
    /// Concurrency limit: jobs that workers may own at once, or `none`
    #[arg(long, value_name = "N|none", value_parser = read_limit)]
    limit: Option<Limit>,
    /// Weight of the queue with the strategy `fair`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    weight: Option<u32>,
}

/// 0 means no limit, as in the API.
#[derive(Clone, Copy)]
struct Limit(u32);

fn read_limit(text: &str) -> Result<Limit, String> {
    match text.parse() {
        _ if text == "none" => Ok(Limit(0)),
        Ok(limit @ 1..) => Ok(Limit(limit)),
        Ok(0) => Err("no job would ever run; use `filch queue pause` for that".into()),
        Err(_) => Err("write a number or none".into()),
    }
}

/// Show or set the scheduling strategy (order of jobs)
#[derive(Args)]
pub(crate) struct StrategyArgs {
    #[command(flatten)]
    form: Json,
    /// New strategy; if omitted, the current one is shown
    strategy: Option<StrategyName>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum StrategyName {
    /// In the order of submission
    Fifo,
    /// Highest priority first; each minute of waiting raises it by one
    Priority,
    /// One queue after the other
    RoundRobin,
    /// Queues in proportion to their weights
    Fair,
}

impl From<StrategyName> for Order {
    fn from(word: StrategyName) -> Self {
        match word {
            StrategyName::Fifo => Self::Fifo,
            StrategyName::Priority => Self::Priority,
            StrategyName::RoundRobin => Self::RoundRobin,
            StrategyName::Fair => Self::Fair,
        }
    }
}

pub(crate) async fn run(client: &Client, command: QueueCommand) -> Result<ExitCode> {
    match command {
        QueueCommand::List { form } => list(client, form).await?,
        QueueCommand::Show { form, queue } => {
            let queues = client.queues().await?;
            show_detail(&client.queue(&find(&queues, &queue)?.name).await?, form)?;
        }
        QueueCommand::Pause { form, queue } => {
            let change = QueueUpdate { paused: Some(true), ..QueueUpdate::default() };
            set(client, &queue, &change, form).await?;
        }
        QueueCommand::Resume { form, queue } => {
            let change = QueueUpdate { paused: Some(false), ..QueueUpdate::default() };
            set(client, &queue, &change, form).await?;
        }
        QueueCommand::Set(SetArgs { form, change: Change { limit, weight }, queue }) => {
            let limit = limit.map(|Limit(limit)| limit);
            let change = QueueUpdate { paused: None, limit, weight };
            set(client, &queue, &change, form).await?;
        }
        QueueCommand::Purge(options) => purge(client, &options).await?,
        QueueCommand::Strategy(StrategyArgs { form, strategy }) => {
            if let Some(word) = strategy {
                client.set_strategy(word.into()).await?;
            }
            show_strategy(client.strategy().await?, form)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Queues {
    queues: Vec<Queue>,
}

async fn list(client: &Client, form: JsonOrLines) -> Result<()> {
    let queues = client.queues().await?;
    document::list(form, queues, |queues| Queues { queues }, show_list)
}

fn show_list(queues: &[Queue]) -> Result<()> {
    let rows: Vec<Vec<String>> = queues
        .iter()
        .map(|queue| {
            vec![
                queue.name.clone(),
                if queue.paused { "paused" } else { "open" }.to_owned(),
                queue.ready.to_string(),
                queue.owned.to_string(),
                queue.limit.map_or_else(|| "-".to_owned(), |limit| limit.to_string()),
                queue.weight.to_string(),
            ]
        })
        .collect();
    let columns = [
        Text("queue"),
        State("state"),
        Number("ready"),
        Number("owned"),
        Number("limit"),
        Number("weight"),
    ];
    table::list(&columns, &rows)
}

fn names(queues: &[Queue]) -> Vec<&str> {
    queues.iter().map(|queue| queue.name.as_str()).collect()
}

fn find<'a>(queues: &'a [Queue], name: &str) -> Result<&'a Queue> {
    queues.iter().find(|queue| queue.name == name).ok_or_else(|| {
        let near = did_you_mean(name, &names(queues));
        let text = format!("no queue {name:?}{near}");
        let help = "list the queues with `filch queue list`";
        Exit::new(exit::NOT_FOUND, format!("{text}\n  help: {help}")).into()
    })
}

/// Changes a queue. It may not have jobs yet, but the name may also be misspelt, so that is pointed
/// out.
async fn set(client: &Client, name: &str, change: &QueueUpdate, form: Json) -> Result<()> {
    let before = client.queues().await?;
    let queue = client.set_queue(name, change).await?;
    if before.iter().all(|queue| queue.name != name) {
        let near = did_you_mean(name, &names(&before));
        message(format_args!("note: queue {name:?} has no jobs{near}"));
    }
    show(&queue, form)
}

fn show(queue: &Queue, form: Json) -> Result<()> {
    if form.json {
        return document::print(queue);
    }
    table::facts(&facts(queue))
}

fn facts(queue: &Queue) -> Vec<(&'static str, String)> {
    vec![
        ("queue", queue.name.clone()),
        ("state", if queue.paused { "paused" } else { "open" }.to_owned()),
        ("ready", queue.ready.to_string()),
        ("owned", queue.owned.to_string()),
        ("limit", queue.limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string())),
        ("weight", queue.weight.to_string()),
    ]
}

/// Prints a queue in detail.
fn show_detail(detail: &QueueDetail, form: Json) -> Result<()> {
    if form.json {
        return document::print(detail);
    }
    let mut facts = facts(&detail.queue);
    // The counts by state below are more precise.
    facts.retain(|(name, _)| *name != "ready" && *name != "owned");
    let Depth { blocked, scheduled, queued, leased, running } = detail.depth;
    for (name, count) in [
        ("blocked", blocked),
        ("scheduled", scheduled),
        ("queued", queued),
        ("leased", leased),
        ("running", running),
        ("workers", detail.workers),
        ("slots", detail.slots),
    ] {
        facts.push((name, count.to_string()));
    }
    for Holding { worker, held } in &detail.holders {
        facts.push(("on", format!("{}: {}", short(worker), count_jobs((*held).into()))));
    }
    facts.extend(detail.oldest.as_ref().map(|oldest| {
        ("oldest", format!("{}, {}", short(&oldest.id), moment::cell(oldest.submitted_at)))
    }));
    facts.push(("ended in the last minute", detail.ended_last_minute.to_string()));
    facts.push(("limited by", detail.why.text.clone()));
    facts.extend(detail.why.help.clone().map(|help| ("try", help)));
    for act in &detail.acts {
        facts.push(("changed", format!("{}, {}", act.words(), moment::cell(act.at))));
    }
    table::facts(&facts)
}

#[derive(Serialize)]
struct Purged {
    queue: String,
    count: u64,
    dry_run: bool,
}

/// The default states.
const WAITING: &str = "blocked,scheduled,queued,leased";

async fn purge(client: &Client, options: &PurgeArgs) -> Result<()> {
    let PurgeArgs { state, confirm, form, queue } = options;
    // A misspelt queue would look like an empty one.
    let queues = client.queues().await?;
    let queue = find(&queues, queue)?.name.clone();
    let wanted = |dry_run| cluster::Purge { states: state.clone(), dry_run };
    let count = client.purge_queue(&queue, &wanted(true)).await?.count;
    let states = state.as_ref().map_or_else(|| WAITING.to_owned(), |states| states.join(","));
    let filter =
        JobFilter { state: Some(states), queue: Some(queue.clone()), ..JobFilter::default() };
    confirm.confirm_jobs("cancel", count, Some(&filter.to_string()))?;
    let dry_run = confirm.dry_run;
    let count =
        if dry_run { count } else { client.purge_queue(&queue, &wanted(false)).await?.count };
    let would_be = if dry_run { "would be " } else { "" };
    message(format_args!("{} {would_be}cancelled", count_jobs(count)));
    if form.json {
        return document::print(Purged { queue, count, dry_run });
    }
    data(&format!("{count}\n"))
}

fn show_strategy(strategy: Order, form: Json) -> Result<()> {
    #[derive(Serialize)]
    struct Document {
        strategy: Order,
    }
    if form.json {
        return document::print(Document { strategy });
    }
    data(&format!("{}\n", strategy.word()))
}
