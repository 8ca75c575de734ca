//! The options of `filch simulate`, and which of its three modes they ask for.

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

const HUNTING: &str = "Hunting (the default)";
const ASKING: &str = "What if (with --workload)";
const REPLAYING: &str = "Replaying";

/// What a worker may own, as the server sees it.
const RESERVE_MAX: u32 = 16_384;

/// A tenth of a lease: with more, a cluster in which nothing breaks would lose workers.
const DELAY_MAX: Duration = Duration::from_secs(1);

const AFTER_HELP: &str = "\
A hunt lets clusters break in the ways that their seeds draw, and checks every step; what goes wrong
is made small and printed, with exit code 1. With --workload nothing breaks, and the report says how
long the workload took. Spans are written like 200us, 1.5s, 10m, 1h30m or PT90S.

Examples:
  filch simulate --seeds 1..1000 --faults all
  filch simulate --workload skew:1000:1ms:100ms:50 --workers 8 --svg skew.svg
  filch simulate --workload file:jobs.jsonl --strategy fair --json
  filch simulate --replay crates/sim/found/l3-suspects-on-both-sides.run";

/// Run the real scheduler in an invented cluster: hunt for bugs, ask what if, or replay
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct SimulateArgs {
    /// How many workers a cluster has [default: 10, or 4 with --workload]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=10_000))]
    workers: Option<u32>,
    /// Print one JSON document instead of a table
    #[arg(long)]
    json: bool,

    /// The seeds to run, both ends included, or a single one [default: 1..100]
    #[arg(long, value_name = "A..B", value_parser = read_seeds, help_heading = HUNTING)]
    seeds: Option<RangeInclusive<u64>>,
    /// How long each cluster lives before everything heals [default: 10m]
    #[arg(long, value_name = "SPAN", value_parser = read_duration, help_heading = HUNTING)]
    duration: Option<Duration>,
    /// What may break: nothing, what each seed draws, or everything in every seed [default: swarm]
    #[arg(long, value_name = "WHAT", value_parser = one_of(&FAULTS), help_heading = HUNTING)]
    faults: Option<Faults>,
    /// How many seeds are run at once [default: as many as there are cores]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=1_024), help_heading = HUNTING)]
    threads: Option<u16>,

    /// What is submitted: uniform:N:COST, skew:N:SHORT:LONG:EVERY, zipf:N:MAX:EXPONENT,
    /// pareto:N:MIN:ALPHA, tree:DEPTH:FANOUT:COST, or file:PATH with a JSON object a line
    #[arg(long, value_name = "W", help_heading = ASKING)]
    workload: Option<String>,
    /// How many jobs a worker runs at once [default: 1]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=1_024), help_heading = ASKING)]
    slots: Option<u32>,
    /// What an idle worker takes of a busy one's unstarted jobs [default: half]
    #[arg(long, value_name = "HOW", value_parser = one_of(&STEALS), help_heading = ASKING)]
    steal: Option<Steal>,
    /// How many jobs a worker holds beyond those it runs: a number, or what a round trip takes
    /// [default: auto]
    #[arg(long, value_name = "N|auto", value_parser = read_reserve, help_heading = ASKING)]
    reserve: Option<Reserve>,
    /// The order in which jobs are taken [default: fifo]
    #[arg(long, value_name = "ORDER", value_parser = one_of(&STRATEGIES), help_heading = ASKING)]
    strategy: Option<Strategy>,
    /// How long a message is under way [default: 200us]
    #[arg(long, value_name = "SPAN", value_parser = read_delay, help_heading = ASKING)]
    delay: Option<Duration>,
    /// Decides whatever is left to chance [default: 1]
    #[arg(long, value_name = "N", help_heading = ASKING)]
    seed: Option<u64>,
    /// Draw the run into this file
    #[arg(long, value_name = "FILE", help_heading = ASKING)]
    svg: Option<PathBuf>,

    /// Play this trace or run and print what it causes; - is stdin
    #[arg(long, value_name = "FILE", help_heading = REPLAYING)]
    replay: Option<PathBuf>,
}

/// What is to be done.
pub(crate) enum Mode {
    Hunt(HuntOrder),
    WhatIf(Question),
    Replay(PathBuf),
}

pub(crate) struct HuntOrder {
    pub(crate) hunt: SeedSearch,
    /// The options that decide what a seed means, as they were given.
    pub(crate) given: String,
    pub(crate) json: bool,
}

pub(crate) struct Question {
    pub(crate) workload: String,
    pub(crate) setup: WhatIfSetup,
    pub(crate) svg: Option<PathBuf>,
    pub(crate) json: bool,
}

