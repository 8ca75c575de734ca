//! An HTTP session: keeps the session of a worker that uses plain HTTP.
//!
//! The worker's requests become the messages of a session, and the scheduler's messages become
//! their responses. It sends nothing on its own: only the worker's requests renew the worker's
//! lease. It asks for jobs only while a claim waits for them, and no jobs are stolen from it.
//!
//! This module decides, as a function of events and time; `plain` has the link, the clock and the
//! routes.
//!
//! A job that the worker does not list may be in a response that is still on its way, so a
//! heartbeat takes nothing away. A claim does: its number means that the worker has read every
//! earlier response, or never will. Jobs of the last response that are not listed are assigned
//! again; older ones go back to the queue.

mod claims;
mod reports;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use filch_api::problem::Problem;
use filch_api::session::{
    Down, Up, WireAssignment, WireHello, WireHelloKind, WireHold, WireReport,
};
use filch_api::work::{Answered, Claim, Claimed, Heartbeat, HeartbeatAnswer, TooLate};
use tokio::sync::oneshot;

/// A request of a worker.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Claim(Claim),
    Beat(Heartbeat),
    Report(Vec<WireReport>),
    Goodbye,
}

/// The response to a request.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    Claimed(Claimed),
    Beaten(HeartbeatAnswer),
    Answered(Answered),
    Done,
}

pub(super) type Answer = Result<Reply, Problem>;

/// A request that waits for its response. The client may have disconnected by then.
pub(super) struct Call {
    pub(super) ask: Ask,
    pub(super) reply: oneshot::Sender<Answer>,
}

/// Events.
pub(super) enum Event {
    Asked(Call),
    /// Messages from the scheduler in the current session.
    Heard(Vec<Down>),
    /// All decisions from before the matching `Settle` have been received.
    Settled(u64),
    /// The current session is over.
    HungUp,
    /// The worker's token does not allow what was sent, so the session is over.
    Refused(Problem),
    Tick,
}

/// Effects.
#[derive(Debug)]
pub(super) enum Effect {
    /// Open a new session with this hello.
    Open(Box<WireHello>),
    /// Send this as the next batch of the current session.
    Say(Vec<Up>),
    /// Report when all decisions up to now have been received.
    Settle(u64),
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

pub(super) struct HttpSession {
    phase: Phase,
    slots: u32,
    queues: Option<Vec<String>>,
    lease: Duration,
    /// The time of the worker's last request.
    heard_at: Instant,
    /// The worker's jobs, as far as is known.
    jobs: BTreeMap<WireHold, Holding>,
    arrivals: u64,
    claim: Option<OpenClaim>,
    /// The newest answered claim, and its jobs.
    last: Option<(u64, Vec<WireAssignment>)>,
    /// Reports that are not answered yet.
    reports: BTreeMap<WireHold, WireReport>,
    reporting: Vec<Reporting>,
    /// Responses that wait for a renewal of the lease.
    renewals: Vec<Renewal>,
    goodbye: Option<OpenGoodbye>,
    /// Requests that wait for reconciliation.
    waiting: Vec<Call>,
    /// How many batches were sent in the current session.
    said: u64,
    settles: u64,
    is_draining: bool,
    hang_ups: u32,
    effects: Vec<Effect>,
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
    Confirming(u64, Box<WireAssignment>),
    /// It goes into the next response.
    Waiting(u64, Box<WireAssignment>),
    /// The worker has it, or it is in a response that may be on its way.
    Given,
}

struct OpenClaim {
    claim: Claim,
    deadline: Instant,
    /// Once it waits for no more jobs: the settle number that it waits for.
    closing: Option<u64>,
    replies: Vec<oneshot::Sender<Answer>>,
}

struct Reporting {
    left: BTreeSet<WireHold>,
    answered: Answered,
    reply: oneshot::Sender<Answer>,
}

struct Renewal {
    /// Sent again if the session ends.
    ask: Ask,
    /// The batch that the scheduler has to acknowledge.
    batch: u64,
    said: Reply,
    reply: oneshot::Sender<Answer>,
}

struct OpenGoodbye {
    settle: u64,
    replies: Vec<oneshot::Sender<Answer>>,
}

impl HttpSession {
    pub(super) const fn new(now: Instant, lease: Duration) -> Self {
        Self {
            phase: Phase::Fresh,
            slots: 0,
            queues: None,
            lease,
            heard_at: now,
            jobs: BTreeMap::new(),
            arrivals: 0,
            claim: None,
            last: None,
            reports: BTreeMap::new(),
            reporting: Vec::new(),
            renewals: Vec::new(),
            goodbye: None,
            waiting: Vec::new(),
            said: 0,
            settles: 0,
            is_draining: false,
            hang_ups: 0,
            effects: Vec::new(),
        }
    }

