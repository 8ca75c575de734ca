//! Endpoints for workers over plain HTTP: four requests under `/v1/work/{worker}`.
//!
//! Each worker has an HTTP session here, a task that keeps its session with the scheduler;
//! `http_session` decides what is sent. Responses are JSON, or lines of text for workers that
//! cannot read JSON.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::extract::State as Given;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use filch_api::problem::Problem;
use filch_api::session::{Up, UpFrame, WireHello, WireHold};
use filch_api::submission::Work;
use filch_api::work::{Answered, Claim, Claimed, Goodbye, Heartbeat, HeartbeatAnswer, Reports};
use filch_api::{delivery, id};
use filch_engine::server::{HangUp, LinkScope};
use filch_scheduler::id::WorkerId;
use filch_scheduler::message::Delivery;
use futures_util::FutureExt as _;
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, UnboundedSender, channel};
use tokio::sync::oneshot;

use super::body::Object;
use super::cluster::Done;
use super::extract::{Nothing, Params, Worker};
use super::http_session::{Ask, Call, Effect, Event, HttpSession, Reply};
use super::{Failure, State, closing};
use crate::link::Link;
use crate::shell::Urgent;
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
    Object(mut claim): Object<Claim>,
) -> Result<Response, Failure> {
    claim.check()?;
    caller.serve(&mut claim.queues)?;
    let who = Who::new(worker, &claim.instance, &caller);
    match ask(&state, who, Ask::Claim(claim)).await? {
        Reply::Claimed(claimed) if wants_lines(&headers) => Ok(claimed_lines(&claimed)),
        Reply::Claimed(claimed) => Ok(Json(claimed).into_response()),
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
pub(crate) async fn beat(
    Given(state): Given<State>,
    Extension(caller): Extension<Caller>,
    Worker(worker): Worker,
    Params(Nothing {}): Params<Nothing>,
    headers: HeaderMap,
    Object(beat): Object<Heartbeat>,
) -> Result<Response, Failure> {
    beat.check()?;
    let who = Who::new(worker, &beat.instance, &caller);
    match ask(&state, who, Ask::Beat(beat)).await? {
        Reply::Beaten(beaten) if wants_lines(&headers) => Ok(beaten_lines(&beaten)),
        Reply::Beaten(beaten) => Ok(Json(beaten).into_response()),
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
    let who = Who::new(worker, &reports.instance, &caller);
    match ask(&state, who, Ask::Report(reports.reports)).await? {
        Reply::Answered(answered) => Ok(Json(answered)),
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
    let who = Who::new(worker, &goodbye.instance, &caller);
    match ask(&state, who, Ask::Goodbye).await? {
        Reply::Done => Ok(Json(Done::YES)),
        _ => Err(Failure::ended()),
    }
}

/// The HTTP sessions of all workers.
#[derive(Default)]
pub(crate) struct HttpSessions {
    by_worker: Mutex<HashMap<WorkerId, OpenSession>>,
}

struct OpenSession {
    /// The process and the token that opened it: no other may use it.
    who: Who,
    calls: Sender<Call>,
}

/// The sender of a request.
#[derive(Clone)]
struct Who {
    worker: WorkerId,
    instance: String,
    scope: LinkScope,
}

impl Who {
    fn new(worker: WorkerId, instance: &str, caller: &Caller) -> Self {
        Self { worker, instance: instance.to_owned(), scope: caller.scope() }
    }

    /// Whether it may use the session of this one.
    fn check(&self, owner: &Self) -> Result<(), Problem> {
        if self.scope.token != owner.scope.token {
            return Err(Problem::new(
                403,
                "wrong-token",
                "this worker id belongs to another token",
            )
            .help("choose a random id for each process"));
        }
        if self.instance != owner.instance {
            let title = "another process uses this worker id";
            return Err(Problem::new(409, "worker-id-in-use", title)
                .help("choose a random id for each process"));
        }
        Ok(())
    }
}

/// How many requests of one worker may wait.
const CALLS_MAX: usize = 64;

/// How long a request waits for its response, beyond the time that a claim waits for jobs.
const PATIENCE: Duration = Duration::from_secs(120);

impl HttpSessions {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.by_worker.lock().expect("no panic while it is locked").len()
    }

    /// The channel to a worker's HTTP session, which is started if there is none.
    fn find(&self, who: &Who, state: &State) -> Result<Sender<Call>, Failure> {
        let mut by_worker = self.by_worker.lock().expect("no panic while it is locked");
        if let Some(open) = by_worker.get(&who.worker) {
            who.check(&open.who)?;
            return Ok(open.calls.clone());
        }
        let most = state.bounds.plain_workers;
        if by_worker.len() >= most {
            let title = format!("{most} workers use plain HTTP already, which is the limit");
            if let Some(suppressed) = state.log_limits.sessions.admit() {
                tracing::warn!(reason = title, suppressed, "session refused");
            }
            return Err(Problem::new(503, "too-many-workers", title)
                .help("use fewer workers with more slots")
                .into());
        }
        let (calls, waiting) = channel(CALLS_MAX);
        by_worker.insert(who.worker, OpenSession { who: who.clone(), calls: calls.clone() });
        let lease = Duration::from_millis(state.lease_ms);
        let shell = Shell {
            worker: who.worker,
            scope: who.scope.clone(),
            http_session: HttpSession::new(Instant::now(), lease),
            session: 0,
            said: 0,
            wire: None,
        };
        tokio::spawn(shell.run(state.clone(), calls.clone(), waiting));
        Ok(calls)
    }

    fn forget(&self, worker: WorkerId, calls: &Sender<Call>) {
        let mut by_worker = self.by_worker.lock().expect("no panic while it is locked");
        if by_worker.get(&worker).is_some_and(|open| open.calls.same_channel(calls)) {
            by_worker.remove(&worker);
        }
    }
}

async fn ask(state: &State, who: Who, ask: Ask) -> Result<Reply, Failure> {
    if who.worker.is_embedded() {
        let problem =
            Problem::new(400, "bad-id", "this worker id is reserved for workers inside the server");
        return Err(problem.help("choose an id whose first digit is 0 to 7").into());
    }
    // A session may be ending just when it is used.
    for _ in 0..3 {
        let calls = state.http_sessions.find(&who, state)?;
        let (reply, answer) = oneshot::channel();
        if calls.send(Call { ask: ask.clone(), reply }).await.is_err() {
            continue;
        }
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(answer)) => return Ok(answer?),
            Ok(Err(_)) if *state.closed.borrow() => break,
            Ok(Err(_)) => {}
            Err(_) => {
                return Err(Problem::new(
                    503,
                    "busy",
                    "the request timed out: the server could not store it in time",
                )
                .help("repeat the request unchanged")
                .into());
            }
        }
    }
    Err(Failure::ended())
}

/// The I/O around an HTTP session: its link to the scheduler, and the clock.
struct Shell {
    worker: WorkerId,
    /// What its token allows.
    scope: LinkScope,
    http_session: HttpSession,
    /// The current session, and how many batches were sent in it.
    session: u64,
    said: u64,
    wire: Option<(Link, Receiver<(Delivery, bool)>)>,
}

/// Events of the loop.
enum Happened {
    Asked(Option<Call>),
    Batch((Delivery, bool)),
    HungUp(HangUp),
    Settled(u64),
    Time,
    Closed,
}

/// The server or the session has ended.
struct Over;

impl Shell {
    async fn run(mut self, state: State, calls: Sender<Call>, mut waiting: Receiver<Call>) {
        let (settle, mut settled) = tokio::sync::mpsc::unbounded_channel();
        while self.step(&state, &mut waiting, &settle, &mut settled).await.is_ok() {}
        state.http_sessions.forget(self.worker, &calls);
        if let Some((link, _)) = self.wire {
            link.close().await;
        }
        // Waiting requests are dropped, and may start another session.
    }

    async fn step(
        &mut self,
        state: &State,
        waiting: &mut Receiver<Call>,
        settle: &UnboundedSender<u64>,
        settled: &mut UnboundedReceiver<u64>,
    ) -> Result<(), Over> {
        let wake = tokio::time::Instant::from_std(self.http_session.next_deadline());
        let happened = tokio::select! {
            biased;
            () = closing(state.closed.clone()) => Happened::Closed,
            happened = listen(&mut self.wire) => happened,
            Some(number) = settled.recv() => Happened::Settled(number),
            call = waiting.recv() => Happened::Asked(call),
            () = tokio::time::sleep_until(wake) => Happened::Time,
        };
        let event = match happened {
            Happened::Closed | Happened::Asked(None) => return Err(Over),
            Happened::Asked(Some(call)) => Event::Asked(call),
            Happened::Batch(batch) => return self.hear(state, settle, batch).await,
            Happened::HungUp(why) => hung_up(why),
            Happened::Settled(number) => {
                self.hear_all(state, settle).await?;
                Event::Settled(number)
            }
            Happened::Time => Event::Tick,
        };
        self.handle(state, settle, event).await
    }

    /// Receives all messages that were sent before the current event.
    async fn hear_all(&mut self, state: &State, settle: &UnboundedSender<u64>) -> Result<(), Over> {
        loop {
            match listen(&mut self.wire).now_or_never() {
                Some(Happened::Batch(batch)) => self.hear(state, settle, batch).await?,
                Some(Happened::HungUp(why)) => {
                    return self.handle(state, settle, hung_up(why)).await;
                }
                Some(_) | None => return Ok(()),
            }
        }
    }

    async fn hear(
        &mut self,
        state: &State,
        settle: &UnboundedSender<u64>,
        (delivery, tell): (Delivery, bool),
    ) -> Result<(), Over> {
        if tell && let Some((link, _)) = &self.wire {
            link.sent().await;
        }
        let frame = delivery::frame(delivery);
        if frame.session != self.session {
            return Ok(());
        }
        self.handle(state, settle, Event::Heard(frame.messages)).await
    }

    async fn handle(
        &mut self,
        state: &State,
        settle: &UnboundedSender<u64>,
        event: Event,
    ) -> Result<(), Over> {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for effect in self.http_session.handle(Instant::now(), event) {
                let is_said = match effect {
                    Effect::Open(hello) => self.open(state, hello).await,
                    Effect::Say(messages) => self.say(messages).await,
                    Effect::Settle(number) => {
                        let settle = settle.clone();
                        let tell = Urgent::Settle(Box::new(move || {
                            // If the receiver is gone, the session has ended.
                            let _ = settle.send(number);
                        }));
                        state.handle.urgent(tell).await.map_err(|_| Over)?;
                        true
                    }
                    Effect::Leave => return Err(Over),
                };
                if !is_said && events.is_empty() {
                    if *state.closed.borrow() {
                        return Err(Over);
                    }
                    events.push(Event::HungUp);
                }
            }
        }
        Ok(())
    }

    /// Opens a session over a new link. False if it ended at once.
    async fn open(&mut self, state: &State, hello: Box<WireHello>) -> bool {
        // Session numbers that this worker has not used before in this process; workers from before
        // a restart have none.
        static SESSIONS: AtomicU64 = AtomicU64::new(1);
        self.session = SESSIONS.fetch_add(1, Ordering::Relaxed);
        self.said = 0;
        if let Some((before, _)) = self.wire.take() {
            before.close().await;
        }
        let scope = self.scope.clone();
        self.wire = Link::open(state.handle.clone(), state.services.clone(), scope).await;
        self.say(vec![Up::Hello(hello)]).await
    }

    async fn say(&mut self, messages: Vec<Up>) -> bool {
        self.said += 1;
        let frame = UpFrame {
            worker: id::worker(self.worker),
            session: self.session,
            number: self.said,
            messages,
            output: Vec::new(),
            about: None,
        };
        match &self.wire {
            Some((link, _)) => link.take(frame).await.is_ok(),
            None => false,
        }
    }
}

/// Waits for the next batch from the scheduler; for ever if there is no session.
async fn listen(wire: &mut Option<(Link, Receiver<(Delivery, bool)>)>) -> Happened {
    match wire {
        Some((link, outgoing)) => tokio::select! {
            biased;
            Some(batch) = outgoing.recv() => Happened::Batch(batch),
            why = link.hung_up() => Happened::HungUp(why),
        },
        None => std::future::pending().await,
    }
}

/// The scheduler's end of the link is closed.
fn hung_up(why: HangUp) -> Event {
    match why {
        HangUp::NotPermitted(title) => {
            let problem = Problem::new(403, "wrong-queue", title);
            Event::Refused(problem.help("use the token with which this worker began"))
        }
        HangUp::Over | HangUp::Slow | HangUp::Invalid(_) => Event::HungUp,
    }
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

fn beaten_lines(beaten: &HeartbeatAnswer) -> Response {
    let mut lines = Lines::new(beaten.lease_ms, beaten.drain);
    lines.holds("keep", &beaten.keep);
    lines.holds("cancel", &beaten.cancel);
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
