//! `filch bench`: benchmarks with a server and workers as separate processes, and a store that is
//! synced.

mod drain;
mod latency;
mod newcomer;
mod skew;
mod split;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::embedded::default_slots;
use crate::output;
use crate::runtime::block_on;
use crate::table;

/// Benchmark this machine: server and workers as processes, every commit synced
#[derive(Args)]
#[command(after_help = "Examples:
  filch bench drain
  filch bench latency --json
  filch bench skew
  filch bench split
  filch bench newcomer")]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    benchmark: Benchmark,
    /// Print one JSON document
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Benchmark {
    /// Throughput: submit many empty jobs, then let workers drain them
    Drain(drain::DrainArgs),
    /// Latency from submit to start, one job at a time
    Latency(latency::LatencyArgs),
    /// Makespan of a few long jobs among many short ones
    Skew(skew::SkewArgs),
    /// Throughput of the same slots in one and in several processes
    Split(split::SplitArgs),
    /// Time until a new worker runs its first stolen job
    Newcomer(newcomer::NewcomerArgs),
}

/// The settings and results of a benchmark.
#[derive(Debug)]
struct Report {
    v: u32,
    bench: &'static str,
    settings: Value,
    /// Number of disk syncs. Zero would mean that nothing was durable.
    syncs: u64,
    figures: Vec<Figure>,
}

/// One result.
#[derive(Debug)]
struct Figure {
    what: String,
    value: f64,
    unit: &'static str,
    /// The target, and whether it was met.
    aim: Option<(String, bool)>,
}

impl Figure {
    fn new(what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { what: what.into(), value, unit, aim: None }
    }

    fn at_least(self, aim: f64) -> Self {
        let met = self.value >= aim;
        Self { aim: Some((format!(">= {aim}"), met)), ..self }
    }

    fn at_most(self, aim: f64) -> Self {
        let met = self.value <= aim;
        Self { aim: Some((format!("<= {aim}"), met)), ..self }
    }

    fn json(&self) -> Value {
        let mut figure = json!({ "what": self.what, "value": self.value, "unit": self.unit });
        if let Some((aim, met)) = &self.aim {
            figure["aim"] = json!(aim);
            figure["met"] = json!(met);
        }
        figure
    }
}

impl Report {
    /// The format from which `cargo xtask table` makes the tables in the documentation.
    fn json(&self) -> Value {
        json!({
            "v": self.v,
            "bench": self.bench,
            "command": format!("filch bench {} --json", self.bench),
            "machine": { "cores": default_slots(), "cpu": processor() },
            "settings": self.settings,
            "syncs": self.syncs,
            "figures": self.figures.iter().map(Figure::json).collect::<Vec<_>>(),
        })
    }
}

/// The model name of the CPU.
fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find_map(|line| line.strip_prefix("model name"));
    let name = line.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim());
    name.unwrap_or("unknown").to_owned()
}

pub(crate) fn run(options: BenchArgs) -> Result<ExitCode> {
    let report = block_on(async {
        match options.benchmark {
            Benchmark::Drain(options) => drain::run(&options).await,
            Benchmark::Latency(options) => latency::run(&options).await,
            Benchmark::Skew(options) => skew::run(&options).await,
            Benchmark::Split(options) => split::run(&options).await,
            Benchmark::Newcomer(options) => newcomer::run(&options).await,
        }
    })?;
    anyhow::ensure!(report.syncs > 0, "no disk syncs: the measured jobs were not durable");
    if options.json {
        output::document(&report.json())?;
    } else {
        let mut rows = vec![vec![report.bench.to_owned(), String::new()]];
        rows.push(vec!["syncs".into(), report.syncs.to_string()]);
        let settings = report.settings.as_object().into_iter().flatten();
        rows.extend(settings.map(|(name, value)| {
            vec![name.clone(), value.to_string().trim_matches('"').to_owned()]
        }));
        rows.extend(report.figures.iter().map(|figure| {
            let aim = figure.aim.as_ref().map_or_else(String::new, |(aim, met)| {
                format!("  ({aim}{})", if *met { "" } else { ", not met" })
            });
            vec![figure.what.clone(), format!("{} {}{aim}", figure.value, figure.unit)]
        }));
        table::print(&rows)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Rounds a result for printing.
fn rounded(number: f64, places: i32) -> f64 {
    let scale = 10_f64.powi(places);
    (number * scale).round() / scale
}
