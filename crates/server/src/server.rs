//! A server: its configuration, start and shutdown.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use filch_api::access::Plain;
use filch_api::tls::ServerConfig as Tls;
use filch_api::token::Secret;
use filch_engine::server::{ServerAction, ServerEngine};
use filch_scheduler::dispatch::{self, Dispatch, DispatchEffect, LoadError, Loader};
use filch_scheduler::time::Now;
use filch_store::{CommitError, OWNER_LEASE, Store, StoreError};
use tokio::sync::mpsc::{channel, unbounded_channel};
use tokio::sync::watch;

use crate::bounds::Bounds;
use crate::clock::Clock;
use crate::events::Events;
use crate::exposure::{self, Exposed, Protection};
use crate::http;
use crate::http::names::Names;
use crate::link::{Embedded, Services};
use crate::metrics::Metrics;
use crate::ownership;
use crate::retention::{Retention, SideWork};
use crate::shell::{End, Handle, INPUTS_MAX, Input, Pending, Shell, Urgent};
use crate::tokens::{Tokens, follow};
use crate::writer::Writer;

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The address to listen on. Addresses other than loopback need tokens, and TLS or `plain`.
    pub listen: SocketAddr,
    /// The TLS configuration, if TLS is used.
    pub tls: Option<Arc<Tls>>,
    /// Whether plaintext connections from other hosts are allowed.
    pub plain: Plain,
    /// Further host names that requests may use.
    pub hosts: Vec<String>,
    /// How long a worker may be silent before its jobs go to other workers.
    pub lease: Duration,
    /// How long ended jobs are kept.
    pub retention: Duration,
    /// When retention runs.
    pub side_work: SideWork,
    /// The seed of random choices, for instance of the worker to steal from.
    pub seed: u64,
    /// What it accepts at once.
    pub bounds: Bounds,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 7420)),
            tls: None,
            plain: Plain::Never,
            hosts: Vec::new(),
            lease: Duration::from_secs(10),
            retention: Duration::from_secs(7 * 24 * 3_600),
            side_work: SideWork::default(),
            seed: filch_api::id::seed(),
            bounds: Bounds::default(),
        }
    }
}

/// The shortest lease: with a shorter one, a pause of the machine would look like a lost worker.
const LEASE_MIN: Duration = Duration::from_millis(500);

/// A running server. [`Server::stop`] stops it; otherwise it ends with the process.
pub struct Server {
    address: SocketAddr,
    names: Arc<Names>,
    handle: Handle,
    services: Services,
    store: Arc<dyn Store>,
    tokens: Arc<Tokens>,
    ended: watch::Receiver<Option<Stopped>>,
    closing: watch::Sender<bool>,
}

/// Why a server could not start.
#[derive(Debug)]
pub enum StartError {
    /// Other machines could reach it without protection.
    Exposed(Exposed),
    /// The lease is too short.
    ShortLease(Duration),
    /// Listening on the address failed.
    Listen(SocketAddr, std::io::Error),
    /// The store cannot be read.
    Read(StoreError),
    /// The stored jobs are inconsistent.
    Load(LoadError),
}

impl fmt::Display for StartError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exposed(exposed) => exposed.fmt(formatter),
            Self::ShortLease(lease) => write!(
                formatter,
                "a lease of {} is too short: workers would be lost whenever the machine \
                 pauses\n  help: use at least {}",
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
pub enum Stopped {
    /// A shutdown was requested.
    Asked,
    /// A commit failed.
    Commit(CommitError),
    /// The store cannot be read.
    Read(Arc<StoreError>),
    /// The scheduler's thread has panicked, with this message.
    Crashed(Arc<str>),
}

impl fmt::Display for Stopped {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => formatter.write_str("the server was stopped"),
            Self::Commit(error) => error.fmt(formatter),
            Self::Read(error) => write!(
                formatter,
                "store error: {error}\n  help: check the disk (for example with `dmesg`), then \
                 start again; every acknowledged job is still stored"
            ),
            Self::Crashed(message) => write!(
                formatter,
                "internal error: the scheduler has crashed: {message}\n  help: this is a bug: \
                 please report it with the server's log, then start again; every acknowledged job \
                 is still stored"
            ),
        }
    }
}

impl From<End> for Stopped {
    fn from(end: End) -> Self {
        match end {
            End::Asked => Self::Asked,
            End::Commit(error) => Self::Commit(error),
            End::Read(error) => Self::Read(Arc::new(error)),
        }
    }
}

