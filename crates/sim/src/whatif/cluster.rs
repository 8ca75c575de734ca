//! A cluster without faults, and an observer that measures it.

use std::collections::BTreeMap;

use filch_scheduler::agent::Home;
use filch_scheduler::dispatch::Request;
use filch_scheduler::id::{Hold, JobId, Seq, WorkerId};
use filch_scheduler::message::Serves;
use filch_scheduler::record::{LeaseCause, LeaseRow, Mutation};
use filch_scheduler::spec::JobSpec;
use filch_scheduler::time::{Duration, Monotonic, Wall};

use super::chart::{ChartBar, ChartTheft};
use super::workload::{Workload, WorkloadJob};
use super::{Waits, WhatIfOutcome, WhatIfSetup, WorkerShare};
use crate::log::{Observed, Observer};
use crate::plan::{Member, NetworkConditions, Plan, PlannedEvent};
use crate::work;
use crate::world::{Audit, World};

/// When the first job is submitted: all workers are connected by then.
const BEGINS: Duration = Duration::from_secs(1);

/// How many jobs are submitted at once, at most.
const SUBMITTED_TOGETHER: usize = 10_000;

/// How long a commit takes: about as long as a sync of a fast disk.
const COMMIT: Duration = Duration::from_micros(100);

pub(super) fn run(workload: &Workload, setup: &WhatIfSetup) -> WhatIfOutcome {
    let plan = plan(workload, setup);
    let stopwatch = Stopwatch::new(workload, setup);
    let mut world = World::new(&plan, Audit::Never, stopwatch, None);
    world.run();
    let (steals, stolen) = (world.counts.server.steals, world.counts.server.stolen);
    world.observer.outcome(steals, stolen)
}

fn plan(workload: &Workload, setup: &WhatIfSetup) -> Plan {
    let member = Member {
        slots: setup.slots,
        reserve: setup.reserve,
        home: Home::Apart,
        is_hostile: false,
        serves: Serves::All,
        rate: 1_000_000,
        network: NetworkConditions::fair(setup.delay),
    };
    Plan {
        seed: setup.seed,
        lease: Duration::from_secs(10),
        strategy: setup.strategy,
        steal: setup.steal,
        commit: (COMMIT, COMMIT),
        retention: None,
        unreceipted: None,
        batch_bytes: None,
        heals_at: None,
        clients: NetworkConditions::fair(Duration::ZERO),
        members: vec![member; setup.workers as usize],
        http_members: Vec::new(),
        acts: submits(&workload.jobs),
    }
}

/// Jobs with the same time are submitted together.
fn submits(jobs: &[WorkloadJob]) -> Vec<(Duration, PlannedEvent)> {
    let mut acts = Vec::new();
    let mut first = 0;
    for together in jobs.chunk_by(|one, other| one.at == other.at) {
        for chunk in together.chunks(SUBMITTED_TOGETHER) {
            let numbered = chunk.iter().enumerate();
            let specs = numbered.map(|(at, job)| spec(first + at, job)).collect();
            let request = Request::Submit(specs);
            acts.push((BEGINS + chunk[0].at, PlannedEvent::Ask { request, tries: u32::MAX }));
            first += chunk.len();
        }
    }
    acts
}

fn spec(number: usize, job: &WorkloadJob) -> JobSpec {
    let mut spec = JobSpec::new(id(number));
    spec.queue = job.queue.clone();
    spec.priority = job.priority;
    spec.kind = work::runs_for(job.cost);
    spec.parents = job.after.iter().map(|&parent| id(parent)).collect();
    spec
}

fn id(number: usize) -> JobId {
    JobId::named(&format!("j{number}"), Wall(0)).expect("ten million have few enough digits")
}

/// Measures which worker runs which job, and when.
struct Stopwatch<'a> {
    workload: &'a Workload,
    setup: &'a WhatIfSetup,
    /// The running jobs, each with its lane and start.
    running: BTreeMap<Hold, (usize, Duration)>,
    /// Free lanes, by node.
    free: Vec<Vec<usize>>,
    /// When each job has ended, and whether it was stolen.
    ended_at: Vec<Option<Duration>>,
    is_stolen: Vec<bool>,
    places: BTreeMap<WorkerId, usize>,
    waits: Vec<Duration>,
    shares: Vec<WorkerShare>,
    bars: Vec<ChartBar>,
    thefts: Vec<ChartTheft>,
}

