//! What-if: simulates a workload, and reports how long it took and what each worker did.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use filch_sim::whatif::chart::{Chart, ChartLane};
use filch_sim::whatif::ideal::{bound, ideal};
use filch_sim::whatif::workload::{Workload, WorkloadError};
use filch_sim::whatif::{self, WhatIfOutcome, WhatIfSetup};
use serde::Serialize;

use super::options::WhatIfOptions;
use crate::output::{self, message};
use crate::table;
use crate::usage::Usage;

/// The document that `--json` prints.
#[derive(Serialize)]
struct Report {
    v: u32,
    jobs: usize,
    makespan_ms: f64,
    ideal_ms: f64,
    bound_ms: f64,
    utilisation: f64,
    steals: u64,
    stolen: u64,
    wait_ms: Waits,
    workers: Vec<Share>,
}

#[derive(Serialize)]
struct Waits {
    p50: f64,
    p99: f64,
    max: f64,
}

#[derive(Serialize)]
struct Share {
    worker: String,
    jobs: u64,
    busy_ms: f64,
    stolen: u64,
    given: u64,
}

pub(crate) fn run(options: &WhatIfOptions) -> Result<ExitCode> {
    let WhatIfOptions { workload: text, setup, svg, json } = options;
    let workload = Workload::parse(text, setup.seed)
        .map_err(|WorkloadError { what, help }| Usage::new(what, help))?;
    let slots = setup.workers as usize * setup.slots as usize;
    let best = ideal(&workload, slots);
    let outcome = whatif::run(&workload, setup);
    if let Some(path) = svg {
        let picture = draw(text, &workload, setup, &outcome, best);
        let path = path.display();
        std::fs::write(path.to_string(), picture)
            .with_context(|| format!("cannot write {path}"))?;
        message(format_args!("wrote {path}"));
    }
    let report = Report::new(&outcome, workload.jobs.len(), best, bound(&workload, slots));
    if *json {
        output::document(&report)?;
    } else {
        table::print(&report.rows())?;
        output::data("\n")?;
        table::print(&report.worker_rows())?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Report {
    fn new(outcome: &WhatIfOutcome, jobs: usize, ideal: Duration, bound: Duration) -> Self {
        let share = |(index, share): (usize, &whatif::WorkerShare)| Share {
            worker: format!("w{}", index + 1),
            jobs: share.jobs,
            busy_ms: millis(share.busy),
            stolen: share.stolen,
            given: share.given,
        };
        let waits = &outcome.waits;
        Self {
            v: 1,
            jobs,
            makespan_ms: millis(outcome.makespan),
            ideal_ms: millis(ideal),
            bound_ms: millis(bound),
            utilisation: outcome.utilisation,
            steals: outcome.steals,
            stolen: outcome.stolen,
            wait_ms: Waits {
                p50: millis(waits.p50),
                p99: millis(waits.p99),
                max: millis(waits.max),
            },
            workers: outcome.workers.iter().enumerate().map(share).collect(),
        }
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let rows = [
            ("jobs", self.jobs.to_string()),
            ("makespan_ms", format!("{:.3}", self.makespan_ms)),
            ("ideal_ms", format!("{:.3}", self.ideal_ms)),
            ("bound_ms", format!("{:.3}", self.bound_ms)),
            ("utilisation", format!("{:.3}", self.utilisation)),
            ("steals", self.steals.to_string()),
            ("stolen", self.stolen.to_string()),
            ("wait_ms_p50", format!("{:.3}", self.wait_ms.p50)),
            ("wait_ms_p99", format!("{:.3}", self.wait_ms.p99)),
            ("wait_ms_max", format!("{:.3}", self.wait_ms.max)),
        ];
        rows.map(|(name, value)| vec![name.into(), value]).to_vec()
    }

    fn worker_rows(&self) -> Vec<Vec<String>> {
        let heading = ["worker", "jobs", "busy_ms", "stolen", "given"].map(String::from).to_vec();
        let row = |share: &Share| {
            let Share { worker, jobs, busy_ms, stolen, given } = share;
            let busy_ms = format!("{busy_ms:.3}");
            vec![worker.clone(), jobs.to_string(), busy_ms, stolen.to_string(), given.to_string()]
        };
        std::iter::once(heading).chain(self.workers.iter().map(row)).collect()
    }
}

fn draw(
    text: &str,
    workload: &Workload,
    setup: &WhatIfSetup,
    outcome: &WhatIfOutcome,
    ideal: Duration,
) -> String {
    let WhatIfSetup { workers, slots, .. } = *setup;
    let lane = |worker: u32, slot: u32| ChartLane {
        name: if slots == 1 { format!("w{worker}") } else { format!("w{worker}.{slot}") },
    };
    let lanes = (1..=workers).flat_map(|worker| (1..=slots).map(move |slot| lane(worker, slot)));
    let counted =
        |count: u32, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let title = format!("{text} on {} of {}", counted(workers, "worker"), counted(slots, "slot"));
    let name = |index: usize| {
        let id = workload.jobs.get(index).and_then(|job| job.id.clone());
        id.unwrap_or_else(|| format!("#{}", index + 1))
    };
    let chart = Chart {
        title: &title,
        lanes: lanes.collect(),
        bars: &outcome.bars,
        thefts: &outcome.thefts,
        makespan: outcome.makespan,
        ideal,
        name: &name,
    };
    chart.svg()
}

fn millis(span: Duration) -> f64 {
    span.as_nanos() as f64 / 1_000_000.0
}
