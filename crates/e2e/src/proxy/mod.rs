//! A proxy between a worker and its server. Each direction can be disturbed in its own way.
//!
//! After the handshake the proxy forwards whole WebSocket frames (`frame` finds their ends), so
//! that one can be lost or duplicated and the following ones are still valid. Messages are numbered
//! inside the frames: only the worker and the server can notice what is missing.

mod direction;
mod frame;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::until::{until, when};

/// What happens to the frames of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkCondition {
    /// They are forwarded.
    Normal,
    /// Nothing is forwarded and nothing is closed: to each side the other is merely silent. When
    /// this is over, the connections are closed.
    Cut,
    /// They are dropped; the connection stays.
    Dropped,
    /// They arrive this much later, in order.
    Delayed(Duration),
    /// Each arrives twice.
    Duplicated,
    /// They are read at this many bytes per second, which slows the sender down.
    Slow(u32),
}

/// Both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkConditions {
    /// From the worker to the server.
    pub up: LinkCondition,
    /// From the server to the worker.
    pub down: LinkCondition,
}

impl LinkConditions {
    /// Everything is forwarded.
    pub const NORMAL: Self = Self { up: LinkCondition::Normal, down: LinkCondition::Normal };
    /// Nothing is forwarded.
    pub const CUT: Self = Self { up: LinkCondition::Cut, down: LinkCondition::Cut };
}

/// Forwards what it receives, or disturbs it.
pub struct Proxy {
    address: SocketAddr,
    conditions: watch::Sender<LinkConditions>,
    /// How many directions of connections are not cut.
    carried: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// A proxy to this server: `127.0.0.1:7420`.
    ///
    /// # Panics
    /// If no port is free.
    pub async fn to(server: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port is free");
        let address = listener.local_addr().expect("a listener has an address");
        let (conditions, watched) = watch::channel(LinkConditions::NORMAL);
        let carried = Arc::new(AtomicUsize::new(0));
        let ends = Ends {
            near: address.to_string(),
            far: server.parse().expect("the address of a server"),
            conditions: watched,
            carried: Arc::clone(&carried),
        };
        let task = tokio::spawn(listen(listener, ends));
        Self { address, conditions, carried, task }
    }

    /// The URL that a worker uses in place of the server's.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the conditions from now on.
    pub fn set(&self, conditions: LinkConditions) {
        self.conditions.send_replace(conditions);
    }

    /// Cuts both directions. When this returns, no frame is in flight.
    pub async fn cut(&self) {
        self.set(LinkConditions::CUT);
        until("no frame is in flight", async || when(self.carried.load(Ordering::SeqCst) == 0))
            .await;
    }

    /// Forwards everything again.
    pub fn mend(&self) {
        self.set(LinkConditions::NORMAL);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Shared by all connections.
#[derive(Clone)]
struct Ends {
    /// Our own address and the server's.
    near: String,
    far: SocketAddr,
    conditions: watch::Receiver<LinkConditions>,
    carried: Arc<AtomicUsize>,
}

/// Small receive buffers, so that a slow link soon slows the sender down.
const BUFFER_BYTES: u32 = 16 * 1_024;

async fn listen(listener: TcpListener, ends: Ends) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((near, _)) = listener.accept().await else { return };
        connections.spawn(connect(near, ends.clone()));
        while connections.try_join_next().is_some() {}
    }
}

/// Returns, and so closes the connection, when either side has closed it, or when it was cut and is
/// mended.
async fn connect(mut near: TcpStream, mut ends: Ends) {
    // An error means that the test is over.
    let _ = ends.conditions.wait_for(|conditions| *conditions != LinkConditions::CUT).await;
    let Some(mut far) = reach(ends.far).await else { return };
    let Some(request) = head(&mut near).await else { return };
    // A server checks the `Host` header, so it gets the server's own address.
    let request = String::from_utf8_lossy(&request).replace(&ends.near, &ends.far.to_string());
    if far.write_all(request.as_bytes()).await.is_err() {
        return;
    }
    let Some(answer) = head(&mut far).await else { return };
    if near.write_all(&answer).await.is_err() {
        return;
    }
    if !answer.starts_with(b"HTTP/1.1 101") {
        // An error ends the connection as well.
        let _ = copy_bidirectional(&mut near, &mut far).await;
        return;
    }
    let ((near_in, near_out), (far_in, far_out)) = (near.split(), far.split());
    let (up, down) = (ends.conditions.clone(), ends.conditions);
    tokio::select! {
        () = direction::carry(near_in, far_out, up, |conditions| conditions.up, &ends.carried) => {}
        () = direction::carry(far_in, near_out, down, |conditions| conditions.down, &ends.carried) => {}
    }
}

async fn reach(far: SocketAddr) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().ok()?;
    socket.set_recv_buffer_size(BUFFER_BYTES).ok()?;
    socket.connect(far).await.ok()
}

/// The head of a request or a response.
async fn head(from: &mut TcpStream) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(from.read_u8().await.ok()?);
    }
    Some(head)
}
