//! `filch up`: a server and a worker in one process.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::exit::{self, Exit};
use crate::local::{GRACE, Local, Opened, Wanted, default_slots};
use crate::output::{data, talk};
use crate::place::Place;
use crate::runtime::{Ending, block_on};

/// Start a server and a worker in one process; the jobs are kept in DIR/filch.db
#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) serve: Serve,
    /// How many jobs run at once [default: the number of cores]
    #[arg(long, value_name = "N")]
    slots: Option<u32>,
    /// Serve only these queues, with commas between them
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    queues: Option<Vec<String>>,
    /// Run no commands
    #[arg(long)]
    no_commands: bool,
}

/// How a server is started
#[derive(Args, Clone, Debug)]
pub(crate) struct Serve {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7420")]
    pub(crate) listen: SocketAddr,
    /// How long a worker may be silent before its jobs go to others
    #[arg(long, value_name = "SPAN", default_value = "10s", value_parser = filch_api::span::read)]
    pub(crate) lease: Duration,
}

pub(crate) fn run(options: Options) -> Result<ExitCode> {
    let Options { place, serve, slots, queues, no_commands } = options;
    let wanted = Wanted {
        listen: serve.listen,
        lease: serve.lease,
        slots: slots.unwrap_or_else(default_slots),
        queues,
        commands: !no_commands,
    };
    block_on(serve_until_told(&place, wanted))
}

/// Serves until somebody wants the program to end, or it cannot go on.
pub(crate) async fn serve_until_told(place: &Place, wanted: Wanted) -> Result<ExitCode> {
    let mut ending = Ending::listen()?;
    let slots = wanted.slots;
    let local = match Local::open(place, wanted).await? {
        Opened::Here(local) => local,
        Opened::There(url) => {
            let text = format!(
                "{} is open already: a server has it at {url}\n  help: use that one, or choose \
                 another folder with --data DIR",
                place.file().display()
            );
            return Err(Exit::new(exit::CONFLICT, text).into());
        }
    };
    data(&format!("http://{}\n", local.server.address()))?;
    talk(format_args!(
        "filch is up: {slots} slots, jobs are kept in {}\n  try: filch run -- echo hello",
        place.file().display()
    ));
    tokio::select! {
        stopped = local.server.ended() => {
            return Err(Exit::new(1, stopped.to_string()).into());
        }
        () = local.worker_crashed() => {
            return Err(Exit::new(1, "the worker has crashed; what it said is above").into());
        }
        () = ending.wanted() => {}
    }
    talk(format_args!("letting what runs finish; once more to stop now"));
    tokio::select! {
        () = local.close(GRACE) => {}
        () = ending.wanted() => local.close(Duration::ZERO).await,
    }
    Ok(ExitCode::SUCCESS)
}
