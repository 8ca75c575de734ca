//! A small world around the two machines: several agents, a server, a store, and a network in which
//! anything may go wrong. Every step is followed by an audit of everything, and by the checks that only
//! a bystander can make: who really runs what.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use filch_scheduler::agent::{self, Agent, Home, Outcome, Reserve, Verdict};
use filch_scheduler::dispatch::{
    self, Answer, Dispatch, Effect, Event, JobView, QueueChange, Request, Why, WorkerView,
};
use filch_scheduler::gate::{Gate, Told};
use filch_scheduler::id::{
    CommitNo, FetchNo, Hold, JobId, MessageNo, RequestNo, Seq, SessionNo, WorkerId,
};
use filch_scheduler::message::{Again, FromWorker, Serves, ToWorker};
use filch_scheduler::name::Name;
use filch_scheduler::record::{JobRow, Mutation, Strategy};
use filch_scheduler::spec::{Backoff, Condition, JobSpec, Otherwise, Retry};
use filch_scheduler::state::State;
use filch_scheduler::time::{Duration, Millis, Monotonic, Now, Wall};

use filch_scheduler::trace::{Context, Traced, print, print_line};

use crate::keeping::Keeping;

/// One thing that happens: what, and a number that decides the details.
pub(crate) type Step = (u8, u16);

type FromWorkerBatch = (WorkerId, SessionNo, MessageNo, Vec<FromWorker>);
type Fetch = (FetchNo, Vec<JobId>, Vec<Name>, Vec<Seq>);
type ToWorkerBatch = (SessionNo, MessageNo, Vec<ToWorker>);

/// A worker and its connection.
struct Member {
    agent: Agent,
    is_connected: bool,
    /// The session that the server has met over this connection.
    session: Option<(WorkerId, SessionNo)>,
    to_server: VecDeque<FromWorkerBatch>,
    to_agent: VecDeque<ToWorkerBatch>,
    running: BTreeSet<Hold>,
    /// What runs but was told to stop, and when it was told: it takes a while.
    stopping: BTreeMap<Hold, Monotonic>,
    /// The server has seen the connection break and the worker has not: what it sends is lost.
    is_link_dead: bool,
    slots: usize,
    serves_all: bool,
    has_left: bool,
    /// Stopped by a signal or a sleeping machine: it does not notice anything, nor does what it runs.
    is_paused: bool,
    missed_disconnect: bool,
}

