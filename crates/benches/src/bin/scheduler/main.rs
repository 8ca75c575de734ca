//! The bench of `scheduler`: what `dispatch` costs, alone on one thread, with no I/O.
//!
//! This file reads the arguments and lists the figures. `churn`, `growth`, `memory`, `graph`,
//! `heartbeats`, `theft` and `load` each measure one workload with `shard` and `worker`;
//! `strangers` measures the engine around it; `sizes` defines how much.

mod churn;
mod graph;
mod growth;
mod heartbeats;
mod load;
mod memory;
mod shard;
mod sizes;
mod strangers;
mod theft;
mod worker;

use std::alloc::System;
use std::env;
use std::process::ExitCode;

use cap::Cap;
use filch_benches::figure::{Aim, Figure};
use filch_benches::report::BenchReport;
use filch_benches::samples::Samples;
use filch_scheduler::record::{DEFAULT_AGING, Strategy};

use self::churn::{Churn, Setting};
use self::graph::{Graph, Shape};
use self::heartbeats::Heartbeats;
use self::shard::{FILL_BATCH, Priorities};
use self::sizes::Sizes;
use self::theft::Theft;

/// Counts the bytes in use, for `memory`. All other figures use it as well, because an allocator is
/// chosen at build time, and `cargo run --bin` builds no second program that could be started. It
/// costs one atomic addition per allocation and one per release. Without it, no figure changed by
/// more than it varies from run to run.
#[global_allocator]
static ALLOCATED: Cap<System> = Cap::new(System, usize::MAX);

const HELP: &str = "\
usage: cargo xtask bench scheduler [--json] [--quick]

  --json   one JSON document, to be saved for `cargo xtask table`
  --quick  small sizes and few repeats, to see that it runs";

const USAGE_EXIT_CODE: u8 = 2;

/// Jobs that finish before the measurement starts.
const WARM_UP: usize = 4_096;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    Table,
    Json,
}

fn main() -> ExitCode {
    let mut format = Format::Table;
    let mut sizes = Sizes::FULL;
    let mut command = String::from("cargo xtask bench scheduler");
    for argument in env::args_os().skip(1) {
        let argument = argument.to_string_lossy();
        match &*argument {
            "--json" => format = Format::Json,
            "--quick" => sizes = Sizes::QUICK,
            "--help" => {
                println!("{HELP}");
                return ExitCode::SUCCESS;
            }
            _ => {
                eprintln!("error: unknown argument `{argument}`\n\n{HELP}");
                return ExitCode::from(USAGE_EXIT_CODE);
            }
        }
        command = command + " " + &argument;
    }
    let findings = measure(&sizes).into();
    let report = BenchReport { bench: "scheduler", command, findings };
    match format {
        Format::Table => print!("{}", report.table()),
        Format::Json => println!("{:#}", report.json()),
    }
    ExitCode::SUCCESS
}

fn measure(sizes: &Sizes) -> Vec<Figure> {
    let mut figures = lives(sizes);
    figures.extend(limits(sizes));
    figures.push(growth(sizes));
    figures.push(memory(sizes));
    figures.extend(released("graph", sizes.tangled, sizes.repeats_long));
    figures.extend(released("wide graph", sizes.wide, sizes.repeats_long));
    figures.push(strangers(sizes));
    figures.push(heartbeats(sizes));
    figures.push(theft(sizes));
    figures.push(load(sizes));
    figures
}

/// A hundred times the jobs, at most twice the time: caches are finite, but nothing may be scanned.
const NEAR_FLAT: Aim = Aim::AtMost(2.0);

/// One queue without a limit.
const PLAIN: Setting = Setting {
    batch: 1,
    queued: 0,
    strategy: Strategy::Priority { aging: DEFAULT_AGING },
    priorities: Priorities::Same,
    queues: 1,
    limit: None,
};

/// A limit costs an index entry more, and nothing that grows with the number of queues.
const LIMITS_COST_LITTLE: Aim = Aim::AtMost(1.5);

