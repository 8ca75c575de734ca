//! Connections to servers: over a socket, or inside the server's process.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use filch_api::access::{Access, Target};
use filch_api::delivery;
use filch_api::problem::Problem;
use filch_api::protocol;
use filch_api::session::UpFrame;
use filch_scheduler::message::Delivery;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{oneshot, watch};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::handshake::client::{Request, Response};
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode, header};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::protocol::frame::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};

/// An open connection. It ends when either end is dropped.
pub struct Wire {
    /// Frames to the server.
    pub up: Sender<UpFrame>,
    /// Frames from the server.
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

/// A connection that is being opened.
pub type Connecting = Pin<Box<dyn Future<Output = Result<Wire, NoConnection>> + Send>>;

/// Opens connections.
pub type Connect = Arc<dyn Fn() -> Connecting + Send + Sync>;

/// How many frames may wait in each direction.
const FRAMES_MAX: usize = 1_024;

/// The timeout for opening a connection.
const PATIENCE: Duration = Duration::from_secs(5);

/// News about the connection to the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// There is no connection at the moment; the worker retries.
    Trouble(String),
    /// A server refused this worker: its token is invalid, or does not allow it to work. A retry
    /// would not help.
    Refused(String),
    /// A server has another protocol version, or rejected a frame of this worker. A retry would not
    /// help.
    OtherVersion(String),
}

impl Notice {
    fn is_final(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::OtherVersion(_))
    }
}

/// News about the connection, as it comes up.
#[derive(Clone, Debug)]
pub struct Notices(watch::Receiver<Option<Notice>>);

impl Notices {
    /// Waits for news; for ever if there will be none.
    pub async fn next(&mut self) -> Notice {
        while self.0.changed().await.is_ok() {
            if let Some(notice) = &*self.0.borrow_and_update() {
                return notice.clone();
            }
        }
        std::future::pending().await
    }
}

/// Publishes news about connections.
#[derive(Clone)]
struct Teller(watch::Sender<Option<Notice>>);

impl Teller {
    fn tell(&self, notice: Option<Notice>) {
        // News is published once, and none after a refusal, which is final.
        self.0.send_if_modified(|said| {
            let is_new = *said != notice && !said.as_ref().is_some_and(Notice::is_final);
            if is_new {
                match &notice {
                    Some(Notice::Trouble(why)) => {
                        tracing::warn!(error = why, "no connection to the server; retrying");
                    }
                    Some(Notice::Refused(why) | Notice::OtherVersion(why)) => {
                        tracing::error!(error = why, "the server refused this worker");
                    }
                    None => {}
                }
                *said = notice;
            }
            is_new
        });
    }
}

/// Connects to these servers in turn, until one answers, without a token. All errors are retried.
#[must_use]
pub fn to(urls: Vec<String>) -> Connect {
    let targets = urls.iter().map(|url| Target::read(url)).collect::<Result<Vec<_>, _>>();
    match targets {
        Ok(targets) => with(targets, Access::default()).0,
        Err(why) => Arc::new(move || {
            let why = NoConnection(why.to_string());
            Box::pin(async move { Err(why) })
        }),
    }
}

/// The same with a token and TLS files, and with news about the connection.
#[must_use]
pub fn with(targets: Vec<Target>, access: Access) -> (Connect, Notices) {
    let (teller, notices) = watch::channel(None);
    let shared = Arc::new((targets, access, Teller(teller)));
    let turn = Arc::new(AtomicUsize::new(0));
    let connect: Connect = Arc::new(move || {
        let (turn, shared) = (turn.fetch_add(1, Ordering::Relaxed), Arc::clone(&shared));
        Box::pin(async move {
            let (targets, access, teller) = &*shared;
            let target = &targets[turn % targets.len()];
            let opened = tokio::time::timeout(PATIENCE, open(target, access, teller)).await;
            let opened = opened.unwrap_or_else(|_| Err("no answer within 5 s".to_owned()));
            opened.map_err(|why| {
                let why = format!("cannot connect to {}: {why}", target.url);
                teller.tell(Some(Notice::Trouble(why.clone())));
                NoConnection(why)
            })
        })
    });
    (connect, Notices(notices))
}

