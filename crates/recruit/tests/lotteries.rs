//! The lotteries compared: 1,000 simulated workers, three jobs. This test generates the table and
//! the picture of `docs/recruiter.md`, and checks that they are up to date. To write them again:
//!
//! ```sh
//! FILCH_BLESS=1 cargo test -p filch-recruit --test lotteries
//! ```

// The crate's own source, because from outside the draws start at a random offset and no two runs
// are alike.
#[path = "../src/lottery.rs"]
#[expect(dead_code, reason = "this test uses fixed offsets")]
#[expect(unreachable_pub, reason = "public in the crate")]
mod lottery;
#[path = "../src/rate.rs"]
#[expect(dead_code, reason = "used in part")]
#[expect(unreachable_pub, reason = "public in the crate")]
mod rate;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

use lottery::{Lottery, Sequence};
use rate::Rate;

const WORKERS: u64 = 1000;
/// Each figure is the median of this many clusters, because the worst worker of one is random.
const CLUSTERS: u64 = 9;
const SECONDS: usize = 1000;
/// How often each worker enlists in a second.
const ENLISTS: usize = 10;
const SLICE_MS: usize = 5;
/// Rates in parts per million.
const JOBS: [u32; 3] = [3_000, 10_000, 50_000];

/// The figures of one job.
#[derive(Clone, Copy, Default)]
struct JobFigures {
    /// Difference from the expected number of slices: the worst worker, and the mean.
    error_worst: f64,
    error_mean: f64,
    /// Longest gap between two slices, in multiples of the even gap: the worst worker, and the
    /// mean.
    gap_worst: f64,
    gap_mean: f64,
}

/// The figures of one lottery.
struct LotteryFigures {
    jobs: [JobFigures; JOBS.len()],
    /// Milliseconds of side-work in each second, of all workers together.
    mean_ms: f64,
    least_ms: f64,
    most_ms: f64,
}

