//! The server's side of the scheduler: decides what happens next to every job of one shard.
//!
//! [`Dispatch::handle`] takes one event at a moment and returns its effects. Nothing is sent before
//! its receipt: an answer, a refusal or an assignment carries the number of the newest commit
//! issued when it was decided, and the engine holds it back. The one exception is the renewal of a
//! lease.
//!
//! Submodules: `life` moves jobs between states and indexes, `submit` and `graph` accept new jobs,
//! `fetch` looks up jobs that are not in memory, `queue` and `strategy` order them, `claim` and
//! `steal` give them to workers, `session` and `report` handle messages from workers, `operate`
//! serves operators, `load` rebuilds everything from the store, `why` explains, `audit` checks.

mod admission;
mod audit;
mod claim;
mod event;
mod fetch;
mod graph;
mod job;
mod jobs;
mod ledger;
mod life;
mod load;
mod operate;
mod pages;
mod queue;
mod report;
mod session;
mod snapshot;
mod steal;
mod strategy;
mod submit;
mod view;
mod why;
mod worker;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

pub use audit::AuditError;
pub use event::{
    Answer, Bound, DispatchEffect, DispatchEvent, Novelty, QueueChange, Refused, Request, Submitted,
};
pub use load::{LoadError, Loader};
pub use snapshot::{Holder, QueueSnapshot, Takers};
pub use view::{JobView, QueueView, WorkerView};
pub use why::{Ahead, Parent, Why};

use self::fetch::Waiting;
use self::jobs::Jobs;
use self::ledger::Ledger;
use self::queue::Queues;
use self::steal::Questions;
use self::worker::Workers;
use crate::id::{CommitNo, Hold, RequestNo, Seq, SessionNo, WorkerId};
use crate::message::{Assignment, ToWorker};
use crate::name::{Name, Names};
use crate::planted::{Bug, planted};
use crate::random::SplitMix64;
use crate::record::{Mutation, Strategy};
use crate::time::{Duration, Monotonic, Now, Wall};

/// How `dispatch` behaves, and what it refuses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DispatchConfig {
    /// Decides victims, jitter and hashing.
    pub seed: u64,
    /// How long a worker may be silent before its jobs go to others.
    pub lease: Duration,
    /// How long a worker may take to answer a steal question before another worker is asked as
    /// well.
    pub question: Duration,
    /// How many jobs an idle worker asks a busy one for.
    pub steal: Steal,
    /// The strategy, if the store has none.
    pub strategy: Strategy,
    /// The bounds beyond which it refuses.
    pub limits: Limits,
}

impl Default for DispatchConfig {
    fn default() -> Self {
        Self {
            seed: 0,
            lease: DEFAULT_LEASE,
            question: Duration::from_millis(20),
            steal: Steal::default(),
            strategy: Strategy::default(),
            limits: Limits::default(),
        }
    }
}

/// How many jobs an idle worker asks a busy one for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Steal {
    /// Half of those that have not started: a full deque is shared out in few questions.
    #[default]
    Half,
    /// At most one job per question: jobs hardly ever move without starting at once, but every job
    /// takes a question.
    One,
    /// None. Jobs stay with their worker until it hands them back or is lost.
    Never,
}

impl Steal {
    /// How many jobs one question may bring.
    const fn most(self) -> u32 {
        match self {
            Self::Half => u32::MAX,
            Self::One => 1,
            Self::Never => 0,
        }
    }
}

/// Bounds. Anything beyond them is refused with the bound named, and changes nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Jobs in one submit.
    pub jobs: usize,
    /// Parents of all jobs in one submit.
    pub edges: usize,
    /// Jobs in memory altogether.
    pub live_jobs: usize,
    /// Queues in memory altogether.
    pub queues: usize,
    /// Bytes in the name of a queue, a kind or a key.
    pub name_bytes: usize,
    /// Requests, and batches of reports, that wait for the store.
    pub waiting: usize,
    /// Jobs that one worker may own; it can want more, and gets no more.
    pub want: u32,
    /// Queues that one worker may name.
    pub served: usize,
    /// Workers that have lost their connection: beyond this, those that hold no job are forgotten
    /// before their lease is over.
    pub absent: usize,
    /// Mutations without a receipt, beyond which [`Dispatch::is_full`]. It also bounds how much
    /// memory a slow disk can tie up.
    pub unreceipted: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            jobs: 100_000,
            edges: 1_000_000,
            live_jobs: 20_000_000,
            queues: 100_000,
            name_bytes: 200,
            waiting: 4_096,
            want: 16_384,
            served: 1_000,
            absent: 16_384,
            unreceipted: 1 << 17,
        }
    }
}

