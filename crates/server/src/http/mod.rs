//! The endpoints: HTTP with JSON, and the workers' WebSocket.
//!
//! `listen` accepts connections, `guard` checks every request, `rights` lists which role may do
//! what, `body` and `extract` read requests. The other modules are endpoints, each with its part of
//! the OpenAPI document.

mod acts;
mod body;
mod cluster;
mod dead;
mod events;
mod extract;
mod flows;
mod guard;
mod health;
mod job_events;
mod jobs;
mod ledger;
pub(crate) mod listen;
mod logs;
mod metrics;
pub(crate) mod names;
mod openapi;
mod plain;
mod queue;
mod recruit;
mod rights;
mod submit;
mod tokens;
mod work;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use filch_api::problem::Problem;
use filch_api::tls::ServerConfig as Tls;
use filch_store::{CLIENT_READS_MAX, Store, StoreError};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::names::Names;
use self::rights::Rights;
use crate::bounds::Bounds;
use crate::events::Events;
use crate::link::Services;
use crate::metrics::Metrics;
use crate::retention::Retention;
use crate::server::ServerConfig;
use crate::shell::{Ended, Handle};
use crate::throttle::LogLimits;
use crate::tokens::Tokens;

/// The shared state of all endpoints.
#[derive(Clone)]
pub(crate) struct State {
    pub(crate) handle: Handle,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) services: Services,
    pub(crate) events: Arc<Events>,
    pub(crate) names: Arc<Names>,
    pub(crate) lease_ms: u64,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) rights: Arc<Rights>,
    pub(crate) retention: Arc<Retention>,
    pub(crate) bounds: Bounds,
    pub(crate) log_limits: Arc<LogLimits>,
    /// Permits for bodies that are larger than one object's.
    pub(crate) large: Arc<Semaphore>,
    /// Permits for reads of the store.
    reads: Arc<Semaphore>,
    /// Places for readers of events and logs.
    readers: Arc<Semaphore>,
    /// The OpenAPI document.
    pub(crate) document: Arc<str>,
    /// True once the server is closing: requests that wait end then.
    pub(crate) closed: watch::Receiver<bool>,
}

/// The parts of a server that endpoints use.
pub(crate) struct Parts<'a> {
    pub(crate) config: &'a ServerConfig,
    pub(crate) names: &'a Arc<Names>,
    pub(crate) handle: &'a Handle,
    pub(crate) services: &'a Services,
    pub(crate) store: &'a Arc<dyn Store>,
    pub(crate) events: &'a Arc<Events>,
    pub(crate) metrics: &'a Arc<Metrics>,
    pub(crate) tokens: &'a Arc<Tokens>,
    pub(crate) retention: &'a Arc<Retention>,
    pub(crate) closed: &'a watch::Receiver<bool>,
}

impl State {
    pub(crate) fn new(parts: &Parts<'_>) -> Self {
        let document = routes().into_openapi();
        Self {
            handle: parts.handle.clone(),
            store: Arc::clone(parts.store),
            services: parts.services.clone(),
            events: Arc::clone(parts.events),
            names: Arc::clone(parts.names),
            lease_ms: parts.config.lease.as_millis() as u64,
            metrics: Arc::clone(parts.metrics),
            tokens: Arc::clone(parts.tokens),
            rights: Arc::new(Rights::of(&document)),
            retention: Arc::clone(parts.retention),
            bounds: parts.config.bounds,
            log_limits: Arc::default(),
            large: Arc::new(Semaphore::new(body::LARGE_MAX)),
            reads: Arc::new(Semaphore::new(CLIENT_READS_MAX)),
            readers: Arc::new(Semaphore::new(parts.config.bounds.readers)),
            document: Arc::from(openapi::finish(document)),
            closed: parts.closed.clone(),
        }
    }

    /// Reads from the store, on a thread that may wait for the disk.
    ///
    /// Requests wait for their turn here, in order and without a thread: those that look up jobs by
    /// id would otherwise compete with the scheduler's own look-ups, and all of them with other
    /// work for threads.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Failure> {
        let wait = self.bounds.read_wait;
        let turn = tokio::time::timeout(wait, Arc::clone(&self.reads).acquire_owned()).await;
        let turn = turn.map_err(|_| store_problem(&StoreError::busy("read the store", wait)))?;
        let turn = turn.map_err(|_| Failure::ended())?;
        let store = Arc::clone(&self.store);
        let read = tokio::task::spawn_blocking(move || {
            // Until the end of the read, even if the client has disconnected.
            let _turn = turn;
            read(&*store)
        });
        let read = read.await.map_err(|_| Failure::ended())?;
        Ok(read.map_err(|error| store_problem(&error))?)
    }
}

