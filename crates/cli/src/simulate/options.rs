//! The options of `filch simulate`, and which of its three modes they select.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::thread::available_parallelism;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, value_parser};
use filch_api::span;
use filch_sim::search::{Faults, SeedSearch};
use filch_sim::whatif::{DEFAULT_AGING, Reserve, Steal, Strategy, WhatIfSetup};

use crate::usage::Usage;

const SEARCHING: &str = "Seed search (the default)";
const ASKING: &str = "What-if (with --workload)";
const REPLAYING: &str = "Replay";

/// The maximum number of jobs that the server lets a worker own.
const RESERVE_MAX: u32 = 16_384;

/// A tenth of a lease: with a longer delay, workers would be lost without any fault.
const DELAY_MAX: Duration = Duration::from_secs(1);

const AFTER_HELP: &str = "\
A seed search injects the faults that each seed selects and checks every step. A violation is
minimized and printed, with exit code 1. With --workload there are no faults, and the report shows
how long the workload took. Durations are written like 200us, 1.5s, 10m, 1h30m or PT90S.

Examples:
  filch simulate --seeds 1..1000 --faults all
  filch simulate --workload skew:1000:1ms:100ms:50 --workers 8 --svg skew.svg
  filch simulate --workload file:jobs.jsonl --strategy fair --json
  filch simulate --replay crates/sim/found/l3-suspects-on-both-sides.run";

/// Run the real scheduler in a simulated cluster: seed search, what-if or replay
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct SimulateArgs {
    /// Number of workers [default: 10, or 4 with --workload]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=10_000))]
    workers: Option<u32>,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,

    /// Seeds to run: a range (both ends included) or one seed [default: 1..100]
    #[arg(long, value_name = "A..B", value_parser = read_seeds, help_heading = SEARCHING)]
    seeds: Option<RangeInclusive<u64>>,
    /// Simulated time with faults, before everything heals [default: 10m]
    #[arg(long, value_name = "DURATION", value_parser = read_duration, help_heading = SEARCHING)]
    duration: Option<Duration>,
    /// Faults: none, those that each seed selects (swarm), or all in every seed [default: swarm]
    #[arg(long, value_name = "FAULTS", value_parser = one_of(&FAULTS), help_heading = SEARCHING)]
    faults: Option<Faults>,
    /// Number of seeds that run at once [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=1_024), help_heading = SEARCHING)]
    threads: Option<u16>,

    /// Workload: uniform:N:COST, skew:N:SHORT:LONG:EVERY, zipf:N:MAX:EXPONENT,
    /// pareto:N:MIN:ALPHA, tree:DEPTH:FANOUT:COST, or file:PATH with one JSON object per line
    #[arg(long, value_name = "W", help_heading = ASKING)]
    workload: Option<String>,
    /// Jobs that a worker runs at once [default: 1]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_024), help_heading = ASKING)]
    slots: Option<u32>,
    /// How many unstarted jobs an idle worker steals from a busy one [default: half]
    #[arg(long, value_name = "AMOUNT", value_parser = one_of(&STEALS), help_heading = ASKING)]
    steal: Option<Steal>,
    /// Jobs that a worker prefetches: a number, or as many as a round trip needs [default: auto]
    #[arg(long, value_name = "N|auto", value_parser = read_reserve, help_heading = ASKING)]
    reserve: Option<Reserve>,
    /// Scheduling strategy [default: fifo]
    #[arg(long, value_name = "STRATEGY", value_parser = one_of(&STRATEGIES), help_heading = ASKING)]
    strategy: Option<Strategy>,
    /// Network delay of a message [default: 200us]
    #[arg(long, value_name = "DURATION", value_parser = read_delay, help_heading = ASKING)]
    delay: Option<Duration>,
    /// Random seed [default: 1]
    #[arg(long, value_name = "N", help_heading = ASKING)]
    seed: Option<u64>,
    /// Write a chart of the run to this SVG file
    #[arg(long, value_name = "FILE", help_heading = ASKING)]
    svg: Option<PathBuf>,

    /// Replay this trace or run and print the result (- for stdin)
    #[arg(long, value_name = "FILE", help_heading = REPLAYING)]
    replay: Option<PathBuf>,
}

/// The selected mode.
pub(crate) enum Mode {
    Search(SearchOptions),
    WhatIf(WhatIfOptions),
    Replay(PathBuf),
}

