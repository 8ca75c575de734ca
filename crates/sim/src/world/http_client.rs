//! A small worker over plain HTTP: what its process decides.
//!
//! It claims jobs with numbered claims, renews its lease, reports, and says goodbye. It keeps to
//! what `docs/api.md` asks of such workers: a request that is not answered is repeated, jobs are
//! stopped before the lease is over, and a process whose id is rejected continues under another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use filch_engine::server::{HttpAsk, HttpClaim, HttpRefusal, HttpReply};
use filch_scheduler::agent::{StopReason, Verdict};
use filch_scheduler::id::{Hold, WorkerId};
use filch_scheduler::message::{Assignment, Report, Serves};
use filch_scheduler::record::StoredText;
use filch_scheduler::time::Monotonic;

use crate::random::Random;

/// How long it waits for a response, beyond the wait of a claim.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often it says goodbye before it leaves.
const GOODBYES: u32 = 3;

/// The longest rest between a claim without jobs and the next.
const REST_MILLIS: u64 = 300;

/// One in so many claims without a response is given up: the next one has another number.
const GIVEN_UP_ONE_IN: u64 = 3;

/// The process.
pub(super) struct HttpClient {
    worker: WorkerId,
    instance: Arc<str>,
    slots: u32,
    serves: Serves,
    random: Random,
    /// Whether a claim under this id was answered.
    is_met: bool,
    number: u64,
    /// Whether the next claim has another number.
    is_next_new: bool,
    claim: Option<OpenRequest>,
    claims_at: Monotonic,
    lease: Duration,
    /// When the last request was sent that was answered.
    renewed_at: Monotonic,
    beats_at: Monotonic,
    holds: BTreeMap<Hold, Held>,
    /// Requests that may be answered: when they were sent.
    sent: BTreeMap<u64, Monotonic>,
    last_sent: u64,
    is_draining: bool,
    goodbyes: u32,
    goodbye_at: Monotonic,
}

struct OpenRequest {
    number: u64,
    until: Monotonic,
}

enum Held {
    Running { ends_at: Option<Monotonic>, stops: Option<StopReason> },
    Reporting { report: Report, again_at: Monotonic },
}

/// What the process does.
pub(super) enum HttpDeed {
    /// Sends a request.
    Send {
        number: u64,
        ask: HttpAsk,
    },
    /// Its id was accepted.
    Met,
    /// Starts a job with this payload.
    Start(Assignment, StoredText),
    Stop(Hold, StopReason),
    /// Kills all its jobs at once.
    KillAll {
        is_late: bool,
    },
    Settled(Hold, Verdict),
    /// It was refused what it may do.
    Refused,
    Leave,
}

impl HttpClient {
    /// A process whose first id is not its own choice.
    pub(super) fn new(worker: WorkerId, slots: u32, serves: Serves, mut random: Random) -> Self {
        let instance = format!("{:x}", random.next()).into();
        Self {
            worker,
            instance,
            slots,
            serves,
            random,
            is_met: false,
            number: 0,
            is_next_new: true,
            claim: None,
            claims_at: Monotonic(0),
            lease: PATIENCE,
            renewed_at: Monotonic(0),
            beats_at: Monotonic(0),
            holds: BTreeMap::new(),
            sent: BTreeMap::new(),
            last_sent: 0,
            is_draining: false,
            goodbyes: 0,
            goodbye_at: Monotonic(0),
        }
    }

    pub(super) const fn worker(&self) -> WorkerId {
        self.worker
    }

    pub(super) fn instance(&self) -> Arc<str> {
        Arc::clone(&self.instance)
    }

    /// When to call again.
    pub(super) fn next_deadline(&self) -> Monotonic {
        let claims_at = match &self.claim {
            Some(open) => open.until,
            None if self.may_claim() => self.claims_at,
            None => Monotonic(u64::MAX),
        };
        let mut due = claims_at;
        if self.is_met {
            due = due.min(self.beats_at).min(self.fenced_at());
        }
        if self.may_leave() {
            due = due.min(self.goodbye_at);
        }
        for held in self.holds.values() {
            due = due.min(match held {
                Held::Running { ends_at: Some(at), stops: None } => *at,
                Held::Running { .. } => due,
                Held::Reporting { again_at, .. } => *again_at,
            });
        }
        due
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, now: Monotonic) -> Vec<HttpDeed> {
        let mut deeds = Vec::new();
        self.pass(now, &mut deeds);
        deeds
    }