/// The lease duration, if the store has none.
const DEFAULT_LEASE: Duration = Duration::from_secs(10);

/// How many ended jobs are looked up in one go.
const EVICTED_TOGETHER: usize = 32;

/// What has happened since the start, for metrics and tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Jobs taken from queues by workers.
    pub claimed: u64,
    /// Steals that moved jobs.
    pub steals: u64,
    /// Jobs moved by steals.
    pub stolen: u64,
    /// Steal questions that brought no jobs.
    pub steals_empty: u64,
    /// Reports, starts and gifts refused because their fence is old.
    pub stale: u64,
    /// Batches dropped because they came before, or in an older session.
    pub repeated: u64,
    /// Sessions ended because a batch is missing or invalid.
    pub hung_up: u64,
    /// Workers whose lease expired.
    pub lost: u64,
    /// Messages of unknown or lost workers.
    pub gone: u64,
}

/// One shard of jobs and everything known about them.
pub struct Dispatch {
    config: DispatchConfig,
    now: Now,
    random: SplitMix64,
    counters: Counters,
    jobs: Jobs,
    kinds: Names,
    queues: Queues,
    /// Jobs that wait for their time.
    scheduled: BTreeSet<(Wall, Seq)>,
    workers: Workers,
    ledger: Ledger,
    questions: Questions,
    waiting: Waiting,
    /// Requests that wait until a cancelled job has stopped.
    cancels: BTreeMap<Seq, Vec<RequestNo>>,
    /// Who asked for the request that is carried out.
    acting: Option<Name>,
    /// The progress that running jobs reported.
    progress: BTreeMap<Seq, u8>,
    /// Ended jobs, in the order of the commits that record their end, until these have their
    /// receipts.
    ended: VecDeque<(CommitNo, Seq)>,
    /// The newest time in the id of any stored job that is not in memory.
    newest_gone: Option<Wall>,
    last_seq: Seq,
    issued: CommitNo,
    receipted: CommitNo,
    /// The commit since which the current order of jobs applies.
    era: CommitNo,
    /// The stored lease duration, and until when some worker may still be using it.
    lease_kept: Duration,
    lease_kept_until: Monotonic,
    /// How many mutations each commit without a receipt has.
    unreceipted: VecDeque<(CommitNo, usize)>,
    unreceipted_mutations: usize,
    /// Workers that changed while it was full, and may get work or give some.
    postponed: BTreeSet<WorkerId>,
    outcome: Outcome,
}

/// The effects of the current event, before its commit is numbered.
#[derive(Default)]
struct Outcome {
    mutations: Vec<Mutation>,
    renewals: Vec<(WorkerId, SessionNo, ToWorker)>,
    /// Sessions of unknown or lost incarnations.
    gone: Vec<(WorkerId, SessionNo)>,
    sends: BTreeMap<WorkerId, Told>,
    replies: Vec<(RequestNo, Answer)>,
    others: Vec<DispatchEffect>,
    /// Reports of the current batch about jobs that are not in memory.
    reports_on_gone: Vec<report::Word>,
}

/// The messages for one worker.
struct Told {
    session: SessionNo,
    messages: Vec<ToWorker>,
    accepted: Vec<Hold>,
    assigned: Vec<Assignment>,
    question: Option<ToWorker>,
}

impl Dispatch {
    fn empty(config: DispatchConfig, now: Now) -> Self {
        Self {
            now,
            random: SplitMix64::new(config.seed),
            counters: Counters::default(),
            jobs: Jobs::new(config.seed),
            kinds: Names::default(),
            queues: Queues::new(config.strategy),
            scheduled: BTreeSet::new(),
            workers: Workers::default(),
            ledger: Ledger::default(),
            questions: Questions::default(),
            waiting: Waiting::default(),
            cancels: BTreeMap::new(),
            acting: None,
            progress: BTreeMap::new(),
            ended: VecDeque::new(),
            newest_gone: None,
            last_seq: Seq(0),
            issued: CommitNo(0),
            receipted: CommitNo(0),
            era: CommitNo(0),
            lease_kept: DEFAULT_LEASE,
            lease_kept_until: now.monotonic,
            unreceipted: VecDeque::new(),
            unreceipted_mutations: 0,
            postponed: BTreeSet::new(),
            outcome: Outcome::default(),
            config,
        }
    }

