//! An HTTP session: keeps the session of a worker that uses plain HTTP.
//!
//! The worker's requests become the messages of a session, and the scheduler's messages become
//! their responses. It sends nothing on its own: only the worker's requests renew the worker's
//! lease. It asks for jobs only while a claim waits for them, and no jobs are stolen from it.
//!
//! This module decides for one worker, as a function of events and time; `http_workers` has all of
//! them, and connects them to the scheduler.
//!
//! A job that the worker does not list may be in a response that is still on its way, so a
//! heartbeat takes nothing away. A claim does: its number means that the worker has read every
//! earlier response, or never will. Jobs of the last response that are not listed are assigned
//! again; older ones go back to the queue.
//!
//! After a restart of the server the first request may be a report or a heartbeat, which need not
//! list every job that the worker runs. Until the first claim it keeps all jobs that are its own.
//!
//! A client may have abandoned a request that waits. Each worker has a bounded number of requests
//! that wait, and of those that repeat each other only the newest.

mod claims;
mod reports;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use filch_scheduler::id::{Fence, Hold};
use filch_scheduler::message::{
    Assignment, Delivery, FromWorker, Hello, HelloKind, Report, Serves, StartMode, ToWorker,
};
use filch_scheduler::record::StoredText;
use filch_scheduler::time::Monotonic;

use super::event::{HangUp, Ticket};
use super::http_event::{HttpAsk, HttpClaim, HttpRefusal, HttpReply};

/// The response to a request.
pub(super) type HttpResponse = Result<HttpReply, HttpRefusal>;

/// A request that waits for its response.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) ask: HttpAsk,
    pub(super) ticket: Ticket,
}

/// Events.
#[derive(Debug)]
pub(super) enum HttpEvent {
    Asked(Call),
    /// Messages from the scheduler in the current session.
    Heard(Delivery),
    /// Everything that was decided before the matching `Settle` is durable and has arrived.
    Settled(u64),
    /// The current session is over.
    HungUp(HangUp),
    /// The worker's token is no longer valid; its process may come back with another one.
    TokenEnded,
    /// The worker has another token from now on.
    Rebound,
    Tick,
}

/// Effects.
#[derive(Debug)]
pub(super) enum HttpEffect {
    /// Open a new session with this hello.
    Open(Hello),
    /// Send this as the next batch of the current session.
    Say(Vec<FromWorker>),
    /// Report when everything that was decided up to now is durable.
    Settle(u64),
    /// Answer a request.
    Respond(Ticket, HttpResponse),
    /// The session is over.
    Leave,
}

/// How often the scheduler may end a session before it has reconciled.
const HANG_UPS: u32 = 3;

/// After this many silent leases a worker is dropped.
const FORGOTTEN: u32 = 2;

/// A claim waits at most a lease divided by this after the worker's last request: a worker that is
/// silent for longer gets no jobs.
const SILENCE: u32 = 4;

/// How many requests of one worker may wait: one for each of the slots that it can have, and a few
/// more.
const WAITING_MAX: usize = 1_024;

/// How many repetitions of the same request may wait.
const REPEATS_MAX: usize = 4;

pub(super) struct HttpSession {
    phase: Phase,
    slots: u32,
    serves: Serves,
    lease: Duration,
    /// The time of the worker's last request.
    heard_at: Monotonic,
    /// The worker's jobs, as far as is known.
    jobs: BTreeMap<Hold, Holding>,
    arrivals: u64,
    /// Whether the worker has listed all its jobs to this session.
    has_listed: bool,
    /// The jobs that the scheduler had assigned to it before.
    held: Vec<Hold>,
    claim: Option<OpenClaim>,
    /// The newest answered claim, and its jobs.
    last: Option<(u64, Vec<GivenJob>)>,
    /// Reports that are not answered yet.
    reports: BTreeMap<Hold, Report>,
    reporting: Vec<Reporting>,
    /// Responses that wait for a renewal of the lease.
    renewals: Vec<Renewal>,
    goodbye: Option<OpenGoodbye>,
    /// Requests that wait for reconciliation.
    waiting: Vec<Call>,
    /// How many batches were sent in the current session.
    said: u64,
    /// The newest of them that has renewed the lease.
    renewed: u64,
    settles: u64,
    is_draining: bool,
    hang_ups: u32,
    effects: Vec<HttpEffect>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// There was no request yet.
    Fresh,
    /// The hello was sent, and the scheduler has not reconciled yet.
    Greeting,
    Open,
    Over,
}

