//! `filch job`: lists, shows and changes jobs.

mod act;
mod events;
mod ledger;
mod list;
mod show;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use filch_api::client::Client;

/// List, inspect, cancel and retry jobs
#[derive(Subcommand)]
pub(crate) enum JobCommand {
    List(list::ListArgs),
    Show(show::ShowArgs),
    Events(events::JobEventsArgs),
    Cancel(act::CancelArgs),
    Retry(act::RetryArgs),
    Result(show::ResultArgs),
    Priority(act::PriorityArgs),
}

pub(crate) async fn run(client: &Client, command: JobCommand) -> Result<ExitCode> {
    match command {
        JobCommand::List(options) => list::run(client, &options).await,
        JobCommand::Show(options) => show::run(client, &options).await,
        JobCommand::Events(options) => events::run(client, &options).await,
        JobCommand::Cancel(options) => act::cancel(client, &options).await,
        JobCommand::Retry(options) => act::retry(client, &options).await,
        JobCommand::Result(options) => show::result(client, &options).await,
        JobCommand::Priority(options) => act::priority(client, &options).await,
    }
}
