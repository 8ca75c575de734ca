//! Draws a plan from a seed. The kinds of faults of a run and their frequency are drawn as well
//! (swarm testing): a run with one kind of fault tests it more deeply than a run with all of them.

use std::collections::BTreeSet;
use std::time::Duration;

use filch_scheduler::agent::{Home, Reserve};
use filch_scheduler::dispatch::{QueueChange, Request, Steal};
use filch_scheduler::id::{Digest, JobId};
use filch_scheduler::message::Serves;
use filch_scheduler::name::Name;
use filch_scheduler::record::Strategy;
use filch_scheduler::spec::{Backoff, Condition, JobSpec, Otherwise, Retry};
use filch_scheduler::time::{Millis, Wall};

use crate::clock::BEGINNING_MS;
use crate::plan::{
    CrashMoment, CutDirection, CutMessages, HttpFault, HttpMember, Intrusion, Member,
    NetworkConditions, Paused, Plan, PlannedEvent, SeenBy,
};
use crate::random::{Purpose, Random};
use crate::search::Faults;

/// The plan of a seed.
pub(crate) fn draw(seed: u64, workers: u32, duration: Duration, faults: Faults) -> Plan {
    let mut swarm = Swarm {
        random: Random::keyed(seed, Purpose::Plan, 0),
        duration,
        faults,
        queues: Vec::new(),
        jobs: Vec::new(),
        acts: Vec::new(),
    };
    swarm.plan(seed, workers)
}

struct Swarm {
    random: Random,
    duration: Duration,
    faults: Faults,
    queues: Vec<Name>,
    jobs: Vec<JobSpec>,
    acts: Vec<(Duration, PlannedEvent)>,
}

/// The kinds of jobs of a run, in percent; the others run and succeed.
struct Mixture {
    failing: u64,
    hanging: u64,
    poison: u64,
    snoozing: u64,
    long: u64,
    short: u64,
}

/// More jobs at once than a small cluster has slots.
const PLENTY: usize = 15;

/// The number of kinds of faults; two of them are sequences of faults.
const KINDS: u32 = 17;
const FLAPPING: u32 = 8;
const STUMBLING: u32 = 9;

/// What strangers try.
const INTRUSIONS: [Intrusion; 6] = [
    Intrusion::Resume,
    Intrusion::Goodbye,
    Intrusion::Report,
    Intrusion::SameSession,
    Intrusion::OldSession,
    Intrusion::ManyIds,
];

/// Conditions on parents, and what happens if they cannot hold, as often as they are drawn.
const CONDITIONS: [Condition; 5] = [
    Condition::AllSucceeded,
    Condition::AllSucceeded,
    Condition::AnySucceeded,
    Condition::AllDone,
    Condition::AnyFailed,
];
const OTHERWISE: [Otherwise; 5] =
    [Otherwise::Cancel, Otherwise::Cancel, Otherwise::Cancel, Otherwise::Run, Otherwise::Hold];

impl Swarm {
    fn plan(&mut self, seed: u64, workers: u32) -> Plan {
        let queues = self.random.between(1, 4);
        self.queues = (0..queues).map(queue_name).collect();
        let lease = *self.random.pick(&[5, 10, 10, 10, 15]);
        let strategy = self.strategy();
        let mut members: Vec<Member> = (0..workers).map(|place| self.member(place)).collect();
        // Sometimes all workers take a large reserve, so that there is much to steal.
        if self.random.one_in(3) {
            for member in &mut members {
                (member.slots, member.reserve) = (1, Reserve::Fixed(12));
            }
        }
        let stops_amid_plenty = self.has(3);
        self.submits(stops_amid_plenty.then_some(&members));
        self.operators(&members);
        self.draw_faults(&members);
        let retention = self.random.one_in(2).then(|| self.seconds(20, 120));
        let is_small = self.has(3);
        let unreceipted = is_small.then(|| self.random.between(4, 60) as usize);
        let is_paced = self.has(2);
        let batch_bytes = is_paced.then(|| self.random.between(1, 300) as usize);
        let is_lossy = self.has(2);
        let clients = NetworkConditions {
            delay: (Duration::from_micros(200), self.millis(1, 30)),
            lost: if is_lossy { self.random.below(200_000) as u32 } else { 0 },
            repeated: self.random.below(100_000) as u32,
            overtaken: 0,
        };
        let lease = Duration::from_secs(lease);
        let mut plan = Plan {
            seed,
            lease,
            strategy,
            steal: *self.random.pick(&[Steal::Half, Steal::Half, Steal::Half, Steal::One]),
            commit: (Duration::from_micros(100), self.millis(1, 5)),
            retention,
            unreceipted,
            batch_bytes,
            heals_at: Some(self.duration),
            clients,
            members,
            http_members: Vec::new(),
            acts: Vec::new(),
        };
        self.calm_work(plan.settling());
        self.http_members(&mut plan);
        self.shares(&mut plan);
        self.acts.sort_by_key(|(at, _)| *at);
        plan.acts = std::mem::take(&mut self.acts);
        plan
    }

