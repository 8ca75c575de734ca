//! `filch job events`: the history of one job, followed until it has ended.

use std::collections::BTreeSet;
use std::io::IsTerminal as _;
use std::ops::ControlFlow;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use filch_api::client::{Client, path};
use filch_api::event::{JobEvent, JobEvents};

use crate::document::{self, JsonOrLines};
use crate::escape::escaped;
use crate::events::follow;
use crate::output::{data, message};
use crate::select::{self, short};

/// Print the history of a job
#[derive(Args)]
#[command(after_help = "\
Events: submitted; claimed, stolen, lost or returned (changes of owner); running; failed attempts;
operator actions; the outcome.

Examples:
  filch job events 3f2a
  filch job events -f --jsonl @last | jq -r .event")]
pub(crate) struct JobEventsArgs {
    /// Follow the history until the job has ended
    #[arg(long, short, conflicts_with = "json")]
    follow: bool,
    #[command(flatten)]
    form: JsonOrLines,
    #[arg(value_name = "JOB", help = select::HELP)]
    job: String,
}

pub(super) async fn run(client: &Client, options: &JobEventsArgs) -> Result<ExitCode> {
    let id = select::whole(client, &options.job).await?;
    let seen = client.job_events(&id).await?;
    if options.form.json {
        document::print(&seen)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut printed = Printed { form: options.form, events: BTreeSet::new() };
    if !options.follow {
        printed.print(&seen)?;
        return Ok(ExitCode::SUCCESS);
    }
    // An event only triggers a new read of the stored history, which is complete and in order.
    let (again, mut asked) = tokio::sync::mpsc::channel::<()>(1);
    let query = format!("follow=true&since={}&job={}", path("1970-01-01T00:00:00Z"), path(&id));
    let listening = follow(client, &query, |_| {
        // One pending trigger is enough.
        let _ = again.try_send(());
        ControlFlow::Continue(())
    });
    let showing = async {
        loop {
            let seen = client.job_events(&id).await?;
            printed.print(&seen)?;
            if seen.ended {
                return anyhow::Ok(());
            }
            asked.recv().await;
        }
    };
    tokio::select! {
        ended = showing => ended?,
        listened = listening => listened?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The events that have been printed.
struct Printed {
    form: JsonOrLines,
    events: BTreeSet<JobEvent>,
}

impl Printed {
    /// Prints the new events.
    fn print(&mut self, seen: &JobEvents) -> Result<()> {
        if seen.older_left_out && self.events.is_empty() {
            message(format_args!("older entries are left out"));
        }
        for event in &seen.events {
            if self.events.insert(event.clone()) {
                if self.form.jsonl {
                    document::line(event)?;
                } else {
                    data(&line(event))?;
                }
            }
        }
        Ok(())
    }
}

fn line(event: &JobEvent) -> String {
    let JobEvent { at, event, fence, worker, from, error } = event;
    let parts = [
        worker.as_deref().map(|worker| format!("worker {}", short(worker))),
        from.as_deref().map(|from| format!("from {}", short(from))),
        fence.map(|fence| format!("fence {fence}")),
        error.clone(),
    ];
    let how = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let how = escaped(&how);
    let line = if std::io::stdout().is_terminal() {
        format!("{:<24}  {event:<19}  {how}", at.to_string())
    } else {
        format!("{at}\t{event}\t{how}")
    };
    format!("{}\n", line.trim_end())
}