/// Everything.
pub(crate) struct World {
    now: Now,
    config: dispatch::Config,
    dispatch: Dispatch,
    gate: Gate,
    pub(crate) keeping: Keeping,
    /// Commits that are not durable yet.
    commits: VecDeque<(CommitNo, Vec<Mutation>)>,
    fetches: VecDeque<Fetch>,
    /// What the store has found, of which the server has not heard yet.
    reads: Vec<(FetchNo, Vec<JobRow>)>,
    members: Vec<Member>,
    generations: u64,
    requests: BTreeMap<RequestNo, Request>,
    next_request: u64,
    ids: Vec<JobId>,
    /// What was acknowledged.
    submitted: BTreeSet<JobId>,
    cancelled: BTreeSet<Seq>,
    purged: BTreeSet<JobId>,
    succeeded: BTreeMap<Seq, Hold>,
    finished: BTreeSet<Hold>,
    /// The server ends right after this commit is durable.
    pub(crate) crash_at: Option<CommitNo>,
    pub(crate) crashes: u32,
    pub(crate) starts: u32,
    wall_jumped_back: bool,
    before_crashes: Vec<dispatch::Counters>,
    /// What the server was told and said, to be pasted into a trace.
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

/// The member that lives in the server's process.
const EMBEDDED: usize = 3;

/// How long a job may take to stop. A worker stops everything at seven tenths of its lease, which leaves
/// three seconds of the default one.
const STOP_TAKES: Duration = Duration::from_millis(2_500);

const QUEUES: [&str; 3] = ["default", "mail", "video"];

impl World {
    pub(crate) fn new(seed: u64) -> Self {
        let now = Now { monotonic: Monotonic(1_000_000), wall: Wall(1_000_000) };
        let config = dispatch::Config { seed, strategy: Strategy::Fifo, ..Default::default() };
        let mut world = Self {
            now,
            dispatch: Dispatch::new(config.clone(), now),
            config,
            gate: Gate::default(),
            keeping: Keeping::default(),
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
        let config = agent::Config {
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

    /// One step, and the audit of everything after it.
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
            181..=207 => self.finish_one(member, at / MEMBERS, Outcome::Finished),
            208..=212 => {
                let error = "by chance".into();
                self.finish_one(member, at, Outcome::Failed { again: Again::ByPolicy, error });
            }
            213 | 214 => {
                if let Some(&hold) = self.members[member].stopping.keys().next() {
                    self.stopped(member, hold);
                }
            }
            215 | 216 => self.finish_one(member, at, Outcome::Snoozed(Millis(700))),
            217..=224 => self.commit(usize::MAX),
            225..=229 => self.commit(1),
            230..=232 => self.read_fetch(at),
            233..=235 => self.answer_fetch(at),
            236..=247 => self.operate(number),
            248 => self.kill(member),
            249 => self.crash(),
            250 => self.purge(),
            // The embedded one pauses with the server, which nobody notices.
            251 | 252 => self.members[member].is_paused = member != EMBEDDED,
            253..=255 => self.drain_or_jump(member, number),
        }
        self.audit();
    }

    fn audit(&self) {
        self.dispatch.audit().expect("the audit of the server");
        for member in &self.members {
            member.agent.audit().expect("the audit of a worker");
        }
        for id in self.submitted.difference(&self.purged) {
            assert!(self.keeping.by_id(*id).is_some(), "an acknowledged job is kept: {id}");
        }
    }

    /// What each server has seen, up to the present one.
    pub(crate) fn counters(&self) -> Vec<dispatch::Counters> {
        let mut counters = self.before_crashes.clone();
        counters.push(self.dispatch.counters());
        counters
    }

    // The server.

    fn event(&mut self, event: Event) {
        let mut effects = Vec::new();
        let text = print(&event, &self.context);
        event.learn(&mut self.context);
        self.write_down(&text);
        self.dispatch.handle(self.now, event, &mut effects);
        self.perform(effects);
    }

    fn write_down(&mut self, event: &str) {
        self.trace.push_str(&print_line(self.now, event, &mut self.context));
        self.trace.push('\n');
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        let mut told = Vec::new();
        for effect in &effects {
            self.trace.push_str(&format!("  -> {}\n", print(effect, &self.context)));
            effect.learn(&mut self.context);
        }
        for effect in effects {
            match self.gate.pass(effect, &mut told) {
                Some(Effect::Commit { number, mutations }) => {
                    self.commits.push_back((number, mutations));
                }
                Some(Effect::Fetch { fetch, ids, keys, seqs }) => {
                    self.fetches.push_back((fetch, ids, keys, seqs));
                }
                Some(Effect::HangUp { worker, session }) => self.hang_up(worker, session),
                Some(Effect::Send { .. } | Effect::Reply { .. }) => unreachable!("gated"),
                None => {}
            }
        }
        self.tell(told);
    }

    fn tell(&mut self, told: Vec<Told>) {
        for told in told {
            match told {
                Told::Worker { worker, session, number, messages } => {
                    let mine = |member: &&mut Member| member.session == Some((worker, session));
                    if let Some(member) = self.members.iter_mut().find(mine) {
                        member.to_agent.push_back((session, number, messages));
                    }
                }
                Told::Request { to, answer } => self.answered(to, &answer),
            }
        }
    }

    fn answered(&mut self, to: RequestNo, answer: &Answer) {
        let request = self.requests.remove(&to).expect("an answer to a question, once");
        match (request, answer) {
            (Request::Submit(_), Answer::Submitted(jobs)) => {
                self.submitted.extend(jobs.iter().map(|job| job.id));
                for job in jobs {
                    let is_kept = self.keeping.by_id(job.id).is_some();
                    assert!(is_kept || self.purged.contains(&job.id), "told before its receipt");
                }
            }
            (Request::Cancel(id), Answer::Done) => {
                self.cancelled.extend(self.keeping.by_id(id).map(|row| row.seq));
            }
            _ => {}
        }
    }

    fn hang_up(&mut self, worker: WorkerId, session: SessionNo) {
        let mine = |member: &Member| member.session == Some((worker, session));
        if let Some(at) = self.members.iter().position(mine) {
            self.disconnect(at);
        }
    }

    /// Makes up to `most` commits durable.
    fn commit(&mut self, most: usize) {
        let mut last = None;
        for _ in 0..most {
            let Some((number, mutations)) = self.commits.pop_front() else {
                break;
            };
            self.keeping.apply(number, &mutations);
            last = Some(number);
            if self.crash_at == Some(number) {
                self.crash_at = None;
                self.crash();
                return;
            }
        }
        if let Some(number) = last {
            // Either may hear of it first.
            let is_gate_first = number.0 % 2 == 0;
            if !is_gate_first {
                self.event(Event::Committed(number));
            }
            let mut told = Vec::new();
            self.gate.receipt(number, &mut told);
            self.tell(told);
            if is_gate_first {
                self.event(Event::Committed(number));
            }
        }
        if self.commits.is_empty() {
            self.compare_with_a_load();
        }
    }

    /// A server that is loaded now knows what this one knows.
    fn compare_with_a_load(&mut self) {
        self.event(Event::Tick);
        // A server that starts takes back what workers in the process of the last one held.
        let is_held_here = |worker: WorkerView| worker.id.is_embedded() && worker.held > 0;
        if !self.commits.is_empty() || self.dispatch.worker_views().any(is_held_here) {
            return;
        }
        let (loaded, effects) = self.keeping.start(self.config.clone(), self.now);
        assert_eq!(effects, [], "nothing is left to decide");
        loaded.audit().expect("the audit of a server that was just loaded");
        let (mut loaded, mut here) = (live(&loaded), live(&self.dispatch));
        if self.wall_jumped_back {
            // A job that was due before the jump stays so here; a new server sees it not due yet.
            for view in loaded.iter_mut().chain(&mut here) {
                if view.state == State::Scheduled {
                    (view.state, view.due) = (State::Queued, Wall(0));
                }
            }
        }
        assert_eq!(loaded, here, "memory and store agree");
    }

    /// The server ends and starts again with what is durable.
    fn crash(&mut self) {
        self.crashes += 1;
        self.before_crashes.push(self.dispatch.counters());
        for member in 0..MEMBERS {
            self.disconnect(member);
        }
        // It ends with the server's process, and so does what it ran.
        self.members[EMBEDDED] = self.member(EMBEDDED);
        self.commits.clear();
        self.fetches.clear();
        self.reads.clear();
        self.requests.clear();
        self.gate = Gate::default();
        let (dispatch, effects) = self.keeping.start(self.config.clone(), self.now);
        self.dispatch = dispatch;
        self.write_down("restart");
        self.perform(effects);
        // The crash itself may have been asked for by a commit that came before a cancel's answer.
        self.audit();
    }

    /// The store looks something up. What it finds may be old by the time the server hears of it.
    fn read_fetch(&mut self, which: usize) {
        let which = which % self.fetches.len().max(1);
        if let Some((fetch, ids, keys, seqs)) = self.fetches.remove(which) {
            let found = self.keeping.find(&ids, &keys, &seqs);
            self.reads.push((fetch, found));
        }
    }

    /// The server hears what the store has found, in any order.
    fn answer_fetch(&mut self, which: usize) {
        if self.reads.is_empty() {
            self.read_fetch(which);
        }
        if !self.reads.is_empty() {
            let (fetch, found) = self.reads.remove(which % self.reads.len());
            self.event(Event::Fetched { fetch, found });
        }
    }

    fn purge(&mut self) {
        let ended = |row: &&JobRow| row.now.state.is_ended();
        let rows = self.keeping.jobs.values().filter(ended);
        let proposed: Vec<(Seq, JobId)> = rows.map(|row| (row.seq, row.spec.id)).collect();
        let before = self.commits.len();
        self.event(Event::Expired(proposed));
        for (_, mutations) in self.commits.iter().skip(before) {
            for mutation in mutations {
                if let Mutation::Purge(seqs) = mutation {
                    let ids = seqs.iter().map(|seq| self.keeping.jobs[seq].spec.id);
                    self.purged.extend(ids);
                }
            }
        }
    }

    fn request(&mut self, request: Request) {
        self.next_request += 1;
        let from = RequestNo(self.next_request);
        self.requests.insert(from, request.clone());
        self.event(Event::Request { from, request });
    }

    fn submit(&mut self, number: u16) {
        let bits = usize::from(number);
        // Sometimes the same again, as a client would that got no answer.
        if bits % 7 == 0 && !self.ids.is_empty() {
            let id = self.ids[bits % self.ids.len()];
            if let Some(row) = self.keeping.by_id(id) {
                let again = row.spec.clone();
                self.request(Request::Submit(vec![again]));
                return;
            }
        }
        let mut batch = Vec::new();
        for place in 0..1 + bits % 6 {
            let made_at = Wall(self.now.wall.0.saturating_sub((bits as u64 % 3) * 500));
            let name = format!("j{}", self.ids.len());
            let id = JobId::named(&name, made_at).expect("a short name");
            let mut spec = JobSpec::new(id);
            spec.queue = QUEUES[(bits / 3) % 3].into();
            spec.priority = (bits % 5) as i16;
            // Few keys, so that many jobs share one.
            spec.key = (bits % 4 == 1).then(|| format!("k{}", bits / 4 % 9).as_str().into());
            spec.retry = Retry {
                max: 1 + (bits % 3) as u16,
                backoff: Backoff::Fixed(Millis(300)),
                jitter_percent: 0,
            };
            if bits % 2 == 1 && !self.ids.is_empty() {
                spec.parents.push(self.ids[bits % self.ids.len()]);
                if let Some(earlier) = batch.last().map(|spec: &JobSpec| spec.id) {
                    spec.parents.push(earlier);
                }
                spec.parents.dedup();
                use Condition::{AllDone, AllSucceeded, AnyFailed, AnySucceeded};
                spec.condition = [AllSucceeded, AnySucceeded, AllDone, AnyFailed][bits / 5 % 4];
                spec.otherwise =
                    [Otherwise::Cancel, Otherwise::Run, Otherwise::Hold][bits / 11 % 3];
            }
            if bits % 6 == 5 {
                spec.not_before = Some(Wall(self.now.wall.0 + 200 * place as u64));
            }
            self.ids.push(id);
            batch.push(spec);
        }
        self.request(Request::Submit(batch));
    }

    fn operate(&mut self, number: u16) {
        let bits = usize::from(number);
        let job = self.ids.get(bits / 16 % self.ids.len().max(1)).copied();
        let queue: Name = QUEUES[bits / 16 % 3].into();
        let change = |change| Request::SetQueue { queue: queue.clone(), change };
        let aging = Duration::from_secs(1);
        let request = match (bits % 12, job) {
            (0..=2, Some(job)) => Request::Cancel(job),
            (3 | 4, Some(job)) => Request::Retry(job),
            (5, Some(job)) => Request::SetPriority { job, priority: (bits % 9) as i16 },
            (6, _) => change(QueueChange::Pause),
            (7, _) => change(QueueChange::Resume),
            (8, _) => change(QueueChange::Limit(Some(1 + bits as u32 / 64 % 2))),
            (9, _) => change(QueueChange::Limit(None)),
            (10, _) => change(QueueChange::Weight(1 + bits as u32 / 64 % 4)),
            _ => Request::SetStrategy(
                [
                    Strategy::Fifo,
                    Strategy::RoundRobin,
                    Strategy::Fair,
                    Strategy::Priority { aging },
                ][bits / 16 % 4],
            ),
        };
        self.request(request);
    }

    fn drain_or_jump(&mut self, member: usize, number: u16) {
        match number / 4 % 4 {
            0 => self.request(Request::DrainWorker(self.members[member].agent.id())),
            1 if self.members[member].is_paused => {}
            1 => self.agent_event(member, agent::Event::Drain { grace: Duration::from_secs(2) }),
            2 => self.now.wall.0 += 3_000,
            _ => {
                self.now.wall.0 -= 1_500;
                self.wall_jumped_back = true;
            }
        }
    }

    // The workers.

    fn agent_event(&mut self, at: usize, event: agent::Event) {
        let mut effects = Vec::new();
        self.members[at].agent.handle(self.now, event, &mut effects);
        for effect in effects {
            let member = &mut self.members[at];
            match effect {
                // The world connects when it pleases. A connection that the worker has given up is gone.
                agent::Effect::Connect { .. } if member.is_connected => {
                    self.disconnect_silently(at);
                }
                agent::Effect::Connect { .. } => {}
                agent::Effect::Disconnect { .. } => self.disconnect_silently(at),
                agent::Effect::Send { .. } if member.is_link_dead => {}
                agent::Effect::Send { worker, session, number, messages } => {
                    member.session = Some((worker, session));
                    member.to_server.push_back((worker, session, number, messages));
                }
                agent::Effect::Start(assignment) => self.start(at, assignment.hold),
                agent::Effect::Stop { hold, .. } => {
                    assert!(member.running.contains(&hold), "what is stopped runs");
                    member.stopping.entry(hold).or_insert(self.now.monotonic);
                }
                agent::Effect::Answered { hold, verdict } => self.settled(hold, verdict),
                agent::Effect::Leave => member.has_left = true,
            }
        }
        if self.members[at].has_left {
            self.replace(at);
        }
    }

    /// What a bystander sees when a job starts.
    fn start(&mut self, at: usize, hold: Hold) {
        self.starts += 1;
        for member in self.members.iter().filter(|member| !member.is_paused) {
            let same = member.running.iter().find(|other| other.job == hold.job);
            assert_eq!(same, None, "a job runs in one place only");
        }
        let row = self.keeping.jobs.get(&hold.job).expect("what runs is kept");
        assert!(!self.cancelled.contains(&hold.job), "a cancelled job does not start");
        // A cancel that its holder has not heard of yet is no end, and has not been answered.
        let has_ended = row.now.state.is_ended() && row.now.holder.is_none();
        assert!(!has_ended, "an ended job does not start: {row:?}");
        assert!(!self.succeeded.contains_key(&hold.job), "a job succeeds once");
        if row.spec.condition == Condition::AllSucceeded && row.spec.otherwise == Otherwise::Cancel
        {
            for parent in &row.spec.parents {
                let state = self.keeping.by_id(*parent).map(|row| row.now.state);
                let has_succeeded = state.is_none_or(|state| state == State::Succeeded);
                assert!(has_succeeded, "a child starts after its parents: {state:?}");
            }
        }
        self.members[at].running.insert(hold);
    }

    fn settled(&mut self, hold: Hold, verdict: Verdict) {
        if verdict == Verdict::Refused && self.finished.contains(&hold) {
            let row = self.keeping.jobs.get(&hold.job).map(|row| (row.now.state, row.now.fence));
            assert_ne!(row, Some((State::Succeeded, hold.fence)), "a stored success is refused");
        }
        if verdict == Verdict::Accepted && self.finished.contains(&hold) {
            let before = self.succeeded.insert(hold.job, hold);
            assert!(before.is_none_or(|before| before == hold), "one success is accepted");
            let state = self.keeping.jobs.get(&hold.job).map(|row| row.now.state);
            let is_kept = state.is_none_or(|state| state == State::Succeeded);
            assert!(is_kept, "an accepted success is durable: {state:?}");
        }
    }

    fn finish_one(&mut self, at: usize, which: usize, outcome: Outcome) {
        if self.members[at].is_paused {
            return;
        }
        let running = &mut self.members[at].running;
        let Some(hold) = running.iter().nth(which % running.len().max(1)).copied() else {
            return;
        };
        running.remove(&hold);
        // What was to be stopped may be reported as stopped although it came to an end of its own.
        let was_stopping = self.members[at].stopping.remove(&hold).is_some();
        if outcome == Outcome::Finished && !was_stopping {
            self.finished.insert(hold);
        }
        self.agent_event(at, agent::Event::Ended { hold, outcome });
    }

    /// A job that was told to stop has done so.
    fn stopped(&mut self, at: usize, hold: Hold) {
        if !self.members[at].is_paused {
            self.members[at].running.remove(&hold);
            self.members[at].stopping.remove(&hold);
            self.agent_event(at, agent::Event::Ended { hold, outcome: Outcome::Stopped });
        }
    }

    fn connect(&mut self, at: usize) {
        if !self.members[at].is_connected && !self.members[at].is_paused {
            self.members[at].is_connected = true;
            self.members[at].is_link_dead = false;
            self.agent_event(at, agent::Event::Connected);
        }
    }

    /// The connection breaks, and both sides notice; a paused worker when it goes on.
    fn disconnect(&mut self, at: usize) {
        if self.members[at].is_connected {
            self.disconnect_silently(at);
            if self.members[at].is_paused {
                self.members[at].missed_disconnect = true;
                self.members[at].is_link_dead = true;
            } else {
                self.agent_event(at, agent::Event::Disconnected);
            }
        }
    }

    /// The connection breaks, and only the worker notices.
    fn disconnect_unseen_by_the_server(&mut self, at: usize) {
        let member = &mut self.members[at];
        if member.is_connected && !member.is_paused {
            member.is_connected = false;
            member.session = None;
            member.to_server.clear();
            member.to_agent.clear();
            self.agent_event(at, agent::Event::Disconnected);
        }
    }

    /// The connection breaks, and only the server notices.
    fn disconnect_unseen_by_the_worker(&mut self, at: usize) {
        if self.members[at].is_connected {
            self.disconnect_silently(at);
            self.members[at].is_connected = true;
            self.members[at].is_link_dead = true;
        }
    }

    /// The connection is gone; the worker knows already.
    fn disconnect_silently(&mut self, at: usize) {
        let member = &mut self.members[at];
        member.is_connected = false;
        member.is_link_dead = false;
        member.to_server.clear();
        member.to_agent.clear();
        if let Some((worker, session)) = member.session.take() {
            self.gate.close(worker, session);
            self.event(Event::Closed { worker, session });
        }
    }

    fn deliver_to_server(&mut self, at: usize) {
        if let Some((worker, session, number, messages)) = self.members[at].to_server.pop_front() {
            self.event(Event::Worker { worker, session, number, messages });
        }
    }

    fn deliver_to_agent(&mut self, at: usize) {
        if self.members[at].is_paused {
            return;
        }
        if let Some((session, number, messages)) = self.members[at].to_agent.pop_front() {
            self.agent_event(at, agent::Event::Received { session, number, messages });
        }
    }

    /// Everything that is under way arrives, until nothing is.
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

    /// The process is gone, with all that ran in it; another takes its place.
    fn kill(&mut self, at: usize) {
        self.disconnect_silently(at);
        self.replace(at);
    }

    fn replace(&mut self, at: usize) {
        // What it had sent before it left may still arrive.
        let before = &mut self.members[at];
        let last_words: Vec<FromWorkerBatch> = before.to_server.drain(..).collect();
        self.members[at] = self.member(at);
        for (worker, session, number, messages) in last_words {
            self.event(Event::Worker { worker, session, number, messages });
        }
    }

    /// Time passes; everybody is called when it asked to be.
    fn advance(&mut self, span: Duration) {
        let end = self.now.monotonic.plus(span);
        loop {
            let awake = self.members.iter().filter(|member| !member.is_paused);
            let stops = awake.clone().flat_map(|member| member.stopping.values());
            let stops = stops.map(|since| Some(since.plus(STOP_TAKES)));
            let members = awake.map(|member| member.agent.next_deadline());
            let deadlines = members.chain(stops).chain([self.dispatch.next_deadline()]);
            let next = deadlines.flatten().min().unwrap_or(end).min(end);
            // At least a little, so that a deadline in the past cannot stop the world.
            let next = next.max(Monotonic(self.now.monotonic.0 + 1)).min(end);
            let passed = next.since(self.now.monotonic);
            self.now.wall.0 = self.now.wall.0.saturating_add(passed.as_millis() as u64);
            self.now.monotonic = next;
            for at in 0..MEMBERS {
                if !self.members[at].is_paused {
                    self.agent_event(at, agent::Event::Tick);
                    self.stop_the_late(at);
                }
            }
            self.event(Event::Tick);
            if next >= end {
                return;
            }
        }
    }

    /// What has been stopping for as long as it may has stopped.
    fn stop_the_late(&mut self, at: usize) {
        let is_late = |since: Monotonic| since.plus(STOP_TAKES) <= self.now.monotonic;
        let stopping = self.members[at].stopping.iter();
        let late: Vec<Hold> =
            stopping.filter(|&(_, &since)| is_late(since)).map(|(&hold, _)| hold).collect();
        for hold in late {
            self.stopped(at, hold);
        }
    }

    /// Nothing goes wrong any more: every job ends.
    pub(crate) fn heal(&mut self) {
        self.check_that_work_is_shared();
        let mut crashes = None;
        for _ in 0..400 {
            // Again after a crash, which may have swallowed it.
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
                    self.finish_one(at, 0, Outcome::Finished);
                }
            }
            self.pump();
            self.advance(Duration::from_millis(250));
            self.audit();
            self.cancel_held();
            let is_over = |row: &JobRow| row.now.state.is_ended() && row.now.holder.is_none();
            if self.keeping.jobs.values().all(is_over) && self.requests.is_empty() {
                let left = live(&self.dispatch);
                assert_eq!(left, [], "what has ended has left memory");
                assert_eq!(self.keeping.open.len(), 0, "no lease row is left open");
                return;
            }
        }
        let left: Vec<_> = self.dispatch.job_views(Seq(0)).collect();
        panic!("these jobs never end: {left:#?} {:#?}", self.requests);
    }

