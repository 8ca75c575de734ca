//! The simulated world: one server, its store, workers, clients and a network, in one thread and in
//! virtual time.
//!
//! The engines of the server and the workers are the real ones; everything around them is simulated
//! here. Events happen in the order of true time, and events of the same time in the order in which
//! they were scheduled, so a plan always gives the same run.
//!
//! The other files: `server` simulates the shell of the server, `place` the shell of a worker,
//! `network` the network between them, `hostile` workers that lie, `intruder` strangers that claim
//! to be a worker, `http_client` and `http_place` workers over plain HTTP, `client` clients and
//! operators, `fault` faults, `schedule` the queue of events, `recording` the traces.

mod client;
mod fault;
mod fingerprint;
mod hostile;
mod http_client;
mod http_place;
mod intruder;
mod network;
mod place;
mod recording;
mod schedule;
mod server;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use filch_engine::server::{ServerAction, ServerStep};
use filch_scheduler::dispatch::{Counters, QueueChange, Request};
use filch_scheduler::id::{Hold, Seq, WorkerId};
use filch_scheduler::name::Name;
use filch_scheduler::record::{JobRow, StoredText};
use filch_scheduler::spec::Otherwise;
use filch_scheduler::state::JobState;
use filch_scheduler::time::Monotonic;
use filch_store::Memory;
use filch_store::integrity::{self, IntegrityViolation};

use self::client::Ask;
use self::fingerprint::Fingerprint;
use self::hostile::Lies;
use self::http_place::HttpPlace;
use self::place::Place;
pub(crate) use self::recording::Recording;
use self::schedule::{Happening, Schedule};
use self::server::Server;
use crate::log::{Observed, Observer};
use crate::plan::{CutDirection, Plan, PlannedEvent};
use crate::work;

/// How closely the brains are looked into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Audit {
    /// Not at all.
    Never,
    /// After each fault, and after every so manyth event.
    Sampled(u64),
    /// After every event.
    Always,
}

/// How long jobs may take to come to their end once nothing breaks any more, beyond the work that
/// is in them.
const PATIENCE: Duration = Duration::from_secs(600);

/// How long after everything has healed an operator looks after what waits for a word.
const CLEARED_AFTER: Duration = Duration::from_secs(20);

/// A world.
pub(crate) struct World<'a, W> {
    plan: &'a Plan,
    now: Monotonic,
    schedule: Schedule,
    server: Server,
    store: Memory,
    /// The payload of every stored job.
    payloads: BTreeMap<Seq, StoredText>,
    /// Jobs in the store that have not ended. Never walked.
    unended: HashSet<Seq>,
    places: Vec<Place>,
    http_places: Vec<HttpPlace>,
    /// The ids of workers over plain HTTP.
    http_ids: BTreeSet<WorkerId>,
    lies: Lies,
    asks: Vec<Ask>,
    requests: u64,
    connections: u64,
    /// The worker that a stranger claims to be just now.
    impersonated: Option<WorkerId>,
    /// Empty, and used again for the next input.
    actions: Vec<ServerAction>,
    steps: Vec<ServerStep>,
    is_healed: bool,
    patience: Duration,
    settling: Duration,
    audit: Audit,
    fingerprint: Fingerprint,
    /// The first failed audit.
    audit_error: Option<String>,
    pub(crate) observer: W,
    pub(crate) recording: Option<Recording>,
    pub(crate) counts: Counts,
}

/// What happened, in numbers.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) steps: u64,
    pub(crate) faults: u64,
    pub(crate) starts: u64,
    pub(crate) jobs: u64,
    /// Of all the servers there were.
    pub(crate) server: Counters,
}

impl<'a, W: Observer> World<'a, W> {
    pub(crate) fn new(
        plan: &'a Plan,
        audit: Audit,
        observer: W,
        recording: Option<Recording>,
    ) -> Self {
        let mut world = Self {
            plan,
            now: Monotonic(0),
            schedule: Schedule::default(),
            server: Server::new(plan),
            store: Memory::default(),
            payloads: BTreeMap::new(),
            unended: HashSet::new(),
            places: plan.members.iter().map(Place::new).collect(),
            http_places: http_places(plan),
            http_ids: BTreeSet::new(),
            lies: Lies::new(&plan.members),
            asks: Vec::new(),
            requests: 0,
            connections: 0,
            impersonated: None,
            actions: Vec::new(),
            steps: Vec::new(),
            is_healed: false,
            patience: PATIENCE.saturating_add(plan.work()),
            settling: plan.settling(),
            audit,
            fingerprint: Fingerprint::default(),
            audit_error: None,
            observer,
            recording,
            counts: Counts::default(),
        };
        world.schedule.put(Monotonic(0), Happening::ServerStarts);
        for place in 0..plan.members.len() {
            world.schedule.put(Monotonic(0), Happening::ProcessStarts { place });
        }
        for place in 0..plan.http_members.len() {
            world.schedule.put(Monotonic(0), Happening::HttpStarts { place });
        }
        if let Some((at, _)) = plan.acts.first() {
            world.schedule.put(moment(*at), Happening::Planned(0));
        }
        if let Some(heals_at) = plan.heals_at {
            world.schedule.put(moment(heals_at), Happening::Heals);
        }
        world
    }