impl State {
    /// A place for a reader of events or of a log, which it holds until it is disconnected.
    pub(crate) fn place_for_reader(&self) -> Result<OwnedSemaphorePermit, Failure> {
        Arc::clone(&self.readers).try_acquire_owned().map_err(|_| {
            let most = self.bounds.readers;
            let title = format!("{most} clients read events or logs already, which is the limit");
            Problem::new(503, "too-many-readers", title)
                .help("repeat the request later; to wait for a job use GET /v1/jobs/{id}?wait=60s")
                .into()
        })
    }
}

/// Waits until the server is closing.
pub(crate) async fn closing(mut closed: watch::Receiver<bool>) {
    // If the sender is gone, the server is closed, too.
    let _ = closed.wait_for(|closed| *closed).await;
}

/// Serves until the server closes.
pub(crate) async fn serve(listener: TcpListener, tls: Option<Arc<Tls>>, state: State) {
    let closed = state.closed.clone();
    let door = listen::Door {
        connections_max: state.bounds.connections,
        tls: tls.map(TlsAcceptor::from),
        log_limits: Arc::clone(&state.log_limits),
    };
    listen::serve(listener, door, router(state), closed).await;
}

/// All routes, with their descriptions.
fn routes() -> OpenApiRouter<State> {
    OpenApiRouter::with_openapi(openapi::beginning())
        .routes(routes!(submit::submit, jobs::list))
        .routes(routes!(jobs::show))
        .routes(routes!(job_events::show))
        .routes(routes!(jobs::cancel))
        .routes(routes!(jobs::retry))
        .routes(routes!(jobs::priority))
        .routes(routes!(logs::show))
        .routes(routes!(flows::submit))
        .routes(routes!(dead::list))
        .routes(routes!(dead::groups))
        .routes(routes!(dead::retry))
        .routes(routes!(dead::discard))
        .routes(routes!(cluster::queues))
        .routes(routes!(queue::show, cluster::set_queue))
        .routes(routes!(queue::purge))
        .routes(routes!(cluster::strategy, cluster::set_strategy))
        .routes(routes!(cluster::workers))
        .routes(routes!(cluster::drain))
        .routes(routes!(cluster::stop))
        .routes(routes!(cluster::status))
        .routes(routes!(recruit::show))
        .routes(routes!(acts::list))
        .routes(routes!(tokens::list, tokens::make))
        .routes(routes!(tokens::revoke))
        .routes(routes!(events::stream))
        .routes(routes!(work::connect))
        .routes(routes!(plain::claim))
        .routes(routes!(plain::heartbeat))
        .routes(routes!(plain::report))
        .routes(routes!(plain::goodbye))
        .routes(routes!(health::alive))
        .routes(routes!(health::ready))
        .routes(routes!(metrics::show))
        .routes(routes!(openapi::show))
        .routes(routes!(openapi::show_worker_protocol))
}

fn router(state: State) -> Router {
    let (router, _) = routes().split_for_parts();
    router
        .fallback(nowhere)
        .method_not_allowed_fallback(no_such_method)
        // `body` has its own limits, with better errors.
        .layer(DefaultBodyLimit::disable())
        .layer(axum::middleware::from_fn_with_state(state.clone(), guard::guard))
        .with_state(state)
}

async fn nowhere() -> Failure {
    Failure(Problem::not_found("unknown path").help("see GET /openapi.json for all paths"))
}

async fn no_such_method() -> Failure {
    Failure(
        Problem::new(405, "method-not-allowed", "method not allowed here")
            .help("see GET /openapi.json for the methods of each path"),
    )
}

/// A failed read of the store.
pub(crate) fn store_problem(error: &StoreError) -> Problem {
    if error.is_busy() {
        return Problem::new(503, "busy", error.to_string()).help("repeat the request in a moment");
    }
    tracing::error!(%error, "store error: cannot read");
    Problem::new(500, "store", error.to_string())
}

/// A problem as a response.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) Problem);

impl Failure {
    fn ended() -> Self {
        let problem = Problem::new(503, "stopping", "the server is stopping");
        Self(problem.help(
            "repeat the request when it is back; that is safe with the same id or Idempotency-Key",
        ))
    }
}

impl From<Ended> for Failure {
    fn from(_: Ended) -> Self {
        Self::ended()
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_string(&self.0).expect("a problem can be written as JSON");
        let kind = HeaderValue::from_static("application/problem+json");
        let mut response = (status, [(header::CONTENT_TYPE, kind)], body).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer realm=\"filch\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