/// A job and its payload.
type GivenJob = (Assignment, StoredText);

/// A job of the worker.
struct Holding {
    stage: Stage,
    /// The worker should stop it.
    is_cancelled: bool,
    /// The scheduler knows that it runs.
    is_started: bool,
}

enum Stage {
    /// The scheduler was asked whether it may start.
    Confirming(u64, Box<GivenJob>),
    /// It goes into the next response.
    Waiting(u64, Box<GivenJob>),
    /// The worker has it, or it is in a response that may be on its way.
    Given,
}

struct OpenClaim {
    claim: HttpClaim,
    deadline: Monotonic,
    /// Once it waits for no more jobs: the settle number that it waits for.
    closing: Option<u64>,
    /// The newest batch that was sent for it.
    batch: u64,
    tickets: Vec<Ticket>,
}

struct Reporting {
    /// The jobs without an answer, and whether the same was reported to the scheduler.
    left: BTreeMap<Hold, bool>,
    accepted: Vec<Hold>,
    refused: Vec<(Hold, Option<Fence>)>,
    /// The batch that has the reports.
    batch: u64,
    ticket: Ticket,
}

struct Renewal {
    /// Sent again if the session ends.
    ask: HttpAsk,
    /// The batch that the scheduler has to acknowledge.
    batch: u64,
    reply: HttpReply,
    ticket: Ticket,
}

struct OpenGoodbye {
    settle: u64,
    tickets: Vec<Ticket>,
}

impl HttpSession {
    /// A session of a worker that holds these jobs, as far as the scheduler knows.
    pub(super) const fn new(now: Monotonic, lease: Duration, held: Vec<Hold>) -> Self {
        Self {
            phase: Phase::Fresh,
            slots: 0,
            serves: Serves::All,
            lease,
            heard_at: now,
            jobs: BTreeMap::new(),
            arrivals: 0,
            has_listed: false,
            held,
            claim: None,
            last: None,
            reports: BTreeMap::new(),
            reporting: Vec::new(),
            renewals: Vec::new(),
            goodbye: None,
            waiting: Vec::new(),
            said: 0,
            renewed: 0,
            settles: 0,
            is_draining: false,
            hang_ups: 0,
            effects: Vec::new(),
        }
    }

    /// Handles one event; returns the effects, to be performed in order.
    pub(super) fn handle(&mut self, now: Monotonic, event: HttpEvent) -> Vec<HttpEffect> {
        match event {
            HttpEvent::Asked(call) => {
                self.heard_at = now;
                self.asked(now, call);
            }
            HttpEvent::Heard(delivery) => self.heard(now, delivery),
            HttpEvent::Settled(number) => self.settled(number),
            HttpEvent::HungUp(HangUp::NotPermitted(why)) => {
                self.refused(&HttpRefusal::NotPermitted(why));
            }
            HttpEvent::HungUp(HangUp::Over | HangUp::Slow | HangUp::Invalid(_)) => {
                self.hung_up(now);
            }
            HttpEvent::TokenEnded => self.token_ended(),
            HttpEvent::Rebound => self.reopen(now),
            HttpEvent::Tick => {}
        }
        self.expire(now);
        std::mem::take(&mut self.effects)
    }

    /// When to call again at the latest.
    pub(super) fn next_deadline(&self) -> Monotonic {
        let forgotten = self.heard_at.plus(self.lease * FORGOTTEN);
        self.claim_deadline().map_or(forgotten, |deadline| deadline.min(forgotten))
    }

    fn claim_deadline(&self) -> Option<Monotonic> {
        let open = self.claim.as_ref().filter(|open| open.closing.is_none())?;
        Some(open.deadline.min(self.heard_at.plus(self.lease / SILENCE)))
    }

    /// Handles the passing of time.
    fn expire(&mut self, now: Monotonic) {
        if self.claim_deadline().is_some_and(|at| at <= now) {
            self.close_claim();
        }
        // Its lease has expired, so its jobs belong to other workers.
        if self.heard_at.plus(self.lease * FORGOTTEN) <= now {
            self.over(&HttpRefusal::Gone);
        }
    }

    /// How many requests wait for their responses.
    fn waiting_count(&self) -> usize {
        let claims = self.claim.as_ref().map_or(0, |open| open.tickets.len());
        let goodbyes = self.goodbye.as_ref().map_or(0, |open| open.tickets.len());
        let others = self.waiting.len() + self.reporting.len() + self.renewals.len();
        claims + goodbyes + others
    }