impl Stopped {
    /// The end of a thread that has panicked.
    fn crashed(panic: &(dyn Any + Send)) -> Self {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let message = message.or_else(|| panic.downcast_ref::<&str>().copied());
        Self::Crashed(message.unwrap_or("the panic has no message").into())
    }
}

impl std::error::Error for Stopped {}

impl Server {
    /// Loads the store and starts to serve. Needs a running tokio runtime.
    ///
    /// # Errors
    /// If the configuration is refused, the address cannot be used, or the store cannot be loaded.
    pub async fn start(config: ServerConfig, store: Arc<dyn Store>) -> Result<Self, StartError> {
        config.check()?;
        let loading = Arc::clone(&store);
        let tokens = blocking(move || Tokens::load(&*loading)).await.map_err(StartError::Read)?;
        let tokens = Arc::new(tokens);
        let protection = config.protection(tokens.are_required());
        exposure::check(config.listen, protection).map_err(StartError::Exposed)?;
        // Listening before loading: a port that is in use is found at once, and clients that
        // connect meanwhile wait instead of failing.
        let listen = config.listen;
        let listener =
            http::listen::listen(listen).map_err(|error| StartError::Listen(listen, error))?;
        let address = listener.local_addr().map_err(|error| StartError::Listen(listen, error))?;

        let clock = Clock::start();
        let begun = clock.now();
        let loading = Arc::clone(&store);
        let dispatch_config = dispatch_config(&config);
        let (dispatch, first) = blocking(move || load(dispatch_config, begun, &*loading)).await?;
        let jobs = dispatch.job_count();

        let (inputs, waiting) = channel::<Input>(INPUTS_MAX);
        let (urgent, urgently) = channel::<Urgent>(INPUTS_MAX);
        let handle = Handle::new(inputs, urgent);
        let (receipts, receipted) = unbounded_channel();
        let (fetches, fetched) = unbounded_channel();
        let events = Arc::new(Events::new(dispatch.last_commit(), clock.now().wall));
        let metrics = Arc::new(Metrics::new());
        let services = Services::default();
        let (moments, picked) = unbounded_channel();
        let retention = Retention::new(config.side_work, config.retention, clock, &moments);
        let retention = Arc::new(retention);
        let mut actions = Vec::new();
        let (kept, now) = (Some(config.retention), clock.now());
        let mut engine = ServerEngine::new(dispatch, first, kept, begun, now, &mut actions);
        engine.limit_http_workers(config.bounds.plain_workers);
        engine.bind_to_ownership(OWNER_LEASE);
        let shell = Shell {
            engine,
            clock,
            store: Arc::clone(&store),
            events: Arc::clone(&events),
            logs: Arc::clone(&services.logs),
            roster: Arc::clone(&services.roster),
            metrics: Arc::clone(&metrics),
            writer: Writer::start(Arc::clone(&store), receipts, Arc::clone(&metrics)),
            inputs: waiting,
            urgent: urgently,
            receipts: receipted,
            fetches,
            fetched,
            retention: Arc::clone(&retention),
            moments: picked,
            pending: Pending::default(),
        };
        let (end, ended) = watch::channel(None);
        think(shell, actions, end);

        let (closing, closed) = watch::channel(false);
        let names = Arc::new(Names::new(address, config.tls.is_some(), &config.hosts));
        let state = http::State::new(&http::Parts {
            config: &config,
            names: &names,
            handle: &handle,
            services: &services,
            store: &store,
            events: &events,
            metrics: &metrics,
            tokens: &tokens,
            retention: &retention,
            closed: &closed,
        });
        tokio::spawn(http::serve(listener, config.tls.clone(), state));
        let (following, followed) = (Arc::clone(&tokens), Arc::clone(&store));
        tokio::spawn(follow(following, followed, handle.clone(), closed.clone()));
        tokio::spawn(ownership::confirm(Arc::clone(&store), handle.clone(), clock, closed));
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            url = names.url(),
            listen = %address,
            tls = config.tls.is_some(),
            tokens_required = tokens.are_required(),
            lease = filch_api::span::write(config.lease),
            retention = filch_api::span::write(config.retention),
            jobs,
            "server started"
        );
        Ok(Self { address, names, handle, services, store, tokens, ended, closing })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        self.names.url()
    }

    /// An admin token for this process, valid while the server runs. It is not stored.
    #[must_use]
    pub fn insider(&self) -> Secret {
        self.tokens.insider()
    }

    /// Connects a worker that runs in this process.
    #[must_use]
    pub fn connect(&self) -> Embedded {
        Embedded::open(self.handle.clone(), self.services.clone())
    }

    /// Returns a function that connects workers of this process, like [`connect`](Self::connect).
    pub fn connector(&self) -> impl Fn() -> Embedded + Send + Sync + use<> {
        let (handle, services) = (self.handle.clone(), self.services.clone());
        move || Embedded::open(handle.clone(), services.clone())
    }

    /// Waits until it has ended, and returns why.
    pub async fn ended(&self) -> Stopped {
        let mut ended = self.ended.clone();
        loop {
            if let Some(stopped) = &*ended.borrow_and_update() {
                return stopped.clone();
            }
            ended.changed().await.expect("the scheduler's thread reports its end");
        }
    }

    /// Stops it and closes the store. Requests that were answered are durable; others have no
    /// effect.
    pub async fn stop(&self) {
        tracing::info!("shutting down: no new connections");
        self.closing.send_replace(true);
        let _ = self.handle.urgent(Urgent::Stop).await;
        self.ended().await;
        tracing::info!("shutting down: scheduler stopped, closing the store");
        let store = Arc::clone(&self.store);
        blocking(move || store.close()).await;
        tracing::info!("server stopped");
    }
}