    /// Only an operator moves a job whose condition cannot hold any more and that is to be held then.
    fn cancel_held(&mut self) {
        let is_held = |view: &JobView| {
            matches!(self.dispatch.why(view.id), Some(Why::Blocked { held: true, .. }))
        };
        let views = self.dispatch.job_views(Seq(0));
        let held: Vec<JobId> = views.filter(is_held).map(|view| view.id).collect();
        for id in held {
            self.request(Request::Cancel(id));
        }
    }

    /// When nothing goes wrong for a while, no worker is idle beside one that has jobs to spare.
    fn check_that_work_is_shared(&mut self) {
        let crashes = self.crashes;
        // First until everybody is known and has settled what was left over, then for a few questions.
        for span in [400; 10].into_iter().chain([25; 10]) {
            for at in 0..MEMBERS {
                self.resume(at);
                self.connect(at);
            }
            self.pump();
            self.advance(Duration::from_millis(span));
            self.pump();
        }
        // A suspect may be refused to whoever holds another one.
        let has_suspects = self.dispatch.job_views(Seq(0)).any(|job| job.suspicions >= 2);
        if has_suspects || self.crashes > crashes {
            return;
        }
        let view = |member: &Member| {
            self.dispatch.worker_views().find(|worker| worker.id == member.agent.id())
        };
        let is_idle = |member: &&Member| {
            let (running, waiting) = (member.agent.running_count(), member.agent.waiting_count());
            let takes_work = |worker: WorkerView| worker.connected && !worker.draining;
            member.serves_all
                && running < member.slots
                && waiting == 0
                && view(member).is_some_and(takes_work)
        };
        let Some(idle) = self.members.iter().find(is_idle) else {
            return;
        };
        for other in &self.members {
            let (idle, other_view) = (view(idle), view(other));
            let has_few = other.agent.waiting_count() < 2;
            assert!(has_few, "work is shared: {idle:?} is idle beside {other_view:?}");
        }
    }

