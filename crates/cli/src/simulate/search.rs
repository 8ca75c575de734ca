//! The seed search: runs the seeds and reports totals and the first failure.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use filch_sim::search::{SearchFailure, SearchStats};
use serde::Serialize;

use super::cpu;
use super::options::SearchOptions;
use super::progress::Progress;
use crate::output::{self, message};
use crate::table;

/// The document that `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    v: u32,
    seeds: u64,
    cluster_hours: f64,
    steps: u64,
    faults: u64,
    jobs: u64,
    starts: u64,
    steals: u64,
    stolen: u64,
    stale: u64,
    lost: u64,
    violations: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cluster_hours_per_cpu_hour: Option<f64>,
    failure: Option<Found<'a>>,
}

#[derive(Serialize)]
struct Found<'a> {
    seed: u64,
    rule: &'a str,
    what: &'a str,
    run: &'a str,
    trace: &'a str,
}

pub(crate) fn run(options: &SearchOptions) -> Result<ExitCode> {
    let SearchOptions { search, given, json } = options;
    let count = (search.seeds.end() - search.seeds.start()).saturating_add(1);
    let progress = Progress::of(count);
    let before = cpu::used();
    let (stats, failure) = search.run(&|stats| progress.show(stats));
    let used = before.zip(cpu::used()).map(|(before, after)| after.saturating_sub(before));
    progress.end();

    let report = Report::new(&stats, used, failure.as_ref());
    if *json {
        output::document(&report)?;
    } else {
        table::print(&report.rows())?;
    }
    let Some(failure) = failure else {
        return Ok(ExitCode::SUCCESS);
    };
    let SearchFailure { seed, rule, what, run, trace } = &failure;
    message(format_args!("error: seed {seed} violates {rule}: {what}"));
    message(format_args!("  help: reproduce it with `filch simulate --seeds {seed}{given}`"));
    if !json {
        let (run, trace) = (run.trim_end(), trace.trim_end());
        message(format_args!("\n== minimized run\n{run}\n\n== trace\n{trace}"));
    }
    Ok(ExitCode::FAILURE)
}

/// The totals as rows of a table.
pub(super) fn rows(stats: &SearchStats) -> Vec<Vec<String>> {
    Report::new(stats, None, None).rows()
}

impl<'a> Report<'a> {
    fn new(
        stats: &SearchStats,
        used: Option<Duration>,
        failure: Option<&'a SearchFailure>,
    ) -> Self {
        let cluster_hours = stats.simulated.as_secs_f64() / 3_600.0;
        let cpu_hours = used.map(|used| used.as_secs_f64() / 3_600.0);
        let found = |failure: &'a SearchFailure| Found {
            seed: failure.seed,
            rule: failure.rule,
            what: &failure.what,
            run: &failure.run,
            trace: &failure.trace,
        };
        Self {
            v: 1,
            seeds: stats.seeds,
            cluster_hours,
            steps: stats.steps,
            faults: stats.faults,
            jobs: stats.jobs,
            starts: stats.starts,
            steals: stats.steals,
            stolen: stats.stolen,
            stale: stats.stale,
            lost: stats.lost,
            violations: stats.violations,
            // Not available for a search shorter than one tick.
            cluster_hours_per_cpu_hour: cpu_hours
                .filter(|&hours| hours > 0.0)
                .map(|hours| cluster_hours / hours),
            failure: failure.map(found),
        }
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let mut rows = vec![
            ("seeds", self.seeds.to_string()),
            ("cluster_hours", format!("{:.1}", self.cluster_hours)),
            ("steps", self.steps.to_string()),
            ("faults", self.faults.to_string()),
            ("jobs", self.jobs.to_string()),
            ("starts", self.starts.to_string()),
            ("steals", self.steals.to_string()),
            ("stolen", self.stolen.to_string()),
            ("stale", self.stale.to_string()),
            ("lost", self.lost.to_string()),
            ("violations", self.violations.to_string()),
        ];
        let rate = self.cluster_hours_per_cpu_hour;
        rows.extend(rate.map(|rate| ("cluster_hours_per_cpu_hour", format!("{rate:.0}"))));
        rows.into_iter().map(|(name, value)| vec![name.into(), value]).collect()
    }
}
