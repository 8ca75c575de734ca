//! A small world around the two state machines: several agents, a server, a store, and a network
//! with every kind of fault. After every step everything is audited, and checks are made that only
//! an outside observer can make: which worker really runs which job.

mod clients;
mod server;
mod witness;
mod workers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use filch_engine::server::{Gate, Outgoing};
use filch_scheduler::agent::{self, Agent, Home, Reserve, Verdict};
use filch_scheduler::dispatch::{
    self, Answer, Dispatch, DispatchEffect, DispatchEvent, JobView, QueueChange, Request, Why,
    WorkerView,
};
use filch_scheduler::id::{
    CommitNo, FetchNo, Hold, JobId, MessageNo, RequestNo, Seq, SessionNo, WorkerId,
};
use filch_scheduler::message::{Again, Ending, FromWorker, Report, Serves, ToWorker};
use filch_scheduler::name::Name;
use filch_scheduler::record::{JobRow, Mutation, Strategy};
use filch_scheduler::spec::{Backoff, Condition, JobSpec, Otherwise, QueueKey, Retry};
use filch_scheduler::state::JobState;
use filch_scheduler::time::{Duration, Millis, Monotonic, Now, Wall};

use filch_scheduler::trace::{Context, Traced, print, print_line};

use self::witness::live;
use filch_store::Memory;

/// One step: the kind of event, and a number that decides the details.
pub(crate) type Step = (u8, u16);

type FromWorkerBatch = (WorkerId, SessionNo, MessageNo, Vec<FromWorker>);
type Fetch = (FetchNo, Vec<JobId>, Vec<QueueKey>, Vec<Seq>);
type ToWorkerBatch = (SessionNo, MessageNo, Vec<ToWorker>);

/// A worker and its connection.
struct Member {
    agent: Agent,
    is_connected: bool,
    /// The session that the server knows over this connection.
    session: Option<(WorkerId, SessionNo)>,
    to_server: VecDeque<FromWorkerBatch>,
    to_agent: VecDeque<ToWorkerBatch>,
    running: BTreeSet<Hold>,
    /// Jobs that still run but were asked to stop, and when they were asked: stopping takes a
    /// while.
    stopping: BTreeMap<Hold, Monotonic>,
    /// The server has seen the connection break, the worker has not: the worker's messages are
    /// lost.
    is_link_dead: bool,
    slots: usize,
    serves_all: bool,
    has_left: bool,
    /// Suspended by a signal or with its machine: neither the worker nor its jobs notice anything.
    is_paused: bool,
    missed_disconnect: bool,
}

/// The whole world.
pub(crate) struct World {
    now: Now,
    config: dispatch::DispatchConfig,
    dispatch: Dispatch,
    gate: Gate,
    /// The last batch to a worker in each session.
    numbers: BTreeMap<(WorkerId, SessionNo), MessageNo>,
    pub(crate) store: Memory,
    /// Commits that are not durable yet.
    commits: VecDeque<(CommitNo, Vec<Mutation>)>,
    fetches: VecDeque<Fetch>,
    /// Results of look-ups that the server has not received yet.
    reads: Vec<(FetchNo, Vec<JobRow>)>,
    members: Vec<Member>,
    generations: u64,
    requests: BTreeMap<RequestNo, Request>,
    next_request: u64,
    ids: Vec<JobId>,
    /// The jobs whose submission was acknowledged.
    submitted: BTreeSet<JobId>,
    cancelled: BTreeSet<Seq>,
    purged: BTreeSet<JobId>,
    succeeded: BTreeMap<Seq, Hold>,
    finished: BTreeSet<Hold>,
    /// The server crashes right after this commit is durable.
    pub(crate) crash_at: Option<CommitNo>,
    pub(crate) crashes: u32,
    pub(crate) starts: u32,
    wall_jumped_back: bool,
    before_crashes: Vec<dispatch::Counters>,
    /// The server's events and effects, to be pasted into a trace.
    trace: String,
    context: Context,
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("dispatch seed {} receipts by-hand\n{}", self.config.seed, self.trace);
        }
    }
}

