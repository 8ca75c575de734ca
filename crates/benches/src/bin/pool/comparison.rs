//! How stealing compares with a static split and with one queue, for one workload.

use std::hint::black_box;

use filch_benches::contest::{Contest, ContestResult};
use filch_benches::figure::{Aim, Figure};
use filch_benches::report::Findings;
use filch_benches::samples::Samples;
use filch_pool::Pool;

use crate::timing::wall_ms;

/// Four ways to do the same work; each returns the same sum.
pub(crate) struct Ways<'a> {
    pub(crate) serial: &'a dyn Fn() -> u64,
    pub(crate) stealing: &'a dyn Fn() -> u64,
    pub(crate) split: &'a dyn Fn() -> u64,
    pub(crate) queue: &'a dyn Fn() -> u64,
}

impl Ways<'_> {
    pub(crate) fn run(&self, rounds: usize) -> ContestResult {
        let expected = (self.serial)();
        let timed = |way: &dyn Fn() -> u64| {
            wall_ms(|| assert_eq!(way(), expected, "all ways do the same work"))
        };
        Contest::new()
            .rival("serial", || timed(self.serial))
            .rival("stealing", || timed(self.stealing))
            .rival("static split", || timed(self.split))
            .rival("one queue", || timed(self.queue))
            .run(rounds)
    }
}

/// The share of the cores that was used for work.
pub(crate) fn efficiency(title: &str, outcome: &ContestResult, cores: usize, aim: Aim) -> Figure {
    let [serial, stealing] = outcome.lowest(["serial", "stealing"]);
    let share = serial / (cores as f64 * stealing);
    once(format!("{title}: efficiency of stealing"), share, "").aiming(aim)
}

/// How many times faster stealing is than the other way.
pub(crate) fn gain(title: &str, outcome: &ContestResult, over: &str, aim: Option<Aim>) -> Figure {
    let [stealing, other] = outcome.lowest(["stealing", over]);
    let figure = once(format!("{title}: gain over {over}"), other / stealing, "times");
    aim.map_or(figure.clone(), |aim| figure.aiming(aim))
}

/// Thefts per hundred tasks.
pub(crate) fn thefts(
    title: &str,
    pool: &Pool,
    tasks: f64,
    work: impl FnOnce() -> u64,
    aim: Aim,
) -> Figure {
    let before = pool.stats().steals();
    black_box(work());
    let thefts = (pool.stats().steals() - before) as f64;
    once(format!("{title}: thefts per 100 tasks"), thefts * 100.0 / tasks, "").aiming(aim)
}

pub(crate) fn once(what: impl Into<String>, value: f64, unit: &'static str) -> Figure {
    Figure::new(what, Samples::new(vec![value]), unit)
}

/// The time of each way.
pub(crate) fn times(title: &str, outcome: &ContestResult) -> Findings {
    outcome.figures(title, "ms").into()
}
