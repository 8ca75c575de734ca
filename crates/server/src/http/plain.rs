//! Endpoints for workers over plain HTTP: four requests under `/v1/work/{worker}`.
//!
//! Requests are converted for the engine, which keeps the session of each worker, and its replies
//! are converted back. Responses are JSON, or lines of text for workers that cannot read JSON.

use std::fmt::Write as _;
use std::time::Duration;

use axum::extract::State as Given;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use filch_api::problem::Problem;
use filch_api::session::{InvalidFrame, WireAssignment, WireHold, WireReport};
use filch_api::submission::Work;
use filch_api::work::{
    Answered, Claim, Claimed, Goodbye, Heartbeat, HeartbeatAnswer, Reports, TooLate,
};
use filch_engine::server::{HttpAsk, HttpClaim, HttpRefusal, HttpReply, HttpWorker};
use filch_scheduler::id::{Fence, Hold, WorkerId};
use filch_scheduler::message::{Assignment, Serves};
use filch_scheduler::name::Name;
use filch_scheduler::record::StoredText;
use serde_json::value::RawValue;

use super::body::Object;
use super::cluster::Done;
use super::extract::{Nothing, Params, Worker};
use super::{Failure, State};
use crate::tokens::Caller;

/// Claim jobs
///
/// Assigns jobs to the worker's free slots, at once or as soon as there are some (long polling).
/// With `accept: text/plain` the response has lines of a word, a tab and a value.
#[utoipa::path(
    post,
    path = "/v1/work/{worker}/claim",
    operation_id = "claim",
    tag = "work",
    params(("worker" = String, Path, pattern = "^[0-7][0-9a-fA-F]{15}$", description = "Sixteen hexadecimal digits that the \
        worker chooses at random; the first is 0 to 7")),
    request_body = Claim,
    responses((status = 200, body = Claimed))
)]
pub(crate) async fn claim(
    Given(state): Given<State>,
    Extension(caller): Extension<Caller>,
    Worker(worker): Worker,
    Params(Nothing {}): Params<Nothing>,
    headers: HeaderMap,
    Object(claim): Object<Claim>,
) -> Result<Response, Failure> {
    claim.check()?;
    let Claim { instance, number, slots, queues, holds: held, wait } = claim;
    let serves = queues.map_or(Serves::All, |queues| {
        Serves::Named(queues.iter().map(|queue| Name::from(queue.as_str())).collect())
    });
    let wait = wait.map_or(Duration::ZERO, |wait| wait.0.duration());
    let claim = HttpClaim { number, slots, serves, holds: holds(&held), wait };
    match ask(&state, &caller, worker, &instance, HttpAsk::Claim(claim)).await? {
        HttpReply::Claimed { jobs, cancel, drain, lease } => {
            let jobs = jobs.iter().map(wire_assignment).collect();
            let (cancel, lease_ms) = (wire_holds(&cancel), lease.as_millis() as u64);
            let claimed = Claimed { jobs, cancel, drain, lease_ms };
            if wants_lines(&headers) {
                return Ok(claimed_lines(&claimed));
            }
            Ok(Json(claimed).into_response())
        }
        _ => Err(Failure::ended()),
    }
}

/// Renew the lease
///
/// The worker sends which jobs it holds; the response lists those it must stop. Send ten heartbeats
/// per lease.
#[utoipa::path(
    post,
    path = "/v1/work/{worker}/heartbeat",
    operation_id = "heartbeat",
    tag = "work",
    params(("worker" = String, Path, pattern = "^[0-7][0-9a-fA-F]{15}$", description = "The worker's id")),
    request_body = Heartbeat,
    responses((status = 200, body = HeartbeatAnswer))
)]
pub(crate) async fn heartbeat(
    Given(state): Given<State>,
    Extension(caller): Extension<Caller>,
    Worker(worker): Worker,
    Params(Nothing {}): Params<Nothing>,
    headers: HeaderMap,
    Object(heartbeat): Object<Heartbeat>,
) -> Result<Response, Failure> {
    heartbeat.check()?;
    let asked =
        HttpAsk::Heartbeat { holds: holds(&heartbeat.holds), stopping: holds(&heartbeat.stopping) };
    match ask(&state, &caller, worker, &heartbeat.instance, asked).await? {
        HttpReply::HeartbeatDone { keep, cancel, drain, lease } => {
            let (keep, cancel) = (wire_holds(&keep), wire_holds(&cancel));
            let lease_ms = lease.as_millis() as u64;
            let answer = HeartbeatAnswer { keep, cancel, drain, lease_ms };
            if wants_lines(&headers) {
                return Ok(beaten_lines(&answer));
            }
            Ok(Json(answer).into_response())
        }
        _ => Err(Failure::ended()),
    }
}

