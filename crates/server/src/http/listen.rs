//! Connections: a bounded number of them, each with a deadline for its headers.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::closing;
use crate::throttle::LogLimits;

/// How long a connection may take over the headers of a request, or wait between two of them. Longer
/// than clients keep a connection for later, so that none is closed while it is about to be used.
const HEADERS: Duration = Duration::from_secs(100);

/// How long it may take to agree on how to encrypt.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// After an accept has failed: there may be no more files to open.
const BREATH: Duration = Duration::from_millis(100);

/// So many may knock at once. After a restart all workers do, and whoever finds no room in the line tries
/// again only after a second, and then after two and four.
const LINE: u32 = 4_096;

/// Opens the door.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // What is left of the connections of a server before does not keep its successor out.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(LINE)
}

/// How connections are accepted.
pub(crate) struct Door {
    /// How many may be open at once; further clients wait.
    pub(crate) connections_max: usize,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) log_limits: Arc<LogLimits>,
}

/// The address of a request's client, for the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// Accepts connections until the server closes, and then finishes the responses that were begun.
pub(crate) async fn serve(
    listener: TcpListener,
    door: Door,
    app: Router,
    closed: watch::Receiver<bool>,
) {
    let door = Arc::new(door);
    let places = Arc::new(Semaphore::new(door.connections_max));
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
                Ok((stream, peer)) => {
                    let (app, closed) = (app.clone(), closed.clone());
                    let (door, peer) = (Arc::clone(&door), Peer(peer));
                    connections.spawn(connection(stream, peer, door, app, closed, place));
                }
                Err(error) => {
                    if let Some(suppressed) = door.log_limits.accept.admit() {
                        tracing::warn!(%error, suppressed, "cannot accept a connection");
                    }
                    tokio::time::sleep(BREATH).await;
                }
            },
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn connection(
    stream: TcpStream,
    peer: Peer,
    door: Arc<Door>,
    app: Router,
    closed: watch::Receiver<bool>,
    _place: OwnedSemaphorePermit,
) {
    // Answers are small and awaited.
    let _ = stream.set_nodelay(true);
    let Some(tls) = &door.tls else {
        return speak(stream, peer, app, closed).await;
    };
    let secured = tokio::select! {
        secured = tokio::time::timeout(HANDSHAKE, tls.accept(stream)) => secured,
        () = closing(closed.clone()) => return,
    };
    // The handshake itself tells the client why it failed.
    let error = match secured {
        Ok(Ok(stream)) => return speak(stream, peer, app, closed).await,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "timed out".to_owned(),
    };
    if let Some(suppressed) = door.log_limits.tls.admit() {
        tracing::warn!(peer = %peer.0, error, suppressed, "TLS handshake failed");
    }
}

async fn speak<S>(stream: S, peer: Peer, app: Router, closed: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEADERS);
    let routes = TowerToHyperService::new(app);
    let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(peer);
        routes.call(request)
    });
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    let mut serving = std::pin::pin!(serving.with_upgrades());
    tokio::select! {
        // However it ends: who was at the other end knows better.
        _ = serving.as_mut() => return,
        () = closing(closed) => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}