    /// Handles one event; returns the effects, to be performed in order.
    pub(super) fn handle(&mut self, now: Instant, event: Event) -> Vec<Effect> {
        match event {
            Event::Asked(call) => {
                self.heard_at = now;
                self.asked(now, call);
            }
            Event::Heard(messages) => self.heard(now, messages),
            Event::Settled(number) => self.settled(number),
            Event::HungUp => self.hung_up(now),
            Event::Refused(problem) => self.refused(&problem),
            Event::Tick => {}
        }
        self.expire(now);
        std::mem::take(&mut self.effects)
    }

    /// When to call again at the latest.
    pub(super) fn next_deadline(&self) -> Instant {
        let forgotten = self.heard_at + self.lease * FORGOTTEN;
        self.claim_deadline().map_or(forgotten, |deadline| deadline.min(forgotten))
    }

    fn claim_deadline(&self) -> Option<Instant> {
        let open = self.claim.as_ref().filter(|open| open.closing.is_none())?;
        Some(open.deadline.min(self.heard_at + self.lease / SILENCE))
    }

    /// Handles the passing of time.
    fn expire(&mut self, now: Instant) {
        if self.claim_deadline().is_some_and(|at| at <= now) {
            self.close_claim();
        }
        // Its lease has expired, so its jobs belong to other workers.
        if self.heard_at + self.lease * FORGOTTEN <= now {
            self.over(&gone());
        }
    }

    fn asked(&mut self, now: Instant, call: Call) {
        match self.phase {
            Phase::Over => answer([call.reply], &Err(gone())),
            Phase::Fresh => self.introduce(call),
            Phase::Greeting => self.waiting.push(call),
            Phase::Open => self.take(now, call),
        }
    }

    /// Handles the first request. A worker without jobs may be new, or may be known from before a
    /// restart of the server: it makes no difference.
    fn introduce(&mut self, call: Call) {
        let holds = match &call.ask {
            Ask::Claim(claim) => {
                (self.slots, self.queues) = (claim.slots, claim.queues.clone());
                claim.holds.as_slice()
            }
            Ask::Beat(beat) => beat.holds.as_slice(),
            Ask::Report(_) | Ask::Goodbye => &[],
        };
        let holds: Vec<WireHold> = holds.to_vec();
        let is_new = holds.is_empty() && matches!(call.ask, Ask::Claim(_) | Ask::Beat(_));
        for hold in holds {
            self.jobs.insert(hold, Holding::given());
        }
        if let Ask::Report(reports) = call.ask {
            self.note_reports(reports, call.reply);
        } else {
            self.waiting.push(call);
        }
        self.greet(if is_new { WireHelloKind::New } else { WireHelloKind::Resume });
    }

    /// Opens a session, and sends everything that is known.
    fn greet(&mut self, kind: WireHelloKind) {
        self.phase = Phase::Greeting;
        self.said = 1;
        let started = self.jobs.iter().filter(|(_, job)| job.is_started);
        let hello = WireHello {
            kind,
            slots: self.slots,
            want: 0,
            queues: self.queues.clone(),
            reports: self.reports.values().cloned().collect(),
            started: started.map(|(&hold, _)| hold).collect(),
            holds: self.jobs.keys().copied().collect(),
        };
        self.effects.push(Effect::Open(Box::new(hello)));
    }

    /// Handles a request in an open session.
    fn take(&mut self, now: Instant, call: Call) {
        let Call { ask, reply } = call;
        match ask {
            Ask::Claim(claim) => self.claim(now, claim, reply),
            Ask::Beat(beat) => self.beat(beat, reply),
            Ask::Report(reports) => self.report(reports, reply),
            Ask::Goodbye => self.say_goodbye(reply),
        }
    }

    fn say(&mut self, messages: Vec<Up>) {
        self.said += 1;
        self.effects.push(Effect::Say(messages));
    }

    fn settle(&mut self) -> u64 {
        self.settles += 1;
        self.effects.push(Effect::Settle(self.settles));
        self.settles
    }

    fn settled(&mut self, number: u64) {
        if self.claim.as_ref().is_some_and(|open| open.closing == Some(number)) {
            self.finish_claim();
        }
        if let Some(goodbye) = self.goodbye.take_if(|goodbye| goodbye.settle == number) {
            answer(goodbye.replies, &Ok(Reply::Done));
            self.over(&gone());
        }
    }