/// Report how attempts ended
///
/// The response comes once the reports are durable. Reports may be repeated; stale ones are
/// refused.
#[utoipa::path(
    post,
    path = "/v1/work/{worker}/report",
    operation_id = "report",
    tag = "work",
    params(("worker" = String, Path, pattern = "^[0-7][0-9a-fA-F]{15}$", description = "The worker's id")),
    request_body = Reports,
    responses((status = 200, body = Answered))
)]
pub(crate) async fn report(
    Given(state): Given<State>,
    Extension(caller): Extension<Caller>,
    Worker(worker): Worker,
    Params(Nothing {}): Params<Nothing>,
    Object(reports): Object<Reports>,
) -> Result<Json<Answered>, Failure> {
    reports.check()?;
    if reports.reports.is_empty() {
        return Err(Problem::invalid("`reports` is empty").at("/reports").into());
    }
    let Reports { instance, reports } = reports;
    let invalid = |InvalidFrame(why)| Problem::invalid(why).at("/reports");
    let reports = reports.into_iter().map(WireReport::into_report).collect::<Result<_, _>>();
    let asked = HttpAsk::Report(reports.map_err(invalid)?);
    match ask(&state, &caller, worker, &instance, asked).await? {
        HttpReply::Answered { accepted, refused } => {
            let too_late = |(hold, current): (Hold, Option<Fence>)| TooLate {
                job: hold.into(),
                current: current.map(|fence| fence.0),
            };
            let refused = refused.into_iter().map(too_late).collect();
            Ok(Json(Answered { accepted: wire_holds(&accepted), refused }))
        }
        _ => Err(Failure::ended()),
    }
}

/// End a worker's session
///
/// Jobs that the worker still held go back to the queue at once.
#[utoipa::path(
    post,
    path = "/v1/work/{worker}/goodbye",
    operation_id = "goodbye",
    tag = "work",
    params(("worker" = String, Path, pattern = "^[0-7][0-9a-fA-F]{15}$", description = "The worker's id")),
    request_body = Goodbye,
    responses((status = 200, body = Done))
)]
pub(crate) async fn goodbye(
    Given(state): Given<State>,
    Extension(caller): Extension<Caller>,
    Worker(worker): Worker,
    Params(Nothing {}): Params<Nothing>,
    Object(goodbye): Object<Goodbye>,
) -> Result<Json<Done>, Failure> {
    goodbye.check()?;
    match ask(&state, &caller, worker, &goodbye.instance, HttpAsk::Goodbye).await? {
        HttpReply::Done => Ok(Json(Done::YES)),
        _ => Err(Failure::ended()),
    }
}

/// How long a request waits for its response; a claim waits for jobs for at most half as long.
const PATIENCE: Duration = Duration::from_secs(120);

/// Sends a request to the engine, and waits for its response.
async fn ask(
    state: &State,
    caller: &Caller,
    worker: WorkerId,
    instance: &str,
    ask: HttpAsk,
) -> Result<HttpReply, Failure> {
    let from = HttpWorker { worker, instance: instance.into(), scope: caller.scope() };
    match tokio::time::timeout(PATIENCE, state.handle.ask_http(from, ask)).await {
        Ok(response) => Ok(response?.map_err(|refusal| problem(state, caller, refusal))?),
        Err(_) => {
            let title = "the request timed out: the server could not store it in time";
            Err(Problem::new(503, "busy", title).help("repeat the request unchanged").into())
        }
    }
}

