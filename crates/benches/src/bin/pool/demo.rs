//! A thousand tasks that all start at one of four workers: how many each worker runs, how long it
//! takes, and how many thefts it needs, with one task or half of the tasks per theft.

use std::hint::black_box;

use filch_benches::figure::{Aim, Figure};
use filch_benches::machine;
use filch_benches::report::Findings;
use filch_benches::samples::Samples;
use filch_pool::{Pool, StealPolicy};

use crate::comparison::once;
use crate::sizes::Sizes;
use crate::tally;
use crate::timing::wall_ms;

const WORKERS: usize = 4;

/// Never inlined, so that the tasks and the plain loop they are compared with are the same code.
#[inline(never)]
fn additions(count: u64) -> u64 {
    (0..count).fold(0, |sum, number| black_box(sum + number))
}

struct Run {
    time: f64,
    thefts: f64,
    /// How many tasks did not fit and went to the shared queue.
    overflowed: f64,
    /// The percentage of tasks that each worker ran.
    shares: Vec<f64>,
}

fn run(steal: StealPolicy, (tasks, count): (usize, u64)) -> Run {
    let pool = Pool::builder().threads(WORKERS).steal(steal).build();
    let pool = pool.expect("threads can be started");
    let expected = tally::total() + tasks as u64;
    let time = wall_ms(|| {
        pool.install(|| {
            for _ in 0..tasks {
                filch_pool::task::spawn_detached(move || {
                    black_box(additions(black_box(count)));
                    tally::one();
                });
            }
        });
        tally::wait_for(expected);
    });
    let stats = pool.stats();
    let share = |executed: u64| executed as f64 * 100.0 / tasks as f64;
    let shares = stats.workers.iter().map(|worker| share(worker.executed)).collect();
    let (thefts, overflowed) = (stats.steals() as f64, stats.overflowed() as f64);
    Run { time, thefts, overflowed, shares }
}

pub(crate) fn measure(sizes: &Sizes) -> Findings {
    let (tasks, count) = sizes.demo;
    let title = format!("{tasks} tasks on worker 0 of {WORKERS}");
    let mut serials = Vec::new();
    let mut runs = [(StealPolicy::One, Vec::new()), (StealPolicy::Half, Vec::new())];
    for _ in 0..sizes.rounds_long {
        serials.push(wall_ms(|| {
            (0..tasks).map(|_| additions(black_box(count))).fold(0, u64::wrapping_add)
        }));
        for (steal, runs) in &mut runs {
            runs.push(run(*steal, sizes.demo));
        }
    }
    let serial = Samples::new(serials).range().0;
    let cores = WORKERS.min(machine::cores());
    let mut findings = Findings::default();
    let mut thefts = Vec::new();
    for (steal, runs) in &runs {
        let title = format!("{title}, steal {}", format!("{steal:?}").to_lowercase());
        let time = Samples::new(runs.iter().map(|run| run.time).collect());
        let even = once(
            format!("{title}: against an even split over {cores} cores"),
            time.range().0 * cores as f64 / serial,
            "times",
        );
        let is_usual = *steal == StealPolicy::default();
        findings.push(if is_usual { even.aiming(Aim::AtMost(1.15)) } else { even });
        let samples = Samples::new(runs.iter().map(|run| run.thefts).collect());
        thefts.push(samples.median());
        findings.push(Figure::new(format!("{title}: thefts"), samples, ""));
        let overflowed = Samples::new(runs.iter().map(|run| run.overflowed).collect());
        let what = format!("{title}: tasks moved to the shared queue");
        findings.push(Figure::new(what, overflowed, ""));
        let worst = |pick: fn(f64, f64) -> f64| {
            runs.iter().map(|run| run.shares.iter().copied().reduce(pick).unwrap_or(0.0)).collect()
        };
        let least = Figure::new(
            format!("{title}: smallest share of a worker"),
            Samples::new(worst(f64::min)),
            "%",
        );
        let most = Figure::new(
            format!("{title}: largest share of a worker"),
            Samples::new(worst(f64::max)),
            "%",
        );
        findings.push(if is_usual { least.aiming(Aim::AtLeast(15.0)) } else { least });
        findings.push(if is_usual { most.aiming(Aim::AtMost(35.0)) } else { most });
    }
    let ratio = thefts[1] / thefts[0].max(1.0);
    let fewer =
        once(format!("{title}: thefts, stealing half against stealing one"), ratio, "times");
    findings.push(fewer.aiming(Aim::AtMost(1.0)));
    findings
}
