//! `filch events`: what happens in the cluster, and what has happened as far as the server holds it.

use std::io::IsTerminal as _;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use filch_api::client::{Client, Error, StreamedEvent, path};
use filch_api::event::ClusterEvent;
use filch_api::time::Moment;

use crate::connection::Connection;
use crate::document;
use crate::escape::escaped;
use crate::group::with_client;
use crate::output::{data, message};
use crate::select::{self, short};
use crate::{moment, worker};

const AFTER_HELP: &str = "\
Without -f it prints what the server still holds, the newest 16,384 events since it started,
and ends. With -f it goes on with what happens from now on, or since the moment that --since
gives; if the connection breaks it connects again, goes on where it was, and says if something
was missed.

Examples:
  filch events -f
  filch events --since 10m --queue img
  filch events -f --worker 5b1e --jsonl | jq -c 'select(.cause == \"steal\")'";

/// Show what happens in the cluster: submits, starts, thefts, losses, ends
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct EventsArgs {
    #[command(flatten)]
    connection: Connection,
    /// Go on with what happens from now on
    #[arg(long, short)]
    follow: bool,
    /// Only about jobs of this queue
    #[arg(long, short, value_name = "NAME")]
    queue: Option<String>,
    /// Only about jobs of this kind; commands are of the kind `command`
    #[arg(long, short, value_name = "KIND")]
    kind: Option<String>,
    /// Only about this job: its id, at least the last 4 digits of it, or @last
    #[arg(long, value_name = "SEL")]
    job: Option<String>,
    /// Only what this worker got, gave, began and lost: its id or at least the last 4 digits of it, or its name
    #[arg(long, value_name = "WORKER")]
    worker: Option<String>,
    /// What has happened since this moment (2026-01-31T12:00:00Z) or within this span (10m)
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Print one JSON object a line
    #[arg(long)]
    jsonl: bool,
}

pub(crate) fn run(options: EventsArgs) -> Result<ExitCode> {
    with_client(&options.connection, async |client| {
        let query = query(client, &options).await?;
        let mut printed = Ok(());
        let print = |told: &StreamedEvent| {
            printed = show(told, options.jsonl);
            if printed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        if options.follow {
            follow(client, &query, print).await?;
        } else {
            let mut print = print;
            client.events(&query, None).await?.each(|told| print(&told)).await?;
        }
        printed.map(|()| ExitCode::SUCCESS)
    })
}

async fn query(client: &Client, options: &EventsArgs) -> Result<String> {
    let job = match &options.job {
        Some(selector) => Some(select::whole(client, selector).await?),
        None => None,
    };
    let worker = match &options.worker {
        Some(word) => Some(worker::resolve_id(client, word).await?),
        None => None,
    };
    let since = options.since.as_deref().map(|since| moment::ago("--since", since)).transpose()?;
    // Without a moment and without going on, everything that is held.
    let beginning = (!options.follow).then(|| "1970-01-01T00:00:00Z".to_owned());
    let fields = [
        ("queue", options.queue.clone()),
        ("kind", options.kind.clone()),
        ("job", job),
        ("worker", worker),
        ("since", since.map(|since| since.to_string()).or(beginning)),
    ];
    let mut query = format!("follow={}", options.follow);
    for (name, value) in fields {
        if let Some(value) = value {
            query.push_str(&format!("&{name}={}", path(&value)));
        }
    }
    Ok(query)
}

/// How soon it is tried to connect again.
const AGAIN_FIRST: Duration = Duration::from_millis(100);
const AGAIN_LONGEST: Duration = Duration::from_secs(5);

/// Tells `each` what happens until it has seen enough, over as many connections as that takes. Only the
/// first one has to succeed.
pub(crate) async fn follow(
    client: &Client,
    query: &str,
    mut each: impl FnMut(&StreamedEvent) -> ControlFlow<()>,
) -> Result<()> {
    let mut last: Option<String> = None;
    let mut listening = Some(client.events(query, None).await?);
    let mut wait = AGAIN_FIRST;
    loop {
        if let Some(events) = listening.take() {
            let mut is_enough = false;
            let heard = events.each(|told| {
                last = Some(told.id.clone());
                let seen = each(&told);
                is_enough = seen.is_break();
                seen
            });
            match heard.await {
                Ok(()) if is_enough => return Ok(()),
                // The server is stopping, or gone.
                Ok(()) | Err(Error::Unreachable { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            message(format_args!("the connection to {} broke; trying again", client.url()));
            wait = AGAIN_FIRST;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(AGAIN_LONGEST);
        match client.events(query, last.as_deref()).await {
            Ok(again) => {
                message(format_args!("connected again"));
                listening = Some(again);
            }
            // It is starting, or not there yet.
            Err(Error::Unreachable { .. }) => {}
            Err(Error::Refused(problem)) if problem.status == 503 => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn show(told: &StreamedEvent, jsonl: bool) -> Result<()> {
    if told.data.is_empty() {
        return Ok(());
    }
    if told.is_reset {
        message(format_args!("note: the server does not hold what happened before this any more"));
        return Ok(());
    }
    if jsonl {
        return document::raw_line(serde_json::from_str(&told.data)?);
    }
    let event: ClusterEvent = serde_json::from_str(&told.data)?;
    let (at, what, whom, how) = words(&event);
    let whom = escaped(&whom);
    let how = escaped(&how);
    let line = if std::io::stdout().is_terminal() {
        format!("{:<24}  {what:<11}  {whom:<17}  {how}", at.to_string())
    } else {
        format!("{at}\t{what}\t{whom}\t{how}")
    };
    data(&format!("{}\n", line.trim_end()))
}

/// When, what, to whom, and the rest.
fn words(event: &ClusterEvent) -> (Moment, String, String, String) {
    let name = |id: &Option<String>, seq: u64| id.as_deref().map_or(format!("#{seq}"), short);
    match event {
        ClusterEvent::Submitted { at, id, queue, kind, .. } => {
            (*at, "submitted".into(), short(id), format!("{kind} in queue {queue}"))
        }
        ClusterEvent::Changed { at, id, seq, state, attempts, fence, worker, .. } => {
            let worker = worker.as_deref().map(|worker| format!(" on {}", short(worker)));
            let how = format!("attempts {attempts}, fence {fence}{}", worker.unwrap_or_default());
            (*at, state.clone(), name(id, *seq), how)
        }
        ClusterEvent::Moved { at, cause, from, to, jobs, ids } => {
            let what = match cause.as_str() {
                "claim" => "claimed",
                "steal" => "stolen",
                other => other,
            };
            let whom = match (&ids[..], jobs.len()) {
                ([id], 1) => short(id),
                ([id, ..], count) => format!("{} and {} more", short(id), count - 1),
                ([], count) => format!("{count} jobs"),
            };
            let side = |word: &str, worker: &Option<String>| {
                worker.as_deref().map(|worker| format!("{word} {}", short(worker)))
            };
            let sides: Vec<String> =
                [side("from", from), side("to", to)].into_iter().flatten().collect();
            (*at, what.to_owned(), whom, sides.join(" "))
        }
        ClusterEvent::WorkerLost { at, worker, jobs } => {
            (*at, "worker-lost".into(), short(worker), format!("it held {jobs}"))
        }
    }
}
