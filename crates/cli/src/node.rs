//! `filch node`: the cluster node on stdin and stdout.

use std::io::ErrorKind;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;

/// Simulate a cluster that steals, and talk to it in JSON
///
/// Reads messages on stdin, one JSON object after the other, and answers each on a line of stdout, until
/// the input ends. The protocol is described in docs/node.md.
#[derive(Args)]
#[command(after_help = "Example:
  echo '{\"src\": \"c\", \"dest\": \"n\", \"body\": {\"type\": \"steal_job\", \"msg_id\": 1,
         \"thief_worker\": \"w3\", \"busy_workers\": [\"w1\", \"w2\"]}}' | filch node")]
pub(crate) struct NodeArgs {
    /// Chooses whom workers steal from: the same seed and messages, the same thefts
    #[arg(long, default_value_t = filch_node::DEFAULT_SEED)]
    seed: u64,
}

pub(crate) fn run(options: &NodeArgs) -> Result<ExitCode> {
    let (input, output) = (std::io::stdin().lock(), std::io::stdout().lock());
    match filch_node::serve(input, output, std::io::stderr(), options.seed) {
        // Whoever closes the pipe has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        served => {
            served.context("the node has lost its input or output").map(|()| ExitCode::SUCCESS)
        }
    }
}
