//! A deputy: keeps a worker's session for a worker that has only plain HTTP.
//!
//! The worker's requests become the messages of a session, and what the brain says in it becomes their
//! answers. The deputy never speaks on its own account: the worker's lease is renewed by the worker's
//! requests and by nothing else. It wants jobs only while a claim waits for them, and is never asked
//! for any that the worker could give.
//!
//! What it decides is decided here, as a function of what happened and when; `plain` has the link, the
//! clock and the routes.
//!
//! A job that the worker does not list was perhaps given in an answer that is still under way, so a beat
//! takes nothing away. A claim does: with its number the worker says that it has read every answer before
//! it, or never will. What was given in the last of them and is not listed is given again; what is older
//! goes back to the queue.

use std::cmp::Ordering;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use filch_api::limits;
use filch_api::problem::Problem;
use filch_api::session::{Assigned, Comes, Down, Held, Hello, Up};
use filch_api::work::{Answered, Assignment, Beat, Beaten, Claim, Claimed, Report, TooLate};
use tokio::sync::oneshot;

/// What a worker asks for.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Claim(Claim),
    Beat(Beat),
    Report(Vec<Report>),
    Goodbye,
}

/// What it is answered.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    Claimed(Claimed),
    Beaten(Beaten),
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
    Open(Box<Hello>),
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
    jobs: BTreeMap<Held, Holding>,
    arrivals: u64,
    claim: Option<OpenClaim>,
    /// The newest claim that was answered, and what it brought.
    last: Option<(u64, Vec<Assignment>)>,
    /// What was reported and not answered.
    reports: BTreeMap<Held, Report>,
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
    Confirming(u64, Box<Assignment>),
    /// To be given with the next answer.
    Waiting(u64, Box<Assignment>),
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
    left: BTreeSet<Held>,
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

    /// The first request. A worker that has nothing may be new, or may have been here before the server
    /// was started again: it makes no difference.
    fn introduce(&mut self, call: Call) {
        let holds = match &call.ask {
            Ask::Claim(claim) => {
                (self.slots, self.queues) = (claim.slots, claim.queues.clone());
                claim.holds.as_slice()
            }
            Ask::Beat(beat) => beat.holds.as_slice(),
            Ask::Report(_) | Ask::Goodbye => &[],
        };
        let holds: Vec<Held> = holds.to_vec();
        let is_new = holds.is_empty() && matches!(call.ask, Ask::Claim(_) | Ask::Beat(_));
        for hold in holds {
            self.jobs.insert(hold, Holding::given());
        }
        if let Ask::Report(reports) = call.ask {
            self.note_reports(reports, call.reply);
        } else {
            self.waiting.push(call);
        }
        self.greet(if is_new { Comes::New } else { Comes::Resume });
    }

    /// Begins a session. Whatever is known is said again in it.
    fn greet(&mut self, entrance: Comes) {
        self.phase = Phase::Greeting;
        self.said = 1;
        let started = self.jobs.iter().filter(|(_, job)| job.is_started);
        let hello = Hello {
            entrance,
            slots: self.slots,
            want: 0,
            queues: self.queues.clone(),
            reports: self.reports.values().map(Report::say).collect(),
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

    fn claim(&mut self, now: Instant, claim: Claim, reply: oneshot::Sender<Answer>) {
        if let Some((number, jobs)) = &self.last {
            match claim.number.cmp(number) {
                Ordering::Less => {
                    return answer([reply], &Err(old_number(claim.number, *number)));
                }
                Ordering::Equal => {
                    let claimed = self.claimed(jobs.clone(), &claim.holds);
                    let ask = Ask::Claim(claim);
                    return self.answer_renewed(vec![Up::Beat], ask, claimed, reply);
                }
                Ordering::Greater => {}
            }
        }
        if let Some(open) = &mut self.claim {
            if claim.number == open.claim.number {
                open.replies.push(reply);
                return;
            }
            if claim.number < open.claim.number {
                let newest = open.claim.number;
                return answer([reply], &Err(old_number(claim.number, newest)));
            }
            let problem = old_number(open.claim.number, claim.number);
            answer(self.claim.take().into_iter().flat_map(|open| open.replies), &Err(problem));
        }
        // How many jobs and of which queues is said when a session begins.
        let is_other = claim.slots != self.slots || claim.queues != self.queues;
        if claim.slots > 0 && is_other {
            (self.slots, self.queues) = (claim.slots, claim.queues.clone());
            self.waiting.push(Call { ask: Ask::Claim(claim), reply });
            self.greet(Comes::Resume);
            return;
        }
        self.reconcile(&claim);
        let wait = claim.wait.map_or(Duration::ZERO, |wait| wait.0.duration());
        let deadline = now + wait.min(WAIT_MAX);
        let has_some = self.jobs.values().any(|job| !job.is_given());
        let free = claim.slots.saturating_sub(self.given_count());
        let mut messages = self.started(&claim.holds);
        let wants = free > 0 && !self.is_draining && !has_some;
        if wants {
            messages.push(Up::Want(self.given_count() + free.min(limits::CLAIM_JOBS)));
        } else {
            messages.push(Up::Beat);
        }
        self.say(messages);
        self.claim = Some(OpenClaim { claim, deadline, closing: None, replies: vec![reply] });
        if !wants || wait.is_zero() {
            self.close_claim();
        }
    }

    /// Takes the worker's word for what it has. See the top of this file.
    fn reconcile(&mut self, claim: &Claim) {
        let holds: BTreeSet<Held> = claim.holds.iter().copied().collect();
        for hold in &holds {
            if let Some(job) = self.jobs.get_mut(hold) {
                job.stage = Stage::Given;
            }
        }
        let is_missing = |(hold, job): &(&Held, &Holding)| {
            job.is_given() && !holds.contains(hold) && !self.reports.contains_key(hold)
        };
        let missing: Vec<Held> = self.jobs.iter().filter(is_missing).map(|(&it, _)| it).collect();
        let given = self.last.as_ref().map_or(&[][..], |(_, jobs)| jobs.as_slice()).to_vec();
        for hold in missing {
            let again = given.iter().find(|assignment| assignment.job == hold);
            let job = self.jobs.get_mut(&hold).expect("it is missing from what is here");
            match again.filter(|_| !job.is_cancelled && claim.slots > 0) {
                Some(assignment) => {
                    self.arrivals += 1;
                    job.stage = Stage::Waiting(self.arrivals, Box::new(assignment.clone()));
                }
                None => self.hand_back(hold),
            }
        }
    }

    /// Says of a job that the worker does not have it.
    fn hand_back(&mut self, hold: Held) {
        self.jobs.remove(&hold);
        if let Entry::Vacant(entry) = self.reports.entry(hold) {
            let message = Up::Report(entry.insert(Report::dropped(hold)).say());
            self.say(vec![message]);
        }
    }

    /// What of these the brain does not know to be running.
    fn started(&mut self, holds: &[Held]) -> Vec<Up> {
        let mut messages = Vec::new();
        for hold in holds {
            if let Some(job) = self.jobs.get_mut(hold)
                && job.is_given()
                && !job.is_cancelled
                && !std::mem::replace(&mut job.is_started, true)
            {
                messages.push(Up::Started(*hold));
            }
        }
        messages
    }

    fn given_count(&self) -> u32 {
        let given = self.jobs.values().filter(|job| job.is_given());
        u32::try_from(given.count()).unwrap_or(u32::MAX)
    }

    /// The claim waits for nothing more than what was decided already.
    fn close_claim(&mut self) {
        self.say(vec![Up::Want(0)]);
        let settle = self.settle();
        if let Some(open) = &mut self.claim {
            open.closing = Some(settle);
        }
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

    fn finish_claim(&mut self) {
        let open = self.claim.take().expect("a claim that is finished was open");
        let free = open.claim.slots.saturating_sub(self.given_count()).min(limits::CLAIM_JOBS);
        let mut waiting: Vec<(u64, Held)> = Vec::new();
        let mut unconfirmed = Vec::new();
        for (&hold, job) in &self.jobs {
            match job.stage {
                Stage::Waiting(arrival, _) => waiting.push((arrival, hold)),
                Stage::Confirming(..) => unconfirmed.push(hold),
                Stage::Given => {}
            }
        }
        waiting.sort_unstable();
        let mut jobs = Vec::new();
        for (_, hold) in waiting {
            let job = self.jobs.get_mut(&hold).expect("it was there just now");
            if jobs.len() < free as usize
                && let Stage::Waiting(_, assignment) =
                    std::mem::replace(&mut job.stage, Stage::Given)
            {
                jobs.push(*assignment);
            } else {
                self.hand_back(hold);
            }
        }
        for hold in unconfirmed {
            self.hand_back(hold);
        }
        self.last = Some((open.claim.number, jobs.clone()));
        let claimed = self.claimed(jobs, &open.claim.holds);
        answer(open.replies, &Ok(claimed));
    }

    fn claimed(&self, jobs: Vec<Assignment>, holds: &[Held]) -> Reply {
        let (_, cancel) = self.divide(holds);
        let (drain, lease_ms) = (self.is_draining, self.lease.as_millis() as u64);
        Reply::Claimed(Claimed { jobs, cancel, drain, lease_ms })
    }

    /// What the worker keeps of what it says to hold, and what it is to stop.
    fn divide(&self, holds: &[Held]) -> (Vec<Held>, Vec<Held>) {
        let is_kept = |hold: &Held| self.jobs.get(hold).is_some_and(|job| !job.is_cancelled);
        holds.iter().partition(|hold| is_kept(hold))
    }

    fn beat(&mut self, beat: Beat, reply: oneshot::Sender<Answer>) {
        let mut messages = self.started(&beat.holds);
        messages.extend(beat.stopping.iter().map(|&hold| Up::Stopping(hold)));
        if messages.is_empty() {
            messages.push(Up::Beat);
        }
        let (keep, cancel) = self.divide(&beat.holds);
        let (drain, lease_ms) = (self.is_draining, self.lease.as_millis() as u64);
        let beaten = Reply::Beaten(Beaten { keep, cancel, drain, lease_ms });
        self.answer_renewed(messages, Ask::Beat(beat), beaten, reply);
    }

    /// Answers once the brain has heard of it: the worker counts its lease from here.
    fn answer_renewed(
        &mut self,
        messages: Vec<Up>,
        ask: Ask,
        said: Reply,
        reply: oneshot::Sender<Answer>,
    ) {
        self.say(messages);
        self.renewals.push(Renewal { ask, batch: self.said, said, reply });
    }

    fn renewed(&mut self, number: u64) {
        for renewal in self.renewals.extract_if(.., |renewal| renewal.batch <= number) {
            answer([renewal.reply], &Ok(renewal.said));
        }
    }

    fn report(&mut self, reports: Vec<Report>, reply: oneshot::Sender<Answer>) {
        let new = self.note_reports(reports, reply);
        // A repeat of what is under way says nothing new, but the worker is there.
        self.say(if new.is_empty() { vec![Up::Beat] } else { new });
    }

    /// Takes down reports; what of them is new is returned, to be said.
    fn note_reports(&mut self, reports: Vec<Report>, reply: oneshot::Sender<Answer>) -> Vec<Up> {
        let mut new = Vec::new();
        let mut left = BTreeSet::new();
        for report in reports {
            left.insert(report.job);
            if let Entry::Vacant(entry) = self.reports.entry(report.job) {
                new.push(Up::Report(entry.insert(report).say()));
            }
        }
        self.reporting.push(Reporting { left, answered: Answered::default(), reply });
        new
    }

    /// The brain has answered for this job; `late` if its word came too late.
    fn answered(&mut self, hold: Held, late: Option<TooLate>) {
        self.reports.remove(&hold);
        self.jobs.remove(&hold);
        for mut open in std::mem::take(&mut self.reporting) {
            if open.left.remove(&hold) {
                match late {
                    None => open.answered.accepted.push(hold),
                    Some(late) => open.answered.refused.push(late),
                }
            }
            if open.left.is_empty() {
                answer([open.reply], &Ok(Reply::Answered(open.answered)));
            } else {
                self.reporting.push(open);
            }
        }
    }

    fn say_goodbye(&mut self, reply: oneshot::Sender<Answer>) {
        if let Some(goodbye) = &mut self.goodbye {
            goodbye.replies.push(reply);
            return;
        }
        self.say(vec![Up::Goodbye]);
        let settle = self.settle();
        self.goodbye = Some(OpenGoodbye { settle, replies: vec![reply] });
    }

    fn heard(&mut self, now: Instant, messages: Vec<Down>) {
        let was_open = self.phase == Phase::Open;
        for message in messages {
            match message {
                Down::Truth { lease_ms, keep } => self.learn(lease_ms, &keep),
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
    fn learn(&mut self, lease_ms: u64, keep: &[Held]) {
        self.lease = Duration::from_millis(lease_ms);
        (self.phase, self.hang_ups) = (Phase::Open, 0);
        let keep: BTreeSet<Held> = keep.iter().copied().collect();
        let mut dropped = Vec::new();
        let mut confirming = Vec::new();
        for (&hold, job) in &mut self.jobs {
            match (&job.stage, keep.contains(&hold)) {
                (Stage::Confirming(..), true) => confirming.push(Up::Start(hold)),
                (_, true) => {}
                // Perhaps it is cancelled and still the worker's to let go of; so it stays here until
                // the worker has.
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

    fn assigned(&mut self, jobs: Vec<Assigned>) {
        let mut starts = Vec::new();
        let mut refused = Vec::new();
        for Assigned { job, id, queue, kind, attempt, confirm, timeout_ms, work, .. } in jobs {
            if self.jobs.contains_key(&job) || self.reports.contains_key(&job) {
                continue;
            }
            if self.is_draining {
                refused.push(job);
                continue;
            }
            let assignment =
                Box::new(Assignment { job, id, queue, kind, attempt, timeout_ms, work });
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

    fn start_granted(&mut self, hold: Held) {
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

    fn cancelled(&mut self, hold: Held) {
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
            let problem =
                Problem::new(503, "busy", "the server does not listen to this worker now");
            self.over(&problem.help("repeat it in a second"));
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
        self.greet(Comes::Resume);
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

/// The longest that a claim waits.
const WAIT_MAX: Duration = Duration::from_secs(60);

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
    .help("stop what runs, report nothing of it, and begin again under a new id")
}

fn old_number(number: u64, newest: u64) -> Problem {
    Problem::new(409, "old-number", format!("claim {number} comes after claim {newest}"))
        .help("number the claims of a worker upwards, and wait for each answer")
}

#[cfg(test)]
mod tests {
    use filch_api::session::Ended;
    use filch_api::submission::Span;
    use filch_scheduler::time::Millis;
    use serde_json::value::RawValue;
    use tokio::sync::oneshot::Receiver;

    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    /// A deputy, the moment, and what it has caused since somebody last looked.
    struct Player {
        deputy: Deputy,
        now: Instant,
        effects: Vec<Effect>,
    }

    impl Player {
        fn new() -> Self {
            let now = Instant::now();
            Self { deputy: Deputy::new(now, LEASE), now, effects: Vec::new() }
        }

        /// One that has claimed, and been told the truth.
        fn claiming(wait: Duration) -> (Self, Receiver<Answer>) {
            let mut player = Self::new();
            let answer = player.claim(1, &[], wait);
            player.hear(vec![truth(&[])]);
            (player, answer)
        }

        fn handle(&mut self, event: Event) {
            self.effects.extend(self.deputy.handle(self.now, event));
        }

        fn ask(&mut self, ask: Ask) -> Receiver<Answer> {
            let (reply, answer) = oneshot::channel();
            self.handle(Event::Asked(Call { ask, reply }));
            answer
        }

        fn claim(&mut self, number: u64, holds: &[Held], wait: Duration) -> Receiver<Answer> {
            let wait = Some(Span(Millis(wait.as_millis() as u32)));
            let holds = holds.to_vec();
            self.ask(Ask::Claim(Claim { number, slots: 2, queues: None, holds, wait }))
        }

        fn beat(&mut self, holds: &[Held]) -> Receiver<Answer> {
            self.ask(Ask::Beat(Beat { holds: holds.to_vec(), stopping: Vec::new() }))
        }

        fn hear(&mut self, messages: Vec<Down>) {
            self.handle(Event::Heard(messages));
        }

        /// Everything that was asked to be settled is.
        fn settle(&mut self) {
            for number in self.effects.iter().filter_map(settled).collect::<Vec<_>>() {
                self.handle(Event::Settled(number));
            }
        }

        fn pass(&mut self, span: Duration) {
            self.now += span;
            self.handle(Event::Tick);
        }

        /// What was said and asked for since the last look, in few words.
        fn said(&mut self) -> Vec<String> {
            self.effects.drain(..).flat_map(words).collect()
        }
    }

    fn settled(effect: &Effect) -> Option<u64> {
        if let Effect::Settle(number) = effect { Some(*number) } else { None }
    }

    fn words(effect: Effect) -> Vec<String> {
        let job = |Held(job, fence): Held| format!("{job}.{fence}");
        let jobs = |jobs: &[Held]| jobs.iter().copied().map(job).collect::<Vec<_>>().join(" ");
        match effect {
            Effect::Open(hello) => {
                let entrance = match hello.entrance {
                    Comes::New => "new",
                    Comes::Resume => "resume",
                    Comes::Instead(_) => "instead",
                };
                let reports = hello.reports.len();
                let holds = jobs(&hello.holds);
                vec![format!("hello {entrance} want {} reports {reports} [{holds}]", hello.want)]
            }
            Effect::Say(messages) => {
                let word = |message| match message {
                    Up::Beat => "beat".to_owned(),
                    Up::Want(count) => format!("want {count}"),
                    Up::Start(hold) => format!("start {}", job(hold)),
                    Up::Started(hold) => format!("started {}", job(hold)),
                    Up::Report(report) => match report.ending {
                        Ended::Dropped => format!("dropped {}", job(report.job)),
                        other => format!("{other:?} {}", job(report.job)),
                    },
                    Up::Given { question, jobs: given } => {
                        format!("given {question} [{}]", jobs(&given))
                    }
                    Up::Stopping(hold) => format!("stopping {}", job(hold)),
                    Up::Goodbye => "goodbye".to_owned(),
                    other => format!("{other:?}"),
                };
                messages.into_iter().map(word).collect()
            }
            Effect::Settle(_) => vec!["settle".to_owned()],
            Effect::Leave => vec!["leave".to_owned()],
        }
    }

    fn truth(keep: &[Held]) -> Down {
        Down::Truth { lease_ms: LEASE.as_millis() as u64, keep: keep.to_vec() }
    }

    fn assigned(job: u64, fence: u64, confirm: bool) -> Assigned {
        Assigned {
            job: Held(job, fence),
            id: "id".into(),
            queue: "q".into(),
            kind: "k".into(),
            era: 0,
            rank: 0,
            attempt: 1,
            confirm,
            free_slot: false,
            timeout_ms: None,
            work: RawValue::from_string("{}".into()).unwrap(),
        }
    }

    fn assign(jobs: &[u64]) -> Down {
        Down::Assign(jobs.iter().map(|&job| assigned(job, 1, false)).collect())
    }

    #[track_caller]
    fn brought(mut answer: Receiver<Answer>) -> Vec<u64> {
        match answer.try_recv().expect("it is answered") {
            Ok(Reply::Claimed(claimed)) => claimed.jobs.iter().map(|job| job.job.0).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn jobs_are_wanted_only_while_a_claim_waits() {
        let (mut player, answer) = Player::claiming(LEASE);
        assert_eq!(player.said(), ["hello new want 0 reports 0 []", "want 2"]);
        player.hear(vec![assign(&[7, 8])]);
        assert_eq!(player.said(), ["want 0", "settle"]);
        player.effects.push(Effect::Settle(1));
        player.settle();
        assert_eq!(brought(answer), [7, 8]);
    }

    #[test]
    fn a_claim_that_may_not_wait_still_gets_what_is_decided_at_once() {
        let (mut player, answer) = Player::claiming(Duration::ZERO);
        player.hear(vec![assign(&[7])]);
        player.settle();
        assert_eq!(brought(answer), [7]);
        assert_eq!(player.said()[1..], ["want 2", "want 0", "settle"]);
    }

    #[test]
    fn a_silent_worker_is_answered_before_it_gets_nothing_any_more() {
        let (mut player, mut answer) = Player::claiming(LEASE);
        player.pass(LEASE / SILENCE - Duration::from_millis(1));
        assert!(!player.said().contains(&"want 0".to_owned()));
        // Another word from it, and it goes on waiting.
        drop(player.beat(&[]));
        player.pass(LEASE / SILENCE - Duration::from_millis(1));
        player.pass(Duration::from_millis(1));
        player.settle();
        assert!(matches!(answer.try_recv(), Ok(Ok(Reply::Claimed(_)))));
    }

    #[test]
    fn a_beat_is_answered_once_the_brain_has_heard_it() {
        let (mut player, _answer) = Player::claiming(LEASE);
        let mut beat = player.beat(&[]);
        player.hear(vec![Down::Renewed(2)]);
        assert!(beat.try_recv().is_err(), "that was the claim");
        player.hear(vec![Down::Renewed(3)]);
        assert!(matches!(beat.try_recv(), Ok(Ok(Reply::Beaten(_)))));
    }

    #[test]
    fn a_beat_that_crosses_with_an_answer_takes_nothing_away() {
        let (mut player, answer) = Player::claiming(Duration::ZERO);
        player.hear(vec![assign(&[7])]);
        player.settle();
        assert_eq!(brought(answer), [7]);
        player.said();
        drop(player.beat(&[]));
        assert_eq!(player.said(), ["beat"]);
        // The next claim does: what the last answer brought and never arrived is brought again.
        let again = player.claim(2, &[], Duration::ZERO);
        player.settle();
        assert_eq!(brought(again), [7]);
        // What an older answer brought is not, for that one was read.
        let held = player.claim(3, &[Held(7, 1)], Duration::ZERO);
        player.settle();
        assert_eq!(brought(held), [0; 0]);
        player.said();
        drop(player.claim(4, &[], Duration::ZERO));
        assert_eq!(player.said()[0], "dropped 7.1");
    }

    #[test]
    fn a_suspect_is_given_once_its_start_is_granted() {
        let (mut player, mut answer) = Player::claiming(LEASE);
        player.said();
        player.hear(vec![Down::Assign(vec![assigned(7, 1, true)])]);
        assert_eq!(player.said(), ["start 7.1", "want 0", "settle"]);
        assert!(answer.try_recv().is_err());
        player.hear(vec![Down::StartGranted(Held(7, 1))]);
        player.handle(Event::Settled(1));
        assert_eq!(brought(answer), [7]);
        drop(player.beat(&[Held(7, 1)]));
        assert_eq!(player.said(), ["beat"], "that it runs is known");
    }

    #[test]
    fn nothing_is_ever_given_away() {
        let (mut player, _answer) = Player::claiming(LEASE);
        player.said();
        player.hear(vec![Down::AskToGive {
            question: 3,
            most: 5,
            most_bound: 5,
            suspects_stay: false,
            queues: None,
        }]);
        assert_eq!(player.said(), ["given 3 []"]);
    }

    #[test]
    fn a_job_cancelled_before_it_was_given_is_dropped_and_after_it_is_told() {
        let (mut player, answer) = Player::claiming(LEASE);
        player.hear(vec![assign(&[7, 8])]);
        player.said();
        player.hear(vec![Down::Cancel(Held(8, 1))]);
        assert_eq!(player.said(), ["dropped 8.1"]);
        player.handle(Event::Settled(1));
        assert_eq!(brought(answer), [7]);
        player.hear(vec![Down::Cancel(Held(7, 1))]);
        let mut beat = player.beat(&[Held(7, 1)]);
        player.hear(vec![Down::Renewed(99)]);
        match beat.try_recv() {
            Ok(Ok(Reply::Beaten(beaten))) => assert_eq!(beaten.cancel, [Held(7, 1)]),
            other => panic!("{other:?}"),
        }
        assert_eq!(player.said(), ["beat"], "it is not said to have started");
    }

    #[test]
    fn after_a_broken_session_everything_unanswered_is_said_again() {
        let (mut player, answer) = Player::claiming(Duration::ZERO);
        player.hear(vec![assign(&[7])]);
        player.settle();
        assert_eq!(brought(answer), [7]);
        let mut report = player.ask(Ask::Report(vec![Report::dropped(Held(7, 1))]));
        let mut beat = player.beat(&[Held(7, 1)]);
        let mut claim = player.claim(2, &[Held(7, 1)], LEASE);
        player.said();
        player.handle(Event::HungUp);
        assert_eq!(player.said(), ["hello resume want 0 reports 1 [7.1]"]);
        player.hear(vec![truth(&[]), Down::Accepted(vec![Held(7, 1)])]);
        assert!(matches!(report.try_recv(), Ok(Ok(Reply::Answered(_)))));
        assert_eq!(player.said(), ["beat", "want 2"]);
        player.hear(vec![Down::Renewed(2)]);
        assert!(matches!(beat.try_recv(), Ok(Ok(Reply::Beaten(_)))));
        assert!(claim.try_recv().is_err());
        player.hear(vec![Down::Gone]);
        assert_eq!(player.said(), ["leave"]);
        assert_eq!(claim.try_recv().unwrap().unwrap_err().code, "gone");
    }

    #[test]
    fn other_slots_begin_another_session() {
        let (mut player, answer) = Player::claiming(Duration::ZERO);
        player.settle();
        assert_eq!(brought(answer), [0; 0]);
        player.said();
        let claim = Claim { number: 2, slots: 5, queues: None, holds: Vec::new(), wait: None };
        let answer = player.ask(Ask::Claim(claim));
        assert_eq!(player.said(), ["hello resume want 0 reports 0 []"]);
        player.hear(vec![truth(&[])]);
        assert_eq!(player.said(), ["want 5", "want 0", "settle"]);
        player.handle(Event::Settled(2));
        assert_eq!(brought(answer), [0; 0]);
    }

    #[test]
    fn a_worker_that_is_not_heard_of_is_forgotten() {
        let (mut player, _answer) = Player::claiming(Duration::ZERO);
        player.settle();
        player.said();
        player.pass(LEASE * FORGOTTEN);
        assert_eq!(player.said(), ["leave"]);
        let mut late = player.beat(&[]);
        assert_eq!(late.try_recv().unwrap().unwrap_err().code, "gone");
    }
}
