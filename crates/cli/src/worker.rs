//! `filch worker`: workers of their own.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use filch_scheduler::agent::{Home, Reserve};
use filch_worker::{Config, Left, Worker, connect};

use crate::local::{GRACE, default_slots, handlers};
use crate::output::talk;
use crate::place::Place;
use crate::runtime::{Ending, ask, block_on};
use crate::workers;

/// Start a worker, or see to those that are there
#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Start(Start),
    List(workers::List),
    Drain(workers::Drain),
}

/// Start a worker that runs jobs for a server
#[derive(Args)]
struct Start {
    /// Another server to try when the first does not answer; may be given several times
    #[arg(long, value_name = "URL")]
    or: Vec<String>,
    /// How many jobs run at once [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    slots: Option<u32>,
    /// Serve only these queues, with commas between them
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    queues: Option<Vec<String>>,
    /// Hold at most so many jobs beyond the slots
    #[arg(long, value_name = "N", default_value_t = 1_024)]
    reserve: u32,
    /// Always hold so many jobs beyond the slots, however long they take
    #[arg(long, value_name = "N", conflicts_with = "reserve")]
    hold: Option<u32>,
    /// Run no commands
    #[arg(long)]
    no_commands: bool,
}

pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let Options { place, command } = options;
    match command {
        Command::Start(start) => block_on(work(&place, start)),
        Command::List(list) => ask(async { workers::list(&place.client()?, &list).await }),
        Command::Drain(drain) => ask(async { workers::drain(&place.client()?, &drain).await }),
    }
}

async fn work(place: &Place, start: Start) -> Result<ExitCode> {
    let mut ending = Ending::listen()?;
    let mut urls = vec![place.url()];
    urls.extend(start.or);
    let slots = start.slots.unwrap_or_else(default_slots);
    talk(format_args!("working for {} in {slots} slots", urls.join(", ")));
    let config = Config {
        slots,
        queues: start.queues,
        home: Home::Apart,
        grace: GRACE,
        reserve: start.hold.map_or(Reserve::Auto { most: start.reserve }, Reserve::Fixed),
    };
    let worker = Worker::start(config, handlers(!start.no_commands), connect::to(urls));
    let left = tokio::select! {
        left = worker.left() => left,
        () = ending.wanted() => {
            talk(format_args!("letting what runs finish; once more to stop now"));
            worker.drain(GRACE);
            tokio::select! {
                left = worker.left() => left,
                () = ending.wanted() => {
                    worker.drain(Duration::ZERO);
                    worker.left().await
                }
            }
        }
    };
    anyhow::ensure!(left == Left::InOrder, "the worker has crashed; what it said is above");
    Ok(ExitCode::SUCCESS)
}