/// The request that opens a connection.
fn request(target: &Target, access: &Access) -> Result<Request, String> {
    let url = target.url.replacen("http", "ws", 1);
    let request = format!("{url}/v1/work").into_client_request();
    let mut request = request.map_err(|error| error.to_string())?;
    if let Some(token) = access.token_for(target).map_err(|error| error.to_string())? {
        let value = HeaderValue::from_str(&format!("Bearer {}", token.reveal()));
        let mut value = value.expect("a token is plain text");
        value.set_sensitive(true);
        request.headers_mut().insert(header::AUTHORIZATION, value);
    }
    request.headers_mut().insert(protocol::HEADER, protocol::NUMBER.into());
    Ok(request)
}

/// The reason of a refused connection, if a retry cannot help.
fn refusal(error: &Error) -> Option<Notice> {
    let Error::Http(response) = error else {
        return None;
    };
    let problem = serde_json::from_slice::<Problem>(response.body().as_deref().unwrap_or_default());
    match (response.status(), problem) {
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, Ok(problem)) => {
            Some(Notice::Refused(problem.to_string()))
        }
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, Err(_)) => {
            Some(Notice::Refused(error.to_string()))
        }
        (_, Ok(problem)) if problem.code == protocol::CODE => {
            Some(Notice::OtherVersion(problem.to_string()))
        }
        _ => None,
    }
}

async fn open(target: &Target, access: &Access, teller: &Teller) -> Result<Wire, String> {
    let request = request(target, access)?;
    let stream = TcpStream::connect((&*target.host, target.port)).await;
    let stream = stream.map_err(|error| error.to_string())?;
    // Frames are small and awaited.
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    if !target.is_tls {
        return upgrade(request, stream, target, teller).await;
    }
    // Read again each time, so that renewed certificates are used.
    let config = access.tls.read().map_err(|error| error.to_string())?;
    let name = ServerName::try_from(target.host.clone()).map_err(|error| error.to_string())?;
    let stream = TlsConnector::from(config).connect(name, stream).await;
    let stream = stream.map_err(|error| format!("no secure connection: {error}"))?;
    upgrade(request, stream, target, teller).await
}

async fn upgrade<S>(
    request: Request,
    stream: S,
    target: &Target,
    teller: &Teller,
) -> Result<Wire, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // No size limit: a frame that is too large would be sent again over every new connection.
    let config = WebSocketConfig::default()
        .max_message_size(None)
        .max_frame_size(None)
        // It is cleared before every read, and most reads are small.
        .read_buffer_size(16 << 10);
    let (stream, mut returned) = LentStream::new(stream);
    let connected =
        tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await;
    let (socket, response) = match connected {
        Ok(connected) => connected,
        Err(mut error) => {
            if let (Error::Http(response), Ok(stream)) = (&mut error, returned.try_recv()) {
                read_rest(response, stream).await;
            }
            if let Some(notice) = refusal(&error) {
                teller.tell(Some(notice));
            }
            return Err(error.to_string());
        }
    };
    let said = response.headers().get(protocol::HEADER).map(HeaderValue::as_bytes);
    protocol::check_server(said).map_err(|problem| {
        teller.tell(Some(Notice::OtherVersion(problem.to_string())));
        problem.title
    })?;
    Ok(talk(socket, target.url.clone(), teller.clone()))
}

/// The longest refusal that is read.
const REFUSAL_BYTES: usize = 64 << 10;

/// Reads the rest of a refusal: the handshake keeps only the part of its body that arrived together
/// with its head.
async fn read_rest(response: &mut Response, stream: impl AsyncRead + Unpin) {
    let length = response.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let body = response.body_mut().get_or_insert_default();
    let missing = length.unwrap_or_default().min(REFUSAL_BYTES).saturating_sub(body.len());
    // If the connection breaks, the part that was read counts.
    let _ = stream.take(missing as u64).read_to_end(body).await;
}