    /// Handles one event at one moment. Its effects are appended to `effects`, to be performed in
    /// order.
    pub fn handle(&mut self, now: Now, event: DispatchEvent, effects: &mut Vec<DispatchEffect>) {
        // A clock that runs backwards is a bug of the shell; standing still is the safe reaction.
        self.now = Now { monotonic: self.now.monotonic.max(now.monotonic), wall: now.wall };
        self.expire();
        match event {
            DispatchEvent::Request { from, by, request } => self.request(from, by, request),
            DispatchEvent::Worker { worker, session, number, messages } => {
                self.hear(worker, session, number, messages);
            }
            DispatchEvent::Closed { worker, session } => self.closed(worker, session),
            DispatchEvent::Fetched { fetch, found } => self.fetched(fetch, found),
            DispatchEvent::Expired(jobs) => self.purge(&jobs),
            DispatchEvent::Outdated { leases, notes_before } => self.trim(leases, notes_before),
            DispatchEvent::Committed(number) => self.receipt(number),
            DispatchEvent::Tick => {}
        }
        self.forget_absent();
        self.settle();
        self.flush(effects);
    }

    /// When to call again at the latest, by the monotonic clock. May be earlier than needed, never
    /// later, as long as the wall clock does not jump: tick once a second for that.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Monotonic> {
        let due = self.scheduled.first().map(|&(due, _)| {
            let wait = due.0.saturating_sub(self.now.wall.0);
            self.now.monotonic.plus(Duration::from_millis(wait))
        });
        let check = self.workers.next_check().map(|at| {
            let wait = at.since(self.lease_clock());
            self.now.monotonic.plus(wait)
        });
        let deadlines = [due, check, self.questions.next_deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// Whether so many mutations wait for their receipts that the shell should pass on no more
    /// requests of clients and operators. Receipts and everything about workers (batches, closed
    /// sessions, ticks) can still be passed on: while it is full, no job is claimed and no steal is
    /// asked for, so beyond the bound there are only mutations about jobs that workers hold
    /// already.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.unreceipted_mutations >= self.config.limits.unreceipted
    }

    /// The commit that a read of live jobs must wait for, like every message and answer.
    #[must_use]
    pub fn newest_commit(&self) -> Option<CommitNo> {
        (self.issued > self.receipted).then_some(self.issued)
    }

    /// The last commit that was decided on, durable or not.
    #[must_use]
    pub const fn last_commit(&self) -> CommitNo {
        self.issued
    }

    /// What has happened since the start.
    #[must_use]
    pub const fn counters(&self) -> Counters {
        self.counters
    }

    /// The number that the current event's commit will get.
    const fn upcoming(&self) -> CommitNo {
        self.issued.next()
    }

    /// The clock for leases: the monotonic one.
    fn lease_clock(&self) -> Monotonic {
        if planted(Bug::WallClockLease) {
            return Monotonic(self.now.wall.0.saturating_mul(1_000));
        }
        self.now.monotonic
    }

    /// Handles deadlines that have passed.
    fn expire(&mut self) {
        let lease = self.config.lease;
        let ahead = if planted(Bug::ReclaimEarly) { lease / 2 } else { Duration::ZERO };
        while let Some(worker) = self.workers.next_lost(self.lease_clock().plus(ahead)) {
            self.lose(worker);
        }
        self.expire_questions();
        self.promote_due();
    }

    /// Queues the jobs whose time has come.
    fn promote_due(&mut self) {
        while let Some(&(due, seq)) = self.scheduled.first() {
            if due > self.now.wall {
                break;
            }
            self.due(seq);
        }
    }

    fn receipt(&mut self, number: CommitNo) {
        // A receipt for a commit that was never issued is the shell's mistake; it must not open the
        // gate.
        self.receipted = self.receipted.max(number.min(self.issued));
        while let Some(&(commit, mutations)) = self.unreceipted.front() {
            if commit > self.receipted {
                break;
            }
            self.unreceipted.pop_front();
            self.unreceipted_mutations -= mutations;
        }
        self.waiting.receipt(self.receipted);
        self.evict_ended(self.receipted);
    }

