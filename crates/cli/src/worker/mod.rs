//! `filch worker`: starts a worker process, and manages connected workers (`manage`).

mod manage;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use filch_api::access::{NoAccess, Target};
use filch_api::client::Error;
use filch_api::tls::ClientFiles;
use filch_scheduler::agent::{Home, Reserve};
use filch_worker::connect::{Notice, Notices};
use filch_worker::{Left, RunningWorker, WorkerConfig, connect};

pub(crate) use self::manage::resolve_id;
use crate::connection::Connection;
use crate::embedded::{default_slots, handlers, host_name};
use crate::exit::{self, Exit};
use crate::group::{Group, with_client};
use crate::logging::Logging;
use crate::name_list;
use crate::output::message;
use crate::runtime::{ShutdownSignals, block_on};

/// Start, list, drain and stop workers
#[derive(Subcommand)]
pub(crate) enum WorkerCommand {
    Start(StartArgs),
    List(manage::ListArgs),
    Drain(manage::DrainArgs),
    Stop(manage::StopArgs),
}

/// Start a worker process that runs jobs for a server
#[derive(Args)]
#[command(after_help = "Examples:
  filch worker start --server http://127.0.0.1:7500 --slots 4
  filch worker start --queues img,default
  filch worker start --trace-schedule 1s")]
pub(crate) struct StartArgs {
    /// Failover server to try if the first does not answer (repeatable)
    #[arg(long, value_name = "URL")]
    failover: Vec<String>,
    /// Name of the worker [default: the host name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Concurrency: jobs that run at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    slots: Option<u32>,
    /// Take jobs from these queues only (comma-separated)
    #[arg(long, value_delimiter = ',', value_parser = name_list::parse, value_name = "NAMES")]
    queues: Option<Vec<String>>,
    /// Prefetch at most this many jobs beyond the slots
    #[arg(long, value_name = "N")]
    reserve: u32,
    /// Always prefetch this many jobs beyond the slots, even if they take long
    #[arg(long, value_name = "N", conflicts_with = "reserve")]
    hold: Option<u32>,
    /// Graceful shutdown: how long running jobs may take after Ctrl-C or SIGTERM
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = filch_api::span::read)]
    grace: Duration,
    /// Do not run commands, only built-in kinds
    #[arg(long)]
    no_commands: bool,
    /// Print a scheduler trace to stderr at this interval [env: FILCH_SCHEDTRACE, in milliseconds]
    #[arg(long, value_name = "DURATION", value_parser = filch_api::span::read)]
    trace_schedule: Option<Duration>,
    #[command(flatten)]
    logging: Logging,
}

pub(crate) fn run(group: Group<WorkerCommand>) -> Result<ExitCode> {
    let Group { connection, command } = group;
    match command {
        WorkerCommand::Start(options) => block_on(work(&connection, options)),
        WorkerCommand::List(options) => {
            with_client(&connection, async |client| manage::list(client, &options).await)
        }
        WorkerCommand::Drain(options) => {
            with_client(&connection, async |client| manage::drain(client, &options).await)
        }
        WorkerCommand::Stop(options) => {
            with_client(&connection, async |client| manage::stop(client, &options).await)
        }
    }
}

async fn work(connection: &Connection, start: StartArgs) -> Result<ExitCode> {
    start.logging.start();
    let mut signals = ShutdownSignals::listen()?;
    let mut urls = vec![connection.url()?];
    urls.extend(start.failover);
    let access = connection.access()?;
    let target = |url: &String| {
        let target = Target::read(url)?;
        access.token_for(&target)?;
        Ok(target)
    };
    let targets = urls.iter().map(target).collect::<Result<Vec<_>, NoAccess>>();
    let targets = targets.map_err(Error::NoAccess)?;
    // Checked now, even if no URL needs them: otherwise mistakes show up only at a failover.
    if access.tls != ClientFiles::default() {
        access.tls.read().map_err(Error::NoAccess)?;
    }
    let slots = start.slots.unwrap_or_else(default_slots);
    message(format_args!("working for {} with {slots} slots", urls.join(", ")));
    let config = WorkerConfig {
        slots,
        queues: start.queues,
        home: Home::Apart,
        grace: start.grace,
        reserve: start.hold.map_or(Reserve::Auto { most: start.reserve }, Reserve::Fixed),
        name: Some(start.name.unwrap_or_else(host_name)),
        trace_schedule: start.trace_schedule,
    };
    let (connect, mut notices) = connect::with(targets, access);
    let worker = RunningWorker::start(config, handlers(!start.no_commands), connect);
    let left = tokio::select! {
        left = until_left(&worker) => left,
        // Running jobs are stopped: this worker may not run them any more.
        exit = refused(&mut notices) => return Err(exit.into()),
        () = signals.received() => {
            message(format_args!("Shutting down: waiting for running jobs. Press Ctrl-C again to stop now."));
            worker.drain(start.grace);
            tokio::select! {
                left = worker.left() => left,
                exit = refused(&mut notices) => return Err(exit.into()),
                () = signals.received() => {
                    worker.drain(Duration::ZERO);
                    worker.left().await
                }
            }
        }
    };
    anyhow::ensure!(left == Left::InOrder, "the worker has crashed; its error is above");
    Ok(ExitCode::SUCCESS)
}

/// Waits until the server refuses this worker. Other trouble is logged by the worker itself.
async fn refused(notices: &mut Notices) -> Exit {
    loop {
        match notices.next().await {
            Notice::Trouble(_) => {}
            Notice::Refused(why) => return Exit::new(exit::NOT_PERMITTED, why),
            Notice::OtherVersion(why) => return Exit::new(exit::OTHER_VERSION, why),
        }
    }
}

/// Waits until the worker has left, and prints a message if the server asked it to.
async fn until_left(worker: &RunningWorker) -> Left {
    tokio::select! {
        left = worker.left() => return left,
        grace = worker.told_to_leave() => message(format_args!(
            "Shutting down, as the server asked: running jobs have {} to finish, the others are returned.",
            filch_api::span::write(grace)
        )),
    }
    let left = worker.left().await;
    message(format_args!("Stopped."));
    left
}
