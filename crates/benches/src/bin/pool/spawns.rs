//! Very many tiny tasks: spawned inside the pool, from outside, and each by the one before it.

use std::hint::black_box;

use filch_benches::contest::{Contest, ContestResult};
use filch_benches::figure::{Aim, Figure};
use filch_benches::report::Findings;
use filch_pool::Pool;

use crate::sizes::Sizes;
use crate::timing::wall_ms;
use crate::{pools, tally};

pub(crate) fn measure(sizes: &Sizes) -> Findings {
    let mut findings = Findings::default();
    let (count, rounds) = (sizes.spawns, sizes.rounds);
    report("spawn from inside", &inside(count, rounds), true, &mut findings);
    report("spawn from outside", &outside(count, rounds), true, &mut findings);
    report("chain of spawns", &chain(count, rounds), false, &mut findings);
    findings
}

fn report(title: &str, outcome: &ContestResult, is_aimed: bool, findings: &mut Findings) {
    let title = format!("{title}, 2 workers");
    for name in ["ours", "rayon", "tokio"] {
        findings.push(Figure::new(format!("{title}: {name}"), outcome.of(name), "ns/task"));
    }
    for (rival, most) in [("rayon", 0.333), ("tokio", 0.125)] {
        let aim = is_aimed.then_some(Aim::AtMost(most));
        findings.extend(outcome.compare(&title, "ours", rival, aim));
    }
}

/// The time per task, from the first spawn to the last end.
pub(crate) fn each(count: u64, spawn: impl FnOnce()) -> f64 {
    let expected = tally::total() + count;
    let time = wall_ms(|| {
        spawn();
        tally::wait_for(expected);
    });
    time * 1e6 / count as f64
}

fn tiny(number: u64) {
    black_box(number);
    tally::one();
}

fn inside(count: u64, rounds: usize) -> ContestResult {
    let (ours, rayon, tokio) = (pools::ours(2), pools::rayon(2), pools::tokio(2));
    Contest::new()
        .rival("ours", || each(count, || from_inside(&ours, count)))
        .rival("rayon", || {
            each(count, || {
                rayon.install(|| (0..count).for_each(|number| rayon::spawn(move || tiny(number))));
            })
        })
        .rival("tokio", || {
            each(count, || {
                // Within a task, because `block_on` runs outside tokio's workers.
                drop(tokio.spawn(async move {
                    (0..count).for_each(|number| drop(tokio::spawn(async move { tiny(number) })));
                }));
            })
        })
        .run(rounds)
}

pub(crate) fn from_inside(pool: &Pool, count: u64) {
    pool.install(|| {
        (0..count).for_each(|number| filch_pool::task::spawn_detached(move || tiny(number)));
    });
}

fn outside(count: u64, rounds: usize) -> ContestResult {
    let (ours, rayon, tokio) = (pools::ours(2), pools::rayon(2), pools::tokio(2));
    Contest::new()
        .rival("ours", || {
            each(count, || {
                (0..count).for_each(|number| ours.spawn_detached(move || tiny(number)));
            })
        })
        .rival("rayon", || {
            each(count, || (0..count).for_each(|number| rayon.spawn(move || tiny(number))))
        })
        .rival("tokio", || {
            each(count, || {
                (0..count).for_each(|number| drop(tokio.spawn(async move { tiny(number) })));
            })
        })
        .run(rounds)
}

fn chain(count: u64, rounds: usize) -> ContestResult {
    let (ours, rayon, tokio) = (pools::ours(2), pools::rayon(2), pools::tokio(2));
    Contest::new()
        .rival("ours", || each(count, || ours.spawn_detached(move || link_ours(count - 1))))
        .rival("rayon", || each(count, || rayon.spawn(move || link_rayon(count - 1))))
        .rival("tokio", || each(count, || drop(tokio.spawn(async move { link_tokio(count - 1) }))))
        .run(rounds)
}

fn link_ours(left: u64) {
    if left > 0 {
        filch_pool::task::spawn_detached(move || link_ours(left - 1));
    }
    tally::one();
}

fn link_rayon(left: u64) {
    if left > 0 {
        rayon::spawn(move || link_rayon(left - 1));
    }
    tally::one();
}

fn link_tokio(left: u64) {
    if left > 0 {
        drop(tokio::spawn(async move { link_tokio(left - 1) }));
    }
    tally::one();
}
