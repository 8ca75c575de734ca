//! Submitting jobs: one, an array (all or none), or lines (in chunks, each all or none).

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request as Incoming, State as Given};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use bytes::{Buf as _, BytesMut};
use filch_api::job::{Chunk, Receipt};
use filch_api::problem::Problem;
use filch_api::submission::Submission;
use filch_api::{id, json, limits};
use filch_scheduler::dispatch::{Answer, Request};
use filch_scheduler::spec::JobSpec;
use filch_store::StoreSpace;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc::Sender;

use super::extract::{Nothing, Params};
use super::guard::EndsItself;
use super::{Failure, State, body};
use crate::tokens::Caller;

/// Receipts of an array of jobs.
#[derive(Serialize, utoipa::ToSchema)]
struct Receipts {
    /// In order of submission.
    jobs: Vec<Receipt>,
}

/// One job, or an array that is submitted all or none.
#[derive(Serialize, utoipa::ToSchema)]
#[expect(dead_code, reason = "only the document needs both in one")]
#[serde(untagged)]
enum Submissions {
    One(Box<Submission>),
    Many(Vec<Submission>),
}

/// The receipts.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(untagged)]
enum Taken {
    One(Receipt),
    Many(Receipts),
}

/// How many chunks of one request are committed at once.
const CHUNKS_MAX: usize = 4;

/// How long received lines wait for more lines before they are committed.
const GATHERING: Duration = Duration::from_millis(20);

/// How long the rest of a refused request is read and ignored.
const IGNORING: Duration = Duration::from_secs(10);

/// How long a client that sends lines may be silent.
const LINES_PATIENCE: Duration = Duration::from_secs(3_600);

/// Submit jobs
///
/// One job, or an array that is submitted all or none. Lines of JSON (`application/x-ndjson`) are
/// submitted in chunks: each chunk is all or none, and gets a response line as soon as it is
/// durable. An error is the last line; jobs acknowledged before it stay submitted. Submitting again
/// with the same id or key returns the same job.
#[utoipa::path(
    post,
    path = "/v1/jobs",
    operation_id = "submitJobs",
    tag = "jobs",
    params(("idempotency-key" = Option<String>, Header, description = "Idempotency key: \
        jobs without an id get one derived from it, so that the request can be repeated safely")),
    request_body(content((Submissions = "application/json"), (Submission = "application/x-ndjson"))),
    responses(
        (status = 201, body = Taken, description = "The jobs are durable"),
        (status = 200, description = "The job existed already, or lines are being accepted", content(
            (Receipt = "application/json"),
            (Chunk = "application/x-ndjson")
        ))
    )
)]
pub(crate) async fn submit(
    Given(state): Given<State>,
    Extension(caller): Extension<Caller>,
    Params(Nothing {}): Params<Nothing>,
    request: Incoming,
) -> Result<Response, Failure> {
    let key = idempotency_key(request.headers())?;
    if is_lines(request.headers()) {
        return Ok(lines(state, caller, request, key));
    }
    let most = |first| if first == b'[' { limits::LIST_BYTES } else { limits::BODY_BYTES };
    let held = body::collect(&state, request, most).await?;
    json::check_depth(&held.bytes)?;
    if held.bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        let judged = array(&held.bytes, key.as_deref())?;
        let jobs = keep(&state, &caller, judged).await?;
        return Ok((StatusCode::CREATED, Json(Taken::Many(Receipts { jobs }))).into_response());
    }
    let submission = serde_json::from_slice(&held.bytes).map_err(|error| body::unread(&error))?;
    let jobs = keep(&state, &caller, vec![judge(submission, key.as_deref(), 0)?]).await?;
    let receipt = jobs.into_iter().next().expect("one job, one receipt");
    let status = if receipt.new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(Taken::One(receipt))).into_response())
}

fn array(text: &[u8], key: Option<&str>) -> Result<Vec<JobSpec>, Problem> {
    let raw: Vec<&RawValue> = serde_json::from_slice(text).map_err(|error| body::unread(&error))?;
    if raw.len() > limits::ARRAY_JOBS {
        let title = format!("too many jobs in one array: {}", raw.len());
        return Err(Problem::new(413, "too-many-jobs", title).help(format!(
            "send at most {} at once, or send them as lines of JSON",
            limits::ARRAY_JOBS
        )));
    }
    let judged = raw.into_iter().zip(0_u64..).map(|(text, index)| {
        let submission = serde_json::from_str(text.get()).map_err(|error| body::unread(&error));
        let judged = submission.and_then(|submission| judge(submission, key, index));
        judged.map_err(|problem| problem.inside(&format!("/{index}")))
    });
    judged.collect()
}

