//! Graphs at their full size, and random ones compared with the simplest possible implementation.

use std::collections::{BTreeMap, BTreeSet};

use filch_scheduler::dispatch::{
    Answer, Bound, Dispatch, DispatchConfig, DispatchEffect, DispatchEvent, Refused, Request,
};
use filch_scheduler::id::{Hold, JobId, MessageNo, RequestNo, SessionNo, WorkerId};
use filch_scheduler::message::{
    Again, Ending, FromWorker, Hello, HelloKind, Report, Serves, ToWorker,
};
use filch_scheduler::record::{Mutation, Strategy as Order};
use filch_scheduler::spec::{Condition, JobSpec, Otherwise};
use filch_scheduler::state::JobState;
use filch_scheduler::time::{Monotonic, Now, Wall};
use proptest::prelude::*;

fn id(number: usize) -> JobId {
    JobId::named(&format!("j{number}"), Wall(1)).expect("a short name")
}

fn job(number: usize, parents: impl IntoIterator<Item = usize>) -> JobSpec {
    let parents = parents.into_iter().map(id).collect();
    JobSpec { parents, ..JobSpec::new(id(number)) }
}

/// A server with one worker that has a slot for every job and never waits.
struct Mill {
    dispatch: Dispatch,
    now: Now,
    number: MessageNo,
    /// Jobs that the worker was given and has not reported, in the order in which they came.
    given: Vec<(Hold, JobId)>,
    answers: Vec<Answer>,
    states: BTreeMap<u64, JobState>,
}

const WORKER: WorkerId = WorkerId::apart(1);

impl Mill {
    fn new() -> Self {
        let config = DispatchConfig { strategy: Order::Fifo, ..DispatchConfig::default() };
        let now = Now { monotonic: Monotonic(0), wall: Wall(1_000) };
        let mut mill = Self {
            dispatch: Dispatch::new(config, now),
            now,
            number: MessageNo(0),
            given: Vec::new(),
            answers: Vec::new(),
            states: BTreeMap::new(),
        };
        mill.say(vec![FromWorker::Hello(Hello {
            kind: HelloKind::New,
            slots: u32::MAX,
            want: u32::MAX,
            serves: Serves::All,
            reports: Vec::new(),
            started: Vec::new(),
            holds: Vec::new(),
        })]);
        mill
    }

    fn say(&mut self, messages: Vec<FromWorker>) {
        self.number = self.number.next();
        let (worker, session, number) = (WORKER, SessionNo(1), self.number);
        self.event(DispatchEvent::Worker { worker, session, number, messages });
    }

    fn submit(&mut self, jobs: Vec<JobSpec>) -> Answer {
        let request = Request::Submit(jobs);
        self.event(DispatchEvent::Request { from: RequestNo(0), by: None, request });
        self.answers.pop().expect("an answer")
    }

    fn event(&mut self, event: DispatchEvent) {
        let mut effects = Vec::new();
        self.dispatch.handle(self.now, event, &mut effects);
        let mut last = None;
        for effect in effects {
            match effect {
                DispatchEffect::Commit { number, mutations } => {
                    last = Some(number);
                    for mutation in mutations {
                        match mutation {
                            Mutation::Put(row) => {
                                self.states.insert(row.seq.0, row.now.state);
                            }
                            Mutation::Write(write) => {
                                self.states.insert(write.job.0, write.state);
                            }
                            _ => {}
                        }
                    }
                }
                DispatchEffect::Send { messages, .. } => {
                    for message in messages {
                        if let ToWorker::Assign(assignments) = message {
                            let jobs = assignments.iter().map(|it| (it.hold, it.id));
                            self.given.extend(jobs);
                        }
                    }
                }
                DispatchEffect::Reply { answer, .. } => self.answers.push(answer),
                DispatchEffect::Fetch { .. } | DispatchEffect::HangUp { .. } => {
                    unreachable!("ids are fresh")
                }
            }
        }
        if let Some(number) = last {
            let mut effects = Vec::new();
            self.dispatch.handle(self.now, DispatchEvent::Committed(number), &mut effects);
            assert_eq!(effects, []);
        }
    }

    fn report(&mut self, hold: Hold, ending: Ending) -> FromWorker {
        FromWorker::Report(Report::plain(hold, ending))
    }
}