impl ServerConfig {
    /// How a server with this configuration is protected.
    #[must_use]
    pub const fn protection(&self, has_tokens: bool) -> Protection {
        Protection { has_tokens, has_tls: self.tls.is_some(), plain: self.plain }
    }

    /// Checks what can be checked without the store, before any file is opened or created.
    ///
    /// # Errors
    /// If the lease is too short.
    pub fn check(&self) -> Result<(), StartError> {
        if self.lease < LEASE_MIN { Err(StartError::ShortLease(self.lease)) } else { Ok(()) }
    }
}

/// Calls a function on a thread that may wait for the disk.
async fn blocking<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(act).await.expect("the store does not panic")
}

fn dispatch_config(config: &ServerConfig) -> dispatch::DispatchConfig {
    dispatch::DispatchConfig {
        seed: config.seed,
        lease: config.lease,
        ..dispatch::DispatchConfig::default()
    }
}

fn load(
    config: dispatch::DispatchConfig,
    begun: Now,
    store: &dyn Store,
) -> Result<(Dispatch, Vec<DispatchEffect>), StartError> {
    let mut loader = Loader::new(config, begun);
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

/// The scheduler has its own thread, so that other work does not delay it.
fn think(shell: Shell, first: Vec<ServerAction>, end: watch::Sender<Option<Stopped>>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime with only a clock can be made");
    thread::Builder::new()
        .name("filch-shell".into())
        .spawn(move || {
            // Nothing of the scheduler is used after a panic, so nothing can be half changed.
            let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(shell.run(first))));
            let stopped = ended.map_or_else(|panic| Stopped::crashed(&*panic), Stopped::from);
            match &stopped {
                Stopped::Asked => {}
                Stopped::Commit(error) => tracing::error!(%error, "store error: stopping"),
                Stopped::Read(error) => tracing::error!(%error, "store error: stopping"),
                Stopped::Crashed(message) => {
                    tracing::error!(%message, "internal error: the scheduler has crashed: stopping");
                }
            }
            end.send_replace(Some(stopped));
        })
        .expect("the system can start one more thread");
}

#[cfg(test)]
mod tests {
    use filch_api::session::UpFrame;
    use filch_scheduler::dispatch::Request;
    use filch_scheduler::id::{JobId, MessageNo};
    use filch_scheduler::message::{Delivery, ToWorker};
    use filch_scheduler::spec::JobSpec;
    use filch_store::Transient;
    use filch_store::integrity::StoreDump as _;
    use tokio::sync::oneshot;

    use super::*;

    /// However slow the machine is.
    const PATIENCE: Duration = Duration::from_secs(120);

    async fn in_time<T>(what: &str, event: impl Future<Output = T>) -> T {
        tokio::time::timeout(PATIENCE, event).await.unwrap_or_else(|_| panic!("never: {what}"))
    }

