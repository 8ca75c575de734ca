//! `filch worker`: workers of their own.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use filch_api::access::{NoAccess, Target};
use filch_api::client::Error;
use filch_scheduler::agent::{Home, Reserve};
use filch_worker::connect::{Notice, Notices};
use filch_worker::{Config, Left, Worker, connect};

use crate::exit::{self, Exit};
use crate::list;
use crate::local::{GRACE, default_slots, handlers, host};
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
    Stop(workers::Stop),
}

/// Start a worker that runs jobs for a server
#[derive(Args)]
#[command(after_help = "Examples:
  filch worker start --server http://127.0.0.1:7500 --slots 4
  filch worker start --queues img,default
  filch worker start --trace-schedule 1s")]
struct Start {
    /// Another server to try when the first does not answer; may be given several times
    #[arg(long, value_name = "URL")]
    or: Vec<String>,
    /// What to call it [default: the name of this machine]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// How many jobs run at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    slots: Option<u32>,
    /// Serve only these queues, with commas between them
    #[arg(long, value_delimiter = ',', value_parser = list::name, value_name = "NAMES")]
    queues: Option<Vec<String>>,
    /// Hold at most so many jobs beyond the slots
    #[arg(long, value_name = "N")]
    reserve: u32,
    /// Always hold so many jobs beyond the slots, however long they take
    #[arg(long, value_name = "N", conflicts_with = "reserve")]
    hold: Option<u32>,
    /// Run no commands
    #[arg(long)]
    no_commands: bool,
    /// Print what the threads that compute do, this often, to stderr; else as FILCH_SCHEDTRACE says
    #[arg(long, value_name = "SPAN", value_parser = filch_api::span::read)]
    trace_schedule: Option<Duration>,
}

pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let Options { place, command } = options;
    match command {
        Command::Start(start) => block_on(work(&place, start)),
        Command::List(list) => ask(async { workers::list(&place.client()?, &list).await }),
        Command::Drain(drain) => ask(async { workers::drain(&place.client()?, &drain).await }),
        Command::Stop(stop) => ask(async { workers::stop(&place.client()?, &stop).await }),
    }
}

async fn work(place: &Place, start: Start) -> Result<ExitCode> {
    let mut ending = Ending::listen()?;
    let mut urls = vec![place.url()?];
    urls.extend(start.or);
    let access = place.access()?;
    let target = |url: &String| {
        let target = Target::read(url)?;
        access.token_for(&target)?;
        Ok(target)
    };
    let targets = urls.iter().map(target).collect::<Result<Vec<_>, NoAccess>>();
    let targets = targets.map_err(Error::NoAccess)?;
    let slots = start.slots.unwrap_or_else(default_slots);
    talk(format_args!("working for {} in {slots} slots", urls.join(", ")));
    let config = Config {
        slots,
        queues: start.queues,
        home: Home::Apart,
        grace: GRACE,
        reserve: start.hold.map_or(Reserve::Auto { most: start.reserve }, Reserve::Fixed),
        name: Some(start.name.unwrap_or_else(host)),
        trace_schedule: start.trace_schedule,
    };
    let (connect, mut notices) = connect::with(targets, access);
    let worker = Worker::start(config, handlers(!start.no_commands), connect);
    let left = tokio::select! {
        left = until_left(&worker) => left,
        // What runs is stopped with us: it is not ours to run any more.
        exit = refused(&mut notices) => return Err(exit.into()),
        () = ending.wanted() => {
            talk(format_args!("letting what runs finish; once more to stop now"));
            worker.drain(GRACE);
            tokio::select! {
                left = worker.left() => left,
                exit = refused(&mut notices) => return Err(exit.into()),
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

/// Says what there is to say of the way to the server, until that will have nothing to do with us.
async fn refused(notices: &mut Notices) -> Exit {
    loop {
        match notices.next().await {
            Notice::Trouble(why) => talk(format_args!("{why}; trying again")),
            Notice::Refused(why) => return Exit::new(exit::NOT_PERMITTED, why),
            Notice::OtherVersion(why) => return Exit::new(exit::OTHER_VERSION, why),
        }
    }
}

/// Waits until the worker has left; if the server tells it to, that is said.
async fn until_left(worker: &Worker) -> Left {
    tokio::select! {
        left = worker.left() => return left,
        grace = worker.told_to_leave() => talk(format_args!(
            "told to stop: what runs may take {}, the rest is handed back",
            filch_api::span::write(grace)
        )),
    }
    let left = worker.left().await;
    talk(format_args!("stopped, as the server asked"));
    left
}
