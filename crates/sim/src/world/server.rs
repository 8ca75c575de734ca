//! The shell around the server's brain, and the store behind it: performs what the brain decides,
//! makes it durable in groups, and lets nothing out before its receipt.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use filch_scheduler::dispatch::{
    Counters, Dispatch, DispatchConfig, DispatchEffect, DispatchEvent, JobView, WorkerView,
};
use filch_scheduler::gate::{Gate, Outgoing};
use filch_scheduler::id::{CommitNo, FetchNo, JobId, LeaseNo, RequestNo, Seq, SessionNo, WorkerId};
use filch_scheduler::name::Name;
use filch_scheduler::record::Mutation;
use filch_scheduler::state::JobState;
use filch_scheduler::time::{Monotonic, Now, Wall};

use super::schedule::{Happening, Letter};
use super::{Audit, World};
use crate::clock::Clock;
use crate::log::{Observed, Observer};
use crate::plan::Plan;
use crate::random::{Purpose, Random};

/// A server that does nothing else looks at its clocks at least this often, to notice jumps.
const LOOKS_EVERY: Duration = Duration::from_secs(1);

/// So many commits are followed by a slice of side-work.
const COMMITS_EACH: usize = 8;

/// How many ended jobs are proposed for removal at once.
const RETIRED_TOGETHER: usize = 64;

/// One in so many idle moments of the server is picked for side-work.
const IDLE_EACH: u64 = 4;

/// How long before a commit whose outcome is unknown is tried again.
const TRIES_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// The machine that the server runs on.
pub(super) struct Server {
    pub(super) clock: Clock,
    config: DispatchConfig,
    /// Grows with each process that is the server.
    pub(super) life: u64,
    process: Option<Process>,
    random: Random,
    /// Which idle moments are picked.
    lottery: Random,
    /// A crash that waits for a commit to be under way.
    crash_amid_commit: Option<(Duration, bool)>,
    slow_by: Duration,
    slow_turn: u64,
    unknown: u32,
    unknown_turn: u64,
}

/// One process that is the server.
struct Process {
    dispatch: Dispatch,
    gate: Gate,
    /// Commits that wait for the one that is under way.
    gathered: VecDeque<Commit>,
    /// The group that is being stored, and whether it is, though nobody has said so.
    under_way: Vec<Commit>,
    is_stored: bool,
    /// Which connection a session has.
    connections: BTreeMap<(WorkerId, SessionNo), (usize, u64)>,
    sessions: BTreeMap<u64, (WorkerId, SessionNo)>,
    closed: BTreeSet<u64>,
    /// Who waits for the answer to a request.
    asks: BTreeMap<RequestNo, usize>,
    /// When the next tick is planned.
    ticks_at: Option<Monotonic>,
    /// Commits since the last slice of side-work, whether one is under way, and which ended job was
    /// the last to be proposed.
    commits: usize,
    is_sweeping: bool,
    proposed: Option<(Wall, Seq)>,
}

struct Commit {
    number: CommitNo,
    mutations: Vec<Mutation>,
    decided: (Monotonic, Now),
}

impl Server {
    pub(super) fn new(plan: &Plan) -> Self {
        let config = DispatchConfig {
            seed: plan.seed,
            lease: plan.lease,
            strategy: plan.strategy,
            steal: plan.steal,
            ..DispatchConfig::default()
        };
        Self {
            clock: Clock::new(1_000_000),
            config,
            life: 0,
            process: None,
            random: Random::keyed(plan.seed, Purpose::Server, 0),
            lottery: Random::keyed(plan.seed, Purpose::Sweep(0), 0),
            crash_amid_commit: None,
            slow_by: Duration::ZERO,
            slow_turn: 0,
            unknown: 0,
            unknown_turn: 0,
        }
    }

    pub(super) const fn is_up(&self) -> bool {
        self.process.is_some()
    }
}