#[test]
fn a_hundred_thousand_jobs_with_a_million_edges_in_one_submit() {
    let mut mill = Mill::new();
    let mut edges = 0;
    let jobs: Vec<JobSpec> = (0..100_000_usize)
        .map(|number| {
            // At most eleven earlier jobs, spread wide; the first few jobs have fewer.
            let back = (1..=11).map(|step| step * step * 37 + step);
            let parents: BTreeSet<usize> = back
                .filter_map(|step| number.checked_sub(step))
                .take(10 + usize::from(number % 7 == 0))
                .collect();
            edges += parents.len();
            job(number, parents)
        })
        .collect();
    assert!((990_000..=1_000_000).contains(&edges), "{edges}");
    let parents: Vec<Vec<JobId>> = jobs.iter().map(|job| job.parents.clone()).collect();
    let answer = mill.submit(jobs);
    assert!(matches!(answer, Answer::Submitted(jobs) if jobs.len() == 100_000));
    let mut done = BTreeSet::new();
    while !mill.given.is_empty() {
        let mut messages = Vec::new();
        for (hold, id) in std::mem::take(&mut mill.given) {
            let number: usize = id.to_string()[1..].parse().expect("j and a number");
            assert!(parents[number].iter().all(|parent| done.contains(parent)), "{id}");
            assert!(done.insert(id), "{id} is released once");
            messages.push(mill.report(hold, Ending::Finished));
        }
        mill.say(messages);
    }
    assert_eq!((done.len(), mill.dispatch.job_count()), (100_000, 0));
    mill.dispatch.audit().expect("the audit");
}

#[test]
fn larger_submits_are_refused_and_the_error_names_the_bound() {
    let mut mill = Mill::new();
    let answer = mill.submit((0..100_001).map(|number| job(number, [])).collect());
    let refused = |what, asked, bound| Answer::Refused(Refused::OutOfBounds { what, asked, bound });
    assert_eq!(answer, refused(Bound::Jobs, 100_001, 100_000));
    let wide = (0..1_100).map(|number| job(number, (0..1_000).filter(|&parent| parent < number)));
    let edges: usize = (0..1_100_usize).map(|number| number.min(1_000)).sum();
    let answer = mill.submit(wide.collect());
    assert!(edges < 1_000_000 && matches!(answer, Answer::Submitted(_)), "{edges}");
    let wide = (2_000..4_000).map(|number| job(number, 0..501)).collect();
    assert_eq!(mill.submit(wide), refused(Bound::Edges, 1_002_000, 1_000_000));
}

#[test]
fn a_long_chain_is_cancelled_to_its_end() {
    let mut mill = Mill::new();
    let chain = (0..100_000_usize).map(|number| job(number, number.checked_sub(1)));
    assert!(matches!(mill.submit(chain.collect()), Answer::Submitted(_)));
    let (hold, _) = mill.given.pop().expect("the first of the chain");
    let ending = Ending::Failed { again: Again::Never, error: "no".into() };
    let report = mill.report(hold, ending);
    mill.say(vec![report]);
    assert_eq!(mill.dispatch.job_count(), 0);
    let cancelled = mill.states.values().filter(|&&state| state == JobState::Cancelled).count();
    assert_eq!((cancelled, mill.states[&1]), (99_999, JobState::Dead));
}

#[test]
fn a_long_cycle_is_found_and_named() {
    let mut mill = Mill::new();
    let ring = (0..100_000_usize).map(|number| job(number, [(number + 1) % 100_000]));
    let Answer::Refused(Refused::Cycle(path)) = mill.submit(ring.collect()) else {
        panic!("a ring is a cycle");
    };
    assert_eq!((path.len(), path.first()), (100_001, path.last()));
    assert_eq!(mill.dispatch.job_count(), 0);
}

#[test]
fn the_error_of_a_cycle_lists_its_jobs() {
    let mut mill = Mill::new();
    let jobs = vec![job(1, [3]), job(2, [1]), job(3, [2]), job(4, [])];
    let Answer::Refused(refused) = mill.submit(jobs) else {
        panic!("a cycle is refused");
    };
    assert_eq!(refused.to_string(), "the jobs have a cycle: j1 -> j2 -> j3 -> j1");
}

/// The simplest way to detect a cycle: try to put the jobs in an order.
fn has_cycle(parents: &[BTreeSet<usize>]) -> bool {
    let mut placed = BTreeSet::new();
    loop {
        let free = |at: &usize| !placed.contains(at) && parents[*at].is_subset(&placed);
        let next: Vec<usize> = (0..parents.len()).filter(free).collect();
        if next.is_empty() {
            return placed.len() < parents.len();
        }
        placed.extend(next);
    }
}

/// How a job is judged, given its parents' outcomes.
fn judged(condition: Condition, otherwise: Otherwise, parents: &[JobState]) -> Option<bool> {
    let succeeded = |state: &&JobState| **state == JobState::Succeeded;
    let good = parents.iter().filter(succeeded).count();
    let holds = match condition {
        Condition::AllSucceeded => good == parents.len(),
        Condition::AnySucceeded => good > 0,
        Condition::AllDone => true,
        Condition::AnyFailed => good < parents.len(),
    };
    match (holds || parents.is_empty(), otherwise) {
        (true, _) | (false, Otherwise::Run) => Some(true),
        (false, Otherwise::Cancel) => Some(false),
        (false, Otherwise::Hold) => None,
    }
}

type Node = (BTreeSet<usize>, u8, u8, bool);

