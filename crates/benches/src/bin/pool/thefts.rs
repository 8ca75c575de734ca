//! How much a thief should steal, and from which victim: one task, half or all of them; from a
//! random victim or always in the same order.
//!
//! This is simulated in virtual time, so that all workers run in parallel on any number of
//! processors, and every run is the same. There is no shared queue, which would take most of the
//! work in the pool. In each tick, every worker with a task works on it, and every other one tries
//! one victim. If several try the same victim with tasks, the first steals and the others fail.

use std::collections::VecDeque;

use filch_benches::figure::{Aim, Figure};
use filch_benches::report::Findings;
use filch_benches::samples::Samples;
use filch_scheduler::random::SplitMix64;

use crate::comparison::once;
use crate::sizes::Sizes;

/// The shortest and the longest task, in ticks.
const LENGTHS: (usize, usize) = (50, 150);

/// How many of the waiting tasks a thief takes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Amount {
    One,
    Half,
    All,
}

/// In which order a thief tries its victims.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    /// Starting at a random worker.
    Random,
    /// Starting at the first worker.
    Fixed,
}

struct Task {
    ticks: usize,
    thefts: u32,
}

#[derive(Default)]
struct Worker {
    /// Oldest first; the owner takes these, too.
    tasks: VecDeque<Task>,
    /// Remaining ticks of its current task.
    busy: usize,
    /// The victim it tried last, if it is looking for tasks.
    victim: Option<usize>,
}

#[derive(Default)]
struct Counts {
    thefts: u64,
    /// Failed tries: the victim had no tasks, or another thief was first.
    found_nothing: u64,
    collided: u64,
    /// Tries without tasks that were not the first at that victim in that tick.
    met_at_nothing: u64,
    /// How often a task was stolen that had been stolen before.
    again: u64,
    ticks: usize,
}

/// The tasks that each worker starts with.
fn lay_out(counts: &[usize], random: &mut SplitMix64) -> Vec<Worker> {
    let (least, most) = LENGTHS;
    let mut task = || Task { ticks: least + random.below(most - least), thefts: 0 };
    let workers = counts
        .iter()
        .map(|count| Worker { tasks: (0..*count).map(|_| task()).collect(), ..Worker::default() });
    workers.collect()
}

fn simulate(
    mut workers: Vec<Worker>,
    amount: Amount,
    order: Order,
    random: &mut SplitMix64,
) -> Counts {
    let mut counts = Counts::default();
    let mut is_taken = vec![false; workers.len()];
    let mut is_looked_at = vec![false; workers.len()];
    while workers.iter().any(|worker| worker.busy > 0 || !worker.tasks.is_empty()) {
        counts.ticks += 1;
        is_taken.fill(false);
        is_looked_at.fill(false);
        for thief in 0..workers.len() {
            if work(&mut workers[thief]) {
                continue;
            }
            let victim = look(thief, workers.len(), workers[thief].victim, order, random);
            workers[thief].victim = Some(victim);
            if is_taken[victim] {
                counts.collided += 1;
                continue;
            }
            let there = workers[victim].tasks.len();
            let count = match amount {
                Amount::One => there.min(1),
                Amount::Half => there.div_ceil(2),
                Amount::All => there,
            };
            if count == 0 {
                counts.found_nothing += 1;
                counts.met_at_nothing += u64::from(is_looked_at[victim]);
                is_looked_at[victim] = true;
                continue;
            }
            counts.thefts += 1;
            is_taken[victim] = true;
            let mut loot: VecDeque<Task> = workers[victim].tasks.drain(..count).collect();
            for task in &mut loot {
                counts.again += u64::from(task.thefts > 0);
                task.thefts += 1;
            }
            // It runs the first one now.
            workers[thief].busy = loot.pop_front().map_or(0, |task| task.ticks);
            workers[thief].tasks = loot;
            workers[thief].victim = None;
        }
    }
    counts
}

/// Works for one tick. Returns whether there was work.
fn work(worker: &mut Worker) -> bool {
    if worker.busy == 0
        && let Some(task) = worker.tasks.pop_front()
    {
        worker.busy = task.ticks;
    }
    let is_busy = worker.busy > 0;
    worker.busy = worker.busy.saturating_sub(1);
    is_busy
}

/// The next victim that a thief tries.
fn look(
    thief: usize,
    count: usize,
    last: Option<usize>,
    order: Order,
    random: &mut SplitMix64,
) -> usize {
    let next = match (last, order) {
        (Some(last), _) => (last + 1) % count,
        (None, Order::Random) => random.below(count),
        (None, Order::Fixed) => 0,
    };
    if next == thief { (next + 1) % count } else { next }
}

/// The counts of many runs.
fn run(layout: &[usize], amount: Amount, order: Order, sizes: &Sizes) -> Vec<Counts> {
    let seeds = 0..sizes.theft_runs;
    let run = |seed| {
        let mut random = SplitMix64::new(seed);
        simulate(lay_out(layout, &mut random), amount, order, &mut random)
    };
    seeds.map(run).collect()
}