fn problem(state: &State, caller: &Caller, refusal: HttpRefusal) -> Problem {
    match refusal {
        HttpRefusal::ReservedId => {
            let title = "this worker id is reserved for workers inside the server";
            Problem::new(400, "bad-id", title).help("choose an id whose first digit is 0 to 7")
        }
        HttpRefusal::WrongToken => {
            Problem::new(403, "wrong-token", "this worker id belongs to another token")
                .help("choose a random id for each process")
        }
        HttpRefusal::IdInUse => {
            Problem::new(409, "worker-id-in-use", "another process uses this worker id")
                .help("choose a random id for each process")
        }
        HttpRefusal::TooManyWorkers(most) => {
            let title = format!("{most} workers use plain HTTP already, which is the limit");
            if let Some(suppressed) = state.log_limits.sessions.admit() {
                tracing::warn!(reason = title, suppressed, "session refused");
            }
            Problem::new(503, "too-many-workers", title).help("use fewer workers with more slots")
        }
        HttpRefusal::WrongQueue(queue) => caller.wrong_queue(&queue),
        HttpRefusal::NotPermitted(title) => Problem::new(403, "wrong-queue", title)
            .help("use the token with which this worker began"),
        HttpRefusal::TokenEnded => caller.farewell(),
        HttpRefusal::OldNumber { number, newest } => {
            let title = format!("claim {number} is older than claim {newest}");
            Problem::new(409, "old-number", title).help(
                "number the claims of a worker in ascending order, and wait for each response",
            )
        }
        HttpRefusal::Gone => {
            let title = "the server does not know this worker, or has given its jobs to others";
            Problem::new(410, "gone", title)
                .help("stop running jobs, do not report them, and start again with a new id")
        }
        HttpRefusal::Busy => Problem::new(503, "busy", "the server is too busy for this worker")
            .help("repeat the request in a second"),
    }
}

fn holds(holds: &[WireHold]) -> Vec<Hold> {
    holds.iter().map(|&hold| hold.into()).collect()
}

fn wire_holds(holds: &[Hold]) -> Vec<WireHold> {
    holds.iter().map(|&hold| hold.into()).collect()
}

fn wire_assignment((assignment, text): &(Assignment, StoredText)) -> WireAssignment {
    let nothing = || RawValue::from_string("{}".into()).expect("an object is JSON");
    let work = RawValue::from_string(text.to_string()).unwrap_or_else(|_| nothing());
    WireAssignment::say(assignment, work)
}

fn wants_lines(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/plain"))
}

/// Lines of a word, a tab and a value. Backslashes, tabs and line ends in values are written `\\`,
/// `\t`, `\n` and `\r`, so that a shell's `printf %b` decodes them.
struct Lines(String);

impl Lines {
    fn new(lease_ms: u64, drain: bool) -> Self {
        let mut lines = Self(String::new());
        lines.line("lease_ms", lease_ms);
        if drain {
            lines.line("drain", true);
        }
        lines
    }

    fn line(&mut self, word: &str, value: impl std::fmt::Display) {
        let value = value.to_string();
        self.0.push_str(word);
        self.0.push('\t');
        for character in value.chars() {
            match character {
                '\\' => self.0.push_str("\\\\"),
                '\t' => self.0.push_str("\\t"),
                '\n' => self.0.push_str("\\n"),
                '\r' => self.0.push_str("\\r"),
                other => self.0.push(other),
            }
        }
        self.0.push('\n');
    }

    fn holds(&mut self, word: &str, holds: &[WireHold]) {
        for WireHold(job, fence) in holds {
            writeln!(self.0, "{word}\t{job} {fence}").expect("a string takes everything");
        }
    }

    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], self.0).into_response()
    }
}

fn beaten_lines(answer: &HeartbeatAnswer) -> Response {
    let mut lines = Lines::new(answer.lease_ms, answer.drain);
    lines.holds("keep", &answer.keep);
    lines.holds("cancel", &answer.cancel);
    lines.into_response()
}

/// Each job begins with the line `job`; `run` and `env` come once for each word and each variable.
fn claimed_lines(claimed: &Claimed) -> Response {
    let mut lines = Lines::new(claimed.lease_ms, claimed.drain);
    lines.holds("cancel", &claimed.cancel);
    for job in &claimed.jobs {
        lines.holds("job", &[job.job]);
        lines.line("id", &job.id);
        lines.line("queue", &job.queue);
        lines.line("kind", &job.kind);
        lines.line("attempt", job.attempt);
        if let Some(timeout) = job.timeout_ms {
            lines.line("timeout_ms", timeout);
        }
        let work: Work = serde_json::from_str(job.work.get()).unwrap_or_default();
        if let Some(args) = work.args {
            lines.line("args", args);
        }
        if let Some(dir) = work.dir {
            lines.line("dir", dir);
        }
        for (name, value) in work.env {
            lines.line("env", format_args!("{name}={value}"));
        }
        for word in work.run.into_iter().flatten() {
            lines.line("run", word);
        }
    }
    lines.into_response()
}
