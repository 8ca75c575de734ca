//! A server and a worker in this very process, over the file that outlives it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use filch_scheduler::agent::{Home, Reserve};
use filch_server::{Config, Server};
use filch_store::{OpenError, OwnerNote, Sqlite, Store};
use filch_worker::command::{Options, Runner};
use filch_worker::connect::{Connect, Wire};
use filch_worker::handler::Handlers;
use filch_worker::{Config as WorkerConfig, Left, Worker};

use crate::place::Place;

/// What runs here.
pub(crate) struct Local {
    pub(crate) server: Server,
    pub(crate) worker: Option<Worker>,
}

/// What is wanted of it.
pub(crate) struct Wanted {
    pub(crate) listen: SocketAddr,
    pub(crate) lease: Duration,
    pub(crate) slots: u32,
    pub(crate) queues: Option<Vec<String>>,
    pub(crate) commands: bool,
}

/// Either a server here, or the URL of the one that has the data open.
pub(crate) enum Opened {
    Here(Box<Local>),
    There(String),
}

/// How long what runs may take after somebody wanted the program to end.
pub(crate) const GRACE: Duration = Duration::from_secs(30);

/// The most jobs to hold beyond the slots.
const RESERVE: Reserve = Reserve::Auto { most: 1_024 };

impl Local {
    /// Opens the data and serves it, unless somebody else does.
    pub(crate) async fn open(place: &Place, wanted: Wanted) -> Result<Opened> {
        std::fs::create_dir_all(&place.data)
            .with_context(|| format!("cannot make the folder {}", place.data.display()))?;
        let store = open(place.file()).await?;
        let store = match store {
            Ok(store) => Arc::new(store),
            Err(OpenError::Held { url: Some(url), .. }) => return Ok(Opened::There(url)),
            Err(error) => return Err(error.into()),
        };
        let config = Config { listen: wanted.listen, lease: wanted.lease, ..Config::default() };
        let kept: Arc<dyn Store> = store.clone();
        let server = Server::start(config, kept).await?;
        store
            .announce(&format!("http://{}", server.address()))
            .context("cannot say in the lock file where the server is")?;
        let worker = (wanted.slots > 0).then(|| employ(&server, &wanted));
        Ok(Opened::Here(Box::new(Self { server, worker })))
    }

    /// Waits until the worker has crashed; for ever if there is none, or if it was told to leave.
    pub(crate) async fn worker_crashed(&self) {
        if let Some(worker) = &self.worker
            && worker.left().await == Left::Crashed
        {
            return;
        }
        std::future::pending::<()>().await;
    }

    /// Lets what runs finish, and ends.
    pub(crate) async fn close(&self, grace: Duration) {
        if let Some(worker) = &self.worker {
            worker.drain(grace);
            worker.left().await;
        }
        self.server.stop().await;
    }
}

/// How long somebody who has the file open may take to say where they are.
const INTRODUCTION: Duration = Duration::from_secs(5);

async fn open(file: PathBuf) -> Result<Result<Sqlite, OpenError>> {
    let began = tokio::time::Instant::now();
    loop {
        let path = file.clone();
        let opening = move || Sqlite::open(&path, &OwnerNote::this_process());
        let opened =
            tokio::task::spawn_blocking(opening).await.context("opening the store panicked")?;
        match opened {
            Err(OpenError::Held { url: None, .. }) if began.elapsed() < INTRODUCTION => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            opened => return Ok(opened),
        }
    }
}

fn employ(server: &Server, wanted: &Wanted) -> Worker {
    let connector = server.connector();
    let connect: Connect = Arc::new(move || {
        let embedded = connector();
        Box::pin(async move { Ok(Wire { up: embedded.up, down: embedded.down }) })
    });
    let config = WorkerConfig {
        slots: wanted.slots,
        queues: wanted.queues.clone(),
        home: Home::Embedded,
        grace: GRACE,
        reserve: RESERVE,
    };
    Worker::start(config, handlers(wanted.commands), connect)
}

/// What this program can run by itself.
pub(crate) fn handlers(commands: bool) -> Handlers {
    let handlers = crate::kinds::add(Handlers::new());
    if commands { handlers.commands(Runner::start(Options::new(ourselves()))) } else { handlers }
}

/// This program, also after an update has replaced its file.
fn ourselves() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

/// As many as there are cores.
pub(crate) fn default_slots() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u32)
}