    /// A job has ended; `end` makes the report.
    pub(super) fn ended(
        &mut self,
        now: Monotonic,
        hold: Hold,
        end: impl FnOnce(Option<StopReason>) -> Report,
    ) -> Vec<HttpDeed> {
        let mut deeds = Vec::new();
        self.fence(now, &mut deeds);
        if let Some(held) = self.holds.get_mut(&hold)
            && let Held::Running { stops, .. } = held
        {
            *held = Held::Reporting { report: end(*stops), again_at: now };
        }
        self.pass(now, &mut deeds);
        deeds
    }

    /// A request was answered.
    pub(super) fn hears(
        &mut self,
        now: Monotonic,
        number: u64,
        response: Result<HttpReply, HttpRefusal>,
    ) -> Vec<HttpDeed> {
        let mut deeds = Vec::new();
        self.fence(now, &mut deeds);
        let Some(sent_at) = self.sent.remove(&number) else { return deeds };
        let is_claim = self.claim.as_ref().is_some_and(|open| open.number == number);
        match response {
            // It does not wait for this one any more.
            Ok(HttpReply::Claimed { .. }) if !is_claim => {}
            Ok(HttpReply::Claimed { jobs, cancel, drain, lease }) => {
                self.claim = None;
                self.is_next_new = true;
                if !std::mem::replace(&mut self.is_met, true) {
                    self.beats_at = now;
                    deeds.push(HttpDeed::Met);
                }
                self.renew(sent_at, lease, drain);
                if jobs.is_empty() {
                    let rest = Duration::from_millis(self.random.below(REST_MILLIS));
                    self.claims_at = now.plus(rest);
                }
                self.stop(cancel, &mut deeds);
                // Jobs that come when the lease may be over soon are not started.
                if !jobs.is_empty() && now >= self.lease_end() {
                    self.start_again(now, true, &mut deeds);
                } else {
                    self.start(now, jobs, &mut deeds);
                }
            }
            Ok(HttpReply::HeartbeatDone { cancel, drain, lease, .. }) => {
                self.renew(sent_at, lease, drain);
                self.stop(cancel, &mut deeds);
            }
            Ok(HttpReply::Answered { accepted, refused }) => {
                self.renewed_at = self.renewed_at.max(sent_at);
                let accepted = accepted.into_iter().map(|hold| (hold, Verdict::Accepted));
                let refused = refused.into_iter().map(|(hold, _)| (hold, Verdict::Refused));
                for (hold, verdict) in accepted.chain(refused) {
                    if let Some(Held::Reporting { .. }) = self.holds.get(&hold) {
                        self.holds.remove(&hold);
                        deeds.push(HttpDeed::Settled(hold, verdict));
                    }
                }
            }
            Ok(HttpReply::Done) => deeds.push(HttpDeed::Leave),
            Err(HttpRefusal::Gone | HttpRefusal::IdInUse) => {
                self.start_again(now, false, &mut deeds);
            }
            Err(HttpRefusal::OldNumber { newest, .. }) if is_claim => {
                self.claim = None;
                (self.number, self.is_next_new) = (newest, true);
            }
            Err(HttpRefusal::Busy | HttpRefusal::TooManyWorkers(_)) if is_claim => {
                self.claim = None;
                self.claims_at = now.plus(PATIENCE);
            }
            Err(
                HttpRefusal::OldNumber { .. } | HttpRefusal::Busy | HttpRefusal::TooManyWorkers(_),
            ) => {}
            Err(
                HttpRefusal::ReservedId
                | HttpRefusal::WrongToken
                | HttpRefusal::WrongQueue(_)
                | HttpRefusal::NotPermitted(_)
                | HttpRefusal::TokenEnded,
            ) => deeds.push(HttpDeed::Refused),
        }
        self.pass(now, &mut deeds);
        deeds
    }

    fn may_claim(&self) -> bool {
        !self.is_draining && (self.holds.len() as u32) < self.slots
    }

    fn may_leave(&self) -> bool {
        self.is_draining && self.holds.is_empty() && self.claim.is_none()
    }

    /// When its jobs must have been stopped.
    fn fenced_at(&self) -> Monotonic {
        if self.holds.is_empty() { Monotonic(u64::MAX) } else { self.lease_end() }
    }

    /// Seven tenths of its lease, because clocks run at different rates.
    fn lease_end(&self) -> Monotonic {
        self.renewed_at.plus(self.lease * 7 / 10)
    }

    fn renew(&mut self, sent_at: Monotonic, lease: Duration, drain: bool) {
        self.renewed_at = self.renewed_at.max(sent_at);
        self.lease = lease;
        self.is_draining |= drain;
    }

    /// Stops everything if the lease may be over soon.
    fn fence(&mut self, now: Monotonic, deeds: &mut Vec<HttpDeed>) {
        if self.is_met && now >= self.fenced_at() {
            self.start_again(now, true, deeds);
        }
    }