impl<W: Observer> World<'_, W> {
    pub(super) fn start_server(&mut self) {
        if self.server.is_up() {
            return;
        }
        self.server.life += 1;
        if self.server.life > 1 {
            self.server.clock.restart(self.now);
        }
        let now = self.server.clock.read(self.now);
        if let Some(recording) = &mut self.recording {
            recording.server_starts(now, &self.server.config, self.store.last_commit());
        }
        let mut effects = Vec::new();
        let config = self.server.config.clone();
        let dispatch = Dispatch::load(config, now, self.store.load(), &mut effects);
        let dispatch = dispatch.expect("what is kept fits together");
        self.server.process = Some(Process {
            dispatch,
            gate: Gate::default(),
            gathered: VecDeque::new(),
            under_way: Vec::new(),
            is_stored: false,
            connections: BTreeMap::new(),
            sessions: BTreeMap::new(),
            closed: BTreeSet::new(),
            asks: BTreeMap::new(),
            ticks_at: None,
            commits: 0,
            is_sweeping: false,
            proposed: None,
        });
        let (lease, strategy) = (self.plan.lease, self.plan.strategy);
        self.observe(Observed::ServerStarted { lease, strategy });
        self.observe(Observed::ServerRead(now));
        self.perform(now, effects);
        for place in 0..self.places.len() {
            if self.is_embedded(place) {
                self.schedule.put(self.now, Happening::ProcessStarts { place });
            }
        }
    }

    /// The server's process will end while its next commit is under way.
    pub(super) fn crash_server_amid_commit(&mut self, away: Duration, noticed: bool) {
        self.server.crash_amid_commit = Some((away, noticed));
    }

    pub(super) fn server_crashes(&mut self, server: u64, away: Duration, noticed: bool) {
        if server == self.server.life && !self.is_healed {
            self.observe(Observed::Trouble { place: None, until: self.now.plus(away) });
            self.crash_server(away, noticed);
        }
    }

    /// The server's process ends. What was being stored is stored or not.
    pub(super) fn crash_server(&mut self, away: Duration, noticed: bool) {
        self.count_server();
        let Some(process) = self.server.process.take() else {
            return;
        };
        if process.is_stored || self.server.random.one_in(2) {
            self.store_group(&process.under_way);
            for commit in &process.under_way {
                self.show(commit);
            }
        }
        self.observe(Observed::ServerCrashed);
        for place in 0..self.places.len() {
            if self.is_embedded(place) {
                self.end_process(place);
            } else if noticed {
                self.lose_connection_soon(place);
            }
        }
        self.schedule.put(self.now.plus(away), Happening::ServerStarts);
    }

    /// One event for the server's brain.
    pub(super) fn serve(&mut self, event: DispatchEvent) {
        let now = self.server.clock.read(self.now);
        let Some(process) = &mut self.server.process else {
            return;
        };
        self.fingerprint.add(u64::MAX, now, &event);
        if let Some(recording) = &mut self.recording {
            recording.server_hears(now, &event);
        }
        let mut effects = Vec::new();
        process.dispatch.handle(now, event, &mut effects);
        self.observe(Observed::ServerRead(now));
        self.perform(now, effects);
        if self.audit == Audit::Always {
            self.audit_server();
        }
    }

    pub(super) fn audit_server(&mut self) {
        if let Some(process) = &self.server.process
            && let Err(error) = process.dispatch.audit()
        {
            self.audit_failed("the server", &error.to_string());
        }
    }

    /// While nothing waits to be stored, a server that were loaded now would know what this one
    /// knows.
    pub(super) fn audit_memory(&mut self) {
        let Some(process) = &self.server.process else {
            return;
        };
        let is_quiet = process.gathered.is_empty() && process.under_way.is_empty();
        // A server that starts takes back what workers in the process of the last one held.
        let is_held_here = |worker: WorkerView| worker.id.is_embedded() && worker.held > 0;
        if !is_quiet || process.dispatch.worker_views().any(is_held_here) {
            return;
        }
        let (config, now) = (self.server.config.clone(), self.server.clock.read(self.now));
        let loaded = Dispatch::load(config, now, self.store.load(), &mut Vec::new());
        let known = match loaded {
            Ok(loaded) => live(&loaded).eq(live(&process.dispatch)),
            Err(error) => {
                self.audit_failed("the store", &error.to_string());
                return;
            }
        };
        if !known {
            self.audit_failed("the server", "it knows something else than the store");
        }
    }

    fn perform(&mut self, now: Now, effects: Vec<DispatchEffect>) {
        if let Some(recording) = &mut self.recording {
            recording.server_does(&effects);
        }
        let decided = (self.now, now);
        let mut told = Vec::new();
        for effect in effects {
            let process = self.server.process.as_mut().expect("only a server that is up decides");
            match process.gate.pass(effect, &mut told) {
                None => {}
                Some(DispatchEffect::Commit { number, mutations }) => {
                    process.gathered.push_back(Commit { number, mutations, decided });
                }
                Some(DispatchEffect::Fetch { fetch, ids, keys, seqs }) => {
                    let server = self.server.life;
                    let takes = Duration::from_micros(self.server.random.between(50, 2_000));
                    let happening = Happening::Finds { server, fetch, ids, keys, seqs };
                    self.schedule.put(self.now.plus(takes + self.server.slow_by), happening);
                }
                Some(DispatchEffect::HangUp { worker, session }) => self.hang_up(worker, session),
                Some(DispatchEffect::Send { .. } | DispatchEffect::Reply { .. }) => {
                    unreachable!("the gate keeps what is told")
                }
            }
            self.tell_all(&mut told);
        }
        self.begin_commit();
        self.plan_tick();
    }

    fn tell_all(&mut self, told: &mut Vec<Outgoing>) {
        for told in told.drain(..) {
            match told {
                Outgoing::Worker { worker, session, number, messages } => {
                    self.observe(Observed::Told { worker, session, messages: &messages });
                    let process = self.server.process.as_ref().expect("it is up");
                    if let Some(&(place, connection)) = process.connections.get(&(worker, session))
                    {
                        self.send_to_worker(place, connection, session, number, messages);
                    }
                }
                Outgoing::Request { to, answer } => {
                    self.observe(Observed::Answered { request: to, answer: &answer });
                    let process = self.server.process.as_mut().expect("it is up");
                    if let Some(ask) = process.asks.remove(&to) {
                        self.send_answer(ask);
                    }
                }
            }
        }
    }

    /// While one group is being stored, others gather.
    fn begin_commit(&mut self) {
        let server = &mut self.server;
        let process = server.process.as_mut().expect("it is up");
        if process.under_way.is_empty() && !process.gathered.is_empty() {
            process.commits += process.gathered.len();
            process.under_way.extend(process.gathered.drain(..));
            let (least, most) = self.plan.commit;
            let takes = server.random.between(least.as_micros() as u64, most.as_micros() as u64);
            let takes = Duration::from_micros(takes) + server.slow_by;
            let happening = Happening::CommitReturns { server: server.life };
            self.schedule.put(self.now.plus(takes), happening);
            if let Some((away, noticed)) = server.crash_amid_commit.take() {
                let happening = Happening::ServerCrashes { server: server.life, away, noticed };
                self.schedule.put(self.now.plus(takes / 2), happening);
            }
        }
    }

    pub(super) fn commit_returns(&mut self, server: u64) {
        if server != self.server.life || !self.server.is_up() {
            return;
        }
        let is_unknown = self.server.random.happens(self.server.unknown);
        // Perhaps it was stored, perhaps not: the same group again, under the same numbers.
        let is_stored = !is_unknown || self.server.random.one_in(2);
        let process = self.server.process.as_mut().expect("checked above");
        let group = std::mem::take(&mut process.under_way);
        if is_stored {
            self.store_group(&group);
        }
        let process = self.server.process.as_mut().expect("checked above");
        if is_unknown {
            (process.under_way, process.is_stored) = (group, is_stored || process.is_stored);
            let again = Happening::CommitReturns { server };
            self.schedule.put(self.now.plus(TRIES_AGAIN_AFTER), again);
            return;
        }
        process.is_stored = false;
        // What was decided with a commit is told before a bystander sees the next one, and can be
        // judged by what was true when it was decided.
        for commit in &group {
            self.show(commit);
            let mut told = Vec::new();
            let process = self.server.process.as_mut().expect("checked above");
            process.gate.receipt(commit.number, &mut told);
            self.observe(Observed::Receipted(commit.number));
            self.tell_all(&mut told);
        }
        let last = group.last().expect("a group is not empty").number;
        self.serve(DispatchEvent::Committed(last));
        let process = self.server.process.as_ref();
        if process.is_some_and(|process| process.commits >= COMMITS_EACH) {
            self.begin_sweep();
        }
    }

    fn show(&mut self, commit: &Commit) {
        let Commit { number, mutations, decided } = commit;
        self.observe(Observed::Stored { number: *number, decided: *decided, mutations });
    }

    /// Makes a group durable, unless it is already.
    fn store_group(&mut self, group: &[Commit]) {
        let Some(last) = group.last() else {
            return;
        };
        if last.number <= self.store.last_commit() {
            return;
        }
        let mutations: Vec<Mutation> =
            group.iter().flat_map(|commit| commit.mutations.iter().cloned()).collect();
        for mutation in &mutations {
            self.count_unended(mutation);
        }
        if let Err(error) = self.store.commit(last.number, &mutations) {
            self.audit_failed("the store", &error.to_string());
        }
    }

    fn count_unended(&mut self, mutation: &Mutation) {
        self.counts.jobs += u64::from(matches!(mutation, Mutation::Put(_)));
        let (job, state) = match mutation {
            Mutation::Put(row) => (row.seq, row.now.state),
            Mutation::Write(write) => (write.job, write.state),
            _ => return,
        };
        if state.is_ended() {
            self.unended.remove(&job);
        } else {
            self.unended.insert(job);
        }
    }

    pub(super) fn answer_fetch(
        &mut self,
        server: u64,
        fetch: FetchNo,
        ids: &[JobId],
        keys: &[Name],
        seqs: &[Seq],
    ) {
        if server == self.server.life && self.server.is_up() {
            let found = self.store.find(ids, keys, seqs);
            self.serve(DispatchEvent::Fetched { fetch, found });
        }
    }

    /// A slice of side-work, unless one is under way: the store is asked for what it has kept for
    /// long enough.
    fn begin_sweep(&mut self) {
        let process = self.server.process.as_mut().expect("it is up");
        if self.plan.retention.is_none() || process.is_sweeping {
            return;
        }
        (process.is_sweeping, process.commits) = (true, 0);
        let takes = Duration::from_micros(self.server.lottery.between(50, 2_000));
        let happening = Happening::Sweeps { server: self.server.life };
        self.schedule.put(self.now.plus(takes + self.server.slow_by), happening);
    }

    /// The store proposes what comes after what it has proposed before; after the last, it begins
    /// anew.
    pub(super) fn sweep(&mut self, server: u64) {
        let Some(retention) = self.plan.retention else {
            return;
        };
        let Some(process) = self.server.process.as_mut().filter(|_| server == self.server.life)
        else {
            return;
        };
        let wall = self.server.clock.read(self.now).wall;
        let before = Wall(wall.0.saturating_sub(retention.as_millis() as u64));
        let expired = self.store.expired(process.proposed, before, RETIRED_TOGETHER);
        let last = expired.last().filter(|_| expired.len() == RETIRED_TOGETHER);
        process.proposed = last.map(|last| (last.at, last.seq));
        process.is_sweeping = false;
        if !expired.is_empty() {
            self.serve(DispatchEvent::Expired(
                expired.iter().map(|job| (job.seq, job.id)).collect(),
            ));
            return;
        }
        let leases = self.store.outdated(LeaseNo(0), before, RETIRED_TOGETHER).leases;
        if !leases.is_empty() {
            self.serve(DispatchEvent::Outdated { leases, notes_before: before });
        }
    }

    fn plan_tick(&mut self) {
        let server = &mut self.server;
        let process = server.process.as_mut().expect("it is up");
        let latest = self.now.plus(LOOKS_EVERY);
        let due = process.dispatch.next_deadline().map_or(latest, |at| server.clock.when(at));
        let due = due.clamp(self.now, latest);
        if process.ticks_at.is_none_or(|at| due < at) {
            process.ticks_at = Some(due);
            self.schedule.put(due, Happening::ServerTicks);
        }
    }

    pub(super) fn tick_server(&mut self) {
        let now = self.now;
        if let Some(process) = &mut self.server.process
            && process.ticks_at.is_some_and(|at| at <= now)
        {
            process.ticks_at = None;
            self.serve(DispatchEvent::Tick);
            self.spare_moment();
        }
    }

    /// A server that has nothing to do, and for which nothing waits, has a moment to spare.
    fn spare_moment(&mut self) {
        let process = self.server.process.as_ref();
        let is_idle = process.is_some_and(|it| it.gathered.is_empty() && it.under_way.is_empty());
        if is_idle && self.server.lottery.one_in(IDLE_EACH) {
            self.begin_sweep();
        }
    }

    /// A batch came over a connection that this server knows or has just accepted.
    pub(super) fn reach_server(&mut self, letter: Letter) {
        let Letter { place, connection, server, worker, session, number, messages } = letter;
        let life = self.server.life;
        let Some(process) = &mut self.server.process else {
            return;
        };
        if server != life || process.closed.contains(&connection) {
            return;
        }
        process.connections.insert((worker, session), (place, connection));
        process.sessions.insert(connection, (worker, session));
        self.observe(Observed::Arrived { worker, session, number, messages: &messages });
        self.serve(DispatchEvent::Worker { worker, session, number, messages });
    }

    pub(super) fn close_at_server(&mut self, connection: u64, server: u64) {
        let life = self.server.life;
        let Some(process) = self.server.process.as_mut().filter(|_| server == life) else {
            return;
        };
        process.closed.insert(connection);
        if let Some((worker, session)) = process.sessions.remove(&connection) {
            process.connections.remove(&(worker, session));
            process.gate.close(worker, session);
            self.observe(Observed::Closed { worker, session });
            self.serve(DispatchEvent::Closed { worker, session });
        }
    }

    /// The server ends a connection; the worker hears of it.
    fn hang_up(&mut self, worker: WorkerId, session: SessionNo) {
        let process = self.server.process.as_mut().expect("it is up");
        if let Some((place, connection)) = process.connections.remove(&(worker, session)) {
            process.sessions.remove(&connection);
            process.closed.insert(connection);
            process.gate.close(worker, session);
            self.observe(Observed::Closed { worker, session });
            self.tell_of_broken_connection(place, connection);
        }
    }

    pub(super) fn take_request(&mut self, ask: usize) {
        self.requests += 1;
        let from = RequestNo(self.requests);
        let request = self.asks[ask].request.clone();
        let Some(process) = &mut self.server.process else {
            return;
        };
        process.asks.insert(from, ask);
        self.observe(Observed::Asked { request: from, what: &request });
        self.serve(DispatchEvent::Request { from, request });
    }

    pub(super) fn slow_store(&mut self, span: Duration, by: Duration) {
        self.server.slow_by = by;
        self.server.slow_turn += 1;
        let turn = self.server.slow_turn;
        self.schedule.put(self.now.plus(span), Happening::StoreSpeedsUp { turn });
    }

    pub(super) fn speed_up_store(&mut self, turn: u64) {
        if turn == self.server.slow_turn {
            self.server.slow_by = Duration::ZERO;
        }
    }

    pub(super) fn doubt_store(&mut self, span: Duration, unknown: u32) {
        self.server.unknown = unknown;
        self.server.unknown_turn += 1;
        let turn = self.server.unknown_turn;
        self.schedule.put(self.now.plus(span), Happening::StoreIsTrusted { turn });
    }

    pub(super) fn trust_store(&mut self, turn: u64) {
        if turn == self.server.unknown_turn {
            self.server.unknown = 0;
        }
    }

    pub(super) fn mend_store(&mut self) {
        (self.server.slow_by, self.server.unknown) = (Duration::ZERO, 0);
        self.server.crash_amid_commit = None;
    }

    /// What the present server has counted; a new one begins at nothing.
    pub(super) fn count_server(&mut self) {
        if let Some(process) = &self.server.process {
            let (sum, more) = (&mut self.counts.server, process.dispatch.counters());
            *sum = add(*sum, more);
        }
    }
}

/// What a server knows of the jobs that have not ended or that somebody still holds. Whether a
/// job's time has come depends on when a server has looked at its clock, which may have jumped
/// since.
fn live(dispatch: &Dispatch) -> impl Iterator<Item = JobView> {
    let views = dispatch.job_views(Seq(0));
    let views = views.filter(|view| !view.state.is_ended() || view.holder.is_some());
    views.map(|view| {
        let state = match view.state {
            JobState::Scheduled => JobState::Queued,
            state => state,
        };
        JobView { state, due: Wall(0), progress: None, ..view }
    })
}

const fn add(one: Counters, other: Counters) -> Counters {
    Counters {
        claimed: one.claimed + other.claimed,
        steals: one.steals + other.steals,
        stolen: one.stolen + other.stolen,
        steals_empty: one.steals_empty + other.steals_empty,
        stale: one.stale + other.stale,
        repeated: one.repeated + other.repeated,
        hung_up: one.hung_up + other.hung_up,
        lost: one.lost + other.lost,
        gone: one.gone + other.gone,
    }
}
