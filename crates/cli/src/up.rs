//! `filch up`: a server and a worker in one process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use filch_api::client::Error;
use filch_api::tls::{Identity, ServerFiles};
use filch_server::ServerConfig;

use crate::connection::Connection;
use crate::embedded::{Embedded, EmbeddedOptions, OpenResult, SHUTDOWN_GRACE, default_slots};
use crate::exit::{self, Exit};
use crate::logging::Logging;
use crate::name_list;
use crate::output::{data, message};
use crate::runtime::{ShutdownSignals, block_on};
use crate::usage::Usage;

/// Start a server and a worker in one process; jobs are stored in DIR/filch.db
#[derive(Args)]
#[command(after_help = "Examples:
  filch up
  filch up --data /var/lib/filch --slots 8 --queues img,default")]
pub(crate) struct UpArgs {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) serve: Serve,
    /// Worker concurrency: jobs that run at once (0 starts no worker)
    #[arg(long, value_name = "N")]
    slots: Option<u32>,
    /// Take jobs from these queues only (comma-separated)
    #[arg(long, value_delimiter = ',', value_parser = name_list::parse, value_name = "NAMES")]
    queues: Option<Vec<String>>,
    /// Do not run commands, only built-in kinds
    #[arg(long)]
    no_commands: bool,
}

/// Server options
#[derive(Args, Clone, Debug)]
pub(crate) struct Serve {
    /// Address and port to listen on
    #[arg(long, value_name = "ADDRESS", value_parser = read_address)]
    pub(crate) listen: SocketAddr,
    /// Lease: time without a heartbeat after which a worker is lost and its jobs are reclaimed
    #[arg(long, value_name = "DURATION", value_parser = filch_api::span::read)]
    pub(crate) lease: Duration,
    /// Retention: how long to keep ended jobs
    #[arg(long, value_name = "DURATION", value_parser = filch_api::span::read)]
    retention: Duration,
    /// Server certificate with its chain, in PEM
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Private key of the server certificate, in PEM
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Require client certificates signed by this CA (mutual TLS), in PEM
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
    /// Further host names to accept in the `Host` header (comma-separated or repeated)
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = name_list::parse)]
    allow_host: Vec<String>,
    #[command(flatten)]
    pub(crate) logging: Logging,
}

fn read_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "write an IP address and a port, like 127.0.0.1:7420 (this machine only) or 0.0.0.0:7420 (all \
         interfaces)"
            .to_owned()
    })
}

impl Serve {
    /// The server configuration. Reads the TLS files and changes nothing.
    pub(crate) fn config(self, connection: &Connection) -> Result<ServerConfig> {
        let Self { listen, lease, retention, tls_cert, tls_key, tls_client_ca, allow_host, .. } =
            self;
        let tls = match (tls_cert, tls_key, tls_client_ca) {
            (None, None, None) => None,
            (Some(certificate), Some(key), client_ca) => {
                let identity = Identity { certificate, key };
                Some(ServerFiles { identity, client_ca }.read().map_err(Error::NoAccess)?)
            }
            (None, None, Some(_)) => {
                let what = "--tls-client-ca needs a server certificate";
                return Err(Usage::new(what, "add --tls-cert and --tls-key").into());
            }
            (Some(_), None, _) | (None, Some(_), _) => {
                let what = "a server certificate and its key must be given together";
                return Err(Usage::new(what, "give --tls-cert and --tls-key").into());
            }
        };
        let plain = connection.plain();
        let hosts = allow_host;
        Ok(ServerConfig { listen, lease, retention, tls, plain, hosts, ..ServerConfig::default() })
    }
}

pub(crate) fn run(options: UpArgs) -> Result<ExitCode> {
    let UpArgs { connection, serve, slots, queues, no_commands } = options;
    serve.logging.start();
    let wanted = EmbeddedOptions {
        config: serve.config(&connection)?,
        slots: slots.unwrap_or_else(default_slots),
        queues,
        commands: !no_commands,
    };
    block_on(serve_until_stopped(&connection, wanted))
}

/// Serves until a shutdown signal or a fatal error.
pub(crate) async fn serve_until_stopped(
    connection: &Connection,
    wanted: EmbeddedOptions,
) -> Result<ExitCode> {
    let mut signals = ShutdownSignals::listen()?;
    let slots = wanted.slots;
    let local = match Embedded::open(connection, wanted).await? {
        OpenResult::Started(local) => local,
        OpenResult::AlreadyRunning(url) => {
            let text = format!(
                "{} is in use by the server at {url}\n  help: use that server, or choose \
                 another directory with --data DIR",
                connection.store()
            );
            return Err(Exit::new(exit::CONFLICT, text).into());
        }
    };
    data(&format!("{}\n", local.server.url()))?;
    let file = connection.store();
    match slots {
        0 => message(format_args!(
            "filch is up without a worker, jobs are stored in {file}\n  try: filch worker start"
        )),
        _ => message(format_args!(
            "filch is up: {slots} slots, jobs are stored in {file}\n  try: filch run -- echo hello"
        )),
    }
    tokio::select! {
        stopped = local.server.ended() => {
            return Err(Exit::new(exit::code_of_end(&stopped), stopped.to_string()).into());
        }
        () = local.worker_crashed() => {
            return Err(Exit::new(1, "the worker has crashed; its error is above").into());
        }
        () = signals.received() => {}
    }
    message(format_args!(
        "Shutting down: waiting for running jobs. Press Ctrl-C again to stop now."
    ));
    tokio::select! {
        () = local.close(SHUTDOWN_GRACE) => {}
        () = signals.received() => local.close(Duration::ZERO).await,
    }
    Ok(ExitCode::SUCCESS)
}