/// What a job costs from submit to finish if there are many queues, with and without limits. The
/// limits are not reached, so the worker is offered work of every queue.
fn limits(sizes: &Sizes) -> Vec<Figure> {
    const BATCH: usize = 16;
    let queues = sizes.queues;
    let free = Setting { batch: BATCH, queued: 2 * queues, queues, ..PLAIN };
    let limited = Setting { limit: Some(1_000), ..free };
    let [without, with, ratio] = lives_in_turn(sizes, free, limited);
    let (batch, queues) = (BATCH, short(queues));
    let what = format!("the same by {batch}, in {queues} queues");
    vec![
        Figure::new(what.clone(), without, "ns/job"),
        Figure::new(format!("{what} with limits"), with, "ns/job"),
        Figure::new(format!("{what}: with against without limits"), ratio, "times")
            .aiming(LIMITS_COST_LITTLE),
    ]
}

/// What a job costs from submit to finish.
fn lives(sizes: &Sizes) -> Vec<Figure> {
    const BATCHES: [usize; 3] = [1, 16, 256];
    let Sizes { queued_few, queued_many, .. } = *sizes;
    let (few, many) = (short(queued_few), short(queued_many));
    let mut figures = Vec::new();
    for batch in BATCHES {
        let setting = |queued| Setting { batch, queued, ..PLAIN };
        let [among_few, among_many, ratio] =
            lives_in_turn(sizes, setting(queued_few), setting(queued_many));
        let rate = among_many.map(|nanoseconds| 1e9 / nanoseconds);
        for (samples, queued) in [(among_few, &few), (among_many, &many)] {
            let what = format!("submit, claim, finish: by {batch}, {queued} queued");
            let figure = Figure::new(what, samples, "ns/job");
            figures.push(match batch {
                256 => figure.aiming(Aim::AtMost(1_500.0)),
                _ => figure,
            });
        }
        let what = format!("the same by {batch}: {many} against {few} queued");
        figures.push(Figure::new(what, ratio, "times").aiming(NEAR_FLAT));
        if batch == 256 {
            let what = format!("the same by {batch}, {many} queued, as a rate");
            figures.push(Figure::new(what, rate, "jobs/s"));
        }
    }
    let by_default = Setting { batch: 256, queued: queued_many, ..PLAIN };
    let fifo = Setting { strategy: Strategy::Fifo, ..by_default };
    let mixed = Setting { priorities: Priorities::Mixed, ..by_default };
    for (how, setting) in [("fifo", fifo), ("all priorities", mixed)] {
        let what = format!("the same by 256, {many} queued, {how}");
        figures.push(Figure::new(what, life(sizes, setting), "ns/job"));
    }
    figures
}

/// Both settings, and the ratio of the second to the first. They are measured in turn, so that
/// other load on the machine slows down both.
fn lives_in_turn(sizes: &Sizes, first: Setting, second: Setting) -> [Samples; 3] {
    let rounds = sizes.jobs / first.batch;
    let mut churns = [first, second].map(warm);
    let pairs = (0..sizes.repeats).map(|_| churns.each_mut().map(|churn| churn.sample(rounds)));
    let pairs: Vec<[f64; 2]> = pairs.collect();
    let each = |value: fn(&[f64; 2]) -> f64| Samples::new(pairs.iter().map(value).collect());
    [each(|pair| pair[0]), each(|pair| pair[1]), each(|pair| pair[1] / pair[0])]
}

fn life(sizes: &Sizes, setting: Setting) -> Samples {
    let rounds = sizes.jobs / setting.batch;
    let mut churn = warm(setting);
    Samples::take(sizes.repeats, || churn.sample(rounds))
}

/// Measures after some warm-up rounds.
fn warm(setting: Setting) -> Churn {
    let mut churn = Churn::new(setting);
    churn.sample(WARM_UP / setting.batch);
    churn
}

fn growth(sizes: &Sizes) -> Figure {
    let count = sizes.queued_many;
    let samples = Samples::take(sizes.repeats_long, || growth::longest_submit(count));
    let batch = short(FILL_BATCH);
    let what = format!("longest submit of {batch} jobs on the way to {} queued", short(count));
    Figure::new(what, samples, "ms")
}

fn memory(sizes: &Sizes) -> Figure {
    let count = sizes.queued_many;
    // Measured once: the same jobs always take the same bytes.
    let bytes = memory::bytes_a_job(count, || ALLOCATED.allocated());
    let what = format!("memory of a queued job without payload, {} queued", short(count));
    Figure::new(what, Samples::new(vec![bytes]), "bytes").aiming(Aim::AtMost(200.0))
}