    /// Runs to the end: until every job has come to its own, or somebody has seen enough.
    pub(crate) fn run(&mut self) {
        while let Some((at, happening)) = self.schedule.take() {
            if self.is_done(at) {
                break;
            }
            self.now = at;
            self.counts.steps += 1;
            self.happen(happening);
            if let Audit::Sampled(every) = self.audit
                && self.counts.steps.is_multiple_of(every)
            {
                self.audit_all();
            }
            if self.audit_error.is_some() || self.observer.is_done() {
                break;
            }
        }
        let wall = self.server.clock.read(self.now).wall;
        self.observe(Observed::Over(wall));
        self.count_server();
    }

    /// What was seen, in a number: two runs with the same number were the same.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint.value()
    }

    pub(crate) const fn now(&self) -> Monotonic {
        self.now
    }

    pub(crate) fn audit_error(&self) -> Option<&str> {
        self.audit_error.as_deref()
    }

    /// The first violation of the integrity check of `filch server verify`, applied to the final
    /// store.
    pub(crate) fn check_integrity(&self) -> Option<IntegrityViolation> {
        let report = integrity::check(&self.store).expect("memory can be read");
        report.violations.into_iter().next().map(|violation| {
            let job = violation.job.map(|job| format!("#{}: ", job.0)).unwrap_or_default();
            IntegrityViolation { what: format!("{job}{}", violation.what), ..violation }
        })
    }

    /// S16: a success that was stored without its result, if there is one.
    pub(crate) fn check_results(&self) -> Option<String> {
        self.plan.heals_at?;
        let is_success = |row: &&JobRow| row.now.state == JobState::Succeeded;
        let lost = self.store.jobs().filter(is_success).find(|row| {
            let hold = Hold { job: row.seq, fence: row.now.fence };
            let stored = self.store.output(hold).and_then(|output| output.result.as_ref());
            stored != Some(&work::result(hold))
        });
        lost.map(|row| format!("{} succeeded, but its result is lost", row.spec.id))
    }

    /// Whether all is over by `next`, the moment of what comes next: nothing is left to do, and
    /// long enough without faults that a worker that went silent before has been given up. Or the
    /// patience is at its end.
    fn is_done(&self, next: Monotonic) -> bool {
        let healed_for = self.plan.heals_at.map(|at| next.since(moment(at)));
        let is_late = healed_for.is_some_and(|span| span > self.patience);
        let is_settled = healed_for.is_none_or(|span| span > self.settling);
        let has_no_acts_left =
            || self.plan.acts.last().is_none_or(|(at, _)| moment(*at) < self.now);
        let has_no_work_left = || self.unended.is_empty() && has_no_acts_left();
        is_late || (is_settled && has_no_work_left() && self.asks.iter().all(Ask::is_settled))
    }

    fn happen(&mut self, happening: Happening) {
        if happening.is_in_server() && self.server.is_suspended() {
            self.server.miss(happening);
            return;
        }
        match happening {
            Happening::Planned(which) => self.act(which),
            Happening::Heals => self.heal(),
            Happening::Clears => self.clear(),
            Happening::ServerStarts => self.start_server(),
            Happening::ServerTicks => self.tick_server(),
            Happening::ServerCrashes { server, away, noticed } => {
                self.server_crashes(server, away, noticed);
            }
            Happening::CommitReturns { server } => self.commit_returns(server),
            Happening::Reads { server, read, fails } => self.reads(server, *read, fails),
            Happening::ServerResumes { server } => self.resume_server(server),
            Happening::LinkOpens { place, link, scope, server } => {
                self.open_link(place, link, *scope, server);
            }
            Happening::LinkFills { link } => self.fill_link(link),
            Happening::ServerHasSent { server, link } => self.server_has_sent(server, link),
            Happening::StoreSpeedsUp { turn } => self.speed_up_store(turn),
            Happening::StoreIsTrusted { turn } => self.trust_store(turn),
            Happening::RetentionRecovers { turn } => self.recover_retention(turn),
            Happening::ReachesServer(letter) => {
                let way = (CutDirection::ToServer, letter.connection);
                let again = || Happening::ReachesServer(letter.clone());
                if self.gets_through(letter.place, way, again) {
                    self.reach_server(*letter);
                }
            }
            Happening::ServerHearsClose { connection, server } => {
                self.close_at_server(connection, server);
            }
            Happening::CutEnds { place, turn } => self.end_cut(place, turn),
            Happening::NetworkEnds { place, turn } => self.end_network(place, turn),
            Happening::ProcessStarts { place } => self.start_process(place),
            Happening::Resumes { place, life } => self.resume(place, life),
            Happening::GuardianKills { place, life } => self.guardian_kills(place, life),
            Happening::Process { place, life, happening } => {
                self.happen_in_process(place, life, happening);
            }
            Happening::HttpStarts { place } => self.start_http(place),
            Happening::HttpResumes { place, life } => self.resume_http(place, life),
            Happening::HttpProcess { place, life, happening } => {
                self.happen_in_http(place, life, happening);
            }
            Happening::AskReachesServer(letter) => self.ask_reaches_server(*letter),
            Happening::RequestArrives { ask } => self.request_arrives(ask),
            Happening::AnswerArrives { ask } => self.answer_arrives(ask),
            Happening::AsksAgain { ask } => self.ask_again(ask),
        }
    }

    fn observe(&mut self, seen: Observed<'_>) {
        self.observer.observe(self.now, seen);
    }

    /// Repairs everything: from now on there are no faults.
    fn heal(&mut self) {
        self.is_healed = true;
        self.mend_network();
        self.mend_store();
        if !self.server.is_up() {
            self.start_server();
        }
        self.resume_server(self.server.life);
        for place in 0..self.places.len() {
            self.mend_place(place);
        }
        self.mend_http();
        self.mend_asks();
        self.observe(Observed::Healed);
        self.schedule.put(self.now.plus(CLEARED_AFTER), Happening::Clears);
    }

    /// An operator resumes paused queues, and cancels jobs that are held and would wait for ever.
    fn clear(&mut self) {
        let plan = self.plan;
        for queue in plan.paused_queues() {
            let change = QueueChange::Resume;
            self.ask(Request::SetQueue { queue: queue.clone(), change }, u32::MAX);
        }
        let held: Vec<_> = self.store.jobs().filter(is_held).map(|row| row.spec.id).collect();
        for id in held {
            self.ask(Request::Cancel(id), u32::MAX);
        }
        self.schedule.put(self.now.plus(CLEARED_AFTER), Happening::Clears);
    }

    fn audit_all(&mut self) {
        self.audit_server();
        if self.audit == Audit::Always {
            self.audit_memory();
        }
        for place in 0..self.places.len() {
            self.audit_place(place);
        }
    }

    fn audit_failed(&mut self, whose: &str, error: &str) {
        if self.audit_error.is_none() {
            self.audit_error = Some(format!("{whose}: {error}"));
        }
    }
}

