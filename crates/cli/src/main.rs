//! The filch program: reads the command line, hands over, and ends with the code that says how it went.
//!
//! What is printed on stdout is data, what is printed on stderr is talk. The codes are in `exit`.

mod bench;
mod bulk;
mod completions;
mod confirm;
mod dead;
mod document;
mod enqueue;
mod escape;
mod exit;
mod flow;
mod job;
mod job_options;
mod kinds;
mod local;
mod logs;
mod moment;
mod node;
mod output;
mod place;
mod progress;
mod queue;
mod run;
mod runtime;
mod select;
mod server;
mod simulate;
mod submit;
mod suggest;
mod table;
mod template;
mod up;
mod usage;
mod wait;
mod why;
mod worker;
mod workers;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

use exit::Exit;
use output::talk;
use usage::Usage;

const AFTER_HELP: &str = "\
Examples:
  filch up                                  a server and a worker; jobs are kept in ./filch.db
  filch run -- make test                    as if it were run here, but durable
  filch submit --array 1-100 -- ./render.sh {index} | filch wait -
  filch why @last                           why the newest job is not running
  filch completions bash                    a script that lets a shell complete all this

Exit codes: 0 fine, 1 other, 2 usage, 3 not found, 4 conflict, 5 not permitted, 6 no server answers,
7 other version, 100 a job failed, 102 it was cancelled, 124 waiting timed out, 130 interrupted.";

/// A durable job scheduler whose idle workers steal.
#[derive(Parser)]
#[command(name = "filch", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = AFTER_HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Up(Box<up::Options>),
    Run(Box<run::Options>),
    Submit(Box<submit::Options>),
    Enqueue(Box<enqueue::Options>),
    Flow(Box<flow::Options>),
    Wait(wait::Options),
    Logs(logs::Options),
    Why(why::Options),
    Job(Box<job::Options>),
    Dead(Box<dead::Options>),
    Queue(Box<queue::Options>),
    Server(Box<server::Options>),
    Worker(Box<worker::Options>),
    Bench(Box<bench::Options>),
    Node(node::Options),
    Simulate(Box<simulate::Options>),
    // Named in the examples: it is wanted once.
    #[command(hide = true)]
    Completions(completions::Options),
}

fn main() -> ExitCode {
    // What watches over commands, and what starts them, are other programs in the same file.
    match std::env::args().nth(1).as_deref() {
        Some("guardian") => return filch_worker::guardian::main(),
        Some("guardian-exec") => return filch_worker::command::launcher::main(),
        _ => {}
    }
    let result = match Arguments::parse().command {
        Command::Up(options) => up::run(*options),
        Command::Run(options) => run::run(*options),
        Command::Submit(options) => submit::run(*options),
        Command::Enqueue(options) => enqueue::run(*options),
        Command::Flow(options) => flow::run(*options),
        Command::Wait(options) => wait::run(options),
        Command::Logs(options) => logs::run(options),
        Command::Why(options) => why::run(options),
        Command::Job(options) => job::run(*options),
        Command::Dead(options) => dead::run(*options),
        Command::Queue(options) => queue::run(*options),
        Command::Server(options) => server::run(*options),
        Command::Worker(options) => worker::run(*options),
        Command::Bench(options) => bench::run(*options),
        Command::Node(options) => node::run(&options),
        Command::Simulate(options) => simulate::run(*options),
        Command::Completions(options) => completions::run(&options, Arguments::command()),
    };
    result.unwrap_or_else(|error| {
        talk(format_args!("error: {error:#}"));
        ExitCode::from(code_of(&error))
    })
}

fn code_of(error: &anyhow::Error) -> u8 {
    if error.is::<Usage>() {
        return 2;
    }
    if let Some(exit) = error.downcast_ref::<Exit>() {
        return exit.code;
    }
    error.downcast_ref().map_or(1, exit::code_of)
}