fn judge(submission: Submission, key: Option<&str>, index: u64) -> Result<JobSpec, Problem> {
    let id = key.map(|key| submission.keyed_id(key, index));
    submission.validate(|| id.unwrap_or_else(id::new_job))
}

/// Passes jobs to the scheduler and waits until they are durable.
async fn keep(state: &State, caller: &Caller, jobs: Vec<JobSpec>) -> Result<Vec<Receipt>, Failure> {
    match hand_over(state, caller, jobs).await? {
        Answer::Submitted(submitted) => Ok(submitted.iter().map(Receipt::from).collect()),
        Answer::Done => Ok(Vec::new()),
        Answer::Refused(refused) => Err(Problem::from(refused).into()),
    }
}

/// The same, with the scheduler's own answer.
pub(super) async fn hand_over(
    state: &State,
    caller: &Caller,
    jobs: Vec<JobSpec>,
) -> Result<Answer, Failure> {
    // Everything of the body that these jobs come from has been received before this.
    caller.check_valid()?;
    jobs.iter().try_for_each(|job| caller.check(&job.queue))?;
    if let StoreSpace::Low { free, needed } = state.store.status().space {
        if let Some(suppressed) = state.log_limits.disk.admit() {
            tracing::warn!(free, needed, suppressed, "disk space is low: submit refused");
        }
        return Err(Problem::new(
            507,
            "disk-full",
            format!("the server's disk is nearly full: {free} bytes are free, and {needed} are reserved for reports"),
        )
        .help("free disk space on the server, then submit again")
        .into());
    }
    let request = match caller.queues() {
        Some(queues) => Request::SubmitWithin { queues: queues.to_vec(), jobs },
        None => Request::Submit(jobs),
    };
    Ok(state.handle.ask(caller, request).await?)
}

/// The key from which ids are derived for jobs that have none.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(key) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    let bytes = key.len();
    if bytes > limits::NAME_BYTES {
        let title = format!("the Idempotency-Key is too long: {bytes} bytes");
        return Err(Problem::new(422, "name-too-long", title)
            .help(format!("use at most {} bytes", limits::NAME_BYTES)));
    }
    let key = key.to_str().ok().filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| Problem::invalid("the Idempotency-Key is empty or not ASCII"));
    Ok(Some(key?.to_owned()))
}

fn is_lines(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.contains("ndjson") || kind.contains("jsonl"))
}

/// Each chunk gets a response line, and the first error is the last line. Jobs acknowledged before
/// it stay submitted.
fn lines(state: State, caller: Caller, request: Incoming, key: Option<String>) -> Response {
    let body = request.into_body().into_data_stream();
    let (answers, receiver) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(64);
    tokio::spawn(async move {
        let mut reader = Lines { body, buffer: BytesMut::new(), line: 0, is_over: false };
        take_lines(&state, &caller, &mut reader, key.as_deref(), &answers).await;
        drop(answers);
        reader.ignore_rest().await;
    });
    let stream = futures_util::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|item| (item, receiver))
    });
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    (StatusCode::OK, kind, Extension(EndsItself), Body::from_stream(stream)).into_response()
}

async fn take_lines<S: Pieces>(
    state: &State,
    caller: &Caller,
    reader: &mut Lines<S>,
    key: Option<&str>,
    answers: &Sender<Result<Bytes, std::io::Error>>,
) {
    let mut pending = FuturesOrdered::new();
    loop {
        let chunk = if reader.is_over {
            None
        } else {
            // Pending commits go on while the next lines are read.
            let reading = reader.chunk(key);
            tokio::pin!(reading);
            let read = loop {
                tokio::select! {
                    biased;
                    Some(answer) = pending.next() => if !say(answers, answer).await { return },
                    why = caller.over() => break Err(why),
                    read = &mut reading => break read,
                }
            };
            match read {
                Ok(chunk) => Some(chunk),
                Err(problem) => {
                    while let Some(answer) = pending.next().await {
                        if !say(answers, answer).await {
                            return;
                        }
                    }
                    say(answers, Err(problem)).await;
                    return;
                }
            }
        };
        match chunk {
            Some((judged, lines)) if !judged.is_empty() => pending.push_back(async move {
                let receipts = keep(state, caller, judged).await.map_err(|failure| failure.0)?;
                let new = receipts.iter().filter(|receipt| receipt.new).count();
                Ok(Chunk { lines, new: new as u64 })
            }),
            Some(_) => {}
            None if pending.is_empty() => return,
            None => {}
        }
        while pending.len() >= CHUNKS_MAX || (reader.is_over && !pending.is_empty()) {
            let answer = pending.next().await.expect("something is pending");
            if !say(answers, answer).await {
                return;
            }
        }
    }
}

