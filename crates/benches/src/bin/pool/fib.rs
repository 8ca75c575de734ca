//! A fork for every addition: this measures the cost of a fork alone.

use std::hint::black_box;

use filch_benches::contest::{Contest, ContestResult};
use filch_benches::figure::{Aim, Figure};
use filch_benches::report::Findings;
use filch_benches::samples::Samples;

use crate::fork::{Call, Fork, Ours, Rayon, Serial};
use crate::pools;
use crate::sizes::Sizes;
use crate::timing::wall_ms;

pub(crate) struct Fib(pub(crate) u32);

impl Call<u64> for Fib {
    fn call(self, fork: &mut impl Fork) -> u64 {
        let Self(n) = self;
        if n < 2 {
            return n.into();
        }
        let (a, b) = fork.join(Self(n - 1), Self(n - 2));
        a + b
    }
}

pub(crate) fn measure(sizes: &Sizes) -> Findings {
    let mut findings = Findings::default();
    alone(sizes, &mut findings);
    together(sizes, &mut findings);
    findings
}

/// One worker: the cost of a fork that is never stolen.
fn alone(sizes: &Sizes, findings: &mut Findings) {
    let n = sizes.fib;
    let forks = forks(n) as f64;
    let title = format!("fib({n}), 1 worker");
    let outcome = contest(n, 1, sizes.rounds);
    findings.extend(outcome.figures(&title, "ms"));
    let once = |value| Samples::new(vec![value]);
    let [serial, ours, rayon, chili] = outcome.lowest(["serial", "ours", "rayon", "chili"]);
    for (name, time) in [("ours", ours), ("rayon", rayon), ("chili", chili)] {
        let samples = once((time - serial) * 1e6 / forks);
        findings.push(Figure::new(
            format!("cost of a fork over a plain call: {name}"),
            samples,
            "ns",
        ));
    }
    let samples = once((ours - serial) / (rayon - serial));
    let figure =
        Figure::new("cost of a fork over a plain call: ours against rayon", samples, "times");
    findings.push(figure.aiming(Aim::AtMost(0.125)));
}

fn together(sizes: &Sizes, findings: &mut Findings) {
    let n = sizes.fib;
    let title = format!("fib({n}), 2 workers");
    let outcome = contest(n, 2, sizes.rounds);
    findings.extend(outcome.figures(&title, "ms"));
    for (rival, aim) in
        [("rayon", Some(Aim::AtMost(0.2))), ("chili", None), ("serial", Some(Aim::AtMost(1.0)))]
    {
        findings.extend(outcome.compare(&title, "ours", rival, aim));
    }
    let share = Samples::take(sizes.rounds, || stolen_share(n));
    let figure = Figure::new(format!("{title}: stolen forks"), share, "%");
    findings.push(figure.aiming(Aim::AtMost(1.0)));
}

/// The percentage of forks that another worker steals. The work is balanced, so it should be small.
fn stolen_share(n: u32) -> f64 {
    let pool = pools::ours(2);
    black_box(pool.install(|| Fib(black_box(n)).call(&mut Ours)));
    pool.stats().stolen() as f64 * 100.0 / forks(n) as f64
}

fn contest(n: u32, workers: usize, rounds: usize) -> ContestResult {
    let (ours, rayon, chili) = (pools::ours(workers), pools::rayon(workers), pools::chili(workers));
    let expected = Fib(n).call(&mut Serial);
    let checked = |value| assert_eq!(value, expected, "all rivals compute the same");
    let fib = || Fib(black_box(n));
    Contest::new()
        .rival("serial", || wall_ms(|| checked(fib().call(&mut Serial))))
        .rival("ours", || wall_ms(|| checked(ours.install(|| fib().call(&mut Ours)))))
        .rival("rayon", || wall_ms(|| checked(rayon.install(|| fib().call(&mut Rayon)))))
        .rival("chili", || wall_ms(|| checked(fib().call(&mut chili.scope()))))
        .run(rounds)
}

/// How many additions there are.
fn forks(n: u32) -> u64 {
    // One less than there are leaves.
    (0..n).fold((0_u64, 1_u64), |(a, b), _| (b, a + b)).1 - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forks_are_counted_right() {
        fn counted(n: u32) -> u64 {
            if n < 2 { 0 } else { 1 + counted(n - 1) + counted(n - 2) }
        }
        for n in 0..15 {
            assert_eq!(forks(n), counted(n));
        }
    }
}
