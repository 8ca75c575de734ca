//! A deputy: keeps a worker's session for a worker that has only plain HTTP.
//!
//! The worker's requests become the messages of a session, and what the brain says in it becomes
//! their answers. The deputy never speaks on its own account: the worker's lease is renewed by the
//! worker's requests and by nothing else. It wants jobs only while a claim waits for them, and is
//! never asked for any that the worker could give.
//!
//! What it decides is decided here, as a function of what happened and when; `plain` has the link,
//! the clock and the routes.
//!
//! A job that the worker does not list was perhaps given in an answer that is still under way, so a
//! beat takes nothing away. A claim does: with its number the worker says that it has read every
//! answer before it, or never will. What was given in the last of them and is not listed is given
//! again; what is older goes back to the queue.

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

/// What a worker asks for.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Claim(Claim),
    Beat(Heartbeat),
    Report(Vec<WireReport>),
    Goodbye,
}

/// What it is answered.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    Claimed(Claimed),
    Beaten(HeartbeatAnswer),
    Answered(Answered),
    Done,
}

pub(super) type Answer = Result<Reply, Problem>;

/// A request that waits for its answer. Who asked may be gone by then.
pub(super) struct Call {
    pub(super) ask: Ask,
    pub(super) reply: oneshot::Sender<Answer>,
}

/// What can happen.
pub(super) enum Event {
    Asked(Call),
    /// The brain says something in the present session.
    Heard(Vec<Down>),
    /// Everything that the brain decided before this was asked for has been heard.
    Settled(u64),
    /// The present session is over.
    HungUp,
    Tick,
}

/// What it causes.
#[derive(Debug)]
pub(super) enum Effect {
    /// Begin a new session with this.
    Open(Box<WireHello>),
    /// Say this in the present session, as its next batch.
    Say(Vec<Up>),
    /// Say when everything that was decided up to now has been heard.
    Settle(u64),
    /// It is over.
    Leave,
}

/// So often the brain may hang up before it has told the truth.
const HANG_UPS: u32 = 3;

/// A worker that has said nothing for so many leases is not heard of again.
const FORGOTTEN: u32 = 2;

/// A claim waits no longer than this part of a lease after the worker's last word: a worker that is
/// silent for longer gets no jobs.
const SILENCE: u32 = 4;

pub(super) struct Deputy {
    phase: Phase,
    slots: u32,
    queues: Option<Vec<String>>,
    lease: Duration,
    /// When the worker last said something.
    heard_at: Instant,
    /// What is the worker's, as far as is known.
    jobs: BTreeMap<WireHold, Holding>,
    arrivals: u64,
    claim: Option<OpenClaim>,
    /// The newest claim that was answered, and what it brought.
    last: Option<(u64, Vec<WireAssignment>)>,
    /// What was reported and not answered.
    reports: BTreeMap<WireHold, WireReport>,
    reporting: Vec<Reporting>,
    /// Answers that wait for a renewal.
    renewals: Vec<Renewal>,
    goodbye: Option<OpenGoodbye>,
    /// What waits for the truth.
    waiting: Vec<Call>,
    /// Batches that were said in the present session.
    said: u64,
    settles: u64,
    is_draining: bool,
    hang_ups: u32,
    effects: Vec<Effect>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nobody has asked for anything.
    Fresh,
    /// The brain was greeted, and has not told the truth.
    Greeting,
    Open,
    Over,
}

/// A job of the worker's.
struct Holding {
    stage: Stage,
    /// The worker is to stop it.
    is_cancelled: bool,
    /// The brain knows that it runs.
    is_started: bool,
}

enum Stage {
    /// The brain is asked whether it may be started.
    Confirming(u64, Box<WireAssignment>),
    /// To be given with the next answer.
    Waiting(u64, Box<WireAssignment>),
    /// The worker has it, or was told of it in an answer that may be under way.
    Given,
}

struct OpenClaim {
    claim: Claim,
    deadline: Instant,
    /// Once it waits for no more jobs: what it waits for then.
    closing: Option<u64>,
    replies: Vec<oneshot::Sender<Answer>>,
}

struct Reporting {
    left: BTreeSet<WireHold>,
    answered: Answered,
    reply: oneshot::Sender<Answer>,
}

struct Renewal {
    /// To be asked again, should the session end.
    ask: Ask,
    /// The batch that the brain has to hear of.
    batch: u64,
    said: Reply,
    reply: oneshot::Sender<Answer>,
}

struct OpenGoodbye {
    settle: u64,
    replies: Vec<oneshot::Sender<Answer>>,
}

impl Deputy {
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

    /// One event, at one moment; what it causes is returned, to be performed in order.
    pub(super) fn handle(&mut self, now: Instant, event: Event) -> Vec<Effect> {
        match event {
            Event::Asked(call) => {
                self.heard_at = now;
                self.asked(now, call);
            }
            Event::Heard(messages) => self.heard(now, messages),
            Event::Settled(number) => self.settled(number),
            Event::HungUp => self.hung_up(now),
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

    /// What time alone brings about.
    fn expire(&mut self, now: Instant) {
        if self.claim_deadline().is_some_and(|at| at <= now) {
            self.close_claim();
        }
        // Its lease is over, so whatever it had is somebody else's.
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

    /// The first request. A worker that has nothing may be new, or may have been here before the
    /// server was started again: it makes no difference.
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

    /// Begins a session. Whatever is known is said again in it.
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

    /// A request in a session that is open.
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
                // What the worker has, it runs.
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
                // The first of them may have begun another session.
                self.asked(now, call);
            }
        }
    }

    /// What is truly the worker's.
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
                // Perhaps it is cancelled and still the worker's to let go of; so it stays here
                // until the worker has.
                (Stage::Given, false) => job.is_cancelled = true,
                (_, false) => dropped.push(hold),
            }
        }
        for hold in dropped {
            self.hand_back(hold);
        }
        // The answer may have been lost with the session before.
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
            // The worker sees the job only once its start is granted.
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
            // What is to be confirmed is waited for as well.
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
            // It never reached the worker; the brain waits to hear that it does not run.
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

    /// Whatever was said in the session may be lost: it is said again in the next.
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

    /// The end. Whoever still waits is told why; only a goodbye needs nobody to hear it.
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
        // Who asked may have gone.
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
