//! A place where one worker process over plain HTTP runs after another: its clock, its jobs, its
//! requests and their responses. `http_client` is what such a process decides.
//!
//! Each request has a connection of its own. Requests and responses are delayed, lost or repeated,
//! and a request does not outlive the server that it was sent to.

use std::collections::BTreeMap;
use std::time::Duration;

use filch_engine::server::{HttpAsk, HttpRefusal, HttpReply, HttpWorker, LinkScope, ServerInput};
use filch_scheduler::agent::StopReason;
use filch_scheduler::dispatch::Request;
use filch_scheduler::id::{Hold, Seq, WorkerId};
use filch_scheduler::message::{Again, Assignment, Ending, FromWorker, Report, Serves, ToWorker};
use filch_scheduler::record::StoredText;
use filch_scheduler::time::Monotonic;

use super::World;
use super::http_client::{HttpClient, HttpDeed};
use super::place::{EMPTY_FOR, MENDED_RUN, STOPS_WITHIN, outcome_of_deed};
use super::schedule::Happening;
use crate::clock::Clock;
use crate::log::{ExecutionEnd, Observed, Observer};
use crate::plan::{HttpFault, HttpMember, NetworkConditions, Paused};
use crate::random::{Purpose, Random};
use crate::work::{self, Deed};

/// A place.
pub(super) struct HttpPlace {
    clock: Clock,
    network: NetworkConditions,
    /// Nothing gets through until then.
    cut_until: Monotonic,
    lives: u64,
    process: Option<Process>,
    /// How often each job was started here.
    runs: BTreeMap<Seq, u32>,
    random: Random,
}

struct Process {
    client: HttpClient,
    running: BTreeMap<Hold, Running>,
    /// Since when it is suspended, and what has happened meanwhile.
    pause: Option<(Monotonic, Vec<(Monotonic, InHttpProcess)>)>,
    ticks_at: Option<Monotonic>,
}

struct Running {
    is_hanging: bool,
    is_stopping: bool,
}

/// A request on its way to the server.
#[derive(Clone, Debug)]
pub(super) struct HttpLetter {
    pub(super) place: usize,
    life: u64,
    /// The server that accepted the connection.
    server: u64,
    number: u64,
    from: HttpWorker,
    ask: HttpAsk,
}

/// Where a response goes.
#[derive(Clone, Copy)]
pub(super) struct ResponseTo {
    place: usize,
    life: u64,
    number: u64,
}

/// An event in a process, which waits while the process is suspended.
#[derive(Clone, Debug)]
pub(super) enum InHttpProcess {
    Ticks,
    Hears { number: u64, response: Box<Result<HttpReply, HttpRefusal>> },
    JobEnds { hold: Hold, deed: Deed },
    JobStops { hold: Hold },
}

impl HttpPlace {
    pub(super) fn new(seed: u64, place: usize, member: &HttpMember) -> Self {
        Self {
            clock: Clock::new(member.rate),
            network: member.network,
            cut_until: Monotonic(0),
            lives: 0,
            process: None,
            runs: BTreeMap::new(),
            random: Random::keyed(seed, Purpose::HttpLink(place), 0),
        }
    }

    /// When a message that is sent now arrives: once, twice or never.
    fn arrivals(&mut self, now: Monotonic) -> [Option<Monotonic>; 2] {
        let (least, most) = self.network.delay;
        let mut way = || {
            let (least, most) = (least.as_micros() as u64, most.as_micros() as u64);
            Duration::from_micros(self.random.between(least, most))
        };
        let (first, second) = (now.plus(way()), way());
        let is_lost = self.random.happens(self.network.lost);
        let is_repeated = self.random.happens(self.network.repeated);
        if is_lost || first < self.cut_until {
            return [None; 2];
        }
        [Some(first), is_repeated.then(|| first.plus(second * 3))]
    }
}

