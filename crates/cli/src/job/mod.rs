//! `filch job`: what jobs there are, and what can be done to them.

mod act;
mod events;
mod ledger;
mod list;
mod show;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::place::Place;
use crate::runtime::ask;

/// List jobs, look at one, cancel or retry it
#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    List(list::Options),
    Show(show::Options),
    Events(events::Options),
    Cancel(act::Cancel),
    Retry(act::Retry),
    Result(show::Outcome),
    Priority(act::Priority),
}

pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let Options { place, command } = options;
    ask(async {
        let client = place.client()?;
        match command {
            Command::List(options) => list::run(&client, &options).await,
            Command::Show(options) => show::run(&client, &options).await,
            Command::Events(options) => events::run(&client, &options).await,
            Command::Cancel(options) => act::cancel(&client, &options).await,
            Command::Retry(options) => act::retry(&client, &options).await,
            Command::Result(options) => show::result(&client, &options).await,
            Command::Priority(options) => act::priority(&client, &options).await,
        }
    })
}