    fn open_queues(&mut self) {
        for queue in QUEUES {
            for change in [QueueChange::Resume, QueueChange::Limit(None)] {
                self.request(Request::SetQueue { queue: queue.into(), change });
            }
        }
    }

    /// A paused worker goes on. The first thing that any event makes it do is look at the clock.
    fn resume(&mut self, at: usize) {
        if std::mem::take(&mut self.members[at].is_paused) {
            self.agent_event(at, agent::Event::Tick);
            if std::mem::take(&mut self.members[at].missed_disconnect) {
                self.agent_event(at, agent::Event::Disconnected);
            }
            // Its jobs may run elsewhere by now. While it is past its deadline they run in two places, as
            // nothing but the fence can prevent, and a bystander who saw more of that would learn nothing.
            for hold in self.members[at].stopping.keys().copied().collect::<Vec<_>>() {
                self.stopped(at, hold);
            }
        }
    }

    /// What every accepted report has come to.
    pub(crate) fn check_outcomes(&self) {
        for (seq, hold) in &self.succeeded {
            if let Some(row) = self.keeping.jobs.get(seq) {
                assert_eq!((row.now.state, row.now.fence), (State::Succeeded, hold.fence));
            }
        }
    }
}

/// What a server knows of the jobs that have not ended or that somebody still holds.
fn live(dispatch: &Dispatch) -> Vec<JobView> {
    let views =
        dispatch.job_views(Seq(0)).filter(|view| !view.state.is_ended() || view.holder.is_some());
    let comparable = |mut view: JobView| {
        view.progress = None;
        if view.state != State::Scheduled {
            view.due = Wall(0);
        }
        view
    };
    views.map(comparable).collect()
}
