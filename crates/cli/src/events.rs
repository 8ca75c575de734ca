//! `filch events`: prints the events that the server still holds, and follows new ones.

use std::io::IsTerminal as _;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use filch_api::act::{Act, Acts};
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
Without -f, prints the events that the server still holds: the newest 16,384 since it started.
With -f, follows new events, starting now or at --since. If the connection breaks, it reconnects and
resumes after the last event; a note on stderr reports events that were missed.

Examples:
  filch events -f
  filch events --since 10m --queue img
  filch events --acts --since 7d
  filch events -f --worker 5b1e --jsonl | jq -c 'select(.cause == \"steal\")'";

/// Print cluster events: jobs submitted, started, stolen, lost and ended
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct EventsArgs {
    #[command(flatten)]
    connection: Connection,
    /// Follow new events
    #[arg(long, short)]
    follow: bool,
    /// Only jobs of this queue
    #[arg(long, short, value_name = "NAME")]
    queue: Option<String>,
    /// Only jobs of this kind (commands have the kind `command`)
    #[arg(long, short, value_name = "KIND")]
    kind: Option<String>,
    /// Only this job: its id, at least the last 4 digits of it, or @last
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Only this worker: its name, its id, or at least the last 4 digits of the id
    #[arg(long, value_name = "WORKER")]
    worker: Option<String>,
    /// Only events since this time (2026-01-31T12:00:00Z) or this long ago (10m)
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Print what operators did instead: the audit trail
    #[arg(long, conflicts_with_all = ["follow", "kind", "job", "worker"])]
    acts: bool,
    /// Print one JSON object per line
    #[arg(long)]
    jsonl: bool,
}

pub(crate) fn run(options: EventsArgs) -> Result<ExitCode> {
    with_client(&options.connection, async |client| {
        if options.acts {
            return acts(client, &options).await;
        }
        let query = query(client, &options).await?;
        let mut printed = Ok(());
        let print = |received: &StreamedEvent| {
            printed = show(received, options.jsonl);
            if printed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        if options.follow {
            follow(client, &query, print).await?;
        } else {
            let mut print = print;
            client.events(&query, None).await?.each(|received| print(&received)).await?;
        }
        printed.map(|()| ExitCode::SUCCESS)
    })
}

/// Prints the audit trail, the oldest first.
async fn acts(client: &Client, options: &EventsArgs) -> Result<ExitCode> {
    let since = options.since.as_deref().map(|since| moment::ago("--since", since)).transpose()?;
    let is_wanted = |act: &Act| since.is_none_or(|since| act.at >= since);
    let (mut all, mut before) = (Vec::new(), None);
    loop {
        let Acts { acts, next } = client.acts(options.queue.as_deref(), before).await?;
        let is_over = acts.iter().any(|act| !is_wanted(act));
        all.extend(acts.into_iter().filter(is_wanted));
        match next.filter(|_| !is_over) {
            Some(next) => before = Some(next),
            None => break,
        }
    }
    for act in all.iter().rev() {
        if options.jsonl {
            document::line(act)?;
            continue;
        }
        let job = act.job.as_deref().or(act.worker.as_deref()).map(short);
        let subject = job.or_else(|| act.queue.clone()).or_else(|| act.token.clone());
        line(act.at, &act.act, &subject.unwrap_or_default(), &act.words())?;
    }
    Ok(ExitCode::SUCCESS)
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
    // Without --since and --follow, print all events that the server holds.
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

/// The delays between attempts to reconnect.
const RECONNECT_MIN: Duration = Duration::from_millis(100);
const RECONNECT_MAX: Duration = Duration::from_secs(5);

/// Calls `each` for every event until it returns `Break`, and reconnects as often as needed. Only
/// the first connection has to succeed.
pub(crate) async fn follow(
    client: &Client,
    query: &str,
    mut each: impl FnMut(&StreamedEvent) -> ControlFlow<()>,
) -> Result<()> {
    let mut last: Option<String> = None;
    let mut listening = Some(client.events(query, None).await?);
    let mut wait = RECONNECT_MIN;
    loop {
        if let Some(events) = listening.take() {
            let mut is_done = false;
            let received = events.each(|received| {
                last = Some(received.id.clone());
                let flow = each(&received);
                is_done = flow.is_break();
                flow
            });
            match received.await {
                Ok(()) if is_done => return Ok(()),
                // The server is stopping, or gone.
                Ok(()) | Err(Error::Unreachable { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            message(format_args!("connection to {} lost; reconnecting", client.url()));
            wait = RECONNECT_MIN;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(RECONNECT_MAX);
        match client.events(query, last.as_deref()).await {
            Ok(again) => {
                message(format_args!("reconnected"));
                listening = Some(again);
            }
            // The server is starting, or not running yet.
            Err(Error::Unreachable { .. }) => {}
            Err(Error::Refused(problem)) if problem.status == 503 => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn show(received: &StreamedEvent, jsonl: bool) -> Result<()> {
    if received.data.is_empty() {
        return Ok(());
    }
    if received.is_reset {
        message(format_args!("note: older events are no longer available"));
        return Ok(());
    }
    if jsonl {
        return document::raw_line(serde_json::from_str(&received.data)?);
    }
    let event: ClusterEvent = serde_json::from_str(&received.data)?;
    let (at, what, subject, details) = columns(&event);
    line(at, &what, &subject, &details)
}

/// Prints an event.
fn line(at: Moment, what: &str, subject: &str, details: &str) -> Result<()> {
    let (subject, details) = (escaped(subject), escaped(details));
    let line = if std::io::stdout().is_terminal() {
        format!("{:<24}  {what:<11}  {subject:<17}  {details}", at.to_string())
    } else {
        format!("{at}\t{what}\t{subject}\t{details}")
    };
    data(&format!("{}\n", line.trim_end()))
}

/// The columns of an event: time, event, job or worker, details.
fn columns(event: &ClusterEvent) -> (Moment, String, String, String) {
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
            let subject = match (&ids[..], jobs.len()) {
                ([id], 1) => short(id),
                ([id, ..], count) => format!("{} and {} more", short(id), count - 1),
                ([], count) => format!("{count} jobs"),
            };
            let side = |word: &str, worker: &Option<String>| {
                worker.as_deref().map(|worker| format!("{word} {}", short(worker)))
            };
            let sides: Vec<String> =
                [side("from", from), side("to", to)].into_iter().flatten().collect();
            (*at, what.to_owned(), subject, sides.join(" "))
        }
        ClusterEvent::WorkerLost { at, worker, jobs } => {
            (*at, "worker-lost".into(), short(worker), format!("held {jobs} jobs"))
        }
    }
}