impl<'a> Stopwatch<'a> {
    fn new(workload: &'a Workload, setup: &'a WhatIfSetup) -> Self {
        let (workers, slots) = (setup.workers as usize, setup.slots as usize);
        let count = workload.jobs.len();
        // Lanes are taken from the end, so the first lane of a worker is used first.
        let lanes = |place: usize| (place * slots..(place + 1) * slots).rev().collect();
        Self {
            workload,
            setup,
            running: BTreeMap::new(),
            free: (0..workers).map(lanes).collect(),
            ended_at: vec![None; count],
            is_stolen: vec![false; count],
            places: BTreeMap::new(),
            waits: Vec::with_capacity(count),
            shares: vec![WorkerShare::default(); workers],
            bars: Vec::with_capacity(count),
            thefts: Vec::new(),
        }
    }

    fn started(&mut self, at: Duration, place: usize, hold: Hold) {
        let job = number(hold.job);
        let parents = self.workload.jobs[job].after.iter();
        let ready_at = parents.filter_map(|&parent| self.ended_at[parent]).max();
        let ready_at = ready_at.unwrap_or_default().max(self.workload.jobs[job].at);
        self.waits.push(at.saturating_sub(ready_at));
        let lane = self.free[place].pop().expect("a worker runs no more jobs than it has slots");
        self.running.insert(hold, (lane, at));
    }

    fn ended(&mut self, at: Duration, place: usize, hold: Hold) {
        let Some((lane, start)) = self.running.remove(&hold) else {
            return;
        };
        let job = number(hold.job);
        self.free[place].push(lane);
        self.ended_at[job] = Some(at);
        let share = &mut self.shares[place];
        share.jobs += 1;
        share.busy += at - start;
        self.bars.push(ChartBar { lane, start, end: at, job, stolen: self.is_stolen[job] });
    }

    fn changed_hands(&mut self, at: Duration, row: &LeaseRow) {
        let (Some(thief), LeaseCause::Steal(victim)) = (row.worker, row.cause) else {
            return;
        };
        let (from, to) = (self.places[&victim], self.places[&thief]);
        for hold in &row.jobs {
            self.is_stolen[number(hold.job)] = true;
        }
        let jobs = row.jobs.len();
        self.shares[from].given += jobs as u64;
        self.shares[to].stolen += jobs as u64;
        let slots = self.setup.slots as usize;
        self.thefts.push(ChartTheft { at, from: from * slots, to: to * slots, jobs });
    }

    fn outcome(&mut self, steals: u64, stolen: u64) -> WhatIfOutcome {
        let makespan = self.ended_at.iter().flatten().max().copied().unwrap_or_default();
        let busy: Duration = self.shares.iter().map(|share| share.busy).sum();
        let slots = f64::from(self.setup.workers) * f64::from(self.setup.slots);
        let available = makespan.as_secs_f64() * slots;
        let utilisation = if available > 0.0 { busy.as_secs_f64() / available } else { 0.0 };
        WhatIfOutcome {
            makespan,
            utilisation,
            steals,
            stolen,
            waits: Waits::of(std::mem::take(&mut self.waits)),
            workers: std::mem::take(&mut self.shares),
            bars: std::mem::take(&mut self.bars),
            thefts: std::mem::take(&mut self.thefts),
        }
    }
}

/// Jobs are numbered from 1 in the order in which they are submitted.
fn number(seq: Seq) -> usize {
    usize::try_from(seq.0 - 1).expect("no more jobs than fit into memory")
}

impl Observer for Stopwatch<'_> {
    fn observe(&mut self, at: Monotonic, seen: Observed<'_>) {
        let at = Duration::from_micros(at.0).saturating_sub(BEGINS);
        match seen {
            Observed::Sent { place, worker, .. } => {
                self.places.insert(worker, place);
            }
            Observed::Started { place, assignment, .. } => self.started(at, place, assignment.hold),
            Observed::Ended { place, hold, .. } => self.ended(at, place, hold),
            Observed::Stored { mutations, .. } => {
                for mutation in mutations {
                    if let Mutation::Lease(row) = mutation {
                        self.changed_hands(at, row);
                    }
                }
            }
            _ => {}
        }
    }
}