impl Plan {
    /// How long all jobs would take one after another.
    fn work(&self) -> Duration {
        let jobs = self.acts.iter().flat_map(|(_, act)| match act {
            PlannedEvent::Ask { request, .. } => request.submitted(),
            _ => &[],
        });
        jobs.filter_map(|spec| work::all_runs(&spec.kind))
            .fold(Duration::ZERO, Duration::saturating_add)
    }

    /// Every queue that is paused in the plan.
    fn paused_queues(&self) -> BTreeSet<&Name> {
        let paused = self.acts.iter().filter_map(|(_, act)| match act {
            PlannedEvent::Ask {
                request: Request::SetQueue { queue, change: QueueChange::Pause },
                ..
            } => Some(queue),
            _ => None,
        });
        paused.collect()
    }

    /// How long after the last fault all its effects must have been detected.
    pub(crate) fn settling(&self) -> Duration {
        self.leases().1 * 3 / 2 + Duration::from_secs(6)
    }
}

fn http_places(plan: &Plan) -> Vec<HttpPlace> {
    let members = plan.http_members.iter().enumerate();
    members.map(|(place, member)| HttpPlace::new(plan.seed, place, member)).collect()
}

/// Whether this job is held and may wait for ever.
fn is_held(row: &&JobRow) -> bool {
    row.now.state == JobState::Blocked && row.spec.otherwise == Otherwise::Hold
}

const fn moment(at: Duration) -> Monotonic {
    Monotonic(0).plus(at)
}