fn strangers(sizes: &Sizes) -> Figure {
    let count = sizes.strangers;
    let bytes = strangers::bytes_an_id(count, || ALLOCATED.allocated());
    let half = short(count / 2);
    let what = format!("memory kept of a worker on a closed connection, after {half} others");
    Figure::new(what, Samples::new(vec![bytes]), "bytes").aiming(Aim::AtMost(1.0))
}

/// What dependencies cost.
fn released(name: &str, shape: Shape, repeats: usize) -> [Figure; 2] {
    let mut submits = Vec::new();
    let mut rates = Vec::new();
    let mut edges = 0;
    for seed in 0..repeats as u64 {
        let taken = Graph::new(shape, seed).run();
        edges = taken.edges;
        submits.push(taken.submit.as_nanos() as f64 / edges as f64);
        rates.push(edges as f64 / taken.finish.as_secs_f64());
    }
    let edges = short(edges);
    let rate = Figure::new(
        format!("{name} of {edges} edges: released as its jobs finish"),
        Samples::new(rates),
        "edges/s",
    );
    let submit =
        Figure::new(format!("{name} of {edges} edges: submit"), Samples::new(submits), "ns/edge");
    [rate.aiming(Aim::AtLeast(2_000_000.0)), submit]
}

fn heartbeats(sizes: &Sizes) -> Figure {
    let mut heartbeats = Heartbeats::new(sizes.workers);
    heartbeats.sample();
    let samples = Samples::take(sizes.repeats, || heartbeats.sample());
    Figure::new(
        format!("heartbeat of one of {} workers", short(sizes.workers)),
        samples,
        "ns/heartbeat",
    )
}

fn theft(sizes: &Sizes) -> Figure {
    let mut theft = Theft::new();
    theft.sample(sizes.thefts);
    let samples = Samples::take(sizes.repeats, || theft.sample(sizes.thefts));
    Figure::new("theft of half of 256 unstarted jobs", samples, "ns/job")
}

fn load(sizes: &Sizes) -> Figure {
    let samples = Samples::take(sizes.repeats_long, || load::load(sizes.queued_many).0);
    Figure::new(format!("load of {} queued jobs", short(sizes.queued_many)), samples, "ns/job")
}

/// A size as text, to the nearest thousand.
fn short(count: usize) -> String {
    match count.saturating_add(500) / 1_000 {
        0 => count.to_string(),
        thousands if thousands >= 1_000 && thousands.is_multiple_of(1_000) => {
            format!("{}M", thousands / 1_000)
        }
        thousands => format!("{thousands}k"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each part has its own tests; this one tests the path from the parts to the report.
    #[test]
    fn every_figure_is_measured_and_is_a_number() {
        let tiny = Sizes {
            queued_few: 300,
            queued_many: 600,
            jobs: 256,
            queues: 40,
            tangled: Shape::Tangled { jobs: 50, parents: 3 },
            wide: Shape::Wide { parents: 5, children: 4 },
            workers: 3,
            strangers: 100,
            thefts: 1,
            repeats: 1,
            repeats_long: 1,
        };
        let findings = measure(&tiny).into();
        let report = BenchReport { bench: "scheduler", command: "cargo".to_owned(), findings };
        let document = report.json();
        let figures = document["figures"].as_array().expect("a list");
        assert_eq!(figures.len(), 25);
        for figure in figures {
            assert!(figure["what"].is_string() && figure["unit"].is_string(), "{figure}");
            assert!(figure["value"].is_f64(), "{figure}");
            assert_eq!(figure.get("aim").is_some(), figure.get("met").is_some(), "{figure}");
        }
        assert_eq!(report.table().lines().count(), 1 + figures.len() + 2);
    }

    #[test]
    fn sizes_are_short() {
        for (count, text) in [
            (0, "0"),
            (45, "45"),
            (10_000, "10k"),
            (999_945, "1M"),
            (1_000_000, "1M"),
            (1_500_000, "1500k"),
        ] {
            assert_eq!(short(count), text);
        }
    }
}
