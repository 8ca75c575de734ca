//! Searches many seeds for a run that breaks a rule. Each seed is run twice; a failing run is
//! shrunk.

use std::any::Any;
use std::cell::Cell;
use std::ops::RangeInclusive;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, Once};
use std::thread;

use filch_scheduler::time::{Duration, Monotonic};
use filch_store::integrity::IntegrityRule;

use crate::check::{Checkers, Rule, Violation};
use crate::plan::Plan;
use crate::world::{Audit, Counts, Recording, World};
use crate::{script, shrink, swarm};

/// How many seeds of a search are audited after every event.
const AUDITED_CLOSELY: u64 = 200;

/// In the other seeds every 64th event is followed by an audit, and every fault.
const AUDITED_EVERY: u64 = 64;

/// A search through many seeds.
#[derive(Clone, Debug)]
pub struct SeedSearch {
    /// Each seed gives one cluster.
    pub seeds: RangeInclusive<u64>,
    /// How long faults occur; then everything is repaired, and every job must end.
    pub duration: Duration,
    /// How many workers a cluster has.
    pub workers: u32,
    /// Which faults occur.
    pub faults: Faults,
    /// How many seeds are run at once.
    pub threads: usize,
}

/// Which faults occur.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Faults {
    /// None.
    None,
    /// Each seed draws its kinds of faults, and how often they occur.
    Swarm,
    /// Every kind of fault occurs in every seed.
    All,
}

/// What a search checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuditScope {
    /// The observed events, and audits of the scheduler's state after every event.
    Inside,
    /// The observed events only.
    OutsideOnly,
}

/// Counts of what has happened so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SearchStats {
    /// Finished seeds.
    pub seeds: u64,
    /// Simulated time over all clusters, each seed counted once.
    pub simulated: Duration,
    /// Events handled.
    pub steps: u64,
    /// Injected faults.
    pub faults: u64,
    /// Submitted jobs.
    pub jobs: u64,
    /// Started executions.
    pub starts: u64,
    /// Steals that moved at least one job.
    pub steals: u64,
    /// Stolen jobs.
    pub stolen: u64,
    /// Reports that were refused because their fence was old.
    pub stale: u64,
    /// Expired leases.
    pub lost: u64,
    /// Seeds with a violation.
    pub violations: u64,
}

/// A run that breaks a rule, shrunk.
#[derive(Clone, Debug)]
pub struct SearchFailure {
    /// Its seed.
    pub seed: u64,
    /// The broken rule: `S2`, `L1`, `audit`, `panic`, `twice`.
    pub rule: &'static str,
    /// What was observed, in one line.
    pub what: String,
    /// The shrunk run; `found/` has such files.
    pub run: String,
    /// The trace of the shrunk run, in the form of a test.
    pub trace: String,
}

impl SeedSearch {
    /// Runs every seed. `watch` is called after each. After a violation no more seeds are started,
    /// and the run of the lowest seed with a violation is shrunk.
    pub fn run(
        &self,
        watch: &(dyn Fn(&SearchStats) + Sync),
    ) -> (SearchStats, Option<SearchFailure>) {
        let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let state = Mutex::new((SearchStats::default(), None::<(u64, Violation)>));
        let count = (self.seeds.end() - self.seeds.start()).saturating_add(1);
        thread::scope(|scope| {
            for _ in 0..self.threads.max(1) {
                scope.spawn(|| {
                    let _quiet = Quiet::new();
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        if index >= count || is_over.load(Ordering::Relaxed) {
                            return;
                        }
                        let seed = self.seeds.start() + index;
                        let audit = match index < AUDITED_CLOSELY {
                            true => Audit::Always,
                            false => Audit::Sampled(AUDITED_EVERY),
                        };
                        let (stats, violation) = self.run_seed(seed, audit);
                        let mut state = state.lock().expect("no other thread panics in here");
                        state.0.add(&stats);
                        watch(&state.0);
                        if let Some(violation) = violation {
                            is_over.store(true, Ordering::Relaxed);
                            if state.1.as_ref().is_none_or(|(other, _)| seed < *other) {
                                state.1 = Some((seed, violation));
                            }
                        }
                    }
                });
            }
        });
        let (stats, found) = state.into_inner().expect("no thread panicked in there");
        let failure = found.map(|(seed, violation)| {
            let _quiet = Quiet::new();
            shrink_failure(self.plan(seed), violation)
        });
        (stats, failure)
    }

    /// The first seed that breaks a rule, with the violation; not shrunk, and each seed is run
    /// once.
    #[must_use]
    pub fn first_violation(&self, looks: AuditScope) -> Option<(u64, Violation)> {
        let audit = match looks {
            AuditScope::Inside => Audit::Always,
            AuditScope::OutsideOnly => Audit::Never,
        };
        let _quiet = Quiet::new();
        self.seeds
            .clone()
            .find_map(|seed| Some((seed, run(&self.plan(seed), audit, None).violation?)))
    }

    /// The plan of a seed.
    #[must_use]
    pub fn plan(&self, seed: u64) -> Plan {
        swarm::draw(seed, self.workers, self.duration, self.faults)
    }

    /// Runs a seed twice, the second time without audits: both runs must be the same.
    fn run_seed(&self, seed: u64, audit: Audit) -> (SearchStats, Option<Violation>) {
        let plan = self.plan(seed);
        let first = run(&plan, audit, None);
        let mut stats = first.stats;
        stats.seeds = 1;
        let violation = first.violation.or_else(|| {
            let second = run(&plan, Audit::Never, None);
            let is_same = second.fingerprint == first.fingerprint;
            let differs = Violation {
                rule: Rule::Twice,
                at: first.ended_at,
                what: "two runs of the same plan differ".to_owned(),
            };
            second.violation.or((!is_same).then_some(differs))
        });
        stats.violations = u64::from(violation.is_some());
        (stats, violation)
    }
}

