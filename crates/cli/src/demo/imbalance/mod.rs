//! `filch demo imbalance`: work stealing between the threads of one process. All tasks start on
//! worker 0 of a pool, and the others steal one task or half of the tasks at a time.

mod load;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use filch_pool::{PoolBuilder, StealPolicy};
use serde::Serialize;

use self::load::{ADDITIONS, Run, Setup};
use super::display::BAR;
use crate::document::{self, Json};
use crate::output::data;

/// Start all tasks on one thread of a pool, and watch the others steal
#[derive(Args)]
#[command(after_help = "\
Each task makes 1,000,000 additions. Prints the scheduler trace while the tasks run; then the tasks
per worker, the number of steals, and the time compared with the ideal time on this machine.

Examples:
  filch demo imbalance
  filch demo imbalance --workers 4 --tasks 1000 --steal half")]
pub(crate) struct ImbalanceArgs {
    /// Number of threads in the pool
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=PoolBuilder::THREADS_MAX as u64))]
    workers: u64,
    /// Number of tasks
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    tasks: u64,
    /// How many tasks a thread steals at once [default: try both]
    #[arg(long, value_name = "AMOUNT")]
    steal: Option<Amount>,
    #[command(flatten)]
    form: Json,
}

/// How many tasks a thread steals at once
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Amount {
    /// One task
    One,
    /// Half of the tasks in the deque
    Half,
}

impl Amount {
    const fn word(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Half => "half",
        }
    }
}

impl From<Amount> for StealPolicy {
    fn from(amount: Amount) -> Self {
        match amount {
            Amount::One => Self::One,
            Amount::Half => Self::Half,
        }
    }
}

/// Lines of the trace within the ideal time.
const LINES: u32 = 4;

/// The minimum interval between lines.
const PERIOD_MIN: Duration = Duration::from_millis(10);

/// The totals.
#[derive(Serialize)]
struct Totals {
    workers: u64,
    tasks: u64,
    additions: u64,
    cores: u64,
    /// Time of one task alone.
    task_us: u64,
    /// The ideal time of all tasks on these cores.
    ideal_us: u64,
    runs: Vec<RunReport>,
}

#[derive(Serialize)]
struct RunReport {
    steal: Amount,
    shares: Vec<u64>,
    steals: u64,
    stolen: u64,
    overflowed: u64,
    makespan_us: u64,
    trace: Vec<String>,
}

pub(super) fn run(options: &ImbalanceArgs) -> Result<ExitCode> {
    let ImbalanceArgs { workers, tasks, steal, form } = options;
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let task = load::alone();
    let ideal =
        Duration::from_secs_f64(task.as_secs_f64() * *tasks as f64 / cores.min(*workers) as f64);
    let mut totals = Totals {
        workers: *workers,
        tasks: *tasks,
        additions: ADDITIONS,
        cores,
        task_us: task.as_micros() as u64,
        ideal_us: ideal.as_micros() as u64,
        runs: Vec::new(),
    };
    let say = |text: &str| if form.json { Ok(()) } else { data(text) };
    say(&heading(&totals))?;
    let both = [Amount::One, Amount::Half];
    for amount in both.into_iter().filter(|amount| steal.is_none_or(|steal| steal == *amount)) {
        say(&format!("\nsteal {}\n", amount.word()))?;
        let setup = Setup {
            workers: *workers as usize,
            tasks: *tasks,
            steal: amount.into(),
            period: (ideal / LINES).max(PERIOD_MIN),
        };
        let mut trace = Vec::new();
        let run = load::run(setup, |line| {
            say(&format!("{line}\n"))?;
            trace.push(line);
            Ok(())
        })?;
        let Run { shares, steals, stolen, overflowed, makespan } = run;
        let makespan_us = makespan.as_micros() as u64;
        let report =
            RunReport { steal: amount, shares, steals, stolen, overflowed, makespan_us, trace };
        say(&shares_and_sums(&report, &totals))?;
        totals.runs.push(report);
    }
    say(&comparison(&totals.runs))?;
    if form.json {
        document::print(&totals)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn heading(totals: &Totals) -> String {
    let Totals { workers, tasks, additions, cores, task_us, .. } = totals;
    let alone = milliseconds(*task_us);
    format!(
        "{tasks} tasks of {additions} additions, all on worker 0 of {workers}; {cores} cores; a task takes {alone} alone\n"
    )
}

fn shares_and_sums(report: &RunReport, totals: &Totals) -> String {
    let RunReport { shares, steals, stolen, overflowed, makespan_us, .. } = report;
    let most = shares.iter().copied().max().unwrap_or(0).max(1);
    let digits = (shares.len() - 1).to_string().len();
    let mut text = String::new();
    for (worker, share) in shares.iter().enumerate() {
        let cells = (share * BAR).div_ceil(most) as usize;
        let bar = "█".repeat(cells) + &"·".repeat(BAR as usize - cells);
        let percent = share * 100 / totals.tasks;
        let _ =
            writeln!(text, "  worker {worker:<digits$}  {bar}  {share:>4} tasks  {percent:>3} %");
    }
    let _ = writeln!(
        text,
        "  {steals} steals moved {stolen} tasks, {overflowed} went through the shared queue\n  \
         {} in total, {} ideally: {:.2} times the ideal",
        milliseconds(*makespan_us),
        milliseconds(totals.ideal_us),
        *makespan_us as f64 / totals.ideal_us.max(1) as f64,
    );
    text
}

fn comparison(runs: &[RunReport]) -> String {
    match runs {
        [one, half] => {
            format!("\n{} steals of one task, {} steals of half\n", one.steals, half.steals)
        }
        _ => String::new(),
    }
}

fn milliseconds(micros: u64) -> String {
    format!("{:.2} ms", micros as f64 / 1_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_proportional_to_shares() {
        let report = RunReport {
            steal: Amount::Half,
            shares: vec![60, 30, 10],
            steals: 4,
            stolen: 40,
            overflowed: 0,
            makespan_us: 1_500,
            trace: Vec::new(),
        };
        let totals = Totals {
            workers: 3,
            tasks: 100,
            additions: ADDITIONS,
            cores: 2,
            task_us: 20,
            ideal_us: 1_000,
            runs: Vec::new(),
        };
        let text = shares_and_sums(&report, &totals);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], format!("  worker 0  {}    60 tasks   60 %", "█".repeat(28)));
        assert!(lines[1].contains(&format!("  {}··", "█".repeat(14))), "{text}");
        assert_eq!(lines[3], "  4 steals moved 40 tasks, 0 went through the shared queue");
        assert_eq!(lines[4], "  1.50 ms in total, 1.00 ms ideally: 1.50 times the ideal");
    }
}
