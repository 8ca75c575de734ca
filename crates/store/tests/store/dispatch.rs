//! Both stores with the decisions of the real scheduler, in random runs.

use std::collections::BTreeSet;

use filch_scheduler::dispatch::{
    Dispatch, DispatchConfig, DispatchEffect, DispatchEvent, QueueChange, Request,
};
use filch_scheduler::id::{
    CommitNo, Digest, Fence, Hold, JobId, LeaseNo, MessageNo, RequestNo, Seq, SessionNo, WorkerId,
};
use filch_scheduler::message::{
    Again, Ending, FromWorker, Hello, HelloKind, Report, Serves, ToWorker,
};
use filch_scheduler::name::Name;
use filch_scheduler::record::{JobRow, Mutation, Note, OperatorAct, Strategy as Order};
use filch_scheduler::spec::{Backoff, Condition, JobSpec, Otherwise, Retry};
use filch_scheduler::state::JobState;
use filch_scheduler::time::{Duration, Millis, Monotonic, Now, Wall};
use filch_store::{AttemptOutput, Commit, CommitError, Filter, PurgeCause, Store};
use proptest::prelude::*;

use crate::pair::{MemoryPlace, Pair, Place, commit, load, payload};

/// One step of a test: the kind of event, and a number that selects its details.
type Step = (u8, u16);

const QUEUES: [&str; 3] = ["default", "mail", "video"];

/// A worker that carries out what the server sends, with a minimum of checks.
struct Worker {
    id: WorkerId,
    said: MessageNo,
    holds: Vec<Hold>,
}

struct World<P: Place> {
    pair: Pair<P>,
    now: Now,
    dispatch: Dispatch,
    /// Decisions that are not committed yet.
    gathered: Commit,
    /// The newest commit in the store.
    kept: CommitNo,
    workers: Vec<Worker>,
    generation: u64,
    requests: u64,
    ids: Vec<JobId>,
}

impl<P: Place> World<P> {
    fn new() -> Self {
        let now = Now { monotonic: Monotonic(1_000_000), wall: Wall(1_000_000) };
        Self {
            pair: Pair::new(),
            now,
            dispatch: Dispatch::new(DispatchConfig::default(), now),
            gathered: Commit::default(),
            kept: CommitNo(0),
            workers: Vec::new(),
            generation: 0,
            requests: 0,
            ids: Vec::new(),
        }
    }

    fn step(&mut self, (what, number): Step) {
        let bits = usize::from(number);
        match what {
            0..=59 => self.submit(bits),
            60..=89 => self.pass(Duration::from_millis(u64::from(number) % 900)),
            // Longer than a lease: silent workers are lost.
            90..=93 => self.pass(Duration::from_secs(11)),
            94..=109 => self.hello(number),
            110..=179 => self.report(bits),
            180..=209 => self.operate(bits),
            210..=219 => self.purge(number),
            220..=227 => self.restart(),
            228..=235 => self.rejection(bits),
            _ => self.keep(),
        }
        if self.gathered.mutations.len() > 40 {
            self.keep();
        }
    }

    fn event(&mut self, event: DispatchEvent) {
        let mut effects = Vec::new();
        self.dispatch.handle(self.now, event, &mut effects);
        self.perform(effects);
    }

    fn perform(&mut self, effects: Vec<DispatchEffect>) {
        for effect in effects {
            match effect {
                DispatchEffect::Commit { number, mutations } => self.gather(number, mutations),
                DispatchEffect::Fetch { fetch, ids, keys, seqs } => {
                    // A lookup must see all earlier decisions.
                    self.keep();
                    let [found, same] =
                        self.pair.both().map(|store| store.find(&ids, &keys, &seqs));
                    let found = found.expect("readable");
                    assert_eq!(found, same.expect("readable"));
                    self.event(DispatchEvent::Fetched { fetch, found });
                }
                DispatchEffect::Send { worker, messages, .. } => self.told(worker, messages),
                DispatchEffect::Reply { .. } | DispatchEffect::HangUp { .. } => {}
            }
        }
    }

    fn gather(&mut self, number: CommitNo, mutations: Vec<Mutation>) {
        for mutation in &mutations {
            let hold = match mutation {
                Mutation::Put(row) => {
                    self.gathered.payloads.push((row.seq, payload(row.seq)));
                    continue;
                }
                Mutation::Write(write) if write.state == JobState::Succeeded => {
                    Hold { job: write.job, fence: write.fence }
                }
                Mutation::Note(Note::Attempt { hold, .. }) => *hold,
                Mutation::Purge(_) => {
                    self.gathered.purges.push(PurgeCause::Discarded);
                    continue;
                }
                _ => continue,
            };
            let result = (hold.job.0 % 3 != 0).then(|| format!("\"{}\"", hold.fence.0).into());
            let log = (hold.job.0 % 2 != 0).then(|| "printed".into());
            self.gathered.outputs.push(AttemptOutput { hold, result, log });
        }
        self.gathered.mutations.extend(mutations);
        self.gathered.last = number;
    }