pub(crate) struct SearchOptions {
    pub(crate) search: SeedSearch,
    /// The options that change what a seed does, as they were given.
    pub(crate) given: String,
    pub(crate) json: bool,
}

pub(crate) struct WhatIfOptions {
    pub(crate) workload: String,
    pub(crate) setup: WhatIfSetup,
    pub(crate) svg: Option<PathBuf>,
    pub(crate) json: bool,
}

impl SimulateArgs {
    /// The selected mode.
    ///
    /// # Errors
    /// If options of several modes are mixed.
    pub(crate) fn mode(mut self) -> Result<Mode, Usage> {
        let searching = [
            ("--seeds", self.seeds.is_some()),
            ("--duration", self.duration.is_some()),
            ("--faults", self.faults.is_some()),
            ("--threads", self.threads.is_some()),
        ];
        let asking = [
            ("--slots", self.slots.is_some()),
            ("--steal", self.steal.is_some()),
            ("--reserve", self.reserve.is_some()),
            ("--strategy", self.strategy.is_some()),
            ("--delay", self.delay.is_some()),
            ("--seed", self.seed.is_some()),
            ("--svg", self.svg.is_some()),
        ];
        let given = |options: &[(&'static str, bool)]| {
            options.iter().find(|(_, given)| *given).map(|&(name, _)| name)
        };
        if let Some(path) = self.replay {
            let others = [
                ("--workload", self.workload.is_some()),
                ("--workers", self.workers.is_some()),
                ("--json", self.json),
            ];
            return match given(&[&searching[..], &asking, &others].concat()) {
                Some(other) => Err(Usage::new(
                    format!("--replay and {other} cannot be combined: the file defines the run"),
                    format!("remove {other}"),
                )),
                None => Ok(Mode::Replay(path)),
            };
        }
        if let Some(workload) = self.workload.take() {
            return match given(&searching) {
                Some("--seeds") => Err(Usage::new(
                    "--seeds is for a seed search: a workload is simulated once",
                    "use --seed N instead",
                )),
                Some(other) => Err(Usage::new(
                    format!("{other} is for a seed search: a workload has no faults"),
                    format!("remove {other}, or remove --workload for a seed search"),
                )),
                None => Ok(Mode::WhatIf(self.what_if(workload))),
            };
        }
        let add = "add --workload W (for example uniform:1000:2ms)";
        match given(&asking) {
            Some("--svg") => Err(Usage::new("--svg needs a workload", add)),
            Some("--seed") => Err(Usage::new(
                "--seed needs a workload",
                format!("use --seeds N for one seed, or {add}"),
            )),
            Some(other) => Err(Usage::new(format!("{other} needs a workload"), add)),
            None => Ok(Mode::Search(self.search())),
        }
    }

    fn search(self) -> SearchOptions {
        let mut given = String::new();
        if let Some(duration) = self.duration {
            given += &format!(" --duration {}", span::write(duration));
        }
        if let Some(workers) = self.workers {
            given += &format!(" --workers {workers}");
        }
        if let Some((word, _)) = FAULTS.iter().find(|&&(_, faults)| self.faults == Some(faults)) {
            given += &format!(" --faults {word}");
        }
        let cores = || available_parallelism().map_or(1, usize::from);
        let search = SeedSearch {
            seeds: self.seeds.unwrap_or(1..=100),
            duration: self.duration.unwrap_or(Duration::from_secs(600)),
            workers: self.workers.unwrap_or(10),
            faults: self.faults.unwrap_or(Faults::Swarm),
            threads: self.threads.map_or_else(cores, usize::from),
        };
        SearchOptions { search, given, json: self.json }
    }

    fn what_if(self, workload: String) -> WhatIfOptions {
        let default = WhatIfSetup::default();
        let setup = WhatIfSetup {
            workers: self.workers.unwrap_or(default.workers),
            slots: self.slots.unwrap_or(default.slots),
            steal: self.steal.unwrap_or(default.steal),
            reserve: self.reserve.unwrap_or(default.reserve),
            strategy: self.strategy.unwrap_or(default.strategy),
            delay: self.delay.unwrap_or(default.delay),
            seed: self.seed.unwrap_or(default.seed),
        };
        WhatIfOptions { workload, setup, svg: self.svg, json: self.json }
    }
}

const FAULTS: [(&str, Faults); 3] =
    [("none", Faults::None), ("swarm", Faults::Swarm), ("all", Faults::All)];

const STEALS: [(&str, Steal); 3] =
    [("half", Steal::Half), ("one", Steal::One), ("none", Steal::Never)];

const STRATEGIES: [(&str, Strategy); 4] = [
    ("fifo", Strategy::Fifo),
    ("priority", Strategy::Priority { aging: DEFAULT_AGING }),
    ("round-robin", Strategy::RoundRobin),
    ("fair", Strategy::Fair),
];

/// Parses one of these words.
fn one_of<T: Copy + Send + Sync + 'static>(
    words: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(words.iter().map(|&(word, _)| word)).map(move |chosen| {
        let meant = words.iter().find(|&&(word, _)| word == chosen);
        meant.expect("clap lets no other word through").1
    })
}