/// A stream that returns to its owner when it is dropped, as a failed handshake does.
struct LentStream<S> {
    stream: Option<S>,
    owner: Option<oneshot::Sender<S>>,
}

impl<S: Unpin> LentStream<S> {
    fn new(stream: S) -> (Self, oneshot::Receiver<S>) {
        let (owner, returned) = oneshot::channel();
        (Self { stream: Some(stream), owner: Some(owner) }, returned)
    }

    fn inner(self: Pin<&mut Self>) -> Pin<&mut S> {
        Pin::new(self.get_mut().stream.as_mut().expect("it is there until the drop"))
    }
}

impl<S> Drop for LentStream<S> {
    fn drop(&mut self) {
        if let (Some(stream), Some(owner)) = (self.stream.take(), self.owner.take()) {
            // After a successful handshake it is not awaited.
            let _ = owner.send(stream);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LentStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.inner().poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LentStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.inner().poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner().poll_shutdown(context)
    }
}

/// The reason of a close frame, if a retry cannot help.
fn last_word(said: &CloseFrame, url: &str) -> Option<Notice> {
    let reason = said.reason.as_str();
    match said.code {
        CloseCode::Policy => Some(Notice::Refused(reason.to_owned())),
        CloseCode::Protocol | CloseCode::Unsupported | CloseCode::Invalid => {
            let problem = protocol::not_understood(url, reason);
            Some(Notice::OtherVersion(problem.to_string()))
        }
        _ => None,
    }
}

fn talk<S>(socket: WebSocketStream<S>, url: String, teller: Teller) -> Wire
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
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
            // Closed properly, so that the server notices at once.
            let _ = sink.close().await;
        };
        let reading = async {
            let mut trouble =
                "the server closed the connection before its first message".to_owned();
            let mut is_heard = false;
            while let Some(Ok(message)) = source.next().await {
                let delivery = match &message {
                    Message::Text(text) => delivery::read(text.as_str()).ok(),
                    Message::Ping(_) | Message::Pong(_) => continue,
                    Message::Close(Some(said)) => {
                        match last_word(said, &url) {
                            Some(word) => teller.tell(Some(word)),
                            None if said.reason.is_empty() => {}
                            None => {
                                trouble = said.reason.as_str().to_owned();
                                is_heard = false;
                            }
                        }
                        None
                    }
                    Message::Binary(_) | Message::Close(None) | Message::Frame(_) => None,
                };
                let Some(delivery) = delivery else { break };
                // Only now is it certain that the server understands this worker.
                if !is_heard {
                    teller.tell(None);
                    is_heard = true;
                }
                if answers.send(delivery).await.is_err() {
                    return;
                }
            }
            if !is_heard {
                teller
                    .tell(Some(Notice::Trouble(format!("connection to {url} closed: {trouble}"))));
            }
        };
        tokio::select! {
            () = writing => {}
            () = reading => {}
        }
    });
    Wire { up, down }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn a_refusal_that_arrives_in_pieces_is_final_at_once() {
        let problem = protocol::check_worker(None).expect_err("a worker without a version");
        let body = serde_json::to_string(&problem).expect("a problem can be written as JSON");
        let answer =
            format!("HTTP/1.1 400 Bad Request\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        // Smaller than the body, so that the head never arrives together with all of it.
        let (near, mut far) = tokio::io::duplex(16);
        let serve = async {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(far.read_u8().await.expect("the worker asks"));
            }
            // A worker that does not read all of it has closed the connection.
            let _ = far.write_all(answer.as_bytes()).await;
        };
        let target = Target::read("http://127.0.0.1:1").expect("a URL");
        let request = request(&target, &Access::default()).expect("it has no token");
        let (news, notices) = watch::channel(None);
        let teller = Teller(news);
        let (opened, ()) = tokio::join!(upgrade(request, near, &target, &teller), serve);
        assert!(opened.is_err());
        assert_eq!(*notices.borrow(), Some(Notice::OtherVersion(problem.to_string())));
    }
}