impl SimulateArgs {
    /// # Errors
    /// If options of several modes are mixed.
    pub(crate) fn mode(mut self) -> Result<Mode, Usage> {
        let hunting = [
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
            return match given(&[&hunting[..], &asking, &others].concat()) {
                Some(other) => Err(Usage::new(
                    format!("--replay and {other} do not go together: the file says all"),
                    format!("leave out {other}"),
                )),
                None => Ok(Mode::Replay(path)),
            };
        }
        if let Some(workload) = self.workload.take() {
            return match given(&hunting) {
                Some("--seeds") => Err(Usage::new(
                    "--seeds is for a hunt: a workload is played once",
                    "write --seed N instead",
                )),
                Some(other) => Err(Usage::new(
                    format!("{other} is for a hunt: nothing breaks while a workload is played"),
                    format!("leave out {other}, or leave out --workload to hunt"),
                )),
                None => Ok(Mode::WhatIf(self.question(workload))),
            };
        }
        let add = "add --workload W (for example uniform:1000:2ms)";
        match given(&asking) {
            Some("--svg") => Err(Usage::new("--svg draws a workload", add)),
            Some("--seed") => Err(Usage::new(
                "--seed is for a workload",
                format!("write --seeds N to hunt with one seed, or {add}"),
            )),
            Some(other) => Err(Usage::new(format!("{other} is for a workload"), add)),
            None => Ok(Mode::Hunt(self.hunt())),
        }
    }

    fn hunt(self) -> HuntOrder {
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
        let hunt = SeedSearch {
            seeds: self.seeds.unwrap_or(1..=100),
            duration: self.duration.unwrap_or(Duration::from_secs(600)),
            workers: self.workers.unwrap_or(10),
            faults: self.faults.unwrap_or(Faults::Swarm),
            threads: self.threads.map_or_else(cores, usize::from),
        };
        HuntOrder { hunt, given, json: self.json }
    }

    fn question(self, workload: String) -> Question {
        let usual = WhatIfSetup::default();
        let setup = WhatIfSetup {
            workers: self.workers.unwrap_or(usual.workers),
            slots: self.slots.unwrap_or(usual.slots),
            steal: self.steal.unwrap_or(usual.steal),
            reserve: self.reserve.unwrap_or(usual.reserve),
            strategy: self.strategy.unwrap_or(usual.strategy),
            delay: self.delay.unwrap_or(usual.delay),
            seed: self.seed.unwrap_or(usual.seed),
        };
        Question { workload, setup, svg: self.svg, json: self.json }
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

/// Takes one of these words for what it stands for.
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
        return Err("these are no seeds; write a range like 1..100, or a single number".into());
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
        false => Err("a cluster lives between 1ms and 720h".into()),
    }
}

fn read_delay(text: &str) -> Result<Duration, String> {
    let delay = span::read(text)?;
    match delay <= DELAY_MAX {
        true => Ok(delay),
        false => Err("a message is under way for 1s at most, a tenth of a lease".into()),
    }
}

fn read_reserve(text: &str) -> Result<Reserve, String> {
    match text.parse() {
        _ if text == "auto" => Ok(WhatIfSetup::default().reserve),
        Ok(count) if count <= RESERVE_MAX => Ok(Reserve::Fixed(count)),
        Ok(_) => Err(format!("a worker holds at most {RESERVE_MAX} jobs")),
        Err(_) => Err("write a number, or auto for what a round trip takes".into()),
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
    fn a_hunt_knows_how_to_repeat_it() {
        let words = "--seeds 7 --duration 90s --workers 3 --faults all --threads 2 --json";
        let Mode::Hunt(HuntOrder { hunt, given, json }) = mode(words) else {
            panic!("no hunt");
        };
        assert_eq!(given, " --duration 1m30s --workers 3 --faults all");
        assert_eq!((hunt.seeds, hunt.duration), (7..=7, Duration::from_secs(90)));
        assert_eq!((hunt.workers, hunt.faults, hunt.threads, json), (3, Faults::All, 2, true));

        let Mode::Hunt(HuntOrder { hunt, given, .. }) = mode("") else {
            panic!("no hunt");
        };
        assert_eq!((given.as_str(), hunt.seeds, hunt.workers), ("", 1..=100, 10));
    }

    #[test]
    fn a_question_is_about_the_cluster_that_was_described() {
        let words = "--workload w --workers 3 --slots 2 --steal none --reserve 5 --strategy priority \
                     --delay 1ms --seed 9";
        let Mode::WhatIf(Question { workload, setup, .. }) = mode(words) else {
            panic!("no question");
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
        let Mode::WhatIf(Question { setup, .. }) = mode("--workload w --reserve auto") else {
            panic!("no question");
        };
        assert_eq!(setup, WhatIfSetup::default());
    }
}
