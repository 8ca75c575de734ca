//! The machine that the server runs on: its clocks, its disk, its connections and their faults.
//! What the server decides is decided by its engine, the same that real servers run.

use std::collections::{BTreeMap, VecDeque};
use std::iter::Peekable;
use std::time::Duration;

use filch_engine::server::{
    HangUp, LinkNo, LinkScope, RetentionJob, ServerAction, ServerEngine, ServerInput, ServerStep,
    Ticket,
};
use filch_scheduler::dispatch::{
    Counters, Dispatch, DispatchConfig, DispatchEvent, JobView, Limits, Request, WorkerView,
};
use filch_scheduler::id::{CommitNo, JobId, MessageNo, RequestNo, Seq, SessionNo, WorkerId};
use filch_scheduler::message::ToWorker;
use filch_scheduler::record::{Mutation, Strategy};
use filch_scheduler::state::JobState;
use filch_scheduler::time::{Monotonic, Now, Wall};
use filch_store::Commit;

use super::http_place::ResponseTo;
use super::schedule::{FailedRead, Happening, Letter, Read};
use super::{Audit, World};
use crate::clock::Clock;
use crate::log::{Observed, Observer};
use crate::plan::{CrashMoment, Paused, Plan};
use crate::random::{Purpose, Random};

/// One in so many idle moments of the server is picked for a slice of retention, and at the latest
/// every so manyth, once for each job.
const IDLE_EACH: u64 = 4;
const IDLE_MOST: u32 = 4;

/// How many rows such a slice looks at, and when it begins no further step.
const IDLE_ROWS: usize = 500;
const IDLE_SPAN: Duration = Duration::from_millis(20);

/// How long before a commit whose outcome is unknown is tried again.
const TRIES_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// How long it takes at most to send a batch that others wait for.
const SENDING_MICROS: u64 = 20_000;

/// A process that was suspended for longer than this does not count that time.
const SUSPENDED: Duration = Duration::from_secs(2);

/// The machine that the server runs on.
pub(super) struct Server {
    pub(super) clock: Clock,
    config: DispatchConfig,
    /// Grows with each process that is the server.
    pub(super) life: u64,
    process: Option<Process>,
    random: Random,
    /// Which idle moments are picked, how many were not since the last one, and for which job.
    lottery: Random,
    idle_moments: u32,
    next_job: RetentionJob,
    /// A crash that waits for its moment.
    crash_later: Option<(CrashMoment, Duration, bool)>,
    slow_by: Duration,
    slow_turn: u64,
    unknown: u32,
    unknown_turn: u64,
    /// How many of a million reads of retention fail.
    failing: u32,
    failing_turn: u64,
    retention: Option<Duration>,
    /// What has happened while the process is suspended, if it is.
    missed: Option<Vec<Happening>>,
}

/// One process that is the server.
struct Process {
    engine: ServerEngine,
    /// Commits that wait for the one that is under way.
    gathered: VecDeque<Staged>,
    /// The group that is being stored, and whether it is, though nobody has said so.
    under_way: Vec<Staged>,
    is_stored: bool,
    /// The open connections, and the node of each.
    links: BTreeMap<LinkNo, usize>,
    /// The session of each connection.
    users: BTreeMap<LinkNo, (WorkerId, SessionNo)>,
    /// When the engine was called last, and whether it was suspended since.
    served_at: Monotonic,
    was_suspended: bool,
    /// Reads that wait for what they saw to be durable.
    reads: BTreeMap<Ticket, CommitNo>,
    /// Clients that wait for the end of a job.
    waits: BTreeMap<Ticket, JobId>,
    watched: BTreeMap<Seq, JobId>,
    /// Who waits for the answer to a request.
    asks: BTreeMap<Ticket, usize>,
    /// Workers over plain HTTP that wait for a response.
    responses: BTreeMap<Ticket, ResponseTo>,
    /// Requests that wait because the engine is full.
    waiting: VecDeque<usize>,
    /// When the next tick is planned.
    ticks_at: Option<Monotonic>,
}

