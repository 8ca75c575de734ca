//! The worker's side of the scheduler: decides what one worker does next.
//!
//! An agent holds a deque of jobs that it owns, starts them without asking, repeats its reports
//! until they are answered, and gives away half of its unstarted jobs when asked. It fences itself:
//! if no batch of the last seven tenths of a lease was acknowledged, it stops every job.
//!
//! Submodules: `session` talks to the server, `work` starts and stops jobs, `deque` holds waiting
//! jobs, `pace` decides how many jobs to want, and `rest` whether to want any.

mod deque;
mod event;
mod pace;
mod rest;
mod session;
mod work;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

pub use event::{AgentEffect, AgentEvent, StopReason, Verdict};

use self::deque::Deque;
use self::pace::Pace;
use self::rest::Rest;
pub use crate::dispatch::AuditError;
use crate::id::{Hold, MessageNo, SessionNo, WorkerId};
use crate::message::{Assignment, FromWorker, Report, Serves, ToWorker};
use crate::planted::{Bug, planted};
use crate::random::SplitMix64;
use crate::time::{Duration, Monotonic, Now};

/// How an `agent` behaves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentConfig {
    /// Decides the worker's ids and the wait before a reconnect. It must be random for every
    /// process: two workers with the same seed would use the same ids.
    pub seed: u64,
    /// Where the worker runs.
    pub home: Home,
    /// How many jobs it can run at once.
    pub slots: u32,
    /// Which queues it serves.
    pub serves: Serves,
    /// How many jobs to hold beyond the slots.
    pub reserve: Reserve,
    /// A job that has run for this long is reported as started.
    pub started_after: Duration,
    /// The longest wait before a reconnect.
    pub reconnect_max: Duration,
    /// This many reports are sent at once, even if earlier ones are not answered yet.
    pub reports_max: usize,
    /// This many bytes of reports are under way at most, or one report that is larger: servers
    /// refuse frames that are too large.
    pub report_bytes_max: usize,
    /// The longest wait of a worker on which jobs cannot be started, before it tries another.
    pub rest_max: Duration,
    /// The grace period for running jobs when the server asks the worker to shut down.
    pub grace: Duration,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            home: Home::Apart,
            slots: 1,
            serves: Serves::All,
            reserve: Reserve::default(),
            started_after: Duration::from_millis(50),
            reconnect_max: Duration::from_millis(500),
            reports_max: 256,
            // In JSON they can take six times as much, and servers accept 16 MiB.
            report_bytes_max: 2 << 20,
            rest_max: Duration::from_secs(60),
            grace: Duration::from_secs(30),
        }
    }
}

/// Where a worker runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Home {
    /// In a process of its own.
    Apart,
    /// In the server's process.
    Embedded,
}

/// How many jobs to hold beyond the slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reserve {
    /// As many as cover a round trip, up to a cap.
    Auto {
        /// The cap.
        most: u32,
    },
    /// Always this many.
    Fixed(u32),
}

impl Default for Reserve {
    fn default() -> Self {
        Self::Auto { most: 1_024 }
    }
}

/// One worker.
pub struct Agent {
    config: AgentConfig,
    random: SplitMix64,
    now: Now,
    /// This incarnation.
    id: WorkerId,
    /// The previous incarnation: its jobs have stopped, but its reports are not answered yet.
    replaces: Option<WorkerId>,
    /// Whether the server has answered this incarnation.
    is_met: bool,
    link: Link,
    session: Session,
    /// The length of the lease, from the last `reconcile`.
    lease: Duration,
    /// When the newest acknowledged batch was *sent*: the lease is counted from then.
    lease_from: Option<Monotonic>,
    /// Its right to own jobs is over: it waits until running jobs have stopped.
    is_fenced: bool,
    /// Set while draining: when jobs that still run are stopped.
    drain: Option<Monotonic>,
    has_left: bool,
    deque: Deque,
    slots: BTreeMap<Hold, Slot>,
    /// Reports that are not answered yet, sent or not.
    reports: BTreeMap<Hold, Pending>,
    pace: Pace,
    rest: Rest,
    effects: Vec<AgentEffect>,
}

