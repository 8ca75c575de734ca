//! `filch queue`: the lines in which jobs wait, how much of each is taken, and in which order.

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
    /// List the queues that jobs are in, or for which something is set
    List {
        #[command(flatten)]
        form: JsonOrLines,
    },
    /// Show one queue: how many jobs are in which state, where they run, what keeps it from being faster
    Show {
        #[command(flatten)]
        form: Json,
        /// Its name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        queue: String,
    },
    /// Take nothing from a queue until it is resumed; what runs goes on
    Pause {
        #[command(flatten)]
        form: Json,
        /// Its name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        queue: String,
    },
    /// Take from a queue again
    Resume {
        #[command(flatten)]
        form: Json,
        /// Its name
        #[arg(value_parser = NonEmptyStringValueParser::new())]
        queue: String,
    },
    Set(SetArgs),
    Purge(PurgeArgs),
    Strategy(StrategyArgs),
}

/// Cancel what waits in a queue; what runs goes on, unless it is asked for
#[derive(Args)]
#[command(after_help = "\
Jobs that are submitted while it works are left alone. Children of cancelled jobs go by their
conditions: those that ask for success are cancelled, too. The cancelled jobs can be looked at
until they are forgotten like all ended ones.

Examples:
  filch queue purge img --dry-run
  filch queue purge img --state scheduled,blocked --yes
  filch queue purge img --state queued,leased,running")]
pub(crate) struct PurgeArgs {
    /// Only jobs in these states, with commas between them [default: blocked,scheduled,queued,leased]
    #[arg(long, value_delimiter = ',', value_parser = name_list::parse, value_name = "STATES")]
    state: Option<Vec<String>>,
    #[command(flatten)]
    confirm: ConfirmOptions,
    #[command(flatten)]
    form: Json,
    /// Its name
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    queue: String,
}

/// Change how much of a queue is taken
#[derive(Args)]
pub(crate) struct SetArgs {
    #[command(flatten)]
    form: Json,
    #[command(flatten)]
    change: Change,
    /// Its name
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    queue: String,
}

#[derive(Args)]
#[group(required = true, multiple = true)]
pub(crate) struct Change {
    /// Let workers own at most so many of its jobs at once, or `none` for any number
    #[arg(long, value_name = "N|none", value_parser = read_limit)]
    limit: Option<Limit>,
    /// Its share, under the strategy `fair`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    weight: Option<u32>,
}

/// 0 for any number, as the API has it.
#[derive(Clone, Copy)]
struct Limit(u32);

fn read_limit(text: &str) -> Result<Limit, String> {
    match text.parse() {
        _ if text == "none" => Ok(Limit(0)),
        Ok(limit @ 1..) => Ok(Limit(limit)),
        Ok(0) => Err("nothing would ever run; write `filch queue pause` for that".into()),
        Err(_) => Err("write a number, or none".into()),
    }
}

/// Show or choose the order in which jobs are taken
#[derive(Args)]
pub(crate) struct StrategyArgs {
    #[command(flatten)]
    form: Json,
    /// The new one; without it, the present one is shown
    strategy: Option<StrategyName>,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum StrategyName {
    /// As they were submitted
    Fifo,
    /// The highest priority first; a minute of waiting is worth one step
    Priority,
    /// Queues in turn
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
            look(&client.queue(&find(&queues, &queue)?.name).await?, form)?;
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
    if form.json {
        return document::print(Queues { queues });
    }
    if form.jsonl {
        return queues.iter().try_for_each(document::line);
    }
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
        let text = format!("no job is in a queue {name:?}, and nothing is set for it{near}");
        let help = "`filch queue list` shows what there is";
        Exit::new(exit::NOT_FOUND, format!("{text}\n  help: {help}")).into()
    })
}

/// A queue may be set before its first job comes; but perhaps another one was meant.
async fn set(client: &Client, name: &str, change: &QueueUpdate, form: Json) -> Result<()> {
    let before = client.queues().await?;
    let queue = client.set_queue(name, change).await?;
    if before.iter().all(|queue| queue.name != name) {
        let near = did_you_mean(name, &names(&before));
        message(format_args!("note: no job is in queue {name:?} at this moment{near}"));
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

/// A queue, closely.
fn look(detail: &QueueDetail, form: Json) -> Result<()> {
    if form.json {
        return document::print(detail);
    }
    let mut facts = facts(&detail.queue);
    // Both are told apart further below.
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
    facts.push(("why not faster", detail.why.text.clone()));
    facts.extend(detail.why.help.clone().map(|help| ("try", help)));
    table::facts(&facts)
}

#[derive(Serialize)]
struct Purged {
    queue: String,
    count: u64,
    dry_run: bool,
}

/// The states that are meant if none is said.
const WAITING: &str = "blocked,scheduled,queued,leased";

async fn purge(client: &Client, options: &PurgeArgs) -> Result<()> {
    let PurgeArgs { state, confirm, form, queue } = options;
    // A queue that is misspelt would look like an empty one.
    let queues = client.queues().await?;
    let queue = find(&queues, queue)?.name.clone();
    let wanted = |dry_run| cluster::Purge { states: state.clone(), dry_run };
    let count = client.purge_queue(&queue, &wanted(true)).await?.count;
    let states = state.as_ref().map_or_else(|| WAITING.to_owned(), |states| states.join(","));
    let terms =
        JobFilter { state: Some(states), queue: Some(queue.clone()), ..JobFilter::default() };
    confirm.confirm_jobs("cancel", count, Some(&terms.to_string()))?;
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
    let word = match strategy {
        Order::Fifo => "fifo",
        Order::Priority => "priority",
        Order::RoundRobin => "round-robin",
        Order::Fair => "fair",
    };
    data(&format!("{word}\n"))
}
