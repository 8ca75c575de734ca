//! A server and a worker in this process, on the durable store of the data directory.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use filch_scheduler::agent::{Home, Reserve};
use filch_server::{Server, ServerConfig, StartError, exposure};
use filch_store::{Location, OpenError, OwnerNote, Store};
use filch_worker::command::{Options, Runner};
use filch_worker::connect::{Connect, Wire};
use filch_worker::handler::Handlers;
use filch_worker::{Left, RunningWorker, WorkerConfig};

use crate::connection::Connection;
use crate::data;
use crate::exit::{self, Exit};

/// The server and the worker in this process.
pub(crate) struct Embedded {
    pub(crate) server: Server,
    pub(crate) worker: Option<RunningWorker>,
}

/// How to start them.
pub(crate) struct EmbeddedOptions {
    pub(crate) config: ServerConfig,
    pub(crate) slots: u32,
    pub(crate) queues: Option<Vec<String>>,
    pub(crate) commands: bool,
}

/// Either a server in this process, or the URL of the one that has the data open.
pub(crate) enum OpenResult {
    Started(Box<Embedded>),
    AlreadyRunning(String),
}

/// How long running jobs may take after the first shutdown signal.
pub(crate) const SHUTDOWN_GRACE: Duration = Duration::from_secs(30);

impl Embedded {
    /// Opens the data and serves it, unless another server does.
    pub(crate) async fn open(
        connection: &Connection,
        wanted: EmbeddedOptions,
    ) -> Result<OpenResult> {
        check_exposure(connection, &wanted.config)?;
        data::make(connection.data_dir())?;
        let store: Arc<dyn Store> = match open(connection.store()).await? {
            Ok(store) => store.into(),
            Err(OpenError::Held { url: Some(url), .. }) => {
                return Ok(OpenResult::AlreadyRunning(url));
            }
            Err(error) => return Err(data::unopened(&connection.store(), &error).into()),
        };
        let server = Server::start(wanted.config.clone(), Arc::clone(&store)).await?;
        store.announce(&server.url())?;
        let worker = (wanted.slots > 0).then(|| start_worker(&server, &wanted));
        Ok(OpenResult::Started(Box::new(Self { server, worker })))
    }

    /// Waits until the worker crashes. Never returns if there is no worker, or if it was stopped.
    pub(crate) async fn worker_crashed(&self) {
        if let Some(worker) = &self.worker
            && worker.left().await == Left::Crashed
        {
            return;
        }
        std::future::pending::<()>().await;
    }

    /// Graceful shutdown: running jobs have this long to finish.
    pub(crate) async fn close(&self, grace: Duration) {
        if let Some(worker) = &self.worker {
            worker.drain(grace);
            worker.left().await;
        }
        self.server.stop().await;
    }
}

/// Whether a server may start with this configuration, checked before any file is opened or made.
fn check_exposure(connection: &Connection, config: &ServerConfig) -> Result<()> {
    config.check().map_err(|error| Exit::new(exit::USAGE, error.to_string()))?;
    let (store, listen) = (connection.store(), config.listen);
    if !listen.ip().is_loopback() {
        let has_tokens =
            filch_store::has_tokens(&store).map_err(|error| data::unopened(&store, &error))?;
        let checked = exposure::check(listen, config.protection(has_tokens));
        checked.map_err(|exposed| Exit::new(exit::USAGE, exposed.to_string()))?;
    }
    // If there is data, its own server may be the one that listens here: the lock decides that.
    if !store.exists() {
        drop(TcpListener::bind(listen).map_err(|error| StartError::Listen(listen, error))?);
    }
    Ok(())
}

/// How long a server that has the store open may take to publish its URL.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(5);

async fn open(location: Location) -> Result<Result<Box<dyn Store>, OpenError>> {
    let began = tokio::time::Instant::now();
    loop {
        let location = location.clone();
        let opening = move || filch_store::open(&location, &OwnerNote::this_process());
        let opened =
            tokio::task::spawn_blocking(opening).await.context("opening the store panicked")?;
        match opened {
            Err(OpenError::Held { url: None, .. }) if began.elapsed() < ANNOUNCE_TIMEOUT => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            opened => return Ok(opened),
        }
    }
}

fn start_worker(server: &Server, wanted: &EmbeddedOptions) -> RunningWorker {
    let connector = server.connector();
    let connect: Connect = Arc::new(move || {
        let embedded = connector();
        Box::pin(async move { Ok(Wire { up: embedded.up, down: embedded.down }) })
    });
    let config = WorkerConfig {
        slots: wanted.slots,
        queues: wanted.queues.clone(),
        home: Home::Embedded,
        grace: SHUTDOWN_GRACE,
        reserve: Reserve::default(),
        name: Some(host_name()),
        trace_schedule: None,
    };
    RunningWorker::start(config, handlers(wanted.commands), connect)
}

/// The handlers of this program.
pub(crate) fn handlers(commands: bool) -> Handlers {
    let handlers = crate::builtin_kinds::add(Handlers::new());
    if commands { handlers.commands(Runner::start(Options::new(own_program()))) } else { handlers }
}

/// This program, even if an update has replaced its file.
fn own_program() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

/// The machine's host name, which is the default name of its workers.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
}

/// The number of cores.
pub(crate) fn default_slots() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u32)
}