/// Runs a plan once, with all audits.
#[must_use]
pub fn play(plan: &Plan) -> (SearchStats, Option<Violation>) {
    let _quiet = Quiet::new();
    let Run { mut stats, violation, .. } = run(plan, Audit::Always, None);
    (stats.seeds, stats.violations) = (1, u64::from(violation.is_some()));
    (stats, violation)
}

/// The result of one run.
pub(crate) struct Run {
    pub(crate) stats: SearchStats,
    pub(crate) violation: Option<Violation>,
    pub(crate) fingerprint: u64,
    pub(crate) ended_at: Monotonic,
    pub(crate) recording: Option<Recording>,
}

/// Runs a plan with all checkers.
pub(crate) fn run(plan: &Plan, audit: Audit, recording: Option<Recording>) -> Run {
    let mut world = World::new(plan, audit, Checkers::new(plan.retention), recording);
    let panicked = catch_unwind(AssertUnwindSafe(|| world.run())).err();
    let at = world.now();
    let found = |rule, what| Violation { rule, at, what };
    // A violation of a rule is more informative than the audit or panic that follows from it.
    let violation = world
        .observer
        .violation()
        .cloned()
        .or_else(|| world.audit_error().map(|error| found(Rule::Audit, error.to_owned())))
        .or_else(|| panicked.map(|payload| found(Rule::Panic, message_of(&*payload))))
        .or_else(|| world.check_results().map(|what| found(Rule::S16, what)))
        .or_else(|| world.check_integrity().map(|it| found(rule_of(it.rule), it.what)));
    let Counts { steps, faults, starts, jobs, server } = world.counts;
    let stats = SearchStats {
        seeds: 0,
        simulated: Duration::from_micros(at.0),
        steps,
        faults,
        jobs,
        starts,
        steals: server.steals,
        stolen: server.stolen,
        stale: server.stale,
        lost: server.lost,
        violations: 0,
    };
    let fingerprint = world.fingerprint();
    Run { stats, violation, fingerprint, ended_at: at, recording: world.recording.take() }
}

/// The rule of the simulator that corresponds to a rule of the integrity check.
const fn rule_of(rule: IntegrityRule) -> Rule {
    match rule {
        IntegrityRule::S1 => Rule::S1,
        IntegrityRule::S2 => Rule::S2,
        IntegrityRule::S3 => Rule::S3,
        IntegrityRule::S5 => Rule::S5,
        IntegrityRule::S7 => Rule::S7,
        IntegrityRule::S9 => Rule::S9,
        IntegrityRule::S12 => Rule::S12,
        IntegrityRule::Index | IntegrityRule::File => Rule::Audit,
    }
}

fn message_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "a panic without a message".to_owned())
}

fn shrink_failure(plan: Plan, violation: Violation) -> SearchFailure {
    let seed = plan.seed;
    let (plan, violation) = shrink::shrink(plan, violation);
    let recording = run(&plan, Audit::Always, Some(Recording::default())).recording;
    let trace = recording.map(|recording| recording.about(&violation.what)).unwrap_or_default();
    let (rule, what) = (violation.rule.name(), violation.what);
    SearchFailure { seed, rule, what, run: script::print(&plan), trace }
}

impl SearchStats {
    fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.simulated += other.simulated;
        self.steps += other.steps;
        self.faults += other.faults;
        self.jobs += other.jobs;
        self.starts += other.starts;
        self.steals += other.steals;
        self.stolen += other.stolen;
        self.stale += other.stale;
        self.lost += other.lost;
        self.violations += other.violations;
    }
}

thread_local! {
    /// Whether this thread expects panics and reports them itself.
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// While this exists, a panic on this thread prints nothing: it is reported as a violation.
struct Quiet;

impl Quiet {
    fn new() -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let usual = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                if !IS_QUIET.get() {
                    usual(info);
                }
            }));
        });
        IS_QUIET.set(true);
        Self
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        IS_QUIET.set(false);
    }
}
