//! `filch run`: a command as a durable job, as if it were run here.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use filch_api::client::{Client, Printed};
use filch_api::job::Job;
use filch_api::session::Stream;
use filch_api::submission::Retry;

use crate::exit::{self, Exit};
use crate::job_options::{CommandOptions, JobOptions};
use crate::local::{Local, Opened, Wanted, default_slots};
use crate::output::talk;
use crate::place::{DEFAULT_URL, Place};
use crate::runtime::{Ending, block_on};
use crate::usage::Usage;

/// Run a command as a durable job: wait for it, show what it prints, end with its code
#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    job: JobOptions,
    #[command(flatten)]
    how: CommandOptions,
    /// The command and its arguments; no shell looks at them
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let ran = block_on(run_here(&options));
    // What goes wrong here must not be taken for the command's own code.
    ran.map_err(|error| match error.downcast_ref::<Exit>() {
        Some(exit) if exit.code == exit::INTERRUPTED => error,
        _ if error.is::<Usage>() => error,
        _ => Exit::new(exit::OWN_FAULT, format!("{error:#}")).into(),
    })
}

async fn run_here(options: &Options) -> Result<ExitCode> {
    let mut ending = Ending::listen()?;
    let (client, mut local) = tokio::select! {
        reached = reach(&options.place) => reached?,
        () = ending.wanted() => return Err(interrupted()),
    };
    let mut asked = Asked { client, id: None };
    let ran = tokio::select! {
        ran = run_there(options, &mut asked, &mut local) => ran,
        () = ending.wanted() => Err(interrupted()),
    };
    if let (Err(_), Asked { client, id: Some(id) }) = (&ran, &asked) {
        talk(format_args!("cancelling {id}"));
        // If it has ended meanwhile there is nothing to cancel, and nobody waits for long.
        let _ = tokio::time::timeout(PATIENCE, client.cancel(id)).await;
    }
    if let Some(local) = local {
        local.close(Duration::ZERO).await;
    }
    ran
}

/// How long somebody who wants to leave waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

fn interrupted() -> anyhow::Error {
    Exit::new(exit::INTERRUPTED, "interrupted").into()
}

/// Whom we have asked for what.
struct Asked {
    client: Client,
    /// The job, once it is submitted.
    id: Option<String>,
}

/// Submits the command and watches it. The server may be another `filch run`'s and end with it: then the
/// job is still in the file, and somebody else serves it, or we do.
async fn run_there(
    options: &Options,
    asked: &mut Asked,
    local: &mut Option<Box<Local>>,
) -> Result<ExitCode> {
    let plain = options.job.plain(&asked.client).await?;
    let mut submission = options.how.command(&options.command, plain)?;
    // Who sits in front of it sees it fail, and decides for themselves.
    submission.retry = submission.retry.or(Some(Retry { max: 1, ..Retry::default() }));
    loop {
        let watched = async {
            let id = match &asked.id {
                Some(id) => id.clone(),
                // The id is in the submission: to say it again is safe.
                None => asked.client.submit(&submission).await?.id,
            };
            asked.id = Some(id.clone());
            watch(&asked.client, &id).await
        };
        match watched.await {
            Ok(job) => {
                asked.id = None;
                return Ok(ExitCode::from(code(&job)));
            }
            Err(error) if options.place.server.is_none() && local.is_none() && is_gone(&error) => {
                (asked.client, *local) = reach(&options.place).await?;
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_gone(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(filch_api::client::Error::Unreachable { .. }))
}

/// A server that can be asked: the one that is meant, or else one of our own.
async fn reach(place: &Place) -> Result<(Client, Option<Box<Local>>)> {
    if place.server.is_some() {
        return Ok((place.client()?, None));
    }
    if place.holder().is_none() {
        // The usual address counts only if it serves another folder than this.
        let usual = Client::new(DEFAULT_URL)?;
        let answers = tokio::time::timeout(Duration::from_secs(2), usual.status());
        if !place.file().exists() && matches!(answers.await, Ok(Ok(_))) {
            return Ok((usual, None));
        }
        let wanted = Wanted {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            lease: Duration::from_secs(10),
            slots: default_slots(),
            queues: None,
            commands: true,
        };
        if let Opened::Here(local) = Local::open(place, wanted).await? {
            let client = Client::new(&format!("http://{}", local.server.address()))?;
            return Ok((client, Some(local)));
        }
    }
    Ok((place.client()?, None))
}

/// Shows what a job prints until it has ended.
pub(crate) async fn watch(client: &Client, id: &str) -> Result<Job> {
    client.log(id, true, print).await?;
    loop {
        let job = client.wait(id, Duration::from_secs(30)).await?;
        if job.ended_at.is_some() {
            return Ok(job);
        }
    }
}

/// Prints as the job did.
pub(crate) fn print(printed: Printed) {
    // Nobody need listen to the end.
    let _ = match printed.stream {
        Stream::Stdout => {
            let mut stdout = std::io::stdout().lock();
            stdout.write_all(printed.text.as_bytes()).and_then(|()| stdout.flush())
        }
        Stream::Stderr => std::io::stderr().write_all(printed.text.as_bytes()),
    };
}

/// The command's own code, as a shell would give it.
fn code(job: &Job) -> u8 {
    let details = job.details.as_deref();
    let error = details.and_then(|details| details.error.as_deref()).unwrap_or_default();
    match job.state.as_str() {
        "succeeded" => 0,
        "cancelled" => exit::JOB_CANCELLED,
        _ => {
            if let Some(code) = error.strip_prefix("exit code ") {
                return code.parse().unwrap_or(exit::JOB_FAILED);
            }
            if let Some(signal) = error.strip_prefix("killed by signal ") {
                return signal
                    .parse::<u8>()
                    .map_or(exit::JOB_FAILED, |signal| signal.saturating_add(128));
            }
            talk(format_args!(
                "error: {}",
                if error.is_empty() { "the job failed" } else { error }
            ));
            exit::JOB_FAILED
        }
    }
}
