//! The lotteries compared with real recruiters. Each worker of a cluster has its own, which draws
//! from a random offset. Measured are the error of the shares, the longest gap between two slices,
//! and how even the side-work of all workers is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use filch_benches::figure::{Aim, Figure};
use filch_benches::report::Findings;
use filch_benches::samples::Samples;
use filch_recruit::{Duty, Lottery, Rate, Recruiter};

use crate::sizes::Sizes;

/// Enlist calls of a worker per second.
const ENLISTS: usize = 10;
const SLICE_MS: f64 = 5.0;
/// Rates in parts per million.
const JOBS: [u32; 3] = [3_000, 10_000, 50_000];
const LOTTERIES: [Lottery; 2] = [Lottery::Random, Lottery::Weyl];

/// The figures of one cluster.
struct ClusterFigures {
    /// The error of the worst worker in slices, by job.
    errors: [f64; JOBS.len()],
    /// The longest gap of any worker between two slices, by job, in multiples of the even gap.
    gaps: [f64; JOBS.len()],
    /// Milliseconds of side-work of all workers per second: the mean, and the difference between
    /// the seconds with the most and the least.
    mean_ms: f64,
    spread_ms: f64,
}

/// A worker's recruiter, and the number of slices of each job.
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
    (builder.lottery(lottery).unbounded().build().expect("valid set-up"), done)
}

fn simulate(lottery: Lottery, sizes: &Sizes) -> ClusterFigures {
    let turns = sizes.seconds * ENLISTS;
    let mut slices = vec![0.0; sizes.seconds];
    let (mut errors, mut gaps) = ([0.0_f64; JOBS.len()], [0.0_f64; JOBS.len()]);
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
            // The time after the last slice is a gap as well.
            let gap = longest[job].max(turns - last[job]) as f64 * share;
            gaps[job] = gaps[job].max(gap);
        }
    }
    let side_work = Samples::new(slices.iter().map(|count| count * SLICE_MS).collect());
    let (least, most) = side_work.range();
    let mean_ms = slices.iter().sum::<f64>() * SLICE_MS / sizes.seconds as f64;
    ClusterFigures { errors, gaps, mean_ms, spread_ms: most - least }
}

pub(crate) fn measure(sizes: &Sizes) -> Findings {
    let [random, weyl] = LOTTERIES.map(|lottery| -> Vec<ClusterFigures> {
        (0..sizes.clusters).map(|_| simulate(lottery, sizes)).collect()
    });
    let title = format!("{} workers, {} enlists each", sizes.workers, sizes.seconds * ENLISTS);
    let mut findings = Findings::default();
    let mut show = |what: &str, unit, figure: &dyn Fn(&ClusterFigures) -> f64| {
        let samples = [&random, &weyl].map(|seen| Samples::new(seen.iter().map(figure).collect()));
        let bound = (samples[0].median() * 100.0).round() / 100.0;
        for (lottery, samples) in LOTTERIES.iter().zip(samples) {
            let figure = Figure::new(format!("{title}, {what}: {lottery:?}"), samples, unit);
            let is_default = *lottery == Lottery::default();
            // No worse than Random.
            findings.push(if is_default { figure.aiming(Aim::AtMost(bound)) } else { figure });
        }
    };
    for (job, parts) in JOBS.iter().enumerate() {
        let rate = f64::from(*parts) / 1e6;
        let share = format!("rate {rate}, error of the worst worker");
        show(&share, "slices", &|seen| seen.errors[job]);
        show(&format!("rate {rate}, longest gap"), "times 1/rate", &|seen| seen.gaps[job]);
    }
    show("side-work of all per second, most minus least", "ms", &|seen| seen.spread_ms);
    for (lottery, seen) in LOTTERIES.iter().zip([&random, &weyl]) {
        let samples = Samples::new(seen.iter().map(|seen| seen.mean_ms).collect());
        let what = format!("{title}, side-work of all per second, mean: {lottery:?}");
        findings.push(Figure::new(what, samples, "ms"));
    }
    findings
}
