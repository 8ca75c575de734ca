//! `filch server`: a server without workers, how one is doing, and whether what it keeps can be believed.

mod backup;
mod verify;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::local::Wanted;
use crate::place::Place;
use crate::runtime::{ask, block_on};
use crate::up::{Serve, serve_until_told};

/// Start a server, or look how one is doing
#[derive(Args)]
#[command(after_help = "Examples:
  filch server start --listen 127.0.0.1:7500
  filch server status --json")]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a server without workers
    Start(Serve),
    /// Show how the server is doing
    Status {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    Verify(verify::Options),
    Backup(backup::Options),
}

pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let Options { place, command } = options;
    match command {
        Command::Start(serve) => {
            let config = serve.config(&place)?;
            let wanted = Wanted { config, slots: 0, queues: None, commands: false };
            block_on(serve_until_told(&place, wanted))
        }
        Command::Status { json } => ask(status(&place, json)),
        Command::Verify(options) => verify::run(&place, options),
        Command::Backup(options) => backup::run(&place, &options),
    }
}

async fn status(place: &Place, json: bool) -> Result<ExitCode> {
    let status = place.client()?.status().await?;
    if json {
        crate::document::print(&status)?;
    } else {
        let document = serde_json::to_value(&status)?;
        let fields = document.as_object().into_iter().flatten();
        let facts: Vec<(&str, String)> = fields
            .map(|(name, value)| (name.as_str(), value.to_string().trim_matches('"').to_owned()))
            .collect();
        crate::table::facts(&facts)?;
    }
    Ok(ExitCode::SUCCESS)
}