/// The offset of a worker's draws: the same in every run, and not close to its neighbours'.
fn offset(worker: u64) -> u64 {
    let mixed = (worker + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (mixed ^ (mixed >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

fn simulate(lottery: Lottery) -> LotteryFigures {
    let clusters: Vec<LotteryFigures> =
        (0..CLUSTERS).map(|cluster| simulate_cluster(lottery, cluster * WORKERS)).collect();
    let median = |figure: &dyn Fn(&LotteryFigures) -> f64| {
        let mut figures: Vec<f64> = clusters.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    LotteryFigures {
        jobs: std::array::from_fn(|job| JobFigures {
            error_worst: median(&|figures| figures.jobs[job].error_worst),
            error_mean: median(&|figures| figures.jobs[job].error_mean),
            gap_worst: median(&|figures| figures.jobs[job].gap_worst),
            gap_mean: median(&|figures| figures.jobs[job].gap_mean),
        }),
        mean_ms: median(&|figures| figures.mean_ms),
        least_ms: median(&|figures| figures.least_ms),
        most_ms: median(&|figures| figures.most_ms),
    }
}

fn simulate_cluster(lottery: Lottery, first_worker: u64) -> LotteryFigures {
    let mut jobs = [JobFigures::default(); JOBS.len()];
    let mut slices = vec![0_usize; SECONDS];
    for worker in first_worker..first_worker + WORKERS {
        let sequence = Sequence::from_offset(offset(worker));
        let (mut counts, mut last) = ([0_usize; JOBS.len()], [0_usize; JOBS.len()]);
        let mut gaps = [0_usize; JOBS.len()];
        for turn in 0..SECONDS * ENLISTS {
            let drawn = sequence.draw(lottery);
            let mut below = 0;
            let chosen = JOBS.iter().position(|rate| {
                below += rate;
                drawn < below
            });
            let Some(job) = chosen else { continue };
            slices[turn / ENLISTS] += 1;
            counts[job] += 1;
            gaps[job] = gaps[job].max(turn - last[job]);
            last[job] = turn;
        }
        for (job, seen) in jobs.iter_mut().enumerate() {
            let share = f64::from(JOBS[job]) / f64::from(Rate::WHOLE);
            let turns = SECONDS * ENLISTS;
            let error = (counts[job] as f64 - turns as f64 * share).abs();
            // The time after the last slice is a gap as well.
            let gap = gaps[job].max(turns - last[job]) as f64 * share;
            seen.error_worst = seen.error_worst.max(error);
            seen.error_mean += error / WORKERS as f64;
            seen.gap_worst = seen.gap_worst.max(gap);
            seen.gap_mean += gap / WORKERS as f64;
        }
    }
    let ms = |slices: usize| (slices * SLICE_MS) as f64;
    LotteryFigures {
        jobs,
        mean_ms: ms(slices.iter().sum()) / SECONDS as f64,
        least_ms: ms(slices.iter().copied().min().unwrap_or(0)),
        most_ms: ms(slices.iter().copied().max().unwrap_or(0)),
    }
}

const NAMES: [&str; 2] = ["Random", "Weyl"];

fn table(figures: &[LotteryFigures; 2]) -> String {
    let mut text = String::from(
        "| lottery | rate | slices per worker | error in slices: mean, worst worker | longest gap in 1/rate: \
         mean, worst worker |\n|---|---|---|---|---|\n",
    );
    for (name, figures) in NAMES.iter().zip(figures) {
        for (rate, seen) in JOBS.iter().zip(&figures.jobs) {
            let share = f64::from(*rate) / f64::from(Rate::WHOLE);
            writeln!(
                text,
                "| {name} | {share} | {:.0} | {:.1}, {:.1} | {:.1}, {:.1} |",
                share * (SECONDS * ENLISTS) as f64,
                seen.error_mean,
                seen.error_worst,
                seen.gap_mean,
                seen.gap_worst
            )
            .expect("writing to a string cannot fail");
        }
    }
    text.push_str(
        "\n| lottery | side-work of all workers, ms per second: mean | least | most |\n|---|---|---|---|\n",
    );
    for (name, figures) in NAMES.iter().zip(figures) {
        let LotteryFigures { mean_ms, least_ms, most_ms, .. } = figures;
        writeln!(text, "| {name} | {mean_ms:.0} | {least_ms:.0} | {most_ms:.0} |")
            .expect("writing to a string cannot fail");
    }
    text
}

/// Three pairs of bars, one bar per lottery.
fn panel(svg: &mut String, left: usize, title: &str, labels: &[String; 3], values: [[f64; 2]; 3]) {
    const HEIGHT: f64 = 150.0;
    const BASE: f64 = 210.0;
    let most = values.iter().flatten().copied().fold(0.0, f64::max);
    let mut add = |line: String| writeln!(svg, "{line}").expect("writing to a string cannot fail");
    add(format!("<text x=\"{left}\" y=\"28\" class=\"title\">{title}</text>"));
    for (index, (label, pair)) in labels.iter().zip(values).enumerate() {
        let at = left + index * 100;
        for (side, value) in pair.iter().enumerate() {
            let (x, height) = (at + side * 40, HEIGHT * value / most);
            let class = NAMES[side].to_lowercase();
            let top = BASE - height;
            add(format!(
                "<rect x=\"{x}\" y=\"{top:.1}\" width=\"34\" height=\"{height:.1}\" class=\"{class}\"/>"
            ));
            let (middle, above) = (x + 17, top - 5.0);
            let digits = if *value < 100.0 { 1 } else { 0 };
            add(format!(
                "<text x=\"{middle}\" y=\"{above:.1}\" class=\"value\">{value:.digits$}</text>"
            ));
        }
        let middle = at + 37;
        add(format!("<text x=\"{middle}\" y=\"230\" class=\"value\">{label}</text>"));
    }
}

fn picture([random, weyl]: &[LotteryFigures; 2]) -> String {
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1060 280\" role=\"img\">\n\
         <title>Random and Weyl: error in slices, longest gap and side-work of 1,000 workers</title>\n\
         <style>\n\
         text { font: 13px sans-serif; fill: #24292f; } .title { font-weight: bold; }\n\
         .value { text-anchor: middle; font-size: 12px; }\n\
         .random { fill: #d1602f; } .weyl { fill: #2f6fd1; }\n\
         </style>\n\
         <rect width=\"1060\" height=\"280\" fill=\"#ffffff\"/>\n",
    );
    let figures = |figure: fn(&JobFigures) -> f64| {
        std::array::from_fn(|job| [figure(&random.jobs[job]), figure(&weyl.jobs[job])])
    };
    let rates = JOBS.map(|rate| format!("rate {}", f64::from(rate) / f64::from(Rate::WHOLE)));
    let error = figures(|seen| seen.error_worst);
    panel(&mut svg, 30, "error in slices (worst worker)", &rates, error);
    let gap = figures(|seen| seen.gap_worst);
    panel(&mut svg, 380, "longest gap, in 1/rate (worst)", &rates, gap);
    let seconds = ["least", "mean", "most"].map(str::to_owned);
    let work = [
        [random.least_ms, weyl.least_ms],
        [random.mean_ms, weyl.mean_ms],
        [random.most_ms, weyl.most_ms],
    ];
    panel(&mut svg, 730, "side-work of all, ms per second", &seconds, work);
    svg.push_str(
        "<rect x=\"30\" y=\"250\" width=\"14\" height=\"14\" class=\"random\"/>\n\
         <text x=\"50\" y=\"262\">Random</text>\n\
         <rect x=\"130\" y=\"250\" width=\"14\" height=\"14\" class=\"weyl\"/>\n\
         <text x=\"150\" y=\"262\">Weyl (the default)</text>\n</svg>\n",
    );
    svg
}

const BEGIN: &str = "<!-- lotteries: begin -->\n";
const END: &str = "<!-- lotteries: end -->";

#[test]
fn the_table_and_picture_are_up_to_date_and_weyl_is_never_worse() {
    let docs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let (page, drawing) = (docs.join("recruiter.md"), docs.join("pictures/lotteries.svg"));
    let figures = [simulate(Lottery::Random), simulate(Lottery::Weyl)];
    check_that_weyl_is_never_worse(&figures);
    let text = fs::read_to_string(&page).expect("the page exists");
    let (before, rest) = text.split_once(BEGIN).expect("the page has a marker for the table");
    let (_, after) = rest.split_once(END).expect("the marker is closed");
    let wanted = format!("{before}{BEGIN}\n{}\n{END}{after}", table(&figures));
    let svg = picture(&figures);
    if env::var_os("FILCH_BLESS").is_some_and(|bless| bless == "1") {
        fs::write(&page, &wanted).expect("it can be written");
        fs::write(&drawing, &svg).expect("it can be written");
    }
    let help =
        "outdated; write it again: FILCH_BLESS=1 cargo test -p filch-recruit --test lotteries";
    assert!(
        fs::read_to_string(&page).expect("the page exists") == wanted,
        "{}\n{help}",
        page.display()
    );
    let drawn = fs::read_to_string(&drawing).unwrap_or_default();
    assert!(drawn == svg, "{}\n{help}", drawing.display());
}

/// The page claims this in words.
fn check_that_weyl_is_never_worse([random, weyl]: &[LotteryFigures; 2]) {
    for (random, weyl) in random.jobs.iter().zip(&weyl.jobs) {
        assert!(weyl.error_worst < random.error_worst && weyl.error_mean < random.error_mean);
        assert!(weyl.gap_worst < random.gap_worst && weyl.gap_mean < random.gap_mean);
    }
    assert!(weyl.most_ms - weyl.least_ms <= random.most_ms - random.least_ms);
}
