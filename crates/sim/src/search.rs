//! Hunting: many seeds, each run twice, and what goes wrong made small.

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

/// So many seeds of a hunt are audited after every event.
const AUDITED_CLOSELY: u64 = 200;

/// In the others every so manyth event is followed by an audit, and every fault.
const AUDITED_EVERY: u64 = 64;

/// What to hunt through.
#[derive(Clone, Debug)]
pub struct SeedSearch {
    /// Each seed is a cluster of its own.
    pub seeds: RangeInclusive<u64>,
    /// How long anything may break; then everything heals and the rest must come to an end.
    pub duration: Duration,
    /// How many workers a cluster has.
    pub workers: u32,
    /// What may break.
    pub faults: Faults,
    /// How many seeds are run at once.
    pub threads: usize,
}

/// What may break.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Faults {
    /// Nothing.
    None,
    /// Each seed draws which kinds of fault it has, and how often.
    Swarm,
    /// Every kind of fault in every seed.
    All,
}

/// Where a hunt looks for what is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuditScope {
    /// Also into the brains, after every event.
    Inside,
    /// Only at what a bystander sees.
    OutsideOnly,
}

/// What was seen so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SearchStats {
    /// Seeds that are done.
    pub seeds: u64,
    /// Simulated time over all clusters, each seed counted once.
    pub simulated: Duration,
    /// Events handled.
    pub steps: u64,
    /// Faults that were injected.
    pub faults: u64,
    /// Jobs that were submitted.
    pub jobs: u64,
    /// Executions that were started.
    pub starts: u64,
    /// Thefts that moved something.
    pub steals: u64,
    /// Jobs that moved.
    pub stolen: u64,
    /// Reports that were refused because they came too late.
    pub stale: u64,
    /// Leases that ran out.
    pub lost: u64,
    /// Seeds with a violation.
    pub violations: u64,
}

/// What went wrong, made small.
#[derive(Clone, Debug)]
pub struct SearchFailure {
    /// In which seed.
    pub seed: u64,
    /// Which rule: `S2`, `L1`, `audit`, `panic`, `twice`.
    pub rule: &'static str,
    /// What was seen, in one line.
    pub what: String,
    /// The shrunk run: what has to happen; `found/` keeps such files.
    pub run: String,
    /// The shrunk run's trace in the form of a test.
    pub trace: String,
}

impl SeedSearch {
    /// Runs every seed. `watch` hears of each that is done; after a violation no more are begun, and the
    /// lowest seed that has one is made small.
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
            make_small(self.plan(seed), violation)
        });
        (stats, failure)
    }

    /// The first seed that breaks a rule, and which, as it is; each seed is run once.
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

    /// A seed, twice; the second time nobody looks into the brains, and it must be the same run.
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
                what: "the same plan was run twice and gave two different runs".to_owned(),
            };
            second.violation.or((!is_same).then_some(differs))
        });
        stats.violations = u64::from(violation.is_some());
        (stats, violation)
    }
}

/// Runs a plan once, looking closely.
#[must_use]
pub fn play(plan: &Plan) -> (SearchStats, Option<Violation>) {
    let _quiet = Quiet::new();
    let Run { mut stats, violation, .. } = run(plan, Audit::Always, None);
    (stats.seeds, stats.violations) = (1, u64::from(violation.is_some()));
    (stats, violation)
}

/// What came of one run.
pub(crate) struct Run {
    pub(crate) stats: SearchStats,
    pub(crate) violation: Option<Violation>,
    pub(crate) fingerprint: u64,
    pub(crate) ended_at: Monotonic,
    pub(crate) recording: Option<Recording>,
}

/// Runs a plan under the eyes of all checkers.
pub(crate) fn run(plan: &Plan, audit: Audit, recording: Option<Recording>) -> Run {
    let mut world = World::new(plan, audit, Checkers::new(plan.retention), recording);
    let panicked = catch_unwind(AssertUnwindSafe(|| world.run())).err();
    let at = world.now();
    let found = |rule, what| Violation { rule, at, what };
    // What a bystander saw says more than what stopped the run afterwards.
    let violation = world
        .observer
        .violation()
        .cloned()
        .or_else(|| world.audit_error().map(|error| found(Rule::Audit, error.to_owned())))
        .or_else(|| panicked.map(|payload| found(Rule::Panic, message_of(&*payload))))
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

/// The rules of the proof by ledger are among ours.
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
    text.unwrap_or_else(|| "it panicked without a word".to_owned())
}

fn make_small(plan: Plan, violation: Violation) -> SearchFailure {
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

/// While this lives, a panic on this thread prints nothing: it becomes a violation.
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
