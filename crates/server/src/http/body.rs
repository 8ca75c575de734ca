//! Bodies of requests: read within size and time limits, and parsed.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::header;
use bytes::BytesMut;
use filch_api::problem::Problem;
use filch_api::{json, limits};
use futures_util::StreamExt as _;
use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::{Failure, State};

/// How many large bodies (larger than one object may be) are held at once.
pub(crate) const LARGE_MAX: usize = 4;

/// How long a request with such a body waits for a permit: longer than a client that has stopped
/// sending can keep one.
const TURN: Duration = Duration::from_secs(60);

/// A large body must bring as many bytes a second, or it loses its permit.
const SLOWEST: u32 = 1 << 10;

/// How much of a body that is too large is still read, so that the client is there to read the
/// response.
const IGNORED_BYTES: usize = 16 << 20;

/// A body that is one object.
pub(crate) struct Object<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<State> for Object<T> {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &State) -> Result<Self, Failure> {
        let held = collect(state, request, |_| limits::BODY_BYTES).await?;
        // serde would read an array as the fields of an object in the order of their declaration.
        if held.bytes.trim_ascii_start().starts_with(b"[") {
            return Err(Problem::invalid("expected a JSON object, got an array").into());
        }
        Ok(Self(parse(&held.bytes)?))
    }
}

/// A body that has been read. It counts as held until it is dropped.
pub(crate) struct Held {
    pub(crate) bytes: Bytes,
    _turn: Option<OwnedSemaphorePermit>,
}

/// Reads a body. `most` returns the size limit of a body that begins with this byte, after white
/// space.
pub(crate) async fn collect(
    state: &State,
    request: Request,
    most: impl Fn(u8) -> usize,
) -> Result<Held, Failure> {
    let announced = request.headers().get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let mut body = request.into_body().into_data_stream();
    let mut bytes = BytesMut::new();
    let mut bound = None;
    let mut turn: Option<Turn> = None;
    while let Some(piece) = next(&mut body, state.bounds.body_silence, turn.as_ref()).await? {
        if bound.is_none() {
            let first = piece.iter().find(|byte| !byte.is_ascii_whitespace());
            bound = first.map(|&first| most(first));
        }
        let most = bound.unwrap_or(limits::BODY_BYTES);
        let length = announced.unwrap_or(0).max(bytes.len() + piece.len());
        if length > most {
            ignore(body).await;
            return Err(too_large(length, most).into());
        }
        // What is announced gets no permit, only what has been received.
        if bytes.len() + piece.len() > limits::BODY_BYTES {
            match &mut turn {
                Some(turn) => turn.count(piece.len()),
                None => {
                    turn = Some(Turn::new(wait_for_turn(state).await?, state.bounds.body_silence));
                    bytes.reserve(length - bytes.len());
                }
            }
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(Held { bytes: bytes.freeze(), _turn: turn.map(|turn| turn.permit) })
}

/// A permit for a large body, as long as enough of the body is received.
struct Turn {
    permit: OwnedSemaphorePermit,
    /// One after the other, each must bring enough.
    window: Duration,
    ends_at: Instant,
    received: usize,
}

impl Turn {
    fn new(permit: OwnedSemaphorePermit, window: Duration) -> Self {
        Self { permit, window, ends_at: Instant::now() + window, received: 0 }
    }

    fn count(&mut self, bytes: usize) {
        self.received += bytes;
        if self.received as f64 >= f64::from(SLOWEST) * self.window.as_secs_f64() {
            (self.received, self.ends_at) = (0, Instant::now() + self.window);
        }
    }
}

async fn wait_for_turn(state: &State) -> Result<OwnedSemaphorePermit, Failure> {
    let turn = tokio::time::timeout(TURN, state.large.clone().acquire_owned()).await;
    match turn {
        Ok(Ok(turn)) => Ok(turn),
        Ok(Err(_)) => Err(Failure::ended()),
        Err(_) => Err(Problem::new(503, "busy", "too many large requests at once")
            .help("retry in a second, or send the jobs as lines of JSON, which have no limit")
            .into()),
    }
}

/// The next chunk of a body.
async fn next<S>(
    body: &mut S,
    patience: Duration,
    turn: Option<&Turn>,
) -> Result<Option<Bytes>, Failure>
where
    S: futures_util::Stream<Item = Result<Bytes, axum::Error>> + Unpin,
{
    let silent_at = Instant::now() + patience;
    let slow_at = turn.map_or(silent_at, |turn| turn.ends_at);
    match tokio::time::timeout_at(silent_at.min(slow_at), body.next()).await {
        Ok(None) => Ok(None),
        Ok(Some(Ok(piece))) => Ok(Some(piece)),
        Ok(Some(Err(_))) => Err(broken_off().into()),
        Err(_) if slow_at < silent_at => Err(too_little(patience).into()),
        Err(_) => Err(too_slow(patience).into()),
    }
}

/// Reads and drops the rest of a body, for a while.
async fn ignore(mut body: axum::body::BodyDataStream) {
    let mut ignored = 0;
    let reading = async {
        while let Some(Ok(piece)) = body.next().await
            && ignored < IGNORED_BYTES
        {
            ignored += piece.len();
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), reading).await;
}

/// Parses JSON that is not nested too deeply.
pub(crate) fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, Problem> {
    json::check_depth(text)?;
    serde_json::from_slice(text).map_err(|error| unread(&error))
}

/// A parse error as a problem.
pub(crate) fn unread(error: &serde_json::Error) -> Problem {
    let kind = if error.is_data() { Problem::invalid } else { Problem::malformed };
    kind(error.to_string())
}

fn too_large(bytes: usize, most: usize) -> Problem {
    Problem::new(413, "body-too-large", format!("the body is too large: {bytes} bytes or more"))
        .help(if most == limits::BODY_BYTES {
            format!("send at most {most} bytes; send several jobs as an array or as lines of JSON")
        } else {
            format!("send at most {most}, or send lines of JSON, which have no bound")
        })
}

/// A line exceeds the limit.
pub(crate) fn line_too_long(bytes: usize) -> Problem {
    Problem::new(413, "line-too-long", format!("a line is too long: {bytes} bytes or more"))
        .help(format!("send at most {}", limits::LINE_BYTES))
}

/// The client disconnected in the middle of a body.
pub(crate) fn broken_off() -> Problem {
    Problem::malformed("the body is incomplete: the connection broke").help(
        "repeat the request with the same Idempotency-Key or ids: jobs that were accepted \
         already are recognised",
    )
}

/// The client has stopped sending.
pub(crate) fn too_slow(patience: Duration) -> Problem {
    let span = filch_api::span::write(patience);
    Problem::new(408, "too-slow", format!("the body stalled: nothing was received for {span}"))
        .help("repeat the request with the same Idempotency-Key or ids")
}

/// The client sends a large body too slowly.
fn too_little(window: Duration) -> Problem {
    let span = filch_api::span::write(window);
    let title =
        format!("the body is sent too slowly: less than {SLOWEST} bytes a second for {span}");
    Problem::new(408, "too-slow", title)
        .help("send the jobs as lines of JSON, which may take as long as they need")
}
