//! The filch program: parses the command line, runs the command and returns its exit code.
//!
//! stdout carries data, stderr carries messages for people. The exit codes are in `exit`.

mod bench;
mod builtin_kinds;
mod bulk;
mod color;
mod completions;
mod config;
mod confirm;
mod connection;
mod data;
mod dead;
mod demo;
mod document;
mod embedded;
mod enqueue;
mod escape;
mod events;
mod examples;
mod exit;
mod filter;
mod flow;
mod group;
mod job;
mod job_options;
mod logging;
mod logs;
mod man;
mod moment;
mod name_list;
mod node;
mod output;
mod paging;
mod parse_error;
mod processes;
mod progress;
mod queue;
mod recruit;
mod run;
mod runtime;
mod select;
mod server;
mod settings;
mod simulate;
mod submit;
mod table;
mod template;
mod token;
mod unserved;
mod up;
mod usage;
mod wait;
mod why;
mod worker;

use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use exit::Exit;
use filch_api::{client, suggest};
use group::Group;
use output::{message, report_error};
use settings::{Origin, Settings, apply_defaults};
use usage::Usage;

const AFTER_HELP: &str = "\
Examples:
  filch up                                  start a server and a worker; jobs are in ./filch.db
  filch run -- make test                    run a command as a durable job and wait for it
  filch submit --array 1-100 -- ./render.sh {index} | filch wait -
  filch why @last                           explain why the newest job is not running
  filch completions bash                    print a completion script for bash

Exit codes: 0 success, 1 other error, 2 usage, 3 not found, 4 conflict, 5 not permitted,
6 server unreachable, 7 version mismatch, 8 the server's store failed, 9 the server crashed,
10 another server took over, 100 a job failed, 102 a job was cancelled, 124 timed out waiting,
125 `filch run` itself failed, 130 interrupted.";

/// A durable job scheduler whose idle workers steal.
#[derive(Parser)]
#[command(name = "filch", version, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = AFTER_HELP)]
struct Arguments {
    /// Use colors: auto, always or never
    #[arg(long, global = true, hide_possible_values = true, value_name = "WHEN")]
    color: color::ColorMode,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Up(Box<up::UpArgs>),
    Run(Box<run::RunArgs>),
    Submit(Box<submit::SubmitArgs>),
    Enqueue(Box<enqueue::EnqueueArgs>),
    Flow(Box<Group<flow::FlowCommand>>),
    Wait(wait::WaitArgs),
    Logs(logs::LogsArgs),
    Why(why::WhyArgs),
    Events(Box<events::EventsArgs>),
    Job(Box<Group<job::JobCommand>>),
    Dead(Box<Group<dead::DeadCommand>>),
    Queue(Box<Group<queue::QueueCommand>>),
    Recruit(Box<Group<recruit::RecruitCommand>>),
    Server(Box<Group<server::ServerCommand>>),
    Worker(Box<Group<worker::WorkerCommand>>),
    Token(Box<Group<token::TokenCommand>>),
    Bench(Box<bench::BenchArgs>),
    Demo(Box<demo::DemoArgs>),
    Node(node::NodeArgs),
    Simulate(Box<simulate::SimulateArgs>),
    Config(config::ConfigArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

impl Command {
    /// Whether the command reads settings. The others must work even if a settings file is invalid.
    const fn reads_settings(&self) -> bool {
        !matches!(
            self,
            Self::Bench(_)
                | Self::Node(_)
                | Self::Simulate(_)
                | Self::Completions(_)
                | Self::Man(_)
        )
    }
}

/// The command tree with the built-in defaults.
#[must_use]
pub fn command() -> clap::Command {
    commands(&Settings::defaults())
}

/// The command tree with the defaults from settings files and variables.
fn commands(found: &Settings) -> clap::Command {
    apply_defaults(
        parse_error::allow_negative_numbers(examples::inherit(Arguments::command())),
        found,
    )
}

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    // The guardian of commands and their launcher are separate programs in the same binary.
    match std::env::args_os().nth(1).as_ref().and_then(|word| word.to_str()) {
        Some("guardian") => return filch_worker::guardian::main(),
        Some("guardian-exec") => return filch_worker::command::launcher::main(),
        _ => {}
    }
    let (found, trouble) = match Settings::load() {
        Ok(found) => (found, None),
        Err(trouble) => (Settings::defaults(), Some(trouble)),
    };
    let said = found.value("color").text.as_deref().unwrap_or_default();
    let commands = commands(&found).color(color::for_help(std::env::args_os(), said));
    let matches = match commands.try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return parse_error::print(&error, std::env::args_os()),
    };
    run(&matches, &found, trouble).unwrap_or_else(|error| {
        report_error(format_args!("{error:#}"));
        if let Some(hint) = hint(&error, &found) {
            message(format_args!("  {hint}"));
        }
        ExitCode::from(code_of(&error))
    })
}

fn run(matches: &ArgMatches, found: &Settings, trouble: Option<Usage>) -> Result<ExitCode> {
    let arguments = Arguments::from_arg_matches(matches).unwrap_or_else(|error| error.exit());
    color::init(arguments.color);
    if let Some(trouble) = trouble.filter(|_| arguments.command.reads_settings()) {
        return Err(trouble.into());
    }
    match arguments.command {
        Command::Up(options) => up::run(*options),
        Command::Run(options) => run::run(*options),
        Command::Submit(options) => submit::run(*options),
        Command::Enqueue(options) => enqueue::run(*options),
        Command::Flow(group) => flow::run(*group),
        Command::Wait(options) => wait::run(options),
        Command::Logs(options) => logs::run(options),
        Command::Why(options) => why::run(options),
        Command::Events(options) => events::run(*options),
        Command::Job(group) => group.run(job::run),
        Command::Dead(group) => group.run(dead::run),
        Command::Queue(group) => group.run(queue::run),
        Command::Recruit(group) => group.run(recruit::run),
        Command::Server(group) => server::run(*group),
        Command::Worker(group) => worker::run(*group),
        Command::Token(group) => token::run(*group),
        Command::Bench(options) => bench::run(*options),
        Command::Demo(options) => demo::run(*options),
        Command::Node(options) => node::run(&options),
        Command::Simulate(options) => simulate::run(*options),
        Command::Completions(options) => completions::run(&options, command()),
        Command::Config(options) => config::run(&options, matches, found),
        Command::Man(options) => man::run(&options, command()),
    }
}

/// Where the URL came from, if the server at that URL is unreachable.
fn hint(error: &anyhow::Error, found: &Settings) -> Option<String> {
    let client::Error::Unreachable { url, .. } = error.downcast_ref()? else { return None };
    let said = found.value("url");
    let is_it = said.text.as_deref().map(|text| text.trim_end_matches('/')) == Some(url);
    (is_it && said.origin != Origin::Default)
        .then(|| format!("note: this URL comes from {}", said.origin()))
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