    /// Whether this run has some kind of fault: one in `times` runs has.
    fn has(&mut self, times: u64) -> bool {
        let drawn = self.random.one_in(times);
        match self.faults {
            Faults::None => false,
            Faults::Swarm => drawn,
            Faults::All => true,
        }
    }

    fn millis(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.random.between(low, high))
    }

    fn seconds(&mut self, low: u64, high: u64) -> Duration {
        self.millis(low * 1_000, high * 1_000)
    }

    /// A duration from 0.1 s to `high` seconds; short ones are more frequent.
    fn span(&mut self, high: u64) -> Duration {
        let longest = self.random.between(1, high * 10);
        Duration::from_millis(100 * self.random.between(1, longest))
    }

    fn moment(&mut self) -> Duration {
        Duration::from_micros(self.random.below(self.duration.as_micros() as u64))
    }

    fn member(&mut self, place: u32) -> Member {
        // The first one serves all queues, so that every queue is served.
        let is_first = place == 0;
        let home = match !is_first && self.random.one_in(12) {
            true => Home::Embedded,
            false => Home::Apart,
        };
        let reserve = match self.random.one_in(2) {
            true => Reserve::default(),
            false => Reserve::Fixed(self.random.below(12) as u32),
        };
        let serves = if is_first { Serves::All } else { self.serves() };
        let rate = match self.has(3) && home == Home::Apart {
            true => *self.random.pick(&[700_000, 700_000, 1_400_000, 850_000, 1_200_000]),
            false => 1_000_000,
        };
        let slowest = *self.random.pick(&[1, 2, 5, 40]);
        let is_lossy = self.has(4);
        let rare = |random: &mut Random| if is_lossy { random.below(3_000) as u32 } else { 0 };
        let network = match home {
            Home::Embedded => NetworkConditions::fair(Duration::from_micros(20)),
            Home::Apart => NetworkConditions {
                delay: (Duration::from_micros(100), Duration::from_millis(slowest)),
                lost: rare(&mut self.random),
                repeated: rare(&mut self.random),
                overtaken: rare(&mut self.random),
            },
        };
        let slots = *self.random.pick(&[1, 1, 1, 2, 2, 4]);
        let is_hostile = home == Home::Apart && self.random.one_in(6);
        Member { slots, reserve, home, is_hostile, serves, rate, network }
    }

    /// Some runs have workers over plain HTTP, and what happens to them. From a stream of its own,
    /// so that everything else is as it would be without them.
    fn http_members(&mut self, plan: &mut Plan) {
        let random = Random::keyed(plan.seed, Purpose::Plan, 1);
        let usual = std::mem::replace(&mut self.random, random);
        if self.has(4) {
            for number in 1..=self.random.between(1, 3) {
                let member = self.http_member(number as u32, plan.http_members.first());
                self.http_faults(plan.http_members.len());
                plan.http_members.push(member);
            }
        }
        self.random = usual;
    }

    fn http_member(&mut self, number: u32, first: Option<&HttpMember>) -> HttpMember {
        // Two of them may have chosen the same id, and have the same token.
        let twin = first.filter(|_| self.random.one_in(2));
        let serves = twin.map_or_else(|| self.serves(), |twin| twin.serves.clone());
        let rate = match self.has(3) {
            true => *self.random.pick(&[700_000, 1_400_000]),
            false => 1_000_000,
        };
        let slowest = *self.random.pick(&[2, 20, 200]);
        let network = NetworkConditions {
            delay: (Duration::from_micros(100), Duration::from_millis(slowest)),
            lost: if self.has(2) { self.random.below(100_000) as u32 } else { 0 },
            repeated: self.random.below(100_000) as u32,
            overtaken: 0,
        };
        let slots = *self.random.pick(&[1, 2, 4]);
        HttpMember { slots, id: twin.map_or(number, |twin| twin.id), serves, rate, network }
    }

    fn http_faults(&mut self, member: usize) {
        for kind in 0..4 {
            if !self.has(2) {
                continue;
            }
            for _ in 0..self.random.between(1, 5) {
                let fault = match kind {
                    0 => HttpFault::Crash { away: self.span(20) },
                    1 => HttpFault::Pause { span: self.span(30) },
                    2 => HttpFault::Cut { span: self.span(30) },
                    _ => HttpFault::Drain,
                };
                let at = self.moment();
                self.acts.push((at, PlannedEvent::Http { member, fault }));
            }
        }
    }

    /// In some runs two queues of different weights are full from the beginning, and all workers
    /// serve both, so that the shares of the queues can be judged. From a stream of its own, like
    /// the workers over plain HTTP.
    fn shares(&mut self, plan: &mut Plan) {
        let random = Random::keyed(plan.seed, Purpose::Plan, 2);
        let usual = std::mem::replace(&mut self.random, random);
        if self.random.one_in(12) {
            plan.strategy = Strategy::Fair;
            for member in &mut plan.members {
                member.serves = Serves::All;
            }
            for member in &mut plan.http_members {
                member.serves = Serves::All;
            }
            let weight = self.random.between(2, 6) as u32;
            let (queue, change) = (queue_name(1), QueueChange::Weight(weight));
            let request = Request::SetQueue { queue, change };
            self.acts.push((Duration::ZERO, PlannedEvent::Ask { request, tries: 1_000 }));
            let at = self.millis(500, 1_500);
            let count = self.random.between(40, 120);
            let jobs = (0..count).map(|number| self.waiting_job(at, number)).collect();
            let request = Request::Submit(jobs);
            self.acts.push((at, PlannedEvent::Ask { request, tries: 1_000 }));
        }
        self.random = usual;
    }

    /// Jobs with even numbers are in one queue, those with odd numbers in another.
    fn waiting_job(&mut self, at: Duration, number: u64) -> JobSpec {
        let made_at = Wall(at.as_millis() as u64);
        let id = JobId::named(&format!("share{number}"), made_at).expect("a short name");
        let mut spec = JobSpec::new(id);
        spec.queue = queue_name(number % 2);
        let span = self.random.between(50, 900);
        spec.kind = Name::from(format!("run-{span}ms").as_str());
        spec
    }

    fn serves(&mut self) -> Serves {
        if !self.random.one_in(4) {
            return Serves::All;
        }
        let named = self.queues.clone().into_iter();
        let mut named: Vec<Name> = named.filter(|_| self.random.one_in(2)).collect();
        named.push(queue_name(0));
        named.sort_unstable();
        named.dedup();
        Serves::Named(named)
    }

    fn strategy(&mut self) -> Strategy {
        match self.random.below(5) {
            0 => Strategy::Fifo,
            1 => Strategy::RoundRobin,
            2 => Strategy::Fair,
            3 => Strategy::Priority { aging: Duration::from_secs(1) },
            _ => Strategy::default(),
        }
    }

    /// The submits of clients. If `stopped` is given, a worker may be stopped while there is much
    /// to steal.
    fn submits(&mut self, stopped: Option<&Vec<Member>>) {
        let mixture = self.mixture();
        // Now and then so much that deques are full and workers steal; mostly little.
        let batches = self.random.between(6, 40);
        let largest = *self.random.pick(&[3, 10, 30, 60]);
        for _ in 0..batches {
            let at = self.moment();
            let count = self.random.between(1, largest);
            let specs = match self.random.below(4) {
                0 => self.flow(at, count.min(12), &mixture),
                _ => (0..count).map(|_| self.job(at, &mixture)).collect(),
            };
            if specs.len() >= PLENTY
                && let Some(members) = stopped
            {
                let place = self.random.below(members.len() as u64) as usize;
                let (at, jobs) = (at + self.millis(100, 3_000), Paused::Frozen);
                let act = PlannedEvent::Pause { place, span: self.seconds(2, 14), jobs };
                self.acts.extend((members[place].home == Home::Apart).then_some((at, act)));
            }
            self.submit(at, specs);
        }
    }

    fn submit(&mut self, at: Duration, specs: Vec<JobSpec>) {
        // A client that was restarted repeats what it may have submitted before, once in a while
        // with another body under the same key or id.
        if self.random.one_in(6) {
            let again = at + self.span(60);
            let mut specs = specs.clone();
            let which = self.random.below(specs.len() as u64) as usize;
            match self.random.below(4) {
                0 => specs[which].body = Digest(u128::from(self.random.next())),
                // A client that has the key, but has lost the id.
                1 if specs[which].key.is_some() => {
                    let name = format!("again{}", self.acts.len());
                    let made_at = Wall(again.as_millis() as u64);
                    specs[which].id = JobId::named(&name, made_at).expect("a short name");
                    // Sometimes it uses the key for another job, or in another queue.
                    if self.random.one_in(3) {
                        specs[which].body = Digest(u128::from(self.random.next()));
                        specs[which].queue = self.random.pick(&self.queues).clone();
                    }
                }
                _ => {}
            }
            let request = self.submitting(specs);
            self.ask(again, request);
        }
        let request = self.submitting(specs);
        self.ask(at, request);
    }

    /// Some clients see only the queues that they submit to.
    fn submitting(&mut self, jobs: Vec<JobSpec>) -> Request {
        if !self.random.one_in(12) {
            return Request::Submit(jobs);
        }
        let queues: BTreeSet<Name> = jobs.iter().map(|job| job.queue.clone()).collect();
        Request::SubmitWithin { queues: queues.into_iter().collect(), jobs }
    }

    fn ask(&mut self, at: Duration, request: Request) {
        let tries = *self.random.pick(&[1, 3, 10, 1_000]);
        self.acts.push((at, PlannedEvent::Ask { request, tries }));
    }

    fn mixture(&mut self) -> Mixture {
        let mut part = |most: u64| match self.random.one_in(2) {
            true => self.random.below(most),
            false => 0,
        };
        Mixture {
            failing: part(30),
            snoozing: part(10),
            long: part(15),
            short: part(90),
            hanging: if self.faults == Faults::None { 0 } else { part(8) },
            poison: if self.faults == Faults::None { 0 } else { part(6) },
        }
    }

    fn job(&mut self, at: Duration, mixture: &Mixture) -> JobSpec {
        let number = self.jobs.len() + 1;
        let at = at.as_millis() as u64;
        let id = JobId::named(&format!("j{number}"), Wall(at)).expect("a short name");
        let mut spec = JobSpec::new(id);
        spec.body = Digest(number as u128);
        spec.queue = self.random.pick(&self.queues).clone();
        spec.priority = self.random.between(0, 10) as i16 - 5;
        (spec.kind, spec.timeout) = self.work(mixture);
        spec.retry = self.retry();
        if self.random.one_in(8) {
            spec.key = Some(Name::from(format!("k{number}").as_str()));
        }
        if self.random.one_in(10) {
            let wait = self.random.below(60_000);
            spec.not_before = Some(Wall(BEGINNING_MS as u64 + at + wait));
        }
        self.jobs.push(spec.clone());
        spec
    }

    fn work(&mut self, mixture: &Mixture) -> (Name, Option<Millis>) {
        let drawn = self.random.below(100);
        let mut reached = 0;
        let mut is = |part: u64| {
            reached += part;
            drawn < reached
        };
        let times = self.random.between(1, 4);
        let usual = self.random.between(20, 900);
        let timeout = Some(Millis(self.random.between(200, 15_000) as u32));
        let (kind, timeout) = if is(mixture.hanging) {
            ("hang".to_owned(), timeout.filter(|_| !self.random.one_in(5)))
        } else if is(mixture.poison) {
            (format!("poison-{times}-{usual}ms"), None)
        } else if is(mixture.failing) {
            match self.random.one_in(6) {
                true => (format!("never-{usual}ms"), None),
                false => (format!("fail-{times}-{usual}ms"), None),
            }
        } else if is(mixture.snoozing) {
            (format!("snooze-{times}-{usual}ms"), None)
        } else if is(mixture.long) {
            (format!("run-{}ms", self.random.between(1_000, 25_000)), None)
        } else if is(mixture.short) {
            (format!("run-{}ms", self.random.between(1, 30)), None)
        } else {
            (format!("run-{usual}ms"), timeout.filter(|_| self.random.one_in(4)))
        };
        (Name::from(kind.as_str()), timeout)
    }

    fn retry(&mut self) -> Retry {
        let backoff = match self.random.below(3) {
            0 => Backoff::None,
            1 => Backoff::Fixed(Millis(self.random.between(50, 4_000) as u32)),
            _ => Backoff::Exponential {
                base: Millis(self.random.between(50, 2_000) as u32),
                factor_percent: 200,
                cap: Millis::seconds(15),
            },
        };
        let jitter_percent = *self.random.pick(&[0, 0, 25, 100]);
        Retry { max: self.random.between(1, 5) as u16, backoff, jitter_percent }
    }

    /// Jobs that wait for one another, and perhaps for earlier jobs.
    fn flow(&mut self, at: Duration, count: u64, mixture: &Mixture) -> Vec<JobSpec> {
        let before = self.jobs.len();
        let now = Wall(at.as_millis() as u64);
        let mut specs: Vec<JobSpec> = Vec::new();
        for _ in 0..count {
            let mut spec = self.job(at, mixture);
            let parents = self.random.below(4);
            for _ in 0..parents {
                let is_old = before > 0 && self.random.one_in(5);
                let old = |random: &mut Random| self.jobs[random.below(before as u64) as usize].id;
                let parent = match is_old {
                    true => Some(old(&mut self.random)).filter(|id| id.made_at() < Some(now)),
                    false if specs.is_empty() => None,
                    false => Some(specs[self.random.below(specs.len() as u64) as usize].id),
                };
                spec.parents.extend(parent.filter(|parent| !spec.parents.contains(parent)));
            }
            spec.condition = *self.random.pick(&CONDITIONS);
            spec.otherwise = *self.random.pick(&OTHERWISE);
            specs.push(spec);
        }
        // Rarely a client submits a cycle.
        if self.random.one_in(20)
            && let [first, .., last] = &mut specs[..]
            && last.parents.contains(&first.id)
        {
            first.parents.push(last.id);
        }
        // Parents may also come after their children.
        if self.random.one_in(3) {
            specs.reverse();
        }
        specs
    }

    fn operators(&mut self, members: &[Member]) {
        for _ in 0..self.random.below(20) {
            let at = self.moment();
            let job = self.random.pick(&self.jobs).id;
            let queue = self.random.pick(&self.queues).clone();
            let set = |change| Request::SetQueue { queue: queue.clone(), change };
            let number = self.random.between(1, 6) as u32;
            let request = match self.random.below(10) {
                0..=2 => Request::Cancel(job),
                3 => {
                    self.retry_the_dead();
                    continue;
                }
                4 => {
                    let at = made_at(job) + self.millis(0, 2_000);
                    let priority = number as i16 - 3;
                    self.ask(at, Request::SetPriority { job, priority });
                    continue;
                }
                5 => {
                    let resumes = at + self.span(40);
                    self.ask(resumes, set(QueueChange::Resume));
                    set(QueueChange::Pause)
                }
                6 | 7 => set(QueueChange::Limit((number < 5).then_some(number))),
                8 => set(QueueChange::Weight(number)),
                _ => Request::SetStrategy(self.strategy()),
            };
            self.ask(at, request);
        }
        // A job that is cancelled soon after its submission is mostly owned by a worker.
        let submits: Vec<(Duration, JobId)> = self.acts.iter().filter_map(submitted).collect();
        for (at, job) in submits {
            if self.random.one_in(6) {
                let at = at + self.millis(0, 1_500);
                self.ask(at, Request::Cancel(job));
            }
        }
        for (place, member) in members.iter().enumerate() {
            if self.random.one_in(6) && member.home == Home::Apart {
                let at = self.moment();
                let grace = self.span(20);
                self.acts.push((at, PlannedEvent::Drain { place, grace }));
            }
            if self.random.one_in(12) && place > 0 {
                let at = self.moment();
                self.acts.push((at, PlannedEvent::OperatorDrain { place }));
            }
        }
    }

    /// An operator retries jobs that are likely to be dead by then.
    fn retry_the_dead(&mut self) {
        let is_frail = |spec: &&JobSpec| {
            let kind = spec.kind.as_str();
            kind.starts_with("never") || kind.starts_with("fail")
        };
        let frail: Vec<JobId> = self.jobs.iter().filter(is_frail).map(|spec| spec.id).collect();
        if !frail.is_empty() {
            let job = *self.random.pick(&frail);
            let at = made_at(job) + self.seconds(2, 60);
            self.ask(at, Request::Retry(job));
        }
    }

    /// Clients submit while the server is down, and repeat their requests.
    fn submit_meanwhile(&mut self, at: Duration) {
        let mixture =
            Mixture { failing: 0, hanging: 0, poison: 0, snoozing: 0, long: 0, short: 50 };
        let specs = (0..self.random.between(1, 8)).map(|_| self.job(at, &mixture)).collect();
        self.acts.push((at, PlannedEvent::Ask { request: Request::Submit(specs), tries: 1_000 }));
    }

    fn draw_faults(&mut self, members: &[Member]) {
        let apart: Vec<usize> =
            (0..members.len()).filter(|&place| members[place].home == Home::Apart).collect();
        for kind in 0..KINDS {
            if !self.has(3) {
                continue;
            }
            // From once per run to every few seconds.
            let most = 1 + self.duration.as_secs() / 15;
            let most = self.random.between(1, most);
            for _ in 0..self.random.between(1, most) {
                let at = self.moment();
                let place = *self.random.pick(&apart);
                let act = self.fault(kind, place);
                if let PlannedEvent::CrashServer { away, .. } = act
                    && self.random.one_in(3)
                {
                    self.submit_meanwhile(at + away / 2);
                }
                match kind {
                    FLAPPING => self.then_silence(at, place, &act),
                    STUMBLING => self.then_stumble(at, place),
                    _ => {}
                }
                self.acts.push((at, act));
            }
        }
    }

    /// Answers were delayed, and now none arrive: the worker must not count its lease from the
    /// arrival of a renewal.
    fn then_silence(&mut self, at: Duration, place: usize, late: &PlannedEvent) {
        let at = at + late.trouble().1 + Duration::from_millis(1);
        let (direction, span, messages) =
            (CutDirection::Both, self.seconds(10, 30), CutMessages::Lost);
        self.acts.push((at, PlannedEvent::Cut { place, direction, span, messages }));
    }

    /// The connection breaks while messages are slow, and the network is cut while the worker
    /// reconnects: its hello arrives when it was already declared lost.
    fn then_stumble(&mut self, at: Duration, place: usize) {
        let seen_by = SeenBy::Both;
        self.acts.push((at + Duration::from_millis(10), PlannedEvent::Break { place, seen_by }));
        let at = at + self.millis(300, 1_000);
        let (direction, span, messages) =
            (CutDirection::ToServer, self.seconds(8, 30), CutMessages::Late);
        self.acts.push((at, PlannedEvent::Cut { place, direction, span, messages }));
    }

    fn fault(&mut self, kind: u32, place: usize) -> PlannedEvent {
        match kind {
            0 => PlannedEvent::Crash { place, away: self.span(20) },
            1 => {
                let jobs = *self.random.pick(&[Paused::Frozen, Paused::GoOn]);
                PlannedEvent::Pause { place, span: self.span(40), jobs }
            }
            2 => {
                let direction = *self.random.pick(&[
                    CutDirection::Both,
                    CutDirection::ToServer,
                    CutDirection::ToWorker,
                ]);
                let messages =
                    *self.random.pick(&[CutMessages::Lost, CutMessages::Late, CutMessages::Stuck]);
                PlannedEvent::Cut { place, direction, span: self.span(30), messages }
            }
            3 => {
                let seen_by = *self.random.pick(&[SeenBy::Both, SeenBy::Server, SeenBy::Worker]);
                PlannedEvent::Break { place, seen_by }
            }
            4 => {
                let network = NetworkConditions {
                    delay: (Duration::from_micros(100), self.millis(1, 400)),
                    lost: self.random.below(60_000) as u32,
                    repeated: self.random.below(60_000) as u32,
                    overtaken: self.random.below(60_000) as u32,
                };
                PlannedEvent::NetworkConditions { place, span: self.span(60), network }
            }
            5 => {
                // A long jump back would make delayed jobs wait for longer than the run.
                let by_ms = match self.random.one_in(4) {
                    true => self.random.below(3_600_000) as i64,
                    false => self.random.below(120_000) as i64 - 60_000,
                };
                let place = self.random.one_in(3).then_some(place);
                PlannedEvent::JumpWall { place, by_ms }
            }
            6 => {
                let (away, noticed) = (self.span(15), !self.random.one_in(3));
                let when = *self.random.pick(&[
                    CrashMoment::Now,
                    CrashMoment::DuringCommit,
                    CrashMoment::DuringRead,
                ]);
                PlannedEvent::CrashServer { away, noticed, when }
            }
            7 => PlannedEvent::SlowStore { span: self.span(20), by: self.millis(5, 4_000) },
            STUMBLING => {
                let delay = (Duration::from_millis(100), self.millis(100, 400));
                let network =
                    NetworkConditions { delay, ..NetworkConditions::fair(Duration::ZERO) };
                PlannedEvent::NetworkConditions { place, span: Duration::from_secs(3), network }
            }
            FLAPPING => {
                let (direction, messages) = (CutDirection::ToWorker, CutMessages::Late);
                PlannedEvent::Cut { place, direction, span: self.millis(300, 2_900), messages }
            }
            11 => PlannedEvent::SuspendServer { span: self.span(30) },
            12 => PlannedEvent::Reconfigure {
                away: self.span(5),
                lease: Duration::from_secs(*self.random.pick(&[5, 10, 15, 20])),
                strategy: self.strategy(),
                retention: self.random.one_in(2).then(|| self.seconds(20, 120)),
            },
            13 => {
                // The first one serves all queues.
                let serves = if place == 0 { Serves::All } else { self.serves() };
                PlannedEvent::Reshape { place, slots: *self.random.pick(&[1, 2, 4]), serves }
            }
            14 => PlannedEvent::Intrude { place, deed: *self.random.pick(&INTRUSIONS) },
            15 => {
                let failed = self.random.between(300_000, 1_000_000) as u32;
                PlannedEvent::FailingRetention { span: self.span(40), failed }
            }
            16 => {
                let seen_by = *self.random.pick(&[SeenBy::Both, SeenBy::Server, SeenBy::Worker]);
                PlannedEvent::BreakAll { seen_by }
            }
            _ => {
                let unknown = self.random.between(50_000, 600_000) as u32;
                PlannedEvent::UnreliableStore { span: self.span(20), unknown }
            }
        }
    }

    /// Work for the time after the faults: enough that some workers have jobs to spare.
    fn calm_work(&mut self, settling: Duration) {
        let at = self.duration + settling + Duration::from_secs(1);
        let specs = (0..self.random.between(5, 60)).map(|number| {
            let made_at = Wall(at.as_millis() as u64);
            let id = JobId::named(&format!("calm{number}"), made_at).expect("a short name");
            let mut spec = JobSpec::new(id);
            spec.queue = queue_name(0);
            let span = self.random.between(5, 300);
            spec.kind = Name::from(format!("run-{span}ms").as_str());
            spec
        });
        let request = Request::Submit(specs.collect());
        self.acts.push((at, PlannedEvent::Ask { request, tries: 1_000 }));
    }
}

fn queue_name(number: u64) -> Name {
    Name::from(["default", "mail", "video", "report"][number as usize % 4])
}

/// When the client created the job's id.
fn made_at(job: JobId) -> Duration {
    Duration::from_millis(job.made_at().unwrap_or_default().0)
}

fn submitted((at, act): &(Duration, PlannedEvent)) -> Option<(Duration, JobId)> {
    match act {
        PlannedEvent::Ask { request, .. } => Some((*at, request.submitted().first()?.id)),
        _ => None,
    }
}
