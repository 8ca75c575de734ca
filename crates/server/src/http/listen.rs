//! Connections: a bounded number of them, each with a deadline for its headers.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use super::closing;

/// So many connections at once; then others wait to be let in.
const CONNECTIONS_MAX: usize = 16_384;

/// How long a connection may take over the headers of a request, or wait between two of them. Longer
/// than clients keep a connection for later, so that none is closed while it is about to be used.
const HEADERS: Duration = Duration::from_secs(100);

/// After an accept has failed: there may be no more files to open.
const BREATH: Duration = Duration::from_millis(100);

/// Serves until it is told to close, and then until every answer that was begun is given.
pub(crate) async fn serve(listener: TcpListener, app: Router, closed: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let place = tokio::select! {
            () = closing(closed.clone()) => break,
            place = Arc::clone(&places).acquire_owned() => place.expect("nobody closes it"),
        };
        // Whoever has left is forgotten.
        while connections.try_join_next().is_some() {}
        tokio::select! {
            () = closing(closed.clone()) => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(connection(stream, app.clone(), closed.clone(), place));
                }
                Err(_) => tokio::time::sleep(BREATH).await,
            },
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn connection(
    stream: TcpStream,
    app: Router,
    closed: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
) {
    // Answers are small and awaited.
    let _ = stream.set_nodelay(true);
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADERS);
    let serving = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
    let mut serving = std::pin::pin!(serving.with_upgrades());
    tokio::select! {
        // However it ends: who was at the other end knows better.
        _ = serving.as_mut() => return,
        () = closing(closed) => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}