    fn asked(&mut self, now: Monotonic, call: Call) {
        if self.waiting_count() >= WAITING_MAX {
            self.respond(call.ticket, Err(HttpRefusal::Busy));
            return;
        }
        match self.phase {
            Phase::Over => self.respond(call.ticket, Err(HttpRefusal::Gone)),
            Phase::Fresh => self.introduce(call),
            Phase::Greeting => self.waiting.push(call),
            Phase::Open => self.take(now, call),
        }
    }

    /// Handles the first request. A worker without jobs may be new, or may be known from before a
    /// restart of the server: it makes no difference.
    fn introduce(&mut self, call: Call) {
        let listed = match &call.ask {
            HttpAsk::Claim(claim) => {
                (self.slots, self.serves) = (claim.slots, claim.serves.clone());
                self.has_listed = true;
                claim.holds.as_slice()
            }
            HttpAsk::Heartbeat { holds, .. } => holds,
            HttpAsk::Report(_) | HttpAsk::Goodbye => &[],
        };
        let is_new =
            listed.is_empty() && matches!(call.ask, HttpAsk::Claim(_) | HttpAsk::Heartbeat { .. });
        self.jobs.extend(listed.iter().map(|&hold| (hold, Holding::given())));
        if !self.has_listed {
            self.jobs.extend(self.held.drain(..).map(|hold| (hold, Holding::given())));
        }
        if let HttpAsk::Report(reports) = call.ask {
            self.note_reports(reports, call.ticket);
        } else {
            self.waiting.push(call);
        }
        self.greet(if is_new { HelloKind::New } else { HelloKind::Resume });
    }

    /// Opens a session, and sends everything that is known.
    fn greet(&mut self, kind: HelloKind) {
        self.phase = Phase::Greeting;
        (self.said, self.renewed) = (1, 0);
        // The hello repeats the reports.
        self.reporting.iter_mut().for_each(|open| open.batch = 1);
        let started = self.jobs.iter().filter(|(_, job)| job.is_started);
        let hello = Hello {
            kind,
            slots: self.slots,
            want: 0,
            serves: self.serves.clone(),
            reports: self.reports.values().cloned().collect(),
            started: started.map(|(&hold, _)| hold).collect(),
            holds: self.jobs.keys().copied().collect(),
        };
        self.effects.push(HttpEffect::Open(hello));
    }

    /// Handles a request in an open session.
    fn take(&mut self, now: Monotonic, call: Call) {
        let Call { ask, ticket } = call;
        match ask {
            HttpAsk::Claim(claim) => self.claim(now, claim, ticket),
            HttpAsk::Heartbeat { holds, stopping } => self.heartbeat(holds, stopping, ticket),
            HttpAsk::Report(reports) => self.report(reports, ticket),
            HttpAsk::Goodbye => self.say_goodbye(ticket),
        }
    }

    fn say(&mut self, messages: Vec<FromWorker>) {
        self.said += 1;
        self.effects.push(HttpEffect::Say(messages));
    }

    fn settle(&mut self) -> u64 {
        self.settles += 1;
        self.effects.push(HttpEffect::Settle(self.settles));
        self.settles
    }

    fn respond(&mut self, ticket: Ticket, response: HttpResponse) {
        self.effects.push(HttpEffect::Respond(ticket, response));
    }

    fn respond_all(&mut self, tickets: impl IntoIterator<Item = Ticket>, response: &HttpResponse) {
        for ticket in tickets {
            self.respond(ticket, response.clone());
        }
    }

    fn settled(&mut self, number: u64) {
        if self.claim.as_ref().is_some_and(|open| open.closing == Some(number)) {
            self.finish_claim();
        }
        if let Some(goodbye) = self.goodbye.take_if(|goodbye| goodbye.settle == number) {
            self.respond_all(goodbye.tickets, &Ok(HttpReply::Done));
            self.over(&HttpRefusal::Gone);
        }
    }