    /// Evicts jobs whose end is durable, as everything up to this commit is.
    fn evict_ended(&mut self, durable: CommitNo) {
        let mut left = self.ended.partition_point(|&(commit, _)| commit <= durable);
        while left > 0 {
            let some = left.min(EVICTED_TOGETHER);
            // With a million jobs, each of these accesses misses the cache. In a loop of their own
            // the misses overlap, and later accesses find the jobs in the cache.
            let found = self.ended.iter().take(some).filter(|&&(_, seq)| self.jobs.is_indexed(seq));
            assert!(found.count() == some, "every job is in the index of ids");
            for _ in 0..some {
                let (_, seq) = self.ended.pop_front().expect("counted just now");
                self.jobs.get_mut(seq).unreceipted -= 1;
                self.evict_if_unneeded(seq);
            }
            left -= some;
        }
    }

    fn mutate(&mut self, mutation: Mutation) {
        self.outcome.mutations.push(mutation);
    }

    fn reply(&mut self, to: RequestNo, answer: Answer) {
        self.outcome.replies.push((to, answer));
    }

    /// Sends a message to a worker in its current session, if it has one.
    fn tell(&mut self, worker: WorkerId, message: ToWorker) {
        if let Some(told) = self.told(worker) {
            told.messages.push(message);
        }
    }

    fn told(&mut self, id: WorkerId) -> Option<&mut Told> {
        let worker = self.workers.find(id).filter(|worker| worker.connected)?;
        Some(self.outcome.to(id, worker.session))
    }

    /// Stores the lease duration before any worker is given it. A shorter one is stored only when
    /// no worker can still be using the longer one: after a restart, the stored duration is all we
    /// know of the workers' leases.
    fn keep_lease(&mut self) {
        let lease = self.config.lease;
        let may_lower = self.now.monotonic >= self.lease_kept_until;
        if !self.outcome.mutations.is_empty()
            && (lease > self.lease_kept || (lease < self.lease_kept && may_lower))
        {
            self.lease_kept = lease;
            self.mutate(Mutation::LeaseLength(lease));
        }
    }

    /// Numbers this event's commit and hands everything over: first the commit, then messages and
    /// answers.
    fn flush(&mut self, effects: &mut Vec<DispatchEffect>) {
        self.ledger.flush(&mut self.outcome.mutations);
        self.keep_lease();
        if !self.outcome.mutations.is_empty() {
            self.issued = self.issued.next();
            let mutations = core::mem::take(&mut self.outcome.mutations);
            self.unreceipted.push_back((self.issued, mutations.len()));
            self.unreceipted_mutations += mutations.len();
            effects.push(DispatchEffect::Commit { number: self.issued, mutations });
        }
        let after = self.newest_commit().filter(|_| !planted(Bug::SentBeforeReceipt));
        effects.append(&mut self.outcome.others);
        for (worker, session, message) in self.outcome.renewals.drain(..) {
            let messages = Vec::from([message]);
            effects.push(DispatchEffect::Send { after: None, worker, session, messages });
        }
        for (worker, session) in self.outcome.gone.drain(..) {
            let messages = Vec::from([ToWorker::Gone]);
            effects.push(DispatchEffect::Send { after, worker, session, messages });
        }
        while let Some((worker, told)) = self.outcome.sends.pop_first() {
            let session = told.session;
            let messages = told.into_messages();
            if !messages.is_empty() {
                effects.push(DispatchEffect::Send { after, worker, session, messages });
            }
        }
        for (to, answer) in self.outcome.replies.drain(..) {
            effects.push(DispatchEffect::Reply { after, to, answer });
        }
        if planted(Bug::EvictedBeforeReceipt) {
            self.evict_ended(self.issued);
        }
    }
}

impl Outcome {
    /// The messages for a worker in this session. Messages for an older session are dropped.
    fn to(&mut self, worker: WorkerId, session: SessionNo) -> &mut Told {
        let told = self.sends.entry(worker).or_insert_with(|| Told::new(session));
        if told.session != session {
            *told = Told::new(session);
        }
        told
    }
}

impl Told {
    const fn new(session: SessionNo) -> Self {
        Self {
            session,
            messages: Vec::new(),
            accepted: Vec::new(),
            assigned: Vec::new(),
            question: None,
        }
    }

    fn into_messages(self) -> Vec<ToWorker> {
        let mut messages = self.messages;
        if !self.accepted.is_empty() {
            messages.push(ToWorker::Accepted(self.accepted));
        }
        if !self.assigned.is_empty() {
            messages.push(ToWorker::Assign(self.assigned));
        }
        // Last: the question covers the jobs that were just assigned, too.
        messages.extend(self.question);
        messages
    }
}