    fn heard(&mut self, now: Instant, messages: Vec<Down>) {
        let was_open = self.phase == Phase::Open;
        for message in messages {
            match message {
                Down::Reconcile { lease_ms, keep } => self.learn(lease_ms, &keep),
                Down::Assign(jobs) => self.assigned(jobs),
                // A job that the worker has is running.
                Down::AskToGive { question, .. } => {
                    self.say(vec![Up::Given { question, jobs: Vec::new() }]);
                }
                Down::StartGranted(hold) => self.start_granted(hold),
                Down::Cancel(hold) => self.cancelled(hold),
                Down::DrainNow => self.drain(),
                Down::Renewed(number) => self.renewed(number),
                Down::Accepted(holds) => {
                    for hold in holds {
                        self.answered(hold, None);
                    }
                }
                Down::Refused { job, current } => {
                    self.answered(job, Some(TooLate { job, current }));
                }
                Down::Gone => self.over(&gone()),
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
    fn learn(&mut self, lease_ms: u64, keep: &[WireHold]) {
        self.lease = Duration::from_millis(lease_ms);
        (self.phase, self.hang_ups) = (Phase::Open, 0);
        let keep: BTreeSet<WireHold> = keep.iter().copied().collect();
        let mut dropped = Vec::new();
        let mut confirming = Vec::new();
        for (&hold, job) in &mut self.jobs {
            match (&job.stage, keep.contains(&hold)) {
                (Stage::Confirming(..), true) => confirming.push(Up::Start(hold)),
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

    fn assigned(&mut self, jobs: Vec<WireAssignment>) {
        let mut starts = Vec::new();
        let mut refused = Vec::new();
        for assignment in jobs {
            let (job, confirm) = (assignment.job, assignment.confirm);
            if self.jobs.contains_key(&job) || self.reports.contains_key(&job) {
                continue;
            }
            if self.is_draining {
                refused.push(job);
                continue;
            }
            // The worker gets the job only once its start is granted.
            let assignment = Box::new(WireAssignment { confirm: false, ..assignment });
            self.arrivals += 1;
            let stage = if confirm {
                starts.push(Up::Start(job));
                Stage::Confirming(self.arrivals, assignment)
            } else {
                Stage::Waiting(self.arrivals, assignment)
            };
            self.jobs.insert(job, Holding { stage, is_cancelled: false, is_started: false });
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

    fn start_granted(&mut self, hold: WireHold) {
        if let Some(job) = self.jobs.get_mut(&hold) {
            job.is_started = true;
            match std::mem::replace(&mut job.stage, Stage::Given) {
                Stage::Confirming(arrival, assignment) => {
                    job.stage = Stage::Waiting(arrival, assignment);
                }
                other => job.stage = other,
            }
        }
    }

    fn cancelled(&mut self, hold: WireHold) {
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

    /// Messages of the session may be lost: they are sent again in the next one.
    fn hung_up(&mut self, now: Instant) {
        if self.phase == Phase::Over {
            return;
        }
        self.hang_ups += 1;
        if self.hang_ups > HANG_UPS {
            let problem = Problem::new(503, "busy", "the server is too busy for this worker");
            self.over(&problem.help("repeat the request in a second"));
            return;
        }
        for Renewal { ask, reply, .. } in std::mem::take(&mut self.renewals) {
            self.waiting.push(Call { ask, reply });
        }
        if let Some(OpenClaim { mut claim, deadline, replies, .. }) = self.claim.take() {
            let left = deadline.saturating_duration_since(now).as_millis();
            let left = u32::try_from(left).unwrap_or(u32::MAX);
            claim.wait = Some(filch_api::submission::Span(filch_scheduler::time::Millis(left)));
            for reply in replies {
                self.waiting.push(Call { ask: Ask::Claim(claim.clone()), reply });
            }
        }
        for reply in self.goodbye.take().into_iter().flat_map(|goodbye| goodbye.replies) {
            self.waiting.push(Call { ask: Ask::Goodbye, reply });
        }
        self.greet(WireHelloKind::Resume);
    }

    /// Nothing was applied: every request gets the reason, also a goodbye.
    fn refused(&mut self, problem: &Problem) {
        let no = Err(problem.clone());
        let waiting = self.waiting.extract_if(.., |call| matches!(call.ask, Ask::Goodbye));
        answer(waiting.map(|call| call.reply), &no);
        let goodbyes = self.goodbye.take().into_iter().flat_map(|goodbye| goodbye.replies);
        answer(goodbyes, &no);
        self.over(problem);
    }

    /// Ends the session. Waiting requests get the reason; a goodbye always succeeds.
    fn over(&mut self, problem: &Problem) {
        if self.phase == Phase::Over {
            return;
        }
        self.phase = Phase::Over;
        let no = || Err(problem.clone());
        for call in std::mem::take(&mut self.waiting) {
            match call.ask {
                Ask::Goodbye => answer([call.reply], &Ok(Reply::Done)),
                Ask::Claim(_) | Ask::Beat(_) | Ask::Report(_) => answer([call.reply], &no()),
            }
        }
        answer(self.claim.take().into_iter().flat_map(|open| open.replies), &no());
        answer(std::mem::take(&mut self.renewals).into_iter().map(|it| it.reply), &no());
        answer(std::mem::take(&mut self.reporting).into_iter().map(|open| open.reply), &no());
        let goodbyes = self.goodbye.take().into_iter().flat_map(|goodbye| goodbye.replies);
        answer(goodbyes, &Ok(Reply::Done));
        self.effects.push(Effect::Leave);
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

fn answer(replies: impl IntoIterator<Item = oneshot::Sender<Answer>>, said: &Answer) {
    for reply in replies {
        // The client may have disconnected.
        let _ = reply.send(said.clone());
    }
}

fn gone() -> Problem {
    Problem::new(
        410,
        "gone",
        "the server does not know this worker, or has given its jobs to others",
    )
    .help("stop running jobs, do not report them, and start again with a new id")
}

#[cfg(test)]
mod tests;