/// The connection to the server.
struct Session {
    number: SessionNo,
    is_open: bool,
    /// The last batch sent and received.
    sent: MessageNo,
    received: MessageNo,
    heard_at: Monotonic,
    heartbeat_at: Monotonic,
    /// When each unacknowledged batch was sent.
    unacknowledged: VecDeque<(MessageNo, Monotonic)>,
    /// The messages for the next batch.
    unsent: Vec<FromWorker>,
    /// Whether the next batch is to be sent at once.
    is_urgent: bool,
    /// Reports sent in this session that are not answered, and when the first of them was sent.
    in_flight: usize,
    in_flight_bytes: usize,
    in_flight_since: Monotonic,
    /// Whether it delivers reports of an older incarnation, and more follow in the next session.
    is_partial: bool,
    want_told: u32,
    /// Whether this session's `reconcile` has arrived.
    is_reconciled: bool,
    /// When the newest acknowledged batch of this session was sent.
    acknowledged_at: Option<Monotonic>,
    /// The batch that carries the goodbye.
    goodbye: Option<MessageNo>,
}

/// The state of the connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Link {
    Down,
    AskedFor,
    Up,
}

/// A slot in use.
struct Slot {
    assignment: Assignment,
    phase: SlotPhase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotPhase {
    /// Waits until the start of a suspect is confirmed.
    Confirming,
    Running {
        since: Monotonic,
        is_told: bool,
    },
    Stopping(StopReason),
}

/// A report that is not answered.
struct Pending {
    report: Report,
    /// Whether it was sent in the current session.
    is_sent: bool,
}

/// About as many bytes as a report has on the wire besides its texts.
const REPORT_BYTES: usize = 64;

impl Pending {
    fn bytes(&self) -> usize {
        REPORT_BYTES + self.report.text_bytes()
    }
}

impl Agent {
    /// A worker that has not connected yet; the first effect asks for a connection.
    #[must_use]
    pub fn new(config: AgentConfig, now: Now, effects: &mut Vec<AgentEffect>) -> Self {
        let mut random = SplitMix64::new(config.seed);
        let id = new_id(&mut random, config.home);
        let mut agent = Self {
            random,
            now,
            id,
            replaces: None,
            is_met: false,
            link: Link::AskedFor,
            session: Session::new(SessionNo(0), now.monotonic),
            lease: Duration::from_secs(10),
            lease_from: None,
            is_fenced: false,
            drain: None,
            has_left: false,
            deque: Deque::default(),
            slots: BTreeMap::new(),
            reports: BTreeMap::new(),
            pace: Pace::default(),
            rest: Rest::default(),
            effects: Vec::new(),
            config,
        };
        agent.effects.push(AgentEffect::Connect { wait: Duration::ZERO });
        effects.append(&mut agent.effects);
        agent
    }

    /// Handles one event at one moment. Its effects are appended to `effects`, to be performed in
    /// order.
    pub fn handle(&mut self, now: Now, event: AgentEvent, effects: &mut Vec<AgentEffect>) {
        // A clock that runs backwards is a bug of the shell; standing still is the safe reaction.
        self.now = Now { monotonic: self.now.monotonic.max(now.monotonic), wall: now.wall };
        if self.has_left {
            return;
        }
        let is_told_to_end = self.is_told_to_end(&event);
        self.expire();
        match event {
            AgentEvent::Connected => self.connected(),
            AgentEvent::Disconnected => self.disconnected(),
            AgentEvent::Received { session, number, messages } => {
                self.received(session, number, messages);
            }
            AgentEvent::Ended(report) => self.ended(report),
            AgentEvent::Progressed { hold, percent } => self.progressed(hold, percent),
            AgentEvent::Idle => self.idle(),
            AgentEvent::Drain { grace } => self.drain(grace),
            AgentEvent::Tick => {}
        }
        if is_told_to_end && self.drain.is_none() {
            self.drain(self.config.grace);
        }
        self.fill_slots();
        self.come_back_or_leave();
        self.continue_delivery();
        self.flush();
        effects.append(&mut self.effects);
    }

    /// Whether the server asks this worker to shut down, in a session that was open until now. It
    /// is honoured even if the lease has expired meanwhile: a worker that was suspended reads it
    /// late, and it may not be repeated.
    fn is_told_to_end(&self, event: &AgentEvent) -> bool {
        let AgentEvent::Received { session, messages, .. } = event else { return false };
        let is_current = self.session.is_open && *session == self.session.number;
        is_current && messages.contains(&ToWorker::DrainNow)
    }