const MEMBERS: usize = 4;

/// The member that runs in the server's process.
const EMBEDDED: usize = 3;

/// How long a job may take to stop. A worker stops everything at seven tenths of its lease, which
/// leaves three seconds of the default one.
const STOP_TAKES: Duration = Duration::from_millis(2_500);

const QUEUES: [&str; 3] = ["default", "mail", "video"];

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let now = Now { monotonic: Monotonic(1_000_000), wall: Wall(1_000_000) };
        // Idle workers without a connection are forgotten soon.
        let limits = dispatch::Limits { absent: 1, ..Default::default() };
        let config = dispatch::DispatchConfig {
            seed,
            strategy: Strategy::Fifo,
            limits,
            ..Default::default()
        };
        let mut world = Self {
            now,
            dispatch: Dispatch::new(config.clone(), now),
            config,
            gate: Gate::default(),
            numbers: BTreeMap::new(),
            store: Memory::default(),
            commits: VecDeque::new(),
            fetches: VecDeque::new(),
            reads: Vec::new(),
            members: Vec::new(),
            generations: seed << 16,
            requests: BTreeMap::new(),
            next_request: 0,
            ids: Vec::new(),
            submitted: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            purged: BTreeSet::new(),
            succeeded: BTreeMap::new(),
            finished: BTreeSet::new(),
            crash_at: None,
            crashes: 0,
            starts: 0,
            wall_jumped_back: false,
            before_crashes: Vec::new(),
            trace: String::new(),
            context: Context::default(),
        };
        for place in 0..MEMBERS {
            let member = world.member(place);
            world.members.push(member);
        }
        world
    }

    fn member(&mut self, place: usize) -> Member {
        self.generations += 1;
        let serves = match place {
            2 => Serves::Named(vec!["mail".into(), "video".into()]),
            _ => Serves::All,
        };
        let slots = 1 + place % 2;
        let serves_all = serves == Serves::All;
        let config = agent::AgentConfig {
            seed: self.generations,
            home: if place == EMBEDDED { Home::Embedded } else { Home::Apart },
            slots: slots as u32,
            serves,
            reserve: Reserve::Fixed(place as u32 * 2),
            ..Default::default()
        };
        Member {
            agent: Agent::new(config, self.now, &mut Vec::new()),
            is_connected: false,
            session: None,
            to_server: VecDeque::new(),
            to_agent: VecDeque::new(),
            running: BTreeSet::new(),
            stopping: BTreeMap::new(),
            is_link_dead: false,
            slots,
            serves_all,
            has_left: false,
            is_paused: false,
            missed_disconnect: false,
        }
    }

    /// Takes one step, then audits everything.
    pub(crate) fn step(&mut self, (what, number): Step) {
        let at = usize::from(number);
        let member = at % MEMBERS;
        match what {
            0..=29 => self.submit(number),
            30..=59 => self.advance(Duration::from_millis(u64::from(number) % 120)),
            60..=67 => self.advance(Duration::from_millis(u64::from(number) % 4_000)),
            // Longer than a lease.
            68 | 69 => self.advance(Duration::from_millis(11_000)),
            70..=89 => self.deliver_to_server(member),
            90..=109 => self.deliver_to_agent(member),
            110..=131 => self.pump(),
            132..=137 => {
                if let Some(batch) = self.members[member].to_server.front().cloned() {
                    self.members[member].to_server.push_front(batch);
                }
            }
            138..=141 => drop(self.members[member].to_server.pop_front()),
            142..=145 => drop(self.members[member].to_agent.pop_front()),
            146 | 147 => self.disconnect(member),
            148 => self.disconnect_unseen_by_the_server(member),
            149 | 150 => self.disconnect_unseen_by_the_worker(member),
            151 | 152 => self.resume(member),
            153..=180 => self.connect(member),
            181..=207 => self.finish_one(member, at / MEMBERS, Ending::Finished),
            208..=212 => {
                let error = "by chance".into();
                self.finish_one(member, at, Ending::Failed { again: Again::ByPolicy, error });
            }
            213 | 214 => {
                if let Some(&hold) = self.members[member].stopping.keys().next() {
                    self.stopped(member, hold);
                }
            }
            215 | 216 => self.finish_one(member, at, Ending::Snoozed(Millis(700))),
            217..=224 => self.commit(usize::MAX),
            225..=229 => self.commit(1),
            230..=232 => self.read_fetch(at),
            233..=235 => self.answer_fetch(at),
            236..=247 => self.operate(number),
            248 => self.kill(member),
            249 => self.crash(),
            250 => self.purge(),
            // The embedded worker pauses together with the server, which has no visible effect.
            251 | 252 => self.members[member].is_paused = member != EMBEDDED,
            253..=255 => self.drain_or_jump(member, number),
        }
        self.audit();
    }

    /// The counters of each server so far, up to the current one.
    pub(crate) fn counters(&self) -> Vec<dispatch::Counters> {
        let mut counters = self.before_crashes.clone();
        counters.push(self.dispatch.counters());
        counters
    }

    /// Delivers everything in flight, until nothing is left.
    fn pump(&mut self) {
        for _ in 0..1_000 {
            let quiet = |member: &Member| {
                member.to_server.is_empty() && (member.to_agent.is_empty() || member.is_paused)
            };
            let is_store_quiet =
                self.commits.is_empty() && self.fetches.is_empty() && self.reads.is_empty();
            if self.members.iter().all(quiet) && is_store_quiet {
                return;
            }
            for at in 0..MEMBERS {
                self.deliver_to_server(at);
                self.deliver_to_agent(at);
            }
            self.commit(usize::MAX);
            self.answer_fetch(0);
        }
        panic!("the world does not come to rest");
    }

    /// Lets time pass; every component is called at its deadline.
    fn advance(&mut self, span: Duration) {
        let end = self.now.monotonic.plus(span);
        loop {
            let awake = self.members.iter().filter(|member| !member.is_paused);
            let stops = awake.clone().flat_map(|member| member.stopping.values());
            let stops = stops.map(|since| Some(since.plus(STOP_TAKES)));
            let members = awake.map(|member| member.agent.next_deadline());
            let deadlines = members.chain(stops).chain([self.dispatch.next_deadline()]);
            let next = deadlines.flatten().min().unwrap_or(end).min(end);
            // At least one microsecond, so that a deadline in the past cannot stop the world.
            let next = next.max(Monotonic(self.now.monotonic.0 + 1)).min(end);
            let passed = next.since(self.now.monotonic);
            self.now.wall.0 = self.now.wall.0.saturating_add(passed.as_millis() as u64);
            self.now.monotonic = next;
            for at in 0..MEMBERS {
                if !self.members[at].is_paused {
                    self.agent_event(at, agent::AgentEvent::Tick);
                    self.stop_the_late(at);
                }
            }
            self.event(DispatchEvent::Tick);
            if next >= end {
                return;
            }
        }
    }

    /// No more faults: every job ends.
    pub(crate) fn heal(&mut self) {
        self.check_that_work_is_shared();
        let mut crashes = None;
        for _ in 0..400 {
            // Again after a crash, in which it may have been lost.
            if crashes.replace(self.crashes) != Some(self.crashes) {
                self.open_queues();
            }
            for at in 0..MEMBERS {
                self.resume(at);
                self.connect(at);
            }
            self.pump();
            for at in 0..MEMBERS {
                while !self.members[at].running.is_empty() {
                    self.finish_one(at, 0, Ending::Finished);
                }
            }
            self.pump();
            self.advance(Duration::from_millis(250));
            self.audit();
            self.cancel_held();
            let is_over = |row: &JobRow| row.now.state.is_ended() && row.now.holder.is_none();
            if self.store.jobs().all(is_over) && self.requests.is_empty() {
                let left = live(&self.dispatch);
                assert_eq!(left, [], "what has ended has left memory");
                assert_eq!(self.store.open_leases().count(), 0, "no lease row is left open");
                return;
            }
        }
        let left: Vec<_> = self.dispatch.job_views(Seq(0)).collect();
        panic!("these jobs never end: {left:#?} {:#?}", self.requests);
    }
}