/// A commit that is not known to be durable.
struct Staged {
    commit: Commit,
    /// When it was decided: true time, and the server's clocks.
    decided: (Monotonic, Now),
}

impl Server {
    pub(super) fn new(plan: &Plan) -> Self {
        let usual = Limits::default();
        let unreceipted = plan.unreceipted.unwrap_or(usual.unreceipted);
        let config = DispatchConfig {
            limits: Limits { unreceipted, ..usual },
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
            lottery: Random::keyed(plan.seed, Purpose::IdleMoments, 0),
            idle_moments: 0,
            next_job: RetentionJob::Purge,
            crash_later: None,
            slow_by: Duration::ZERO,
            slow_turn: 0,
            unknown: 0,
            unknown_turn: 0,
            failing: 0,
            failing_turn: 0,
            retention: plan.retention,
            missed: None,
        }
    }

    pub(super) const fn is_suspended(&self) -> bool {
        self.missed.is_some()
    }

    pub(super) fn miss(&mut self, happening: Happening) {
        self.missed.get_or_insert_default().push(happening);
    }

    pub(super) const fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// The crash that waits for this moment, if one does: how long the server is away, and whether
    /// workers notice.
    fn take_crash(&mut self, moment: CrashMoment) -> Option<(Duration, bool)> {
        let crash = self.crash_later.take_if(|(when, ..)| *when == moment);
        crash.map(|(_, away, noticed)| (away, noticed))
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
        let mut effects = Vec::new();
        let config = self.server.config.clone();
        let dispatch = Dispatch::load(config, now, self.store.load(), &mut effects);
        let dispatch = dispatch.expect("what is kept fits together");
        if let Some(recording) = &mut self.recording {
            recording.server_starts(now, &self.server.config, self.store.last_commit());
            recording.server_does(&effects);
        }
        let mut actions = Vec::new();
        let mut engine =
            ServerEngine::new(dispatch, effects, self.server.retention, now, now, &mut actions);
        if self.recording.is_some() {
            engine.show_effects();
        }
        if let Some(batch_bytes) = self.plan.batch_bytes {
            engine.set_batch_bytes(batch_bytes);
        }
        self.server.process = Some(Process {
            engine,
            gathered: VecDeque::new(),
            under_way: Vec::new(),
            is_stored: false,
            links: BTreeMap::new(),
            users: BTreeMap::new(),
            served_at: self.now,
            was_suspended: false,
            reads: BTreeMap::new(),
            waits: BTreeMap::new(),
            watched: BTreeMap::new(),
            asks: BTreeMap::new(),
            responses: BTreeMap::new(),
            waiting: VecDeque::new(),
            ticks_at: None,
        });
        let (lease, strategy) = (self.server.config.lease, self.server.config.strategy);
        self.observe(Observed::ServerStarted { lease, strategy });
        self.observe(Observed::Retention(self.server.retention));
        self.observe(Observed::ServerRead(now));
        self.perform(now, &mut actions);
        for place in 0..self.places.len() {
            if self.is_embedded(place) {
                self.schedule.put(self.now, Happening::ProcessStarts { place });
            }
        }
    }

