//! A server: put together, started, stopped.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use filch_scheduler::dispatch::{self, Dispatch, Effect, LoadError, Loader};
use filch_store::{ReadError, Store};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{channel, unbounded_channel};
use tokio::sync::watch;

use crate::brain::{Brain, Clock, Desk, Doorbell, End, INPUTS_MAX, Input};
use crate::events::Events;
use crate::http;
use crate::http::metrics::Metrics;
use crate::link::Embedded;
use crate::logs::Logs;
use crate::writer::Writer;

/// How a server behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens. Only loopback is possible as long as there are no tokens.
    pub listen: SocketAddr,
    /// How long a worker may be silent before its jobs go to others.
    pub lease: Duration,
    /// How long ended jobs are kept.
    pub retention: Duration,
    /// Decides whom to steal from.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7420)),
            lease: Duration::from_secs(10),
            retention: Duration::from_secs(7 * 24 * 3_600),
            seed: filch_api::id::seed(),
        }
    }
}

/// The shortest lease: below it, a pause of the machine would be taken for a loss.
const LEASE_MIN: Duration = Duration::from_millis(500);

/// So many mutations at most wait for their receipts.
const UNRECEIPTED_MAX: usize = 1 << 17;

/// A server that runs. It is stopped by [`Server::stop`], or ends with the process.
pub struct Server {
    address: SocketAddr,
    doorbell: Doorbell,
    logs: Arc<Logs>,
    store: Arc<dyn Store>,
    ended: watch::Receiver<Option<Arc<End>>>,
    closing: watch::Sender<bool>,
}

/// Why a server could not start.
#[derive(Debug)]
pub enum StartError {
    /// The address is not one to listen on yet.
    NotLoopback(SocketAddr),
    /// The lease is too short.
    ShortLease(Duration),
    /// The address cannot be listened on.
    Listen(SocketAddr, std::io::Error),
    /// What is kept cannot be read.
    Read(ReadError),
    /// What is kept does not fit together.
    Load(LoadError),
}