    fn keep(&mut self) {
        let commit = std::mem::take(&mut self.gathered);
        if commit.last > self.kept {
            self.pair.commit(&commit).expect("decisions can be stored");
            // A repeated commit changes nothing.
            self.pair.commit(&commit).expect("known by its number");
            self.kept = commit.last;
            self.event(DispatchEvent::Committed(commit.last));
        }
    }

    fn told(&mut self, to: WorkerId, messages: Vec<ToWorker>) {
        let mut answers = Vec::new();
        let Some(worker) = self.workers.iter_mut().find(|worker| worker.id == to) else {
            return;
        };
        for message in messages {
            match message {
                ToWorker::Assign(jobs) => worker.holds.extend(jobs.iter().map(|job| job.hold)),
                ToWorker::AskToGive { question, most, .. } => {
                    let keep = worker.holds.len().saturating_sub(most as usize).max(1);
                    let given = worker.holds.split_off(keep.min(worker.holds.len()));
                    answers.push(FromWorker::Given { question, jobs: given });
                }
                ToWorker::Cancel(hold) => {
                    worker.holds.retain(|held| *held != hold);
                    answers.push(FromWorker::Report(Report::plain(hold, Ending::Stopped)));
                }
                ToWorker::Gone => worker.holds.clear(),
                _ => {}
            }
        }
        if !answers.is_empty() {
            self.say(to, answers);
        }
    }

    fn say(&mut self, id: WorkerId, messages: Vec<FromWorker>) {
        if let Some(worker) = self.workers.iter_mut().find(|worker| worker.id == id) {
            worker.said = worker.said.next();
            let (session, number) = (SessionNo(1), worker.said);
            self.event(DispatchEvent::Worker { worker: id, session, number, messages });
        }
    }

    fn pass(&mut self, span: Duration) {
        self.now.monotonic = self.now.monotonic.plus(span);
        self.now.wall.0 += span.as_millis() as u64;
        self.event(DispatchEvent::Tick);
    }

    fn hello(&mut self, number: u16) {
        self.generation += 1;
        let id = match number % 5 {
            0 => WorkerId::embedded(self.generation),
            _ => WorkerId::apart(self.generation),
        };
        let hello = Hello {
            kind: HelloKind::New,
            slots: 1 + u32::from(number) % 2,
            want: 1 + u32::from(number) / 7 % 6,
            serves: Serves::All,
            reports: vec![],
            started: vec![],
            holds: vec![],
        };
        self.workers.push(Worker { id, said: MessageNo(0), holds: vec![] });
        self.say(id, vec![FromWorker::Hello(hello)]);
    }

    fn report(&mut self, bits: usize) {
        if self.workers.is_empty() {
            return;
        }
        let place = bits % self.workers.len();
        let worker = &mut self.workers[place];
        let (id, again) = (worker.id, Again::ByPolicy);
        let message = match (bits / 8 % 16, worker.holds.first().copied()) {
            (0, Some(hold)) => FromWorker::Started(hold),
            (1, Some(hold)) => FromWorker::Start(hold),
            (15, _) | (_, None) => FromWorker::Heartbeat,
            (how, Some(hold)) => {
                worker.holds.remove(0);
                let error = "it did not work".into();
                let ending = match how {
                    2 | 3 => Ending::Failed { again, error },
                    4 => Ending::Failed { again: Again::Never, error },
                    5 => Ending::Snoozed(Millis(700)),
                    6 => Ending::Interrupted,
                    7 => Ending::Dropped,
                    _ => Ending::Finished,
                };
                FromWorker::Report(Report::plain(hold, ending))
            }
        };
        self.say(id, vec![message]);
    }

