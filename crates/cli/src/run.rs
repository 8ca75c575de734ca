//! `filch run`: runs a command as a durable job and waits for it.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use filch_api::access::Access;
use filch_api::client::Client;
use filch_api::job::Job;
use filch_api::submission::{RetryPolicy, Submission};
use filch_server::ServerConfig;

use crate::connection::Connection;
use crate::embedded::{Embedded, EmbeddedOptions, OpenResult, default_slots};
use crate::exit::{self, Exit};
use crate::job_options::{CommandOptions, JobOptions};
use crate::logging::Logging;
use crate::output::{Escaping, message, printed};
use crate::runtime::{ShutdownSignals, block_on};
use crate::unserved;
use crate::usage::Usage;

/// Run a command as a durable job: wait for it, print its output, exit with its exit code
#[derive(Args)]
#[command(after_help = "Examples:
  filch run -- make test
  filch run --timeout 10m --env STAGE=test -- ./check.sh")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    job: JobOptions,
    #[command(flatten)]
    how: CommandOptions,
    /// The command and its arguments (no shell is involved)
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

pub(crate) fn run(options: RunArgs) -> Result<ExitCode> {
    let ran = block_on(run_here(&options));
    // Our own errors must not look like the exit code of the command.
    ran.map_err(|error| match error.downcast_ref::<Exit>() {
        Some(exit) if exit.code == exit::INTERRUPTED => error,
        _ if error.is::<Usage>() => error,
        _ => Exit::new(exit::OWN_FAULT, format!("{error:#}")).into(),
    })
}

async fn run_here(options: &RunArgs) -> Result<ExitCode> {
    let mut signals = ShutdownSignals::listen()?;
    let (client, mut local) = tokio::select! {
        reached = reach(&options.connection) => reached?,
        () = signals.received() => return Err(interrupted()),
    };
    let mut submitted = SubmittedJob { client, id: None };
    let ran = tokio::select! {
        ran = run_there(options, &mut submitted, &mut local) => ran,
        () = signals.received() => Err(interrupted()),
    };
    if let (Err(_), SubmittedJob { client, id: Some(id) }) = (&ran, &submitted) {
        message(format_args!("cancelling {id}"));
        // If the job has ended in the meantime, there is nothing to cancel.
        let _ = tokio::time::timeout(CANCEL_TIMEOUT, client.cancel(id)).await;
    }
    if let Some(local) = local {
        local.close(Duration::ZERO).await;
    }
    ran
}

/// How often a run looks for another server after its own has ended.
const TAKE_OVER_PACE: Duration = Duration::from_millis(20);

/// How long an interrupted run waits for the cancellation.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

fn interrupted() -> anyhow::Error {
    Exit::new(exit::INTERRUPTED, "interrupted").into()
}

/// The job, and the server it was submitted to.
struct SubmittedJob {
    client: Client,
    /// The id, set as soon as the job may exist.
    id: Option<String>,
}

impl SubmittedJob {
    /// Submits a job. The id is part of the submission: submitting again is safe, and an
    /// interrupted run can cancel the job even if the response has not arrived yet.
    async fn submit(&mut self, submission: &Submission) -> Result<String> {
        self.id.clone_from(&submission.id);
        let answer = self.client.submit(submission).await;
        self.id = answer.as_ref().ok().map(|receipt| receipt.id.clone());
        Ok(answer?.id)
    }
}

