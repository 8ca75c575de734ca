//! Every planted bug of the scheduler and of the engines is caught, within so many seeds, by audits
//! or without; the true code passes the same seeds.
//!
//! Run by `cargo xtask test` in a build of its own, with the feature `planted`.

use std::time::Duration;

use filch_engine::planted::{self, EngineBug};
use filch_scheduler::planted::{Bug, plant};
use filch_sim::replay::{self, Replayed, replay};
use filch_sim::script;
use filch_sim::search::{AuditScope, Faults, SeedSearch};

/// Within how many seeds a bug must show.
const SEEDS: u64 = 800;

fn search() -> SeedSearch {
    SeedSearch {
        seeds: 1..=SEEDS,
        duration: Duration::from_secs(180),
        workers: 6,
        faults: Faults::Swarm,
        threads: 1,
    }
}

/// In one test, because a planted bug is planted in the whole process.
#[test]
fn every_planted_bug_is_caught_and_the_true_code_passes_the_same_seeds() {
    plant(None);
    assert_eq!(search().first_violation(AuditScope::Inside), None, "the true code breaks no rule");
    let mut missed = Vec::new();
    println!("{:<40} {:>14} {:>20}", "bug", "looking inside", "from outside only");
    for bug in Bug::ALL {
        plant(Some(bug));
        let inside = search().first_violation(AuditScope::Inside);
        let outside = search().first_violation(AuditScope::OutsideOnly);
        let show = |found: &Option<(u64, filch_sim::check::Violation)>| {
            found
                .as_ref()
                .map_or("-".to_owned(), |(seed, it)| format!("{} in {seed}", it.rule.name()))
        };
        println!("{:<40} {:>14} {:>20}", bug.name(), show(&inside), show(&outside));
        // A bystander who cannot look into the brains must see it too.
        if inside.is_none() || outside.is_none() {
            missed.push(bug.name());
        }
    }
    plant(None);
    for bug in EngineBug::ALL {
        planted::plant(Some(bug));
        let found = search().first_violation(AuditScope::OutsideOnly);
        let shown = found.as_ref().map(|(seed, it)| format!("{} in {seed}", it.rule.name()));
        println!("{:<40} {:>35}", bug.name(), shown.unwrap_or_else(|| "-".to_owned()));
        if found.is_none() {
            missed.push(bug.name());
        }
    }
    planted::plant(None);
    check_failure_report(Bug::StealWithoutNewFence);
    check_failure_report(Bug::CancelNotSent);
    plant(None);
    assert!(missed.is_empty(), "not caught within {SEEDS} seeds: {missed:?}");
}

/// What is told of a failure is small, and plays again. For bugs that do not need a rare race: a
/// run that hangs on the delay of one message changes with every message that is taken away.
fn check_failure_report(bug: Bug) {
    plant(Some(bug));
    let (stats, failure) = search().run(&|_| ());
    let failure = failure.expect("the bug is caught");
    assert_eq!(stats.violations, 1, "it stops at the first");
    let plan = script::parse(&failure.run).expect("the run can be read");
    let whole = search().plan(failure.seed);
    assert!(plan.acts.len() * 4 < whole.acts.len(), "{} of {}", plan.acts.len(), whole.acts.len());
    match replay(&failure.run) {
        Ok(Replayed::Run { violation: Some(violation), .. }) => {
            assert_eq!(violation.rule.name(), failure.rule);
            assert_eq!(violation.what, failure.what);
        }
        other => panic!("the run breaks the same rule: {other:?}"),
    }
    let server = failure.trace.split("\n# a worker").next().expect("the server comes first");
    assert_eq!(replay::play(server).as_deref(), Ok(server), "the trace plays as it is printed");
    plant(None);
}