    /// When to call again at the latest, by the monotonic clock.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Monotonic> {
        if self.has_left {
            return None;
        }
        let fence = self.fence_at().filter(|_| !self.is_fenced);
        let session = &self.session;
        let session = session.is_open.then(|| session.heartbeat_at.min(self.silence_at()));
        let drain = self.drain.map(|at| [at, self.patience_end(at)]);
        let drain = drain.into_iter().flatten().find(|&at| at > self.now.monotonic);
        let of_slot = |slot| [self.started_at(slot), slot.times_out_at()];
        let slots = self.slots.values().flat_map(of_slot).flatten().min();
        let rest = self.rest.until().filter(|&at| at > self.now.monotonic);
        [fence, session, drain, slots, rest, self.probe_ends_at()].into_iter().flatten().min()
    }

    /// This incarnation.
    #[must_use]
    pub const fn id(&self) -> WorkerId {
        self.id
    }

    /// The moment at which every job must have stopped unless the server answers before. A guardian
    /// of child processes enforces it. `None` if no job may run anyway.
    #[must_use]
    pub fn fence_at(&self) -> Option<Monotonic> {
        // Seven tenths tolerate clocks whose speeds differ by a factor of 1.4.
        let tenths = if planted(Bug::NoSelfFencing) { 10_000 } else { 7 };
        self.lease_from.map(|from| from.plus(self.lease * tenths / 10))
    }

    /// Until when it takes no jobs, because the last ones could not be started here.
    #[must_use]
    pub const fn rests_until(&self) -> Option<Monotonic> {
        self.rest.until()
    }

    /// How many jobs run or are about to start.
    #[must_use]
    pub fn running_count(&self) -> usize {
        self.slots.len()
    }

    /// Whether its session only delivers a part of an older incarnation's reports: it closes the
    /// connection by itself, and the next one follows.
    #[must_use]
    pub const fn delivers_a_part(&self) -> bool {
        self.session.is_partial
    }

    /// Whether it holds this job and has not started it.
    #[must_use]
    pub fn is_unstarted(&self, hold: Hold) -> bool {
        let is_confirming = |slot: &Slot| slot.phase == SlotPhase::Confirming;
        self.deque.contains(hold) || self.slots.get(&hold).is_some_and(is_confirming)
    }

    /// How many jobs wait in the deque.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.deque.count()
    }

    /// Checks that each job is in at most one place and that nothing runs without the right to own
    /// jobs.
    ///
    /// # Errors
    /// Names the violated invariant.
    pub fn audit(&self) -> Result<(), AuditError> {
        let mut places: Vec<Hold> = self.deque.iter().collect();
        places.extend(self.slots.keys());
        places.extend(self.reports.keys());
        let count = places.len();
        places.sort_unstable();
        places.dedup();
        let running = self.slots.values().filter(|slot| slot.runs_since().is_some()).count();
        let past = self.fence_at().is_none_or(|at| at <= self.now.monotonic);
        let sent = self.reports.values().filter(|pending| pending.is_sent);
        let (sent, bytes) = sent.fold((0, 0), |(n, sum), it| (n + 1, sum + it.bytes()));
        let rules = [
            (places.len() == count, "a job is in one place"),
            (
                self.slots.len() <= self.config.slots as usize,
                "no more jobs run than there are slots",
            ),
            (!past || running == 0, "nothing runs past the worker's own deadline"),
            (!self.is_fenced || self.deque.count() == 0, "a fenced worker's deque is empty"),
            (self.drain.is_none() || self.deque.count() == 0, "a draining worker's deque is empty"),
            (
                sent == self.session.in_flight && bytes == self.session.in_flight_bytes,
                "reports under way are counted",
            ),
            (self.effects.is_empty(), "what was decided has been handed over"),
        ];
        match rules.into_iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err(AuditError(String::from(rule))),
            None => Ok(()),
        }
    }
}

fn new_id(random: &mut SplitMix64, home: Home) -> WorkerId {
    match home {
        Home::Apart => WorkerId::apart(random.draw()),
        Home::Embedded => WorkerId::embedded(random.draw()),
    }
}