    /// The server's process will end while its next commit is under way, or when its next read of
    /// the store fails.
    pub(super) fn crash_server_later(&mut self, when: CrashMoment, away: Duration, noticed: bool) {
        self.server.crash_later = Some((when, away, noticed));
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
        self.server.missed = None;
        if process.is_stored || self.server.random.one_in(2) {
            self.store_group(&process.under_way);
            for staged in &process.under_way {
                self.show(staged);
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

    /// One input for the server's engine.
    pub(super) fn serve(&mut self, input: ServerInput) {
        self.serve_with(input, Vec::new());
    }

    /// The same, when the engine learns that this group is durable.
    fn serve_with(&mut self, input: ServerInput, group: Vec<Staged>) {
        let now = self.server.clock.read(self.now);
        let Some(process) = &mut self.server.process else {
            return;
        };
        let was_full = !process.engine.takes_requests();
        let span = self.now.since(std::mem::replace(&mut process.served_at, self.now));
        let was_suspended = std::mem::take(&mut process.was_suspended) && span > SUSPENDED;
        let mut actions = std::mem::take(&mut self.actions);
        let mut steps = std::mem::take(&mut self.steps);
        process.engine.handle_observed(now, input, &mut actions, &mut steps);
        self.observe(Observed::ServerRead(now));
        if was_full || was_suspended {
            self.observe(Observed::Missed(span));
        }
        self.see(&mut steps, group);
        self.perform(now, &mut actions);
        (self.actions, self.steps) = (actions, steps);
        if self.audit == Audit::Always {
            self.audit_server();
        }
    }

    /// What was decided with a commit is shown before the next commit of the group, and can be
    /// judged by what was true when it was decided.
    fn see(&mut self, steps: &mut Vec<ServerStep>, group: Vec<Staged>) {
        let mut group = group.into_iter().peekable();
        for step in steps.drain(..) {
            match step {
                ServerStep::Heard { now, event } => {
                    self.fingerprint.add(u64::MAX, now, &event);
                    if let Some(recording) = &mut self.recording {
                        recording.server_hears(now, &event);
                    }
                    self.see_event(&event);
                }
                ServerStep::Decided(effects) => {
                    if let Some(recording) = &mut self.recording {
                        recording.server_does(&effects);
                    }
                }
                ServerStep::Told { after, worker, session, messages } => {
                    self.show_up_to(after, &mut group);
                    self.observe(Observed::Told { worker, session, messages: &messages });
                    if self.is_http(worker) {
                        // The other end is inside the engine.
                        let messages = &[ToWorker::Renewed(MessageNo(0))];
                        self.observe(Observed::Posted { worker, messages, works: &[] });
                    }
                }
                ServerStep::Answered { after, ticket, answer } => {
                    self.show_up_to(after, &mut group);
                    let request = RequestNo(ticket.0);
                    self.observe(Observed::Answered { request, answer: &answer });
                }
            }
        }
        self.show_up_to(None, &mut group);
    }

    fn see_event(&mut self, event: &DispatchEvent) {
        match *event {
            DispatchEvent::Worker { worker, session, number, ref messages } => {
                if self.impersonated.is_some() {
                    self.observe(Observed::Impersonated { worker });
                }
                self.observe(Observed::Arrived { worker, session, number, messages });
            }
            DispatchEvent::Closed { worker, session } => {
                self.observe(Observed::Closed { worker, session });
            }
            _ => {}
        }
    }

    /// Shows the commits up to this one, or all.
    fn show_up_to(
        &mut self,
        number: Option<CommitNo>,
        group: &mut Peekable<std::vec::IntoIter<Staged>>,
    ) {
        let is_shown = |staged: &Staged| number.is_none_or(|number| staged.commit.last <= number);
        while let Some(staged) = group.next_if(is_shown) {
            self.show(&staged);
            self.observe(Observed::Receipted(staged.commit.last));
        }
    }

    pub(super) fn audit_server(&mut self) {
        if let Some(process) = &self.server.process
            && let Err(error) = process.engine.dispatch().audit()
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
        if !is_quiet || process.engine.dispatch().worker_views().any(is_held_here) {
            return;
        }
        let (config, now) = (self.server.config.clone(), self.server.clock.read(self.now));
        let loaded = Dispatch::load(config, now, self.store.load(), &mut Vec::new());
        let known = match loaded {
            Ok(loaded) => live(&loaded).eq(live(process.engine.dispatch())),
            Err(error) => {
                self.audit_failed("the store", &error.to_string());
                return;
            }
        };
        if !known {
            self.audit_failed("the server", "it knows something else than the store");
        }
    }

    fn perform(&mut self, now: Now, actions: &mut Vec<ServerAction>) {
        for action in actions.drain(..) {
            let process = self.server.process.as_mut().expect("only a server that is up decides");
            match action {
                ServerAction::Commit(mut commit) => {
                    let outputs = std::mem::take(&mut commit.outputs);
                    commit.mutations.extend(outputs.into_iter().map(Mutation::Output));
                    let decided = (self.now, now);
                    process.gathered.push_back(Staged { commit, decided });
                }
                ServerAction::Fetch { fetch, ids, keys, seqs } => {
                    self.read(Read::Jobs { fetch, ids, keys, seqs });
                }
                ServerAction::ReadPayloads { link, jobs } => {
                    self.read(Read::Payloads { link, jobs });
                }
                ServerAction::Send { link, delivery, tell } => {
                    if let Some(&(worker, _)) = process.users.get(&link) {
                        let (messages, works) = (&delivery.messages, &delivery.works);
                        self.observe(Observed::Posted { worker, messages, works });
                        let bytes = works.iter().map(|(_, text)| text.len()).sum();
                        let most = self.plan.batch_bytes.unwrap_or(usize::MAX);
                        if works.len() > 1 && bytes > most {
                            self.observe(Observed::Oversized { worker, bytes });
                        }
                    }
                    let process = self.server.process.as_ref().expect("it is up");
                    if let Some(&place) = process.links.get(&link) {
                        self.send_to_worker(place, link, delivery);
                        if tell {
                            let server = self.server.life;
                            let most = if self.is_healed { 0 } else { SENDING_MICROS };
                            let takes = Duration::from_micros(self.server.random.below(most));
                            let happening = Happening::ServerHasSent { server, link };
                            self.schedule.put(self.now.plus(takes), happening);
                        }
                    }
                }
                ServerAction::HangUp { link, why } => {
                    let place = process.links.remove(&link);
                    self.forget_user(link);
                    if let Some(place) = place {
                        if matches!(why, HangUp::NotPermitted(_)) {
                            self.observe(Observed::NotPermitted { place });
                        }
                        self.tell_of_broken_connection(place, link.0);
                    }
                }
                ServerAction::Connected { link, .. } if link.is_http() => {}
                ServerAction::Connected { worker, session, link, .. } => {
                    let before = process.users.insert(link, (worker, session));
                    if let Some((worker, session)) = before.filter(|(it, _)| *it != worker) {
                        self.observe(Observed::LinkGone { worker, session });
                    }
                }
                ServerAction::Release(ticket) => {
                    if let Some(saw) = process.reads.remove(&ticket) {
                        self.observe(Observed::ReadReleased { saw });
                    } else if let Some(job) = process.waits.remove(&ticket) {
                        self.observe(Observed::Waited(job));
                    }
                }
                ServerAction::Watching { ticket, job } => {
                    let waits = process.waits.remove(&ticket);
                    process.watched.extend(waits.map(|id| (job, id)));
                }
                ServerAction::JobEnded(job) => {
                    if let Some(id) = process.watched.remove(&job) {
                        self.observe(Observed::Waited(id));
                    }
                }
                ServerAction::Answer { ticket, .. } => {
                    if let Some(ask) = process.asks.remove(&ticket) {
                        self.send_answer(ask);
                    }
                }
                ServerAction::ReadExpired { after, before, limit } => {
                    self.read(Read::Expired { after, before, limit });
                }
                ServerAction::ReadOutdated { after, recent, limit } => {
                    self.read(Read::Outdated { after, recent, limit });
                }
                ServerAction::Respond { ticket, response } => {
                    if let Some(to) = process.responses.remove(&ticket) {
                        self.send_response(to, &response);
                    }
                }
                ServerAction::SliceDone { .. }
                | ServerAction::Disconnected { .. }
                | ServerAction::Durable(_)
                | ServerAction::Suspended(_) => {}
            }
        }
        self.begin_commit();
        self.plan_tick();
    }

    /// The store is read by another thread.
    fn read(&mut self, read: Read) {
        let server = self.server.life;
        let takes = Duration::from_micros(self.server.random.between(50, 2_000));
        let fails = self.server.take_crash(CrashMoment::DuringRead);
        let fails = fails.map(|(away, noticed)| FailedRead { away, noticed });
        let happening = Happening::Reads { server, read: Box::new(read), fails };
        self.schedule.put(self.now.plus(takes + self.server.slow_by), happening);
    }

    /// While one group is being stored, others gather.
    fn begin_commit(&mut self) {
        let server = &mut self.server;
        let process = server.process.as_mut().expect("it is up");
        if process.under_way.is_empty() && !process.gathered.is_empty() {
            process.under_way.extend(process.gathered.drain(..));
            let (least, most) = self.plan.commit;
            let takes = server.random.between(least.as_micros() as u64, most.as_micros() as u64);
            let takes = Duration::from_micros(takes) + server.slow_by;
            let happening = Happening::CommitReturns { server: server.life };
            self.schedule.put(self.now.plus(takes), happening);
            if let Some((away, noticed)) = server.take_crash(CrashMoment::DuringCommit) {
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
        let last = group.last().expect("a group is not empty").commit.last;
        self.serve_with(ServerInput::Committed(last), group);
        self.take_waiting();
    }

    fn show(&mut self, staged: &Staged) {
        let Staged { commit, decided } = staged;
        let (number, mutations) = (commit.last, &commit.mutations);
        self.observe(Observed::Stored { number, decided: *decided, mutations });
    }

    /// Makes a group durable, unless it is already.
    fn store_group(&mut self, group: &[Staged]) {
        for Staged { commit, .. } in group {
            if commit.last <= self.store.last_commit() {
                continue;
            }
            for mutation in &commit.mutations {
                self.count_unended(mutation);
            }
            if let Err(error) = self.store.commit(commit.last, &commit.mutations) {
                self.audit_failed("the store", &error.to_string());
            }
            self.payloads.extend(commit.payloads.iter().cloned());
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

    /// The store has answered, or it cannot be read: then the server's process ends.
    pub(super) fn reads(&mut self, server: u64, read: Read, fails: Option<FailedRead>) {
        if server != self.server.life || !self.server.is_up() {
            return;
        }
        if let Some(FailedRead { away, noticed }) = fails.filter(|_| !self.is_healed) {
            self.server_crashes(server, away, noticed);
            return;
        }
        match read {
            Read::Jobs { fetch, ids, keys, seqs } => {
                let found = self.store.find(&ids, &keys, &seqs);
                self.serve(ServerInput::Fetched { fetch, found });
            }
            Read::Payloads { link, jobs } => {
                // Perhaps they are too large together.
                let count = self.server.random.between(1, jobs.len() as u64) as usize;
                let read = |job| self.payloads.get(job).cloned();
                let texts = jobs.iter().take(count).map(read).collect();
                self.serve(ServerInput::PayloadsRead { link, jobs, texts });
            }
            Read::Expired { .. } | Read::Outdated { .. } if self.retention_read_fails() => {
                self.serve(ServerInput::RetentionFailed);
            }
            Read::Expired { after, before, limit } => {
                let found = self.store.expired(after, before, limit);
                self.serve(ServerInput::Expired(found));
            }
            Read::Outdated { after, recent, limit } => {
                let found = self.store.outdated(after, &recent, limit);
                self.serve(ServerInput::Outdated(found));
            }
        }
    }

    pub(super) fn server_has_sent(&mut self, server: u64, link: LinkNo) {
        if server == self.server.life {
            self.serve(ServerInput::Sent(link));
        }
    }

    fn plan_tick(&mut self) {
        let server = &mut self.server;
        let process = server.process.as_mut().expect("it is up");
        let due = server.clock.when(process.engine.next_deadline()).max(self.now);
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
            self.serve(ServerInput::Tick);
            self.idle_moment();
        }
    }

    /// If nothing waits to be durable, the server's lottery may pick this moment for retention.
    fn idle_moment(&mut self) {
        let process = self.server.process.as_ref();
        let may_begin = |process: &Process| {
            process.engine.is_settled() && process.engine.retention().may_begin()
        };
        if !process.is_some_and(may_begin) {
            return;
        }
        self.server.idle_moments += 1;
        if !self.server.lottery.one_in(IDLE_EACH) && self.server.idle_moments < IDLE_MOST {
            return;
        }
        self.server.idle_moments = 0;
        self.requests += 1;
        let (ticket, rows) = (Ticket(self.requests), IDLE_ROWS);
        let other = match self.server.next_job {
            RetentionJob::Purge => RetentionJob::Trim,
            RetentionJob::Trim => RetentionJob::Purge,
        };
        let job = std::mem::replace(&mut self.server.next_job, other);
        let until = Some(self.server.clock.read(self.now).monotonic.plus(IDLE_SPAN));
        self.serve(ServerInput::RetentionMoment { ticket, job, rows, until });
    }

    /// A worker has connected.
    pub(super) fn open_link(&mut self, place: usize, link: LinkNo, scope: LinkScope, server: u64) {
        if let Some(process) = self.server.process.as_mut().filter(|_| server == self.server.life) {
            process.links.insert(link, place);
            self.serve(ServerInput::LinkOpened { link, scope });
        }
    }

    /// Every node has a token of its own; that of a narrow node is narrow.
    pub(super) fn scope_of(&self, place: usize) -> LinkScope {
        // A worker that lies about jobs of other queues would be disconnected each time.
        let is_honest = !self.plan.members[place].is_hostile;
        let queues = self.queues_of(place).filter(|_| is_honest);
        LinkScope {
            token: Some(format!("node {}", place + 1).into()),
            queues: queues.map(Into::into),
            is_embedded: self.is_embedded(place),
        }
    }

    /// Nothing more fits into the buffers of this connection.
    pub(super) fn fill_link(&mut self, link: LinkNo) {
        if self.is_open(link) {
            self.serve(ServerInput::LinkFull(link));
        }
    }

    /// A connection breaks, and the server learns of it.
    pub(super) fn lose_link(&mut self, link: LinkNo) {
        self.serve(ServerInput::LinkClosed(link));
        self.forget_user(link);
    }

    fn forget_user(&mut self, link: LinkNo) {
        let process = self.server.process.as_mut();
        if let Some((worker, session)) = process.and_then(|process| process.users.remove(&link)) {
            self.observe(Observed::LinkGone { worker, session });
        }
    }

    /// The worker of this node that is connected, in which session, and the scheduler.
    pub(super) fn connected_worker(
        &self,
        place: usize,
    ) -> Option<(WorkerId, SessionNo, &Dispatch)> {
        let process = self.server.process.as_ref().filter(|_| !self.server.is_suspended())?;
        let mut users = process.users.iter();
        let is_here = |link: &LinkNo| process.links.get(link) == Some(&place);
        let (_, &(worker, session)) = users.find(|(link, _)| is_here(link))?;
        Some((worker, session, process.engine.dispatch()))
    }

    /// The process is suspended; the clocks of its machine go on.
    pub(super) fn suspend_server(&mut self, span: Duration) {
        if !self.server.is_up() || self.server.is_suspended() {
            return;
        }
        self.server.missed = Some(Vec::new());
        let server = self.server.life;
        self.schedule.put(self.now.plus(span), Happening::ServerResumes { server });
        for place in 0..self.places.len() {
            if self.is_embedded(place) {
                self.pause(place, span, Paused::Frozen);
            }
        }
    }

    pub(super) fn resume_server(&mut self, server: u64) {
        if server != self.server.life {
            return;
        }
        let Some(missed) = self.server.missed.take() else {
            return;
        };
        if let Some(process) = &mut self.server.process {
            process.was_suspended = true;
        }
        for happening in missed {
            self.happen(happening);
        }
    }

    /// The process ends, and the next one has other settings.
    pub(super) fn reconfigure_server(
        &mut self,
        away: Duration,
        lease: Duration,
        strategy: Strategy,
        retention: Option<Duration>,
    ) {
        self.crash_server(away, true);
        (self.server.config.lease, self.server.config.strategy) = (lease, strategy);
        self.server.retention = retention;
    }

    /// A client reads the live state.
    fn read_live(&mut self) {
        let Some(process) = self.server.process.as_mut() else {
            return;
        };
        if process.engine.takes_requests() {
            self.requests += 1;
            let ticket = Ticket(self.requests);
            process.reads.insert(ticket, process.engine.dispatch().last_commit());
            self.serve(ServerInput::Barrier { ticket });
        }
    }

    /// A client waits for the end of this job.
    fn wait_for(&mut self, job: JobId) {
        if let Some(process) = &mut self.server.process {
            self.requests += 1;
            let ticket = Ticket(self.requests);
            process.waits.insert(ticket, job);
            self.serve(ServerInput::AwaitEnd { ticket, job });
        }
    }

    /// A batch came over a connection that this server has accepted.
    pub(super) fn reach_server(&mut self, letter: Letter) {
        let Letter { connection, server, batch, .. } = letter;
        let link = LinkNo(connection);
        if server == self.server.life && self.is_open(link) {
            if let Some(process) = &mut self.server.process {
                // Its hello may be late.
                process.users.entry(link).or_insert((batch.worker, batch.session));
            }
            self.serve(ServerInput::Batch { link, batch });
        }
    }

    /// A request over plain HTTP has arrived, and its sender waits for a response.
    pub(super) fn expect_response(&mut self, to: ResponseTo) -> Option<Ticket> {
        let process = self.server.process.as_mut()?;
        self.requests += 1;
        let ticket = Ticket(self.requests);
        process.responses.insert(ticket, to);
        Some(ticket)
    }

    fn is_open(&self, link: LinkNo) -> bool {
        self.server.process.as_ref().is_some_and(|process| process.links.contains_key(&link))
    }

    pub(super) fn close_at_server(&mut self, connection: u64, server: u64) {
        let link = LinkNo(connection);
        if server == self.server.life
            && let Some(process) = &mut self.server.process
            && process.links.remove(&link).is_some()
        {
            self.lose_link(link);
        }
    }

    pub(super) fn take_request(&mut self, ask: usize) {
        let Some(process) = &mut self.server.process else {
            return;
        };
        if !process.engine.takes_requests() {
            process.waiting.push_back(ask);
            return;
        }
        self.requests += 1;
        let ticket = Ticket(self.requests);
        let request = self.asks[ask].request.clone();
        process.asks.insert(ticket, ask);
        self.observe(Observed::Asked { request: RequestNo(ticket.0), what: &request });
        let job = match &request {
            Request::Cancel(job) => Some(*job),
            submit => submit.submitted().first().map(|spec| spec.id),
        };
        self.serve(ServerInput::Request { ticket, by: None, request });
        // Some clients look at once, some wait for the end of their job, some do neither: always
        // the same for the same job, also in a run from which other requests were removed.
        let which = job.map_or(ask as u64, |job| job.0 as u64);
        match Random::keyed(self.plan.seed, Purpose::Reader, which).below(4) {
            0 => self.read_live(),
            1 => job.into_iter().for_each(|job| self.wait_for(job)),
            _ => {}
        }
    }

    /// Takes requests that have waited, as far as the engine takes them.
    fn take_waiting(&mut self) {
        while let Some(process) = &mut self.server.process
            && process.engine.takes_requests()
            && let Some(ask) = process.waiting.pop_front()
        {
            self.take_request(ask);
        }
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

    pub(super) fn fail_retention(&mut self, span: Duration, failed: u32) {
        self.server.failing = failed;
        self.server.failing_turn += 1;
        let turn = self.server.failing_turn;
        self.schedule.put(self.now.plus(span), Happening::RetentionRecovers { turn });
    }

    pub(super) fn recover_retention(&mut self, turn: u64) {
        if turn == self.server.failing_turn {
            self.server.failing = 0;
        }
    }

    fn retention_read_fails(&mut self) -> bool {
        self.server.failing > 0 && self.server.random.happens(self.server.failing)
    }

    pub(super) fn mend_store(&mut self) {
        (self.server.slow_by, self.server.unknown) = (Duration::ZERO, 0);
        self.server.failing = 0;
        self.server.crash_later = None;
    }

    /// What the present server has counted; a new one begins at nothing.
    pub(super) fn count_server(&mut self) {
        if let Some(process) = &self.server.process {
            let (sum, more) = (&mut self.counts.server, process.engine.dispatch().counters());
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
