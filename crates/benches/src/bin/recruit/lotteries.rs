//! The lotteries compared on real recruiters: each worker of a cluster has one of its own, and so draws
//! from an offset by chance. How far its shares are off, how long it is left out, and how even the
//! side-work of all of them is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use filch_benches::figure::{Aim, Figure};
use filch_benches::report::Findings;
use filch_benches::samples::Samples;
use filch_recruit::{Duty, Lottery, Rate, Recruiter};

use crate::sizes::Sizes;

/// How often a worker enlists in a second.
const ENLISTS: usize = 10;
const SLICE_MS: f64 = 5.0;
/// Parts of a million.
const JOBS: [u32; 3] = [3_000, 10_000, 50_000];
const LOTTERIES: [Lottery; 2] = [Lottery::Random, Lottery::Weyl];

/// What is seen of one cluster.
struct Seen {
    /// By how many slices the worst worker is off, of each job.
    errors: [f64; JOBS.len()],
    /// The longest time that any worker is left out, of each job, in multiples of what would be even.
    droughts: [f64; JOBS.len()],
    /// Milliseconds of side-work of all workers together: in a mean second, and how far the seconds with
    /// the least and the most of it are apart.
    mean_ms: f64,
    spread_ms: f64,
}

/// A worker's recruiter, and how many slices of each job it has done.
fn worker(lottery: Lottery) -> (Recruiter, Arc<[AtomicUsize; JOBS.len()]>) {
    let done: Arc<[AtomicUsize; JOBS.len()]> = Arc::default();
    let builder = JOBS.iter().enumerate().fold(Recruiter::builder(), |builder, (job, parts)| {
        let done = Arc::clone(&done);
        let slice = move |_: &mut _| {
            done[job].fetch_add(1, Relaxed);
            Ok(Duty::Done)
        };
        builder.job(job.to_string(), Rate::per_million(*parts), slice)
    });
    (builder.lottery(lottery).unbounded().build().expect("the set-up makes sense"), done)
}

fn simulate(lottery: Lottery, sizes: &Sizes) -> Seen {
    let turns = sizes.seconds * ENLISTS;
    let mut slices = vec![0.0; sizes.seconds];
    let (mut errors, mut droughts) = ([0.0_f64; JOBS.len()], [0.0_f64; JOBS.len()]);
    for _ in 0..sizes.workers {
        let (recruiter, done) = worker(lottery);
        let counts =
            || -> [usize; JOBS.len()] { std::array::from_fn(|job| done[job].load(Relaxed)) };
        let (mut last, mut longest) = ([0; JOBS.len()], [0; JOBS.len()]);
        for turn in 0..turns {
            let before = counts();
            recruiter.enlist();
            let after = counts();
            let Some(job) = (0..JOBS.len()).find(|job| after[*job] > before[*job]) else {
                continue;
            };
            slices[turn / ENLISTS] += 1.0;
            longest[job] = turn.saturating_sub(last[job]).max(longest[job]);
            last[job] = turn;
        }
        for (job, count) in counts().into_iter().enumerate() {
            let share = f64::from(JOBS[job]) / 1e6;
            let error = (count as f64 - turns as f64 * share).abs();
            errors[job] = errors[job].max(error);
            // Who is left out at the end is left out as well.
            let drought = longest[job].max(turns - last[job]) as f64 * share;
            droughts[job] = droughts[job].max(drought);
        }
    }
    let side_work = Samples::new(slices.iter().map(|count| count * SLICE_MS).collect());
    let (least, most) = side_work.range();
    let mean_ms = slices.iter().sum::<f64>() * SLICE_MS / sizes.seconds as f64;
    Seen { errors, droughts, mean_ms, spread_ms: most - least }
}

pub(crate) fn measure(sizes: &Sizes) -> Findings {
    let [random, weyl] = LOTTERIES.map(|lottery| -> Vec<Seen> {
        (0..sizes.clusters).map(|_| simulate(lottery, sizes)).collect()
    });
    let title = format!("{} workers, {} enlists each", sizes.workers, sizes.seconds * ENLISTS);
    let mut findings = Findings::default();
    let mut show = |what: &str, unit, figure: &dyn Fn(&Seen) -> f64| {
        let samples = [&random, &weyl].map(|seen| Samples::new(seen.iter().map(figure).collect()));
        let bound = (samples[0].median() * 100.0).round() / 100.0;
        for (lottery, samples) in LOTTERIES.iter().zip(samples) {
            let figure = Figure::new(format!("{title}, {what}: {lottery:?}"), samples, unit);
            let is_default = *lottery == Lottery::default();
            // No worse than chance.
            findings.push(if is_default { figure.aiming(Aim::AtMost(bound)) } else { figure });
        }
    };
    for (job, parts) in JOBS.iter().enumerate() {
        let rate = f64::from(*parts) / 1e6;
        let share = format!("rate {rate}, worst worker off by");
        show(&share, "slices", &|seen| seen.errors[job]);
        show(&format!("rate {rate}, longest drought"), "times 1/rate", &|seen| seen.droughts[job]);
    }
    show("side-work of all, most and least in a second apart", "ms", &|seen| seen.spread_ms);
    for (lottery, seen) in LOTTERIES.iter().zip([&random, &weyl]) {
        let samples = Samples::new(seen.iter().map(|seen| seen.mean_ms).collect());
        let what = format!("{title}, side-work of all in a mean second: {lottery:?}");
        findings.push(Figure::new(what, samples, "ms"));
    }
    findings
}
