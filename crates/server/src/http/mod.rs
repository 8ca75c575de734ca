//! The doors: HTTP with JSON, and the workers' WebSocket.
//!
//! `guard` decides who may come in at all, `listen` how many and how slowly, `body` and `extract` read
//! what they say; the others are the doors, each with the part of the OpenAPI document that describes it.

mod body;
mod cluster;
mod dead;
mod deputy;
mod events;
mod extract;
mod flows;
mod guard;
mod health;
mod jobs;
mod listen;
mod logs;
pub(crate) mod metrics;
mod openapi;
mod plain;
mod submit;
mod work;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use filch_api::problem::Problem;
use filch_store::{ReadError, Store};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::metrics::Metrics;
use self::plain::Deputies;
use crate::brain::{Doorbell, Ended};
use crate::events::Events;
use crate::logs::Logs;
use crate::server::Config;

/// What every door leads to.
#[derive(Clone)]
pub(crate) struct State {
    pub(crate) doorbell: Doorbell,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) logs: Arc<Logs>,
    pub(crate) events: Arc<Events>,
    pub(crate) address: SocketAddr,
    pub(crate) lease_ms: u64,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) deputies: Arc<Deputies>,
    /// Turns of bodies that are larger than one object's.
    pub(crate) large: Arc<Semaphore>,
    /// The OpenAPI document.
    pub(crate) document: Arc<str>,
    /// True once the server is closing: whoever waits for something else stops waiting.
    pub(crate) closed: watch::Receiver<bool>,
}

/// What a server is made of, as far as its doors lead to it.
pub(crate) struct Parts<'a> {
    pub(crate) config: &'a Config,
    pub(crate) address: SocketAddr,
    pub(crate) doorbell: &'a Doorbell,
    pub(crate) logs: &'a Arc<Logs>,
    pub(crate) store: &'a Arc<dyn Store>,
    pub(crate) events: &'a Arc<Events>,
    pub(crate) metrics: &'a Arc<Metrics>,
    pub(crate) closed: &'a watch::Receiver<bool>,
}

impl State {
    pub(crate) fn new(parts: &Parts<'_>) -> Self {
        Self {
            doorbell: parts.doorbell.clone(),
            store: Arc::clone(parts.store),
            logs: Arc::clone(parts.logs),
            events: Arc::clone(parts.events),
            address: parts.address,
            lease_ms: parts.config.lease.as_millis() as u64,
            metrics: Arc::clone(parts.metrics),
            deputies: Arc::default(),
            large: Arc::new(Semaphore::new(body::LARGE_MAX)),
            document: Arc::from(openapi::finish(routes().into_openapi())),
            closed: parts.closed.clone(),
        }
    }

    /// Reads from the store, on a thread that may wait for a disk.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&dyn Store) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, Failure> {
        let store = Arc::clone(&self.store);
        let read = tokio::task::spawn_blocking(move || read(&*store)).await;
        read.map_err(|_| Failure::ended())?
            .map_err(|error| Failure(Problem::new(500, "store", error.to_string())))
    }
}

/// Waits until the server is closing.
pub(crate) async fn closing(mut closed: watch::Receiver<bool>) {
    // Without the server itself it is closed, too.
    let _ = closed.wait_for(|closed| *closed).await;
}

/// Serves until it is told to close.
pub(crate) async fn serve(listener: TcpListener, state: State) {
    let closed = state.closed.clone();
    listen::serve(listener, router(state), closed).await;
}

/// Every door, with its description.
fn routes() -> OpenApiRouter<State> {
    OpenApiRouter::with_openapi(openapi::beginning())
        .routes(routes!(submit::submit, jobs::list))
        .routes(routes!(jobs::show))
        .routes(routes!(jobs::cancel))
        .routes(routes!(jobs::retry))
        .routes(routes!(jobs::priority))
        .routes(routes!(logs::show))
        .routes(routes!(flows::submit))
        .routes(routes!(dead::list))
        .routes(routes!(dead::retry))
        .routes(routes!(dead::discard))
        .routes(routes!(cluster::queues))
        .routes(routes!(cluster::set_queue))
        .routes(routes!(cluster::strategy, cluster::set_strategy))
        .routes(routes!(cluster::workers))
        .routes(routes!(cluster::drain))
        .routes(routes!(cluster::status))
        .routes(routes!(events::stream))
        .routes(routes!(work::connect))
        .routes(routes!(plain::claim))
        .routes(routes!(plain::beat))
        .routes(routes!(plain::report))
        .routes(routes!(plain::goodbye))
        .routes(routes!(health::alive))
        .routes(routes!(health::ready))
        .routes(routes!(metrics::show))
        .routes(routes!(openapi::show))
}

fn router(state: State) -> Router {
    let (router, _) = routes().split_for_parts();
    router
        .fallback(nowhere)
        .method_not_allowed_fallback(no_such_method)
        // Bodies have bounds of their own, and better words for them.
        .layer(DefaultBodyLimit::disable())
        .layer(axum::middleware::from_fn_with_state(state.clone(), guard::guard))
        .with_state(state)
}

async fn nowhere() -> Failure {
    Failure(
        Problem::not_found("there is nothing here").help("GET /openapi.json says what there is"),
    )
}

async fn no_such_method() -> Failure {
    Failure(
        Problem::new(405, "method-not-allowed", "this cannot be done here")
            .help("GET /openapi.json says what can be done where"),
    )
}

/// A refusal as an answer.
#[derive(Debug)]
pub(crate) struct Failure(pub(crate) Problem);

impl Failure {
    fn ended() -> Self {
        let problem = Problem::new(503, "stopping", "the server is stopping");
        Self(problem.help("repeat the request when it is back; with the same id that is safe"))
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
        response
    }
}