    fn submit(&mut self, bits: usize) {
        let mut batch: Vec<JobSpec> = Vec::new();
        for place in 0..1 + bits % 5 {
            let name = format!("j{}", self.ids.len());
            let readable = JobId::named(&name, self.now.wall).expect("a short name");
            // Now and then one that no UUID looks like.
            let other = JobId(u128::MAX - self.ids.len() as u128);
            let mut spec = JobSpec::new(if bits % 11 == 3 { other } else { readable });
            spec.body = Digest((bits as u128) << 64 | place as u128);
            spec.queue = QUEUES[bits / 3 % 3].into();
            spec.kind = QUEUES[bits / 9 % 3].into();
            spec.priority = (bits % 5) as i16 - 2;
            spec.key = (bits % 4 == 1).then(|| Name::from(format!("k{}", bits / 4).as_str()));
            spec.timeout = (bits % 9 == 2).then_some(Millis(90));
            if bits % 3 == 1 {
                let base = Millis(300);
                let backoffs = [
                    Backoff::None,
                    Backoff::Fixed(base),
                    Backoff::Exponential { base, factor_percent: 150, cap: Millis(999) },
                ];
                let (max, jitter_percent) = (1 + (bits % 2) as u16, (bits % 100) as u8);
                spec.retry = Retry { max, backoff: backoffs[bits / 3 % 3], jitter_percent };
            }
            if bits % 2 == 1 && !self.ids.is_empty() {
                spec.parents.push(self.ids[bits % self.ids.len()]);
                spec.parents.extend(batch.last().map(|earlier| earlier.id));
                spec.parents.dedup();
                use Condition::{AllDone, AllSucceeded, AnyFailed, AnySucceeded};
                spec.condition = [AllSucceeded, AnySucceeded, AllDone, AnyFailed][bits / 5 % 4];
                spec.otherwise =
                    [Otherwise::Cancel, Otherwise::Run, Otherwise::Hold][bits / 11 % 3];
            }
            if bits % 6 == 5 {
                spec.not_before = Some(Wall(self.now.wall.0 + 200 * place as u64));
            }
            if bits.is_multiple_of(61) {
                spec.not_before = Some(Wall(u64::MAX));
            }
            self.ids.push(spec.id);
            batch.push(spec);
        }
        self.request(Request::Submit(batch));
    }

    fn operate(&mut self, bits: usize) {
        let job = self.ids.get(bits / 16 % self.ids.len().max(1)).copied();
        let change = |change| Request::SetQueue { queue: QUEUES[bits / 16 % 3].into(), change };
        let worker = self.workers.last().map(|worker| worker.id);
        let request = match (bits % 13, job, worker) {
            (0..=3, Some(job), _) => Request::Cancel(job),
            (4..=6, Some(job), _) => Request::Retry(job),
            (7, Some(job), _) => Request::SetPriority { job, priority: (bits % 9) as i16 },
            (8, _, _) => change(QueueChange::Pause),
            (9, _, _) => change(QueueChange::Resume),
            (10, _, _) => change(QueueChange::Limit(bits.is_multiple_of(2).then_some(2))),
            (11, _, Some(worker)) => Request::DrainWorker(worker),
            _ => Request::SetStrategy(
                [
                    Order::Fifo,
                    Order::RoundRobin,
                    Order::Fair,
                    Order::Priority { aging: Duration::from_micros(bits as u64) },
                ][bits / 16 % 4],
            ),
        };
        self.request(request);
    }

    fn request(&mut self, request: Request) {
        self.requests += 1;
        self.event(DispatchEvent::Request { from: RequestNo(self.requests), by: None, request });
    }

    fn purge(&mut self, number: u16) {
        self.keep();
        let before = Wall(self.now.wall.0.saturating_sub(u64::from(number) % 2_000));
        let store = self.pair.store();
        let proposed = store.expired(None, before, 20).expect("readable");
        let after = LeaseNo(u64::from(number) % 8);
        let leases =
            store.outdated(after, &(before..=Wall(u64::MAX)), 20).expect("readable").leases;
        if !leases.is_empty() {
            self.event(DispatchEvent::Outdated { leases, notes_before: Wall(0) });
        }
        self.event(DispatchEvent::Expired(proposed.iter().map(|job| (job.seq, job.id)).collect()));
    }

    /// The server crashes, losing what is not stored, and restarts from what both stores load
    /// alike.
    fn restart(&mut self) {
        self.gathered = Commit::default();
        self.workers.clear();
        self.pair.reopen();
        let loaded = load(self.pair.store());
        assert_eq!(loaded, load(&self.pair.transient));
        let mut effects = Vec::new();
        self.dispatch = Dispatch::load(DispatchConfig::default(), self.now, loaded, &mut effects)
            .expect("the stored rows are consistent");
        self.perform(effects);
    }