    /// As many commits as a full server has, while the store holds the first of them up.
    #[tokio::test]
    async fn a_full_server_answers_heartbeats() {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let config = ServerConfig { listen, ..ServerConfig::default() };
        let store = Arc::new(Transient::default());
        let shared: Arc<dyn Store> = Arc::<Transient>::clone(&store);
        let server = Server::start(config, shared).await.expect("it starts");
        let Embedded { up, mut down } = server.connect();
        let mut said = 0;
        let mut say = async |message: &str| {
            said += 1;
            let text = format!(
                r#"{{"worker":"80000000000000a1","session":1,"number":{said},"messages":[{message}]}}"#
            );
            let frame: UpFrame = serde_json::from_str(&text).expect("a frame");
            up.send(frame).await.expect("the server listens");
            let renewed = ToWorker::Renewed(MessageNo(said));
            let is_renewed = |delivery: &Delivery| delivery.messages.contains(&renewed);
            let answered =
                async { while !is_renewed(&down.recv().await.expect("the server answers")) {} };
            in_time("it is answered", answered).await;
        };
        say(r#"{"hello":{"kind":"new","slots":0,"want":0}}"#).await;
        let mut jobs = 0;
        let mut submit = |count: u128| {
            jobs += count;
            let ids = jobs - count + 1..=jobs;
            let payload = || Some("{}".into());
            // UUIDs of version 7: jobs without a time in their id are looked up in the store.
            let id = |number: u128| JobId((1_u128 << 80) | (7 << 76) | (0b10 << 62) | number);
            let job = |number| JobSpec { payload: payload(), ..JobSpec::new(id(number)) };
            Request::Submit(ids.map(job).collect())
        };
        let (reply, answer) = oneshot::channel();
        let request = submit(1);
        let ask = Input::Ask { by: None, request, reply };
        server.handle.send(ask).await.expect("the server runs");
        answer.await.expect("the server answers");
        // Commits wait for whatever reads the store in memory.
        let stall = || {
            let (begun, begins) = std::sync::mpsc::channel();
            let (open, gate) = std::sync::mpsc::channel::<()>();
            let store = Arc::clone(&store);
            let holder = thread::spawn(move || {
                let dumped = store.dump(&mut |_| {
                    let _ = begun.send(());
                    // Until the other end is dropped.
                    let _ = gate.recv();
                });
                dumped.expect("memory can be read");
            });
            begins.recv().expect("the holder has begun");
            (open, holder)
        };
        let mut fill = async || {
            for _ in 0..2 {
                let (reply, _) = oneshot::channel();
                let ask = Input::Ask { by: None, request: submit(70_000), reply };
                server.handle.send(ask).await.expect("the server runs");
            }
        };
        let (open, holder) = stall();
        fill().await;
        let waiting = async |count| {
            while server.handle.waiting_inputs() != count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        in_time("both submits are taken", waiting(0)).await;
        let handle = server.handle.clone();
        let looked = tokio::spawn(async move { handle.look(|_, _| ()).await });
        in_time("no more requests are taken", waiting(1)).await;
        for _ in 0..3 {
            say(r#""heartbeat""#).await;
        }
        assert_eq!(server.handle.waiting_inputs(), 1);
        assert!(!looked.is_finished());
        drop(open);
        holder.join().expect("the holder reads to its end");
        in_time("it goes on", looked).await.expect("no panic").expect("the server runs");

        // A full server can be stopped: its requests are let go of before the store moves again.
        let (open, holder) = stall();
        fill().await;
        in_time("both submits are taken", waiting(0)).await;
        let handle = server.handle.clone();
        let looked = tokio::spawn(async move { handle.look(|_, _| ()).await });
        in_time("no more requests are taken", waiting(1)).await;
        let stopping = async {
            let ended = in_time("requests are let go of", looked).await.expect("no panic");
            ended.expect_err("the server has ended");
            drop(open);
        };
        tokio::join!(server.stop(), stopping);
        holder.join().expect("the holder reads to its end");
    }

    #[tokio::test]
    async fn a_panic_of_the_scheduler_is_reported_as_a_crash() {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let config = ServerConfig { listen, ..ServerConfig::default() };
        let server = Server::start(config, Arc::new(Transient::default())).await.unwrap();
        let job = 7;
        let looked = server.handle.look::<()>(move |_, _| panic!("job {job} is in no queue"));
        looked.await.expect_err("the request is not answered");
        let stopped = server.ended().await;
        let Stopped::Crashed(message) = &stopped else { panic!("{stopped:?}") };
        assert_eq!(&**message, "job 7 is in no queue");
        let text = stopped.to_string();
        assert!(text.starts_with("internal error: the scheduler has crashed: job 7"), "{text}");
        assert!(text.contains("help: this is a bug: please report it"), "{text}");
        // Stopping it afterwards still closes the store.
        server.stop().await;
    }
}
