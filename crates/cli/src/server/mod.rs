//! `filch server`: starts a server without workers, shows its status, verifies and backs up its
//! data.

mod backup;
mod verify;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use crate::connection::Connection;
use crate::embedded::EmbeddedOptions;
use crate::group::Group;
use crate::runtime::{block_on, block_on_interruptible};
use crate::up::{Serve, serve_until_stopped};

/// Start, inspect, verify and back up a server
#[derive(Subcommand)]
#[command(after_help = "Examples:
  filch server start --listen 127.0.0.1:7500
  filch server status --json")]
pub(crate) enum ServerCommand {
    /// Start a server without workers
    Start(Serve),
    /// Show the status of the server
    Status {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    Verify(verify::VerifyArgs),
    Backup(backup::BackupArgs),
}

pub(crate) fn run(group: Group<ServerCommand>) -> Result<ExitCode> {
    let Group { connection, command } = group;
    match command {
        ServerCommand::Start(serve) => {
            serve.logging.start();
            let config = serve.config(&connection)?;
            let wanted = EmbeddedOptions { config, slots: 0, queues: None, commands: false };
            block_on(serve_until_stopped(&connection, wanted))
        }
        ServerCommand::Status { json } => block_on_interruptible(status(&connection, json)),
        ServerCommand::Verify(options) => verify::run(&connection, options),
        ServerCommand::Backup(options) => backup::run(&connection, &options),
    }
}

async fn status(connection: &Connection, json: bool) -> Result<ExitCode> {
    let status = connection.client()?.status().await?;
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
