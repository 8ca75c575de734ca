//! The filch program: reads the command line, hands over, and ends with the code that says how it went.
//!
//! What is printed on stdout is data, what is printed on stderr is talk. Codes: 0 all is well, 1 it is
//! not, 2 the command line is wrong.

mod node;
mod output;
mod simulate;
mod span;
mod table;
mod usage;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use output::talk;
use usage::Usage;

/// A durable job scheduler whose idle workers steal.
#[derive(Parser)]
#[command(name = "filch", version, arg_required_else_help = true, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Node(node::Options),
    Simulate(Box<simulate::Options>),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Node(options) => node::run(&options),
        Command::Simulate(options) => simulate::run(*options),
    };
    result.unwrap_or_else(|error| {
        talk(format_args!("error: {error:#}"));
        ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
    })
}