impl fmt::Display for StartError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLoopback(address) => write!(
                formatter,
                "{address} can be reached from other machines, and anybody there could run \
                 commands here\n  help: listen on 127.0.0.1"
            ),
            Self::ShortLease(lease) => write!(
                formatter,
                "a lease of {} is too short: every pause of the machine would be taken for a lost \
                 worker\n  help: use at least {}",
                filch_api::span::write(*lease),
                filch_api::span::write(LEASE_MIN)
            ),
            Self::Listen(address, error) => write!(
                formatter,
                "cannot listen on {address}: {error}\n  help: choose another port with --listen \
                 127.0.0.1:PORT"
            ),
            Self::Read(error) => error.fmt(formatter),
            Self::Load(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for StartError {}

/// Why a server has ended.
#[derive(Clone, Debug)]
pub struct Stopped(Arc<End>);

impl Stopped {
    /// Whether somebody wanted it to.
    #[must_use]
    pub fn was_asked_for(&self) -> bool {
        matches!(*self.0, End::Asked)
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            End::Asked => formatter.write_str("the server was stopped"),
            End::Commit(error) => error.fmt(formatter),
            End::Read(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for Stopped {}

impl Server {
    /// Loads what is kept and begins to serve. Needs a running tokio runtime.
    ///
    /// # Errors
    /// If it cannot listen there, or what is kept cannot be loaded.
    pub async fn start(config: Config, store: Arc<dyn Store>) -> Result<Self, StartError> {
        if !config.listen.ip().is_loopback() {
            return Err(StartError::NotLoopback(config.listen));
        }
        if config.lease < LEASE_MIN {
            return Err(StartError::ShortLease(config.lease));
        }
        // Listening before loading: a port that is taken is found out at once, and whoever connects
        // meanwhile waits instead of failing.
        let listen = config.listen;
        let listener =
            TcpListener::bind(listen).await.map_err(|error| StartError::Listen(listen, error))?;
        let address = listener.local_addr().map_err(|error| StartError::Listen(listen, error))?;

        let clock = Clock::start();
        let loading = Arc::clone(&store);
        let brain_config = brain_config(&config);
        let (dispatch, first) =
            tokio::task::spawn_blocking(move || load(brain_config, clock, &*loading))
                .await
                .expect("loading does not panic")?;

        let (inputs, waiting) = channel::<Input>(INPUTS_MAX);
        let doorbell = Doorbell::new(inputs);
        let (receipts, receipted) = unbounded_channel();
        let (fetches, fetched) = unbounded_channel();
        let events = Arc::new(Events::new(dispatch.last_commit()));
        let metrics = Arc::new(Metrics::new());
        let brain = Brain {
            dispatch,
            clock,
            store: Arc::clone(&store),
            events: Arc::clone(&events),
            metrics: Arc::clone(&metrics),
            writer: Writer::start(Arc::clone(&store), receipts, Arc::clone(&metrics)),
            inputs: waiting,
            receipts: receipted,
            fetches,
            fetched,
            desk: Desk::default(),
        };
        let (end, ended) = watch::channel(None);
        think(brain, first, end);

        let logs = Arc::new(Logs::default());
        let (closing, closed) = watch::channel(false);
        let state = http::State::new(&http::Parts {
            config: &config,
            address,
            doorbell: &doorbell,
            logs: &logs,
            store: &store,
            events: &events,
            metrics: &metrics,
            closed: &closed,
        });
        tokio::spawn(http::serve(listener, state));
        tokio::spawn(crate::retention::purge(
            config.retention,
            Arc::clone(&store),
            doorbell.clone(),
            closed,
        ));
        Ok(Self { address, doorbell, logs, store, ended, closing })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// A connection for a worker that lives in this process.
    #[must_use]
    pub fn connect(&self) -> Embedded {
        Embedded::open(self.doorbell.clone(), Arc::clone(&self.logs), Arc::clone(&self.store))
    }

    /// A way to open connections after the server was handed on.
    pub fn connector(&self) -> impl Fn() -> Embedded + Send + Sync + use<> {
        let (doorbell, logs) = (self.doorbell.clone(), Arc::clone(&self.logs));
        let store = Arc::clone(&self.store);
        move || Embedded::open(doorbell.clone(), Arc::clone(&logs), Arc::clone(&store))
    }

    /// Waits until it has ended, and says why.
    pub async fn ended(&self) -> Stopped {
        let mut ended = self.ended.clone();
        loop {
            if let Some(end) = &*ended.borrow_and_update() {
                return Stopped(Arc::clone(end));
            }
            if ended.changed().await.is_err() {
                return Stopped(Arc::new(End::Asked));
            }
        }
    }

    /// Stops it. What was answered is durable; what was not is as if it had not been asked.
    pub async fn stop(&self) {
        self.closing.send_replace(true);
        let _ = self.doorbell.ring(Input::Stop).await;
        self.ended().await;
    }
}

fn brain_config(config: &Config) -> dispatch::Config {
    let limits = dispatch::Limits { unreceipted: UNRECEIPTED_MAX, ..dispatch::Limits::default() };
    dispatch::Config {
        seed: config.seed,
        lease: config.lease,
        limits,
        ..dispatch::Config::default()
    }
}

fn load(
    config: dispatch::Config,
    clock: Clock,
    store: &dyn Store,
) -> Result<(Dispatch, Vec<Effect>), StartError> {
    let mut loader = Loader::new(config, clock.now());
    let mut failed = None;
    store
        .load(&mut |piece| {
            if failed.is_none() {
                failed = loader.add(piece).err();
            }
        })
        .map_err(StartError::Read)?;
    if let Some(error) = failed {
        return Err(StartError::Load(error));
    }
    let mut effects = Vec::new();
    let dispatch = loader.finish(&mut effects).map_err(StartError::Load)?;
    Ok((dispatch, effects))
}

/// The brain thinks on a thread of its own, so that nobody's long work delays it.
fn think(brain: Brain, first: Vec<Effect>, end: watch::Sender<Option<Arc<End>>>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime with only a clock can be made");
    thread::Builder::new()
        .name("filch-brain".into())
        .spawn(move || {
            let ended = runtime.block_on(brain.run(first));
            end.send_replace(Some(Arc::new(ended)));
        })
        .expect("the system has room for one thread");
}