    /// One rejected mutation rejects the whole commit.
    fn rejection(&mut self, bits: usize) {
        self.keep();
        let kept = self.pair.memory();
        let jobs: Vec<&JobRow> = kept.jobs().collect();
        let Some(&newest) = jobs.last() else {
            return;
        };
        let row = jobs[bits / 8 % jobs.len()].clone();
        let mut write = row.now;
        let mutation = match bits % 8 {
            0 => Mutation::Put(row),
            1 => Mutation::Close(LeaseNo(99_999)),
            2 => Mutation::Purge(vec![Seq(99_999)]),
            3 if matches!(write.state, JobState::Succeeded | JobState::Cancelled) => {
                write.state = JobState::Dead;
                Mutation::Write(write)
            }
            4 if write.fence > Fence(0) => {
                write.fence.0 -= 1;
                Mutation::Write(write)
            }
            5 if !write.state.is_ended() => Mutation::Purge(vec![row.seq]),
            6 => Mutation::Priority { job: Seq(99_999), priority: 0 },
            _ => {
                write.state = JobState::Leased;
                Mutation::Write(write)
            }
        };
        let mut another = newest.clone();
        another.seq = Seq(99_998);
        another.spec.id = JobId(7);
        another.spec.key = None;
        another.now.job = another.seq;
        let mut mutations = vec![
            Mutation::Put(another),
            Mutation::Strategy(Order::Fair),
            Mutation::Priority { job: newest.seq, priority: 7 },
            Mutation::Note(Note::Act {
                by: None,
                act: OperatorAct::SetPriority { job: newest.spec.id, priority: 1 },
            }),
        ];
        let is_other = |seq: &Seq| *seq != newest.seq && *seq != write.job;
        let expired = kept.expired(None, Wall(u64::MAX), usize::MAX).into_iter().map(|job| job.seq);
        mutations.push(Mutation::Purge(expired.filter(is_other).collect()));
        mutations.push(mutation);
        let refused = self.pair.commit(&commit(self.kept.next(), mutations));
        assert!(matches!(refused, Err(CommitError::Broken(_))), "{refused:?}");
        if bits.is_multiple_of(3) {
            self.pair.compare();
        }
    }
}

fn filters() -> impl Strategy<Value = Filter> {
    let states = prop::sample::subsequence(JobState::ALL.to_vec(), 0..4);
    let name = || prop::option::weighted(0.3, prop::sample::select(&QUEUES[..]));
    let since = prop::option::weighted(0.3, 1_000_000..1_020_000_u64);
    (states, name(), name(), since).prop_map(|(states, queue, kind, since)| Filter {
        states,
        queue: queue.map(Name::from),
        kind: kind.map(Name::from),
        since: since.map(Wall),
    })
}

/// Both stores hold what the scheduler decides in random runs.
pub(crate) fn random_decisions<P: Place>() {
    let config = ProptestConfig { cases: 64, ..ProptestConfig::with_source_file(file!()) };
    let steps = prop::collection::vec(any::<Step>(), 1..250);
    let filters = prop::collection::vec((filters(), 0..9_usize), 1..6);
    proptest!(config, |(steps in steps, filters in filters)| {
        let mut world = World::<P>::new();
        for (count, step) in (1..).zip(steps) {
            world.step(step);
            if count % 50 == 0 {
                world.pair.check_integrity();
                world.pair.compare();
            }
        }
        world.keep();
        world.pair.check_integrity();
        world.pair.compare();
        for (filter, limit) in &filters {
            world.pair.compare_lists(filter, *limit);
        }
        world.restart();
        world.pair.compare();
    });
}

/// The random runs above are useful only if every kind of mutation occurs in them.
#[test]
fn every_kind_of_mutation_occurs_in_random_runs() {
    let mut missing = BTreeSet::from([
        "put",
        "succeeded",
        "dead",
        "cancelled",
        "let go",
        "running",
        "queued",
        "scheduled",
        "priority",
        "lease",
        "close",
        "queue",
        "strategy",
        "purge",
        "trim",
        "attempt",
        "lost",
    ]);
    let mut world = World::<MemoryPlace>::new();
    for number in 0..2_000_u64 {
        let random = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        world.step(((random >> 32) as u8, (random >> 40) as u16));
        for mutation in &world.gathered.mutations {
            missing.remove(word(mutation));
        }
        if missing.is_empty() {
            break;
        }
    }
    world.pair.check_integrity();
    assert!(missing.is_empty(), "{missing:?}");
}

fn word(mutation: &Mutation) -> &'static str {
    match mutation {
        Mutation::Put(_) => "put",
        Mutation::Write(write) if write.state == JobState::Cancelled && write.holder.is_some() => {
            "let go"
        }
        Mutation::Write(write) => write.state.word(),
        Mutation::Priority { .. } => "priority",
        Mutation::Lease(_) => "lease",
        Mutation::Close(_) => "close",
        Mutation::Queue(_) => "queue",
        Mutation::Strategy(_) => "strategy",
        Mutation::LeaseLength(_) => "lease length",
        Mutation::Purge(_) => "purge",
        Mutation::Trim { .. } => "trim",
        Mutation::Note(Note::WorkerLost { .. }) => "lost",
        Mutation::Note(Note::Attempt { .. }) => "attempt",
        Mutation::Note(_) => "note",
        Mutation::Output(_) => "output",
    }
}
