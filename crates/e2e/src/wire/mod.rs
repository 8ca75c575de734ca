//! A wire between a worker and its server, each direction of which can be broken in its own way.
//!
//! What follows the handshake is passed on by whole WebSocket frames (`frame` finds their ends), so that
//! one can be lost or doubled and those after it still make sense: what a worker and a server say is
//! numbered in there, and nothing below that number would notice.

mod frame;
mod line;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::until::{until, when};

/// What becomes of the frames of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// They are passed on.
    Whole,
    /// Nothing comes through, and nobody is told: each side thinks that the other is merely silent.
    /// When the wire is whole again its connections are over.
    Cut,
    /// They fall into a hole; the connection stays.
    Hole,
    /// They arrive so much later, in order.
    Late(Duration),
    /// Each arrives twice.
    Twice,
    /// They are taken at so many bytes a second; whoever sends more has to wait.
    Slow(u32),
}

/// Both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weather {
    /// From the worker to the server.
    pub up: Passage,
    /// From the server to the worker.
    pub down: Passage,
}

impl Weather {
    /// Everything is passed on.
    pub const FINE: Self = Self { up: Passage::Whole, down: Passage::Whole };
    /// Nothing is.
    pub const CUT: Self = Self { up: Passage::Cut, down: Passage::Cut };
}

/// Passes on what it is given, or does not.
pub struct Wire {
    address: SocketAddr,
    weather: watch::Sender<Weather>,
    /// Directions of connections that are not cut.
    carried: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Wire {
    /// A wire to this server: `127.0.0.1:7420`.
    ///
    /// # Panics
    /// If nobody may listen here.
    pub async fn to(server: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port is free");
        let address = listener.local_addr().expect("a listener has an address");
        let (weather, watched) = watch::channel(Weather::FINE);
        let carried = Arc::new(AtomicUsize::new(0));
        let ends = Ends {
            near: address.to_string(),
            far: server.parse().expect("the address of a server"),
            weather: watched,
            carried: Arc::clone(&carried),
        };
        let task = tokio::spawn(listen(listener, ends));
        Self { address, weather, carried, task }
    }

    /// What a worker takes for its server.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on it is like this.
    pub fn set(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }

    /// From now on each side hears nothing of the other; when this returns nothing is under way.
    pub async fn cut(&self) {
        self.set(Weather::CUT);
        until("nothing is passed on", async || when(self.carried.load(Ordering::SeqCst) == 0))
            .await;
    }

    /// Everything is passed on again.
    pub fn mend(&self) {
        self.set(Weather::FINE);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What every connection knows.
#[derive(Clone)]
struct Ends {
    /// The names by which it is known on either side.
    near: String,
    far: SocketAddr,
    weather: watch::Receiver<Weather>,
    carried: Arc<AtomicUsize>,
}

/// Little waits in the system's own buffers, so that who sends to a slow reader soon feels it.
const BUFFER_BYTES: u32 = 16 * 1_024;

async fn listen(listener: TcpListener, ends: Ends) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((near, _)) = listener.accept().await else { return };
        connections.spawn(connect(near, ends.clone()));
        while connections.try_join_next().is_some() {}
    }
}

/// Returns, and so hangs up, when either side has, or when it was cut and is mended.
async fn connect(mut near: TcpStream, mut ends: Ends) {
    // If nobody can change it any more, the test is over.
    let _ = ends.weather.wait_for(|weather| *weather != Weather::CUT).await;
    let Some(mut far) = reach(ends.far).await else { return };
    let Some(request) = head(&mut near).await else { return };
    // A server answers only to its own name, so the request gets that.
    let request = String::from_utf8_lossy(&request).replace(&ends.near, &ends.far.to_string());
    if far.write_all(request.as_bytes()).await.is_err() {
        return;
    }
    let Some(answer) = head(&mut far).await else { return };
    if near.write_all(&answer).await.is_err() {
        return;
    }
    if !answer.starts_with(b"HTTP/1.1 101") {
        // However it ends, it has ended.
        let _ = copy_bidirectional(&mut near, &mut far).await;
        return;
    }
    let ((near_in, near_out), (far_in, far_out)) = (near.split(), far.split());
    let (up, down) = (ends.weather.clone(), ends.weather);
    tokio::select! {
        () = line::carry(near_in, far_out, up, |weather| weather.up, &ends.carried) => {}
        () = line::carry(far_in, near_out, down, |weather| weather.down, &ends.carried) => {}
    }
}

async fn reach(far: SocketAddr) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().ok()?;
    socket.set_recv_buffer_size(BUFFER_BYTES).ok()?;
    socket.connect(far).await.ok()
}

/// The head of a request or an answer.
async fn head(from: &mut TcpStream) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(from.read_u8().await.ok()?);
    }
    Some(head)
}
