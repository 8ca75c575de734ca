//! `filch node`: a simulated cluster node on stdin and stdout.

use std::io::ErrorKind;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;

/// Simulate a work-stealing cluster, controlled by JSON messages
///
/// Reads JSON messages from stdin and writes one response per line to stdout, until the end of
/// input. The protocol is described in docs/node.md.
#[derive(Args)]
#[command(after_help = "Example:
  echo '{\"src\": \"c\", \"dest\": \"n\", \"body\": {\"type\": \"steal_job\", \"msg_id\": 1,
         \"thief_worker\": \"w3\", \"busy_workers\": [\"w1\", \"w2\"]}}' | filch node")]
pub(crate) struct NodeArgs {
    /// Seed for the choice of victims; the same seed and messages give the same result
    #[arg(long, default_value_t = filch_node::DEFAULT_SEED)]
    seed: u64,
}

pub(crate) fn run(options: &NodeArgs) -> Result<ExitCode> {
    let (input, output) = (std::io::stdin().lock(), std::io::stdout().lock());
    match filch_node::serve(input, output, std::io::stderr(), options.seed) {
        // A closed pipe is not an error: the reader has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        served => served.context("cannot read stdin or write stdout").map(|()| ExitCode::SUCCESS),
    }
}
