//! The way to a server: a socket, or the server's own process.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use filch_api::delivery::Delivery;
use filch_api::session::UpFrame;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

/// A connection that stands. It ends when either end is dropped.
pub struct Wire {
    /// What the worker says.
    pub up: Sender<UpFrame>,
    /// What the server says.
    pub down: Receiver<Delivery>,
}

/// Why there is no connection.
#[derive(Debug)]
pub struct NoConnection(pub String);

impl fmt::Display for NoConnection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for NoConnection {}

/// A connection that is being made.
pub type Connecting = Pin<Box<dyn Future<Output = Result<Wire, NoConnection>> + Send>>;

/// Makes connections.
pub type Connect = Arc<dyn Fn() -> Connecting + Send + Sync>;

/// So many frames may wait on either side.
const FRAMES_MAX: usize = 1_024;

/// How long a server may take to answer a connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connects to the first of these servers that answers, beginning with the one after the last: `http://`
/// and an address.
#[must_use]
pub fn to(urls: Vec<String>) -> Connect {
    let urls: Arc<[String]> = urls.into();
    let turn = Arc::new(AtomicUsize::new(0));
    Arc::new(move || {
        let turn = turn.fetch_add(1, Ordering::Relaxed);
        let url = urls[turn % urls.len()].clone();
        Box::pin(async move { open(&url).await })
    })
}

async fn open(url: &str) -> Result<Wire, NoConnection> {
    let failed = |why: String| NoConnection(format!("cannot connect to {url}: {why}"));
    let address = url.trim_end_matches('/').strip_prefix("http://");
    let address = address.ok_or_else(|| failed("it does not begin with http://".into()))?;
    // What the server sends is the worker's, however much it is: a frame that was not taken would come
    // again with every new connection.
    let config = WebSocketConfig::default().max_message_size(None).max_frame_size(None);
    let connecting = tokio_tungstenite::connect_async_with_config(
        format!("ws://{address}/v1/work"),
        Some(config),
        true,
    );
    let (socket, _) = tokio::time::timeout(PATIENCE, connecting)
        .await
        .map_err(|_| failed("it does not answer".into()))?
        .map_err(|error| failed(error.to_string()))?;
    let (mut sink, mut source) = socket.split();
    let (up, mut frames) = channel::<UpFrame>(FRAMES_MAX);
    let (answers, down) = channel::<Delivery>(FRAMES_MAX);
    tokio::spawn(async move {
        let writing = async {
            while let Some(frame) = frames.recv().await {
                let text = serde_json::to_string(&frame).expect("a frame can be written as JSON");
                if sink.send(Message::text(text)).await.is_err() {
                    return;
                }
            }
            // Said politely, so that the server need not wait to find out.
            let _ = sink.close().await;
        };
        let reading = async {
            while let Some(Ok(message)) = source.next().await {
                let delivery = match &message {
                    Message::Text(text) => Delivery::read(text.as_str()).ok(),
                    Message::Ping(_) | Message::Pong(_) => continue,
                    Message::Binary(_) | Message::Close(_) | Message::Frame(_) => None,
                };
                let Some(delivery) = delivery else { return };
                if answers.send(delivery).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = writing => {}
            () = reading => {}
        }
    });
    Ok(Wire { up, down })
}