    fn heard(&mut self, now: Monotonic, delivery: Delivery) {
        let was_open = self.phase == Phase::Open;
        let mut works = delivery.works.into_iter();
        for message in delivery.messages {
            match message {
                ToWorker::Reconcile { lease, keep } => self.learn(lease, &keep),
                ToWorker::Assign(jobs) => {
                    let texts = works.by_ref().map(|(_, text)| text);
                    let jobs = jobs.into_iter().zip(texts).collect();
                    self.assigned(jobs);
                }
                // A job that the worker has is running.
                ToWorker::AskToGive { question, .. } => {
                    self.say(vec![FromWorker::Given { question, jobs: Vec::new() }]);
                }
                ToWorker::StartGranted(hold) => self.start_granted(hold),
                ToWorker::Cancel(hold) => self.cancelled(hold),
                ToWorker::DrainNow => self.drain(),
                ToWorker::Renewed(number) => self.renewed(number.0),
                ToWorker::Accepted(holds) => {
                    for hold in holds {
                        self.answered(hold, None);
                    }
                }
                ToWorker::Refused { hold, current } => self.answered(hold, Some(current)),
                ToWorker::Gone => self.over(&HttpRefusal::Gone),
            }
        }
        if !was_open && self.phase == Phase::Open {
            for call in std::mem::take(&mut self.waiting) {
                // The first of them may have opened another session.
                self.asked(now, call);
            }
        }
    }

    /// Reconciles the worker's jobs.
    fn learn(&mut self, lease: Duration, keep: &[Hold]) {
        self.lease = lease;
        (self.phase, self.hang_ups) = (Phase::Open, 0);
        let keep: BTreeSet<Hold> = keep.iter().copied().collect();
        let mut dropped = Vec::new();
        let mut confirming = Vec::new();
        for (&hold, job) in &mut self.jobs {
            match (&job.stage, keep.contains(&hold)) {
                (Stage::Confirming(..), true) => confirming.push(FromWorker::Start(hold)),
                (_, true) => {}
                // It may be cancelled, and the worker still has to release it; so it stays until
                // then.
                (Stage::Given, false) => job.is_cancelled = true,
                (_, false) => dropped.push(hold),
            }
        }
        for hold in dropped {
            self.hand_back(hold);
        }
        // The answer may have been lost with the previous session.
        if !confirming.is_empty() {
            self.say(confirming);
        }
    }

    fn assigned(&mut self, jobs: Vec<GivenJob>) {
        let mut starts = Vec::new();
        let mut refused = Vec::new();
        for (assignment, text) in jobs {
            let (hold, start) = (assignment.hold, assignment.start);
            if self.jobs.contains_key(&hold) || self.reports.contains_key(&hold) {
                continue;
            }
            if self.is_draining {
                refused.push(hold);
                continue;
            }
            // The worker gets the job only once its start is granted.
            let assignment = Assignment { start: StartMode::Freely, ..assignment };
            let given = Box::new((assignment, text));
            self.arrivals += 1;
            let stage = if start == StartMode::Confirmed {
                starts.push(FromWorker::Start(hold));
                Stage::Confirming(self.arrivals, given)
            } else {
                Stage::Waiting(self.arrivals, given)
            };
            self.jobs.insert(hold, Holding { stage, is_cancelled: false, is_started: false });
        }
        for hold in refused {
            self.hand_back(hold);
        }
        let has_starts = !starts.is_empty();
        if has_starts {
            self.say(starts);
        }
        match self.claim.as_ref().map(|open| open.closing.is_some()) {
            Some(false) => self.close_claim(),
            // Jobs that wait for confirmation are waited for as well.
            Some(true) if has_starts => {
                let settle = self.settle();
                if let Some(open) = &mut self.claim {
                    open.closing = Some(settle);
                }
            }
            Some(true) | None => {}
        }
    }

    fn start_granted(&mut self, hold: Hold) {
        if let Some(job) = self.jobs.get_mut(&hold) {
            job.is_started = true;
            match std::mem::replace(&mut job.stage, Stage::Given) {
                Stage::Confirming(arrival, given) => job.stage = Stage::Waiting(arrival, given),
                other => job.stage = other,
            }
        }
    }

    fn cancelled(&mut self, hold: Hold) {
        match self.jobs.get_mut(&hold) {
            Some(job) if job.is_given() => job.is_cancelled = true,
            // It never reached the worker; the scheduler waits for a report that it does not run.
            _ => self.hand_back(hold),
        }
    }

    fn drain(&mut self) {
        self.is_draining = true;
        let unstarted = self.jobs.iter().filter(|(_, job)| !job.is_given());
        for hold in unstarted.map(|(&hold, _)| hold).collect::<Vec<_>>() {
            self.hand_back(hold);
        }
        if self.claim.as_ref().is_some_and(|open| open.closing.is_none()) {
            self.close_claim();
        }
    }