/// Sends the response line of a chunk; false after an error, or if the client has disconnected.
async fn say(
    answers: &Sender<Result<Bytes, std::io::Error>>,
    answer: Result<Chunk, Problem>,
) -> bool {
    let is_fine = answer.is_ok();
    let mut line = match answer {
        Ok(chunk) => serde_json::to_vec(&chunk),
        Err(problem) => serde_json::to_vec(&problem),
    }
    .expect("an answer can be written as JSON");
    line.push(b'\n');
    answers.send(Ok(Bytes::from(line))).await.is_ok() && is_fine
}

/// A body as it is received.
trait Pieces: futures_util::Stream<Item = Result<Bytes, axum::Error>> + Unpin {}

impl<S: futures_util::Stream<Item = Result<Bytes, axum::Error>> + Unpin> Pieces for S {}

/// Cuts a body into lines, and lines into chunks.
struct Lines<S> {
    body: S,
    buffer: BytesMut,
    /// How many lines have been read.
    line: u64,
    is_over: bool,
}

impl<S: Pieces> Lines<S> {
    /// The next chunk, and how many lines were read up to its end; afterwards `is_over` is true if
    /// it was the last.
    async fn chunk(&mut self, key: Option<&str>) -> Result<(Vec<JobSpec>, u64), Problem> {
        let mut judged = Vec::new();
        let mut bytes = 0;
        let mut searched = 0;
        while judged.len() < limits::CHUNK_JOBS && bytes < limits::CHUNK_BYTES {
            if let Some(length) = self.buffer[searched..].iter().position(|&byte| byte == b'\n') {
                let line = self.buffer.split_to(searched + length);
                self.buffer.advance(1);
                searched = 0;
                bytes += line.len();
                judged.extend(self.read(&line, key)?);
                continue;
            }
            searched = self.buffer.len();
            if searched > limits::LINE_BYTES {
                return Err(body::line_too_long(searched).at(format!("line {}", self.line + 1)));
            }
            let patience = if judged.is_empty() { LINES_PATIENCE } else { GATHERING };
            match tokio::time::timeout(patience, self.body.next()).await {
                Ok(Some(Ok(more))) => self.buffer.extend_from_slice(&more),
                Ok(Some(Err(_))) => return Err(body::broken_off()),
                Ok(None) => {
                    self.is_over = true;
                    let line = self.buffer.split();
                    if !line.is_empty() {
                        judged.extend(self.read(&line, key)?);
                    }
                    break;
                }
                Err(_) if judged.is_empty() => return Err(body::too_slow(LINES_PATIENCE)),
                Err(_) => break,
            }
        }
        Ok((judged, self.line))
    }

    /// A client whose connection is closed while it sends may never read the response.
    async fn ignore_rest(mut self) {
        let reading = async { while let Some(Ok(_)) = self.body.next().await {} };
        if !self.is_over {
            let _ = tokio::time::timeout(IGNORING, reading).await;
        }
    }

    fn read(&mut self, line: &[u8], key: Option<&str>) -> Result<Option<JobSpec>, Problem> {
        self.line += 1;
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(None);
        }
        let at = format!("line {}", self.line);
        if line.len() > limits::LINE_BYTES {
            return Err(body::line_too_long(line.len()).at(at));
        }
        let submission: Submission = body::parse(line).map_err(|problem| problem.at(&at))?;
        if submission.id.is_none() && key.is_none() {
            return Err(Problem::invalid("a line without an id cannot be repeated safely")
                .help("add an \"id\" to each line, or an Idempotency-Key to the request")
                .at(at));
        }
        judge(submission, key, self.line - 1).map(Some).map_err(|problem| problem.inside(&at))
    }
}