    /// Continues under another id.
    fn start_again(&mut self, now: Monotonic, is_late: bool, deeds: &mut Vec<HttpDeed>) {
        deeds.push(HttpDeed::KillAll { is_late });
        if self.is_draining {
            deeds.push(HttpDeed::Leave);
        }
        self.worker = WorkerId::apart(self.random.next());
        (self.is_met, self.number, self.is_next_new) = (false, 0, true);
        (self.claim, self.claims_at) = (None, now);
        self.holds.clear();
        self.sent.clear();
    }

    fn start(
        &mut self,
        now: Monotonic,
        jobs: Vec<(Assignment, StoredText)>,
        deeds: &mut Vec<HttpDeed>,
    ) {
        for (assignment, text) in jobs {
            let ends_at = assignment.timeout.map(|timeout| now.plus(timeout.duration()));
            self.holds.insert(assignment.hold, Held::Running { ends_at, stops: None });
            deeds.push(HttpDeed::Start(assignment, text));
        }
    }

    fn stop(&mut self, cancelled: Vec<Hold>, deeds: &mut Vec<HttpDeed>) {
        for hold in cancelled {
            if let Some(Held::Running { stops: stops @ None, .. }) = self.holds.get_mut(&hold) {
                *stops = Some(StopReason::Cancelled);
                deeds.push(HttpDeed::Stop(hold, StopReason::Cancelled));
            }
        }
    }

    /// Does everything that is due.
    fn pass(&mut self, now: Monotonic, deeds: &mut Vec<HttpDeed>) {
        self.fence(now, deeds);
        for (&hold, held) in &mut self.holds {
            if let Held::Running { ends_at: Some(at), stops: stops @ None } = held
                && *at <= now
            {
                *stops = Some(StopReason::TimedOut);
                deeds.push(HttpDeed::Stop(hold, StopReason::TimedOut));
            }
        }
        self.report(now, deeds);
        if self.is_met && self.beats_at <= now {
            self.beats_at = now.plus(self.lease / 10);
            let is_stopping = |(_, held): &(&Hold, &Held)| {
                matches!(held, Held::Running { stops: Some(StopReason::Cancelled), .. })
            };
            let stopping = self.holds.iter().filter(is_stopping).map(|(&hold, _)| hold).collect();
            let holds = self.holds.keys().copied().collect();
            self.send(now, HttpAsk::Heartbeat { holds, stopping }, deeds);
        }
        if self.claim.as_ref().is_some_and(|open| open.until <= now) {
            self.claim = None;
            // The first one is repeated until it is answered.
            self.is_next_new = self.is_met && self.random.one_in(GIVEN_UP_ONE_IN);
        }
        if self.claim.is_none() && self.may_claim() && self.claims_at <= now {
            self.claim(now, deeds);
        }
        if self.may_leave() && self.goodbye_at <= now {
            self.goodbyes += 1;
            self.goodbye_at = now.plus(PATIENCE);
            if self.goodbyes > GOODBYES || !self.is_met {
                deeds.push(HttpDeed::Leave);
            } else {
                self.send(now, HttpAsk::Goodbye, deeds);
            }
        }
    }

    fn report(&mut self, now: Monotonic, deeds: &mut Vec<HttpDeed>) {
        let mut reports = Vec::new();
        for held in self.holds.values_mut() {
            if let Held::Reporting { report, again_at } = held
                && *again_at <= now
            {
                *again_at = now.plus(PATIENCE);
                reports.push(report.clone());
            }
        }
        if !reports.is_empty() {
            self.send(now, HttpAsk::Report(reports), deeds);
        }
    }

    fn claim(&mut self, now: Monotonic, deeds: &mut Vec<HttpDeed>) {
        self.number += u64::from(std::mem::replace(&mut self.is_next_new, false));
        let wait = Duration::from_millis(100 * self.random.below(40));
        let claim = HttpClaim {
            number: self.number,
            slots: self.slots,
            serves: self.serves.clone(),
            holds: self.holds.keys().copied().collect(),
            wait,
        };
        let number = self.send(now, HttpAsk::Claim(claim), deeds);
        self.claim = Some(OpenRequest { number, until: now.plus(wait + PATIENCE) });
    }

    fn send(&mut self, now: Monotonic, ask: HttpAsk, deeds: &mut Vec<HttpDeed>) -> u64 {
        self.last_sent += 1;
        self.sent.insert(self.last_sent, now);
        // It does not wait for older ones any more.
        if self.sent.len() > REMEMBERED_MAX {
            self.sent.pop_first();
        }
        deeds.push(HttpDeed::Send { number: self.last_sent, ask });
        self.last_sent
    }
}

/// How many requests it waits for.
const REMEMBERED_MAX: usize = 32;