fn nodes() -> impl Strategy<Value = Vec<Node>> {
    let node = (proptest::collection::btree_set(0_usize..9, 0..4), 0_u8..4, 0_u8..3, any::<bool>());
    proptest::collection::vec(node, 1..9)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, ..ProptestConfig::default() })]

    /// A batch is refused exactly if it has a cycle, and the reported path is a cycle.
    #[test]
    fn cycles_are_found_exactly(nodes in nodes()) {
        let parents: Vec<BTreeSet<usize>> = nodes.iter().enumerate().map(|(at, node)| {
            node.0.iter().copied().filter(|&parent| parent < nodes.len() && parent != at).collect()
        }).collect();
        let jobs = parents.iter().enumerate().map(|(at, parents)| job(at, parents.iter().copied()));
        let mut mill = Mill::new();
        match mill.submit(jobs.collect()) {
            Answer::Submitted(_) => prop_assert!(!has_cycle(&parents)),
            Answer::Refused(Refused::Cycle(path)) => {
                prop_assert!(has_cycle(&parents) && path.len() > 2);
                prop_assert_eq!(path.first(), path.last());
                for pair in path.windows(2) {
                    let child = (0..parents.len()).find(|&at| id(at) == pair[1]).expect("a job");
                    let is_parent = parents[child].iter().any(|&parent| id(parent) == pair[0]);
                    prop_assert!(is_parent, "{:?}", path);
                }
                prop_assert_eq!(mill.dispatch.job_count(), 0);
            }
            other => prop_assert!(false, "{:?}", other),
        }
        mill.dispatch.audit().expect("the audit");
    }

    /// Every job's outcome follows from its parents' outcomes and its own condition, in whatever
    /// order the worker reports.
    #[test]
    fn outcomes_follow_the_conditions(nodes in nodes(), order: u64) {
        let conditions =
            [Condition::AllSucceeded, Condition::AnySucceeded, Condition::AllDone, Condition::AnyFailed];
        let policies = [Otherwise::Cancel, Otherwise::Hold, Otherwise::Run];
        let mut jobs = Vec::new();
        for (at, (parents, condition, otherwise, _)) in nodes.iter().enumerate() {
            let mut spec = job(at, parents.iter().copied().filter(|&parent| parent < at));
            spec.condition = conditions[usize::from(*condition)];
            spec.otherwise = policies[usize::from(*otherwise)];
            jobs.push(spec);
        }
        let specs = jobs.clone();
        let mut mill = Mill::new();
        prop_assert!(matches!(mill.submit(jobs), Answer::Submitted(_)));
        let mut pick = order;
        while !mill.given.is_empty() {
            pick = pick.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (hold, id) = mill.given.remove((pick >> 33) as usize % mill.given.len());
            let at: usize = id.to_string()[1..].parse().expect("j and a number");
            let ending = match nodes[at].3 {
                true => Ending::Finished,
                false => Ending::Failed { again: Again::Never, error: "no".into() },
            };
            let report = mill.report(hold, ending);
            mill.say(vec![report]);
            mill.dispatch.audit().expect("the audit");
        }
        // In the order of submission every parent is known before its children. A held job never
        // ends, nor does a job that waits for it in vain.
        let mut states: Vec<Option<JobState>> = Vec::new();
        for (at, spec) in specs.iter().enumerate() {
            let parents = spec.parents.iter().map(|parent| {
                states[(0..at).find(|&it| id(it) == *parent).expect("an earlier job")]
            });
            let parents: Vec<Option<JobState>> = parents.collect();
            let state = if parents.iter().all(Option::is_some) {
                let parents: Vec<JobState> = parents.into_iter().flatten().collect();
                judged(spec.condition, spec.otherwise, &parents).map(|runs| match (runs, nodes[at].3) {
                    (true, true) => JobState::Succeeded,
                    (true, false) => JobState::Dead,
                    (false, _) => JobState::Cancelled,
                })
            } else {
                let known: Vec<JobState> = parents.into_iter().flatten().collect();
                let failed = known.iter().any(|state| *state != JobState::Succeeded);
                let good = known.contains(&JobState::Succeeded);
                let early = match spec.condition {
                    Condition::AllSucceeded if failed => Some(spec.otherwise),
                    Condition::AnySucceeded if good => Some(Otherwise::Run),
                    Condition::AnyFailed if failed => Some(Otherwise::Run),
                    _ => None,
                };
                match early {
                    Some(Otherwise::Run) if nodes[at].3 => Some(JobState::Succeeded),
                    Some(Otherwise::Run) => Some(JobState::Dead),
                    Some(Otherwise::Cancel) => Some(JobState::Cancelled),
                    Some(Otherwise::Hold) | None => None,
                }
            };
            let kept = mill.states[&(at as u64 + 1)];
            prop_assert_eq!(state.unwrap_or(JobState::Blocked), kept, "job {}", at);
            states.push(state);
        }
    }
}