    /// The scheduler has ended the session.
    fn hung_up(&mut self, now: Monotonic) {
        self.hang_ups += 1;
        if self.hang_ups > HANG_UPS {
            self.over(&HttpRefusal::Busy);
        } else {
            self.reopen(now);
        }
    }

    /// Opens another session. Messages of the one before may be lost: they are sent again in it.
    fn reopen(&mut self, now: Monotonic) {
        if matches!(self.phase, Phase::Fresh | Phase::Over) {
            return;
        }
        for Renewal { ask, ticket, .. } in std::mem::take(&mut self.renewals) {
            self.waiting.push(Call { ask, ticket });
        }
        if let Some(OpenClaim { claim, deadline, tickets, .. }) = self.claim.take() {
            let claim = HttpClaim { wait: deadline.since(now), ..claim };
            for ticket in tickets {
                self.waiting.push(Call { ask: HttpAsk::Claim(claim.clone()), ticket });
            }
        }
        for ticket in self.goodbye.take().into_iter().flat_map(|goodbye| goodbye.tickets) {
            self.waiting.push(Call { ask: HttpAsk::Goodbye, ticket });
        }
        self.greet(HelloKind::Resume);
    }

    /// Its token is no longer valid: requests that wait are refused, and it wants no more jobs
    /// until its process comes back with another token. Reports that were sent count.
    fn token_ended(&mut self) {
        let no = Err(HttpRefusal::TokenEnded);
        let waiting = std::mem::take(&mut self.waiting);
        self.respond_all(waiting.into_iter().map(|call| call.ticket), &no);
        let claims = self.claim.take().into_iter().flat_map(|open| open.tickets);
        let has_claim = self.respond_some(claims, &no);
        let renewals = std::mem::take(&mut self.renewals);
        self.respond_all(renewals.into_iter().map(|it| it.ticket), &no);
        let reporting = std::mem::take(&mut self.reporting);
        self.respond_all(reporting.into_iter().map(|open| open.ticket), &no);
        if has_claim {
            self.say(vec![FromWorker::Want(0)]);
        }
    }

    /// Whether there were any.
    fn respond_some(
        &mut self,
        tickets: impl Iterator<Item = Ticket>,
        response: &HttpResponse,
    ) -> bool {
        let before = self.effects.len();
        self.respond_all(tickets, response);
        self.effects.len() > before
    }

    /// Nothing was applied: every request gets the reason, also a goodbye.
    fn refused(&mut self, refusal: &HttpRefusal) {
        let is_goodbye = |call: &mut Call| call.ask == HttpAsk::Goodbye;
        let waiting: Vec<Call> = self.waiting.extract_if(.., is_goodbye).collect();
        let goodbyes = self.goodbye.take().into_iter().flat_map(|goodbye| goodbye.tickets);
        let tickets = waiting.into_iter().map(|call| call.ticket).chain(goodbyes);
        self.respond_all(tickets, &Err(refusal.clone()));
        self.over(refusal);
    }

    /// Ends the session. Waiting requests get the reason; a goodbye always succeeds.
    fn over(&mut self, refusal: &HttpRefusal) {
        if self.phase == Phase::Over {
            return;
        }
        self.phase = Phase::Over;
        let no = Err(refusal.clone());
        for Call { ask, ticket } in std::mem::take(&mut self.waiting) {
            match ask {
                HttpAsk::Goodbye => self.respond(ticket, Ok(HttpReply::Done)),
                HttpAsk::Claim(_) | HttpAsk::Heartbeat { .. } | HttpAsk::Report(_) => {
                    self.respond(ticket, no.clone());
                }
            }
        }
        let claims = self.claim.take().into_iter().flat_map(|open| open.tickets);
        self.respond_all(claims, &no);
        let renewals = std::mem::take(&mut self.renewals);
        self.respond_all(renewals.into_iter().map(|it| it.ticket), &no);
        let reporting = std::mem::take(&mut self.reporting);
        self.respond_all(reporting.into_iter().map(|open| open.ticket), &no);
        let goodbyes = self.goodbye.take().into_iter().flat_map(|goodbye| goodbye.tickets);
        self.respond_all(goodbyes, &Ok(HttpReply::Done));
        self.effects.push(HttpEffect::Leave);
    }
}

impl Holding {
    const fn given() -> Self {
        Self { stage: Stage::Given, is_cancelled: false, is_started: false }
    }

    const fn is_given(&self) -> bool {
        matches!(self.stage, Stage::Given)
    }
}

#[cfg(test)]
mod tests;
