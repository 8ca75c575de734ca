//! Command groups (`filch job ...`, `filch queue ...`): the options that every command of a group
//! shares, and the client that most of them need.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use filch_api::client::Client;

use crate::connection::Connection;
use crate::runtime::block_on_interruptible;

// No doc comment: clap would show it as the help of groups that have none of their own.
#[derive(Args)]
pub(crate) struct Group<C: Subcommand> {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(subcommand)]
    pub(crate) command: C,
}

impl<C: Subcommand> Group<C> {
    /// Connects to the server and runs the command until it ends or the user interrupts it.
    pub(crate) fn run(
        self,
        command: impl AsyncFnOnce(&Client, C) -> Result<ExitCode>,
    ) -> Result<ExitCode> {
        let Self { connection, command: options } = self;
        with_client(&connection, async |client| command(client, options).await)
    }
}

/// Runs a command that talks to the server, until it ends or the user interrupts it.
pub(crate) fn with_client(
    connection: &Connection,
    command: impl AsyncFnOnce(&Client) -> Result<ExitCode>,
) -> Result<ExitCode> {
    block_on_interruptible(async { command(&connection.client()?).await })
}