impl<W: Observer> World<'_, W> {
    /// The number of the node, after all others.
    const fn http_node(&self, place: usize) -> usize {
        self.plan.members.len() + place
    }

    /// Whether the engine itself is the other end of this worker's connection.
    pub(super) fn is_http(&self, worker: WorkerId) -> bool {
        self.http_ids.contains(&worker)
    }

    pub(super) fn start_http(&mut self, place: usize) {
        let plan = &self.plan.http_members[place];
        let http = &mut self.http_places[place];
        if http.process.is_some() {
            return;
        }
        http.lives += 1;
        // Every process of members with the same number begins with the same id.
        let id = Random::keyed(self.plan.seed, Purpose::HttpId, plan.id.into()).next();
        let random = Random::keyed(self.plan.seed, Purpose::HttpWorker(place), http.lives);
        let client = HttpClient::new(WorkerId::apart(id), plan.slots, plan.serves.clone(), random);
        let running = BTreeMap::new();
        http.process = Some(Process { client, running, pause: None, ticks_at: None });
        let (place_no, slots, serves) = (self.http_node(place), plan.slots, &plan.serves);
        self.observe(Observed::Began { place: place_no, slots, serves, is_embedded: false });
        self.plan_http_tick(place);
    }

    /// What happens in a process, now or when it goes on.
    pub(super) fn happen_in_http(&mut self, place: usize, life: u64, happening: InHttpProcess) {
        let at = self.now;
        let http = &mut self.http_places[place];
        if http.lives != life {
            return;
        }
        let now = http.clock.read(at).monotonic;
        let Some(process) = &mut http.process else { return };
        if let Some((_, missed)) = &mut process.pause {
            missed.push((at, happening));
            return;
        }
        let deeds = match happening {
            InHttpProcess::Ticks => {
                if process.ticks_at.is_none_or(|due| due > at) {
                    return;
                }
                process.ticks_at = None;
                process.client.tick(now)
            }
            InHttpProcess::Hears { number, response } => {
                process.client.hears(now, number, *response)
            }
            InHttpProcess::JobEnds { hold, deed: Deed::KillWorker } => {
                if process.running.contains_key(&hold) {
                    self.counts.faults += 1;
                    self.crash_http(place, EMPTY_FOR);
                }
                return;
            }
            InHttpProcess::JobEnds { hold, deed } => {
                self.end_http_job(place, hold, outcome_of_deed(deed))
            }
            InHttpProcess::JobStops { hold } => self.end_http_job(place, hold, Ending::Stopped),
        };
        self.perform_http(place, deeds);
    }

    /// Nothing of this job runs here any more.
    fn end_http_job(&mut self, place: usize, hold: Hold, ending: Ending) -> Vec<HttpDeed> {
        let has_results = self.plan.heals_at.is_some();
        let http = &mut self.http_places[place];
        let now = http.clock.read(self.now).monotonic;
        let Some(process) = &mut http.process else { return Vec::new() };
        if process.running.remove(&hold).is_none() {
            return Vec::new();
        }
        let how = ExecutionEnd::from(&ending);
        let deeds = process.client.ended(now, hold, |stops| {
            let is_late = stops == Some(StopReason::TimedOut) && ending == Ending::Stopped;
            let failed = || Ending::Failed { again: Again::ByPolicy, error: "timed out".into() };
            let ending = if is_late { failed() } else { ending };
            let result = (ending == Ending::Finished && has_results).then(|| work::result(hold));
            Report { result, ..Report::plain(hold, ending) }
        });
        self.observe(Observed::Ended { place: self.http_node(place), hold, how });
        deeds
    }

    fn perform_http(&mut self, place: usize, deeds: Vec<HttpDeed>) {
        let node = self.http_node(place);
        for deed in deeds {
            let Some(process) = &mut self.http_places[place].process else { return };
            let worker = process.client.worker();
            match deed {
                HttpDeed::Send { number, ask } => self.send_ask(place, number, ask),
                HttpDeed::Met => {
                    // Jobs are only wanted while a claim waits.
                    let messages = &[FromWorker::Want(0)];
                    self.observe(Observed::Sent { place: node, worker, messages });
                }
                HttpDeed::Start(assignment, text) => self.start_http_job(place, assignment, text),
                HttpDeed::Stop(hold, why) => {
                    self.observe(Observed::Stopping { place: node, hold, why });
                    self.stop_http_job(place, hold);
                }
                HttpDeed::KillAll { is_late } => {
                    let running = std::mem::take(&mut process.running);
                    if is_late {
                        self.observe(Observed::PastDeadline { place: node });
                    }
                    for hold in running.into_keys() {
                        let how = ExecutionEnd::Killed;
                        self.observe(Observed::Ended { place: node, hold, how });
                    }
                }
                HttpDeed::Settled(hold, verdict) => {
                    self.observe(Observed::Settled { place: node, hold, verdict });
                }
                HttpDeed::Refused => self.observe(Observed::NotPermitted { place: node }),
                HttpDeed::Leave => {
                    self.observe(Observed::Left { place: node });
                    self.crash_http(place, EMPTY_FOR);
                    return;
                }
            }
        }
        self.plan_http_tick(place);
    }

    fn plan_http_tick(&mut self, place: usize) {
        let http = &mut self.http_places[place];
        let Some(process) = &mut http.process else { return };
        let due = process.client.next_deadline();
        if due == Monotonic(u64::MAX) {
            return;
        }
        let due = http.clock.when(due).max(self.now);
        if process.ticks_at.is_none_or(|at| due < at) {
            process.ticks_at = Some(due);
            let (life, happening) = (http.lives, InHttpProcess::Ticks);
            self.schedule.put(due, Happening::HttpProcess { place, life, happening });
        }
    }

    fn start_http_job(&mut self, place: usize, assignment: Assignment, text: StoredText) {
        self.counts.starts += 1;
        let node = self.http_node(place);
        let http = &mut self.http_places[place];
        let process = http.process.as_mut().expect("it starts a job");
        let (worker, hold) = (process.client.worker(), assignment.hold);
        let runs = http.runs.entry(hold.job).or_insert(0);
        *runs += 1;
        let known = work::deed(&assignment.kind, *runs);
        let (deed, takes) = known.unwrap_or((Deed::Succeed, Duration::ZERO));
        let (deed, takes) = match deed {
            Deed::Hang if self.is_healed => (Deed::Succeed, MENDED_RUN),
            Deed::KillWorker if self.is_healed => (Deed::Succeed, takes),
            _ => (deed, takes),
        };
        let is_hanging = deed == Deed::Hang;
        process.running.insert(hold, Running { is_hanging, is_stopping: false });
        if !is_hanging {
            let (life, happening) = (http.lives, InHttpProcess::JobEnds { hold, deed });
            let happening = Happening::HttpProcess { place, life, happening };
            self.schedule.put(self.now.plus(takes), happening);
        }
        self.observe(Observed::Started { place: node, worker, assignment: &assignment });
        let (messages, works) = (&[ToWorker::Assign(vec![assignment])], &[(hold, text)]);
        self.observe(Observed::Posted { worker, messages, works });
    }

    fn stop_http_job(&mut self, place: usize, hold: Hold) {
        let http = &mut self.http_places[place];
        let process = http.process.as_mut().expect("it stops a job");
        let Some(running) = process.running.get_mut(&hold).filter(|running| !running.is_stopping)
        else {
            return;
        };
        running.is_stopping = true;
        let mut random = Random::keyed(self.plan.seed, Purpose::Stop(hold.fence), hold.job.0);
        let most = self.plan.leases().0 * STOPS_WITHIN.0 / STOPS_WITHIN.1;
        let takes = Duration::from_micros(random.below(most.as_micros() as u64));
        let (life, happening) = (http.lives, InHttpProcess::JobStops { hold });
        let happening = Happening::HttpProcess { place, life, happening };
        self.schedule.put(self.now.plus(takes), happening);
    }

    fn send_ask(&mut self, place: usize, number: u64, ask: HttpAsk) {
        if !self.server.is_up() {
            return;
        }
        let member = &self.plan.http_members[place];
        let server = self.server.life;
        let http = &mut self.http_places[place];
        let client = &http.process.as_ref().expect("it has sent it").client;
        let (worker, instance) = (client.worker(), client.instance());
        let from = HttpWorker { worker, instance, scope: scope(member) };
        self.http_ids.insert(worker);
        let letter = HttpLetter { place, life: http.lives, server, number, from, ask };
        let letter = Box::new(letter);
        for at in http.arrivals(self.now).into_iter().flatten() {
            self.schedule.put(at, Happening::AskReachesServer(letter.clone()));
        }
    }

    pub(super) fn ask_reaches_server(&mut self, letter: HttpLetter) {
        let HttpLetter { place, life, server, number, from, ask } = letter;
        if server != self.server.life || self.now < self.http_places[place].cut_until {
            return;
        }
        if let Some(ticket) = self.expect_response(ResponseTo { place, life, number }) {
            self.serve(ServerInput::Ask { ticket, from, ask });
        }
    }

    pub(super) fn send_response(
        &mut self,
        to: ResponseTo,
        response: &Result<HttpReply, HttpRefusal>,
    ) {
        let ResponseTo { place, life, number } = to;
        for at in self.http_places[place].arrivals(self.now).into_iter().flatten() {
            let response = Box::new(response.clone());
            let happening = InHttpProcess::Hears { number, response };
            self.schedule.put(at, Happening::HttpProcess { place, life, happening });
        }
    }

    pub(super) fn fault_http(&mut self, place: usize, fault: HttpFault) {
        match fault {
            HttpFault::Crash { away } => self.crash_http(place, away),
            HttpFault::Pause { span } => self.pause_http(place, span),
            HttpFault::Cut { span } => self.http_places[place].cut_until = self.now.plus(span),
            HttpFault::Drain => {
                let process = self.http_places[place].process.as_ref();
                if let Some(worker) = process.map(|process| process.client.worker()) {
                    self.ask(Request::DrainWorker(worker), 3);
                }
            }
        }
    }

    /// The process ends at once, and another one starts later.
    fn crash_http(&mut self, place: usize, away: Duration) {
        let node = self.http_node(place);
        let Some(process) = self.http_places[place].process.take() else { return };
        for hold in process.running.into_keys() {
            self.observe(Observed::Ended { place: node, hold, how: ExecutionEnd::Killed });
        }
        self.observe(Observed::Crashed { place: node });
        self.schedule.put(self.now.plus(away), Happening::HttpStarts { place });
    }

    fn pause_http(&mut self, place: usize, span: Duration) {
        let now = self.now;
        let http = &mut self.http_places[place];
        let life = http.lives;
        if let Some(process) = http.process.as_mut().filter(|process| process.pause.is_none()) {
            process.pause = Some((now, Vec::new()));
            self.schedule.put(now.plus(span), Happening::HttpResumes { place, life });
            let (place, jobs) = (self.http_node(place), Paused::Frozen);
            self.observe(Observed::Paused { place, jobs });
        }
    }

    pub(super) fn resume_http(&mut self, place: usize, life: u64) {
        let http = &mut self.http_places[place];
        let now = http.clock.read(self.now).monotonic;
        let Some(process) = http.process.as_mut().filter(|_| http.lives == life) else { return };
        let Some((since, missed)) = process.pause.take() else { return };
        process.ticks_at = None;
        let deeds = process.client.tick(now);
        self.observe(Observed::Resumed { place: self.http_node(place) });
        self.perform_http(place, deeds);
        for (at, happening) in missed {
            match happening {
                InHttpProcess::Ticks => {}
                InHttpProcess::Hears { .. } => self.happen_in_http(place, life, happening),
                InHttpProcess::JobEnds { .. } | InHttpProcess::JobStops { .. } => {
                    let happening = Happening::HttpProcess { place, life, happening };
                    self.schedule.put(self.now.plus(at.since(since)), happening);
                }
            }
        }
    }

    /// Whatever is wrong with these places is mended.
    pub(super) fn mend_http(&mut self) {
        for place in 0..self.http_places.len() {
            let http = &mut self.http_places[place];
            let life = http.lives;
            let delay = http.network.delay;
            http.network = NetworkConditions { delay, ..NetworkConditions::fair(Duration::ZERO) };
            http.cut_until = Monotonic(0);
            self.resume_http(place, life);
            self.start_http(place);
            let http = &self.http_places[place];
            let Some(process) = &http.process else { continue };
            let life = http.lives;
            let hanging = process.running.iter().filter(|(_, running)| running.is_hanging);
            for hold in hanging.map(|(&hold, _)| hold).collect::<Vec<_>>() {
                let happening = InHttpProcess::JobEnds { hold, deed: Deed::Succeed };
                let happening = Happening::HttpProcess { place, life, happening };
                self.schedule.put(self.now.plus(MENDED_RUN), happening);
            }
        }
    }
}

/// Members with the same id have the same token.
fn scope(member: &HttpMember) -> LinkScope {
    let queues = match &member.serves {
        Serves::All => None,
        Serves::Named(queues) => Some(queues.as_slice().into()),
    };
    LinkScope { token: Some(format!("http {}", member.id).into()), queues, is_embedded: false }
}