fn read_seeds(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (first, last) = text.split_once("..").unwrap_or((text, text));
    let (Ok(first), Ok(last)) = (first.parse::<u64>(), last.parse::<u64>()) else {
        return Err("write a range like 1..100, or a single number".into());
    };
    if first > last {
        return Err(format!("the range is empty; write {last}..{first}"));
    }
    Ok(first..=last)
}

fn read_duration(text: &str) -> Result<Duration, String> {
    let (least, most) = (Duration::from_millis(1), Duration::from_secs(30 * 24 * 3_600));
    let duration = span::read(text)?;
    match (least..=most).contains(&duration) {
        true => Ok(duration),
        false => Err("write a duration between 1ms and 720h".into()),
    }
}

fn read_delay(text: &str) -> Result<Duration, String> {
    let delay = span::read(text)?;
    match delay <= DELAY_MAX {
        true => Ok(delay),
        false => Err("write at most 1s, a tenth of a lease".into()),
    }
}

fn read_reserve(text: &str) -> Result<Reserve, String> {
    match text.parse() {
        _ if text == "auto" => Ok(WhatIfSetup::default().reserve),
        Ok(count) if count <= RESERVE_MAX => Ok(Reserve::Fixed(count)),
        Ok(_) => Err(format!("write at most {RESERVE_MAX}")),
        Err(_) => Err("write a number or auto".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command, FromArgMatches as _};

    use super::*;

    fn mode(words: &str) -> Mode {
        let command = SimulateArgs::augment_args(Command::new("simulate"));
        let words = std::iter::once("simulate").chain(words.split_whitespace());
        let matches = command.try_get_matches_from(words).unwrap();
        SimulateArgs::from_arg_matches(&matches).unwrap().mode().unwrap()
    }

    #[test]
    fn a_search_keeps_the_options_to_reproduce_it() {
        let words = "--seeds 7 --duration 90s --workers 3 --faults all --threads 2 --json";
        let Mode::Search(SearchOptions { search, given, json }) = mode(words) else {
            panic!("expected a search");
        };
        assert_eq!(given, " --duration 1m30s --workers 3 --faults all");
        assert_eq!((search.seeds, search.duration), (7..=7, Duration::from_secs(90)));
        assert_eq!(
            (search.workers, search.faults, search.threads, json),
            (3, Faults::All, 2, true)
        );

        let Mode::Search(SearchOptions { search, given, .. }) = mode("") else {
            panic!("expected a search");
        };
        assert_eq!((given.as_str(), search.seeds, search.workers), ("", 1..=100, 10));
    }

    #[test]
    fn a_workload_runs_on_the_described_cluster() {
        let words = "--workload w --workers 3 --slots 2 --steal none --reserve 5 --strategy priority \
                     --delay 1ms --seed 9";
        let Mode::WhatIf(WhatIfOptions { workload, setup, .. }) = mode(words) else {
            panic!("expected a what-if");
        };
        let asked = WhatIfSetup {
            workers: 3,
            slots: 2,
            steal: Steal::Never,
            reserve: Reserve::Fixed(5),
            strategy: Strategy::default(),
            delay: Duration::from_millis(1),
            seed: 9,
        };
        assert_eq!((workload.as_str(), setup), ("w", asked));
        let Mode::WhatIf(WhatIfOptions { setup, .. }) = mode("--workload w --reserve auto") else {
            panic!("expected a what-if");
        };
        assert_eq!(setup, WhatIfSetup::default());
    }
}
