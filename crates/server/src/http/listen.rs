//! Accepts connections: a bounded number, each with a deadline for its headers.

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

/// How long a connection may take to send the headers of a request, or be idle between requests. It
/// is longer than clients keep idle connections, so that none is closed just before it is used.
const HEADERS: Duration = Duration::from_secs(100);

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The pause after a failed accept: the process may be out of file descriptors.
const BREATH: Duration = Duration::from_millis(100);

/// The backlog of the listening socket. After a restart all workers connect at once, and a client
/// that finds the backlog full retries only after 1, 2 and 4 seconds.
const LINE: u32 = 4_096;

/// Opens the listening socket.
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    // Connections of a previous server that are not fully closed do not block the address.
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
            place = Arc::clone(&places).acquire_owned() => place.expect("it is never closed"),
        };
        // Forget connections that have ended.
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
    // Responses are small and awaited.
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
        // Errors of a connection concern only its client.
        _ = serving.as_mut() => return,
        () = closing(closed) => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}
