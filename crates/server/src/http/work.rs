//! The workers' endpoint: one WebSocket per worker.

use std::fmt::Display;
use std::time::Duration;

use axum::Extension;
use axum::extract::State as Given;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseCode, CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use filch_api::problem::Problem;
use filch_api::session::Arrived;
use filch_api::{delivery, limits, protocol};
use filch_engine::server::HangUp;
use futures_util::{SinkExt as _, StreamExt as _};

use super::{Failure, State};
use crate::link::{Link, Untaken};
use crate::tokens::Caller;

/// Bytes of one read. The buffer is cleared before every read, and there may be many idle workers:
/// most frames are heartbeats, and a long frame takes some more reads.
const READ_BYTES: usize = 4 << 10;

/// Connect a worker (WebSocket)
///
/// One connection per worker, with numbered batches of JSON. docs/protocol.md describes the
/// protocol, and `/worker-protocol.json` has the schemas. Simple workers use the four requests
/// below instead.
#[utoipa::path(
    get,
    path = "/v1/work",
    operation_id = "work",
    tag = "work",
    params(("filch-protocol" = u32, Header, description = "The worker's protocol version; must equal the server's, which is in the response")),
    responses((status = 101, description = "Switched to the WebSocket protocol"))
)]
pub(crate) async fn connect(
    Given(state): Given<State>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Failure> {
    let upgrade = upgrade.map_err(|rejection| {
        Problem::new(rejection.status().as_u16(), "no-websocket", rejection.body_text())
            .help("workers connect here with a WebSocket; workers without one POST to /v1/work/{worker}/claim")
    })?;
    let protocol = headers.get(protocol::HEADER).map(HeaderValue::as_bytes);
    if let Err(problem) = protocol::check_worker(protocol) {
        log_refused(&state, &problem.title);
        return Err(problem.into());
    }
    let mut response = upgrade
        .max_message_size(limits::FRAME_BYTES)
        .max_frame_size(limits::FRAME_BYTES)
        .read_buffer_size(READ_BYTES)
        .on_upgrade(move |socket| talk(state, caller, socket));
    response.headers_mut().insert(protocol::HEADER, protocol::NUMBER.into());
    Ok(response)
}

/// How a connection ends.
enum End {
    /// Without a reason.
    Plain,
    /// With a close frame that tells the worker why.
    Said { code: CloseCode, reason: String },
}

impl End {
    /// The worker's token does not allow this.
    fn not_permitted(problem: &Problem) -> Self {
        Self::Said { code: close_code::POLICY, reason: farewell(problem) }
    }

    /// The engine has closed the connection.
    fn hung_up(why: HangUp) -> Self {
        match why {
            HangUp::Over | HangUp::Slow => Self::Plain,
            HangUp::NotPermitted(title) => {
                Self::not_permitted(&Problem::new(403, "wrong-queue", title))
            }
            HangUp::Invalid(why) => Self::nonsense(close_code::INVALID, &why),
        }
    }

    /// The worker has sent an invalid frame.
    fn nonsense(code: CloseCode, why: &dyn Display) -> Self {
        let mut reason = format!("invalid frame: {why}");
        reason.truncate(reason.floor_char_boundary(REASON_BYTES));
        Self::Said { code, reason }
    }
}

async fn talk(state: State, caller: Caller, socket: WebSocket) {
    let opened = Link::open(state.handle.clone(), state.services.clone(), caller.scope()).await;
    let Some((link, mut outgoing)) = opened else { return };
    let (mut sink, mut source) = socket.split();
    let writing = async {
        while let Some((delivery, tell)) = outgoing.recv().await {
            if sink.send(Message::text(delivery::write(delivery))).await.is_err() {
                break;
            }
            if tell {
                link.sent().await;
            }
        }
    };
    let reading = async {
        while let Some(message) = source.next().await {
            let frame = match message {
                Ok(Message::Text(text)) => Arrived::read(text.as_str()),
                Ok(Message::Ping(_) | Message::Pong(_)) => continue,
                Ok(Message::Close(_)) => break,
                Ok(Message::Binary(_)) => {
                    return End::nonsense(close_code::UNSUPPORTED, &"it is binary, not text");
                }
                Err(error) => return End::nonsense(close_code::PROTOCOL, &error),
            };
            let frame = match frame {
                Ok(frame) => frame,
                Err(error) => return End::nonsense(close_code::INVALID, &error),
            };
            match link.hear(frame).await {
                Ok(()) => {}
                Err(Untaken::Nonsense(why)) => return End::nonsense(close_code::INVALID, &why),
                Err(Untaken::Closed) => break,
            }
        }
        End::Plain
    };
    // The token first: once it has ended, nothing more is read.
    let end = tokio::select! {
        biased;
        why = caller.over() => End::not_permitted(&why),
        why = link.hung_up() => End::hung_up(why),
        () = writing => End::Plain,
        end = reading => end,
    };
    if let End::Said { code, reason } = end {
        // Errors of parsers quote the frame, which may hold results and output of jobs.
        let is_quoted = matches!(code, close_code::INVALID | close_code::PROTOCOL);
        log_refused(&state, if is_quoted { "invalid frame" } else { &reason });
        let frame = CloseFrame { code, reason: reason.into() };
        // A worker that does not read it gets the reason when it connects again.
        let _ = tokio::time::timeout(FAREWELL, sink.send(Message::Close(Some(frame)))).await;
    }
    link.close().await;
}

/// Logs why a worker's session is refused.
fn log_refused(state: &State, reason: &str) {
    if let Some(suppressed) = state.log_limits.sessions.admit() {
        tracing::warn!(reason, suppressed, "session refused");
    }
}

/// The longest reason that the WebSocket protocol allows.
const REASON_BYTES: usize = 123;

/// The reason of a close frame, with its help if it fits.
fn farewell(problem: &Problem) -> String {
    let Problem { title, help, .. } = problem;
    let whole = help.as_ref().map(|help| format!("{title}\n  help: {help}"));
    let whole = whole.filter(|whole| whole.len() <= REASON_BYTES);
    whole.unwrap_or_else(|| title[..title.floor_char_boundary(REASON_BYTES)].to_owned())
}

/// How long sending a close frame may take.
const FAREWELL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_reason_fits_into_its_frame() {
        let problem = Problem::new(401, "no-token", "no").help("bring one");
        assert_eq!(farewell(&problem), "no\n  help: bring one");
        let problem = Problem::new(401, "no-token", "no").help("x".repeat(REASON_BYTES));
        assert_eq!(farewell(&problem), "no");
        let problem = Problem::new(401, "no-token", "\u{e4}".repeat(REASON_BYTES));
        assert_eq!(farewell(&problem), "\u{e4}".repeat(REASON_BYTES / 2));
    }
}