/// Submits the command and follows it. The server may belong to another `filch run` and end with
/// it. The job is still in the store then, and another server takes over: a new one, or ours.
async fn run_there(
    options: &RunArgs,
    submitted: &mut SubmittedJob,
    local: &mut Option<Box<Embedded>>,
) -> Result<ExitCode> {
    let job = options.job.submission(&submitted.client).await?;
    let mut submission = options.how.command(&options.command, job)?;
    // By default there is one attempt: the user sees the failure and decides.
    submission.retry = submission.retry.or(Some(RetryPolicy { max: 1, ..RetryPolicy::default() }));
    loop {
        let watched = async {
            let id = match &submitted.id {
                Some(id) => id.clone(),
                None => submitted.submit(&submission).await?,
            };
            watch(&submitted.client, &id).await
        };
        match watched.await {
            Ok(job) => {
                submitted.id = None;
                return Ok(ExitCode::from(code(&job)));
            }
            Err(error)
                if options.connection.server.is_none() && local.is_none() && is_gone(&error) =>
            {
                // A server that is stopping still has the store for a moment.
                tokio::time::sleep(TAKE_OVER_PACE).await;
                (submitted.client, *local) = reach(&options.connection).await?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether the server has ended or is about to.
fn is_gone(error: &anyhow::Error) -> bool {
    use filch_api::client::Error;
    match error.downcast_ref() {
        Some(Error::Unreachable { .. }) => true,
        Some(Error::Refused(problem)) => problem.code == "stopping",
        _ => false,
    }
}

/// Connects to the selected server, or starts one in this process.
async fn reach(connection: &Connection) -> Result<(Client, Option<Box<Embedded>>)> {
    if connection.server.is_some() {
        return Ok((connection.client()?, None));
    }
    if let Some(url) = connection.running_server() {
        return Ok((connection.client_at(&url)?, None));
    }
    if let Some(usual) = connection.default_server().await? {
        return Ok((usual, None));
    }
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let wanted = EmbeddedOptions {
        config: ServerConfig { listen, ..ServerConfig::default() },
        slots: default_slots(),
        queues: None,
        commands: true,
    };
    Logging::QUIET.start();
    match Embedded::open(connection, wanted).await? {
        OpenResult::Started(local) => {
            // This server is ours, so we need no token from its store.
            let access = Access { token: Some(local.server.insider()), ..Access::default() };
            let client = Client::with(&local.server.url(), &access)?;
            Ok((client, Some(local)))
        }
        OpenResult::AlreadyRunning(url) => Ok((connection.client_at(&url)?, None)),
    }
}

/// Prints the output of a job until it has ended.
async fn watch(client: &Client, id: &str) -> Result<Job> {
    // Like a shell, `filch run` trusts the output of its command.
    tokio::select! {
        logged = client.log(id, true, |piece| printed(&piece, Escaping::Raw)) => logged?,
        never = unserved::warn(client, id) => match never {},
    }
    loop {
        let job = client.wait(id, Duration::from_secs(30)).await?;
        if job.ended_at.is_some() {
            return Ok(job);
        }
    }
}

/// The exit code of the command, as a shell would report it.
fn code(job: &Job) -> u8 {
    let details = job.details.as_deref();
    let error = details.and_then(|details| details.error.as_deref()).unwrap_or_default();
    match job.state.as_str() {
        "succeeded" => 0,
        "cancelled" => exit::JOB_CANCELLED,
        _ => {
            // After the colon comes the last line of stderr, which was printed already.
            let how = error.split_once(": ").map_or(error, |(how, _)| how);
            if let Some(code) = how.strip_prefix("exit code ") {
                return code.parse().unwrap_or(exit::JOB_FAILED);
            }
            if let Some(signal) = how.strip_prefix("killed by signal ") {
                return signal
                    .parse::<u8>()
                    .map_or(exit::JOB_FAILED, |signal| signal.saturating_add(128));
            }
            message(format_args!(
                "error: {}",
                if error.is_empty() { "the job failed" } else { error }
            ));
            exit::JOB_FAILED
        }
    }
}

#[cfg(test)]
mod tests {
    use filch_api::client::Error;
    use filch_api::problem::Problem;

    use super::*;

    #[test]
    fn another_server_takes_over_from_one_that_stops_or_has_ended() {
        let refused = |code| Error::Refused(Problem::new(503, code, "no")).into();
        assert!(is_gone(&refused("stopping")));
        assert!(!is_gone(&refused("busy")));
        let unreachable = Error::Unreachable { url: "http://a".into(), why: "refused".into() };
        assert!(is_gone(&unreachable.into()));
    }
}