fn median(runs: &[Counts], figure: impl Fn(&Counts) -> f64) -> Samples {
    Samples::new(runs.iter().map(figure).collect())
}

pub(crate) fn measure(sizes: &Sizes) -> Findings {
    let mut findings = amounts(sizes);
    findings.extend(victims(sizes));
    findings
}

/// All tasks start at one of four workers.
fn amounts(sizes: &Sizes) -> Findings {
    let tasks = sizes.demo.0;
    let layout = [tasks, 0, 0, 0];
    let title = format!("{tasks} tasks on one of 4 simulated workers");
    let mut findings = Findings::default();
    let mut thefts = Vec::new();
    for amount in [Amount::One, Amount::Half, Amount::All] {
        let runs = run(&layout, amount, Order::Random, sizes);
        let title = format!("{title}, steal {}", format!("{amount:?}").to_lowercase());
        let count = median(&runs, |counts| counts.thefts as f64);
        thefts.push(count.median());
        findings.push(Figure::new(format!("{title}: thefts"), count, ""));
        let again = median(&runs, |counts| counts.again as f64);
        findings.push(Figure::new(format!("{title}: tasks stolen again"), again, ""));
        let failed = median(&runs, |counts| (counts.found_nothing + counts.collided) as f64);
        findings.push(Figure::new(format!("{title}: failed steal attempts"), failed, ""));
        let time = median(&runs, |counts| counts.ticks as f64 / 1e3);
        findings.push(Figure::new(format!("{title}: time"), time, "thousand ticks"));
    }
    let [one, half, all] = thefts[..] else { unreachable!("three amounts") };
    for (name, other) in [("one", one), ("all", all)] {
        let what = format!("{title}: thefts, stealing half against stealing {name}");
        findings.push(once(what, half / other.max(1.0), "times").aiming(Aim::AtMost(1.0)));
    }
    findings
}

/// A few workers have tasks, and many try to steal at the same time.
fn victims(sizes: &Sizes) -> Findings {
    let tasks = sizes.demo.0;
    let layout: Vec<usize> =
        (0..16).map(|worker| if worker % 4 == 3 { tasks / 4 } else { 0 }).collect();
    let title = format!("{tasks} tasks on 4 of 16 simulated workers");
    let mut findings = Findings::default();
    let mut meetings = Vec::new();
    for order in [Order::Random, Order::Fixed] {
        let runs = run(&layout, Amount::Half, order, sizes);
        let word = match order {
            Order::Random => "random first victim",
            Order::Fixed => "fixed first victim",
        };
        let counted = |figure: fn(&Counts) -> u64| median(&runs, |counts| figure(counts) as f64);
        let thefts = counted(|counts| counts.thefts);
        let collided = counted(|counts| counts.collided);
        let at_nothing = counted(|counts| counts.met_at_nothing);
        let failed = counted(|counts| counts.found_nothing + counts.collided);
        let failed_each = failed.median() / thefts.median().max(1.0);
        meetings.push([collided.median(), at_nothing.median(), failed.median(), failed_each]);
        for (what, samples) in [
            ("thefts", thefts),
            ("collisions at victims with tasks", collided),
            ("collisions at victims without tasks", at_nothing),
            ("failed steal attempts", failed),
        ] {
            findings.push(Figure::new(format!("{title}, {word}: {what}"), samples, ""));
        }
        let time = median(&runs, |counts| counts.ticks as f64 / 1e3);
        findings.push(Figure::new(format!("{title}, {word}: time"), time, "thousand ticks"));
    }
    let [random, fixed] = meetings[..] else { unreachable!("two orders") };
    let names = [
        "collisions at victims with tasks",
        "collisions at victims without tasks",
        "failed steal attempts",
        "failed steal attempts per theft",
    ];
    for ((name, random), fixed) in names.into_iter().zip(random).zip(fixed) {
        let what = format!("{title}: {name}, random against fixed");
        let ratio = random / fixed.max(f64::MIN_POSITIVE);
        findings.push(once(what, ratio, "times").aiming(Aim::AtMost(1.0)));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(layout: &[usize], amount: Amount) -> Counts {
        let mut random = SplitMix64::new(7);
        simulate(lay_out(layout, &mut random), amount, Order::Fixed, &mut random)
    }

    #[test]
    fn a_single_worker_steals_nothing_and_always_works() {
        let mut random = SplitMix64::new(7);
        let workers = lay_out(&[10], &mut random);
        let ticks: usize = workers[0].tasks.iter().map(|task| task.ticks).sum();
        let counts = simulate(workers, Amount::Half, Order::Fixed, &mut random);
        assert_eq!((counts.thefts, counts.ticks), (0, ticks));
    }

    #[test]
    fn tasks_stolen_one_by_one_are_not_stolen_again() {
        let counts = counts(&[100, 0, 0, 0], Amount::One);
        assert_eq!(counts.again, 0);
        assert!(counts.thefts > 50, "{}", counts.thefts);
    }

    #[test]
    fn tasks_stolen_all_at_once_are_stolen_again() {
        assert!(counts(&[100, 0], Amount::All).again > 0);
    }
}
