//! Plays a trace: feeds its events to a machine and writes down what they cause.
//!
//! The first line that is no comment names the machine and what is not as usual:
//!
//! ```text
//! dispatch lease 10s strategy fifo steal half seed 0      and `receipts by-hand`
//! agent slots 2 reserve 3 seed 0
//! ```
//!
//! Unless receipts come by hand, every commit is durable at once. Two lines are not events: `why a`
//! asks why a job is where it is, and `restart` ends the server and loads a new one from the store,
//! perhaps with another lease (`restart lease 2s`). An event followed by `...` is not what the trace is about: what it causes is not shown.
//! Both machines are audited after every event, but for a `dispatch unaudited`.

use std::fmt::Write as _;

use filch_scheduler::agent::{self, Agent};
use filch_scheduler::dispatch::{self, Dispatch};
use filch_scheduler::id::{CommitNo, JobId};
use filch_scheduler::record::Strategy;
use filch_scheduler::time::{Duration, Now};
use filch_scheduler::trace::{Context, Traced, parse, parse_line, print};

use crate::keeping::Keeping;

/// The same trace with what its events really cause, or why it cannot be played.
pub(crate) fn play(trace: &str) -> Result<String, String> {
    let mut player: Option<Player> = None;
    let mut played = String::new();
    let mut lines = trace.lines().enumerate().peekable();
    while let Some((at, line)) = lines.next() {
        let text = line.trim();
        if text.starts_with("->") || text == "..." {
            continue;
        }
        played.push_str(line.trim_end());
        played.push('\n');
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let effects = match &mut player {
            None => {
                let (new, effects) = Player::new(text).map_err(|error| place(at, &error))?;
                player = Some(new);
                effects
            }
            Some(player) => player.line(text).map_err(|error| place(at, &error))?,
        };
        if lines.peek().is_some_and(|(_, next)| next.trim() == "...") {
            played.push_str("  ...\n");
        } else {
            for effect in effects {
                writeln!(played, "  -> {effect}").expect("a string takes everything");
            }
        }
    }
    Ok(played)
}

fn place(at: usize, error: &str) -> String {
    format!("line {}: {error}", at + 1)
}

struct Player {
    context: Context,
    machine: Machine,
}

#[expect(clippy::large_enum_variant, reason = "there is one of it")]
enum Machine {
    Dispatch {
        dispatch: Dispatch,
        config: dispatch::Config,
        keeping: Keeping,
        by_hand: bool,
        is_audited: bool,
    },
    Agent(Agent),
}

impl Player {
    fn new(header: &str) -> Result<(Self, Vec<String>), String> {
        let mut words: Vec<&str> = header.split_whitespace().collect();
        let name = words.remove(0);
        let mut context = Context::default();
        let (machine, effects) = match name {
            "dispatch" => (dispatch_machine(&mut words, &context)?, Vec::new()),
            "agent" => {
                let config = agent_config(&mut words, &context)?;
                let mut effects = Vec::new();
                let agent = Agent::new(config, Now::default(), &mut effects);
                (Machine::Agent(agent), texts(&effects, &mut context))
            }
            _ => return Err(format!("expected `dispatch` or `agent`, found `{name}`")),
        };
        match words.first() {
            Some(word) => Err(format!("`{word}` is no setting of this machine")),
            None => Ok((Self { context, machine }, effects)),
        }
    }

    fn line(&mut self, line: &str) -> Result<Vec<String>, String> {
        let (now, rest) = parse_line(line, &mut self.context).map_err(|e| e.to_string())?;
        let mut told = Vec::new();
        match &mut self.machine {
            Machine::Agent(agent) => {
                let event: agent::Event = read(rest, &self.context)?;
                event.learn(&mut self.context);
                let mut effects = Vec::new();
                agent.handle(now, event, &mut effects);
                told.extend(texts(&effects, &mut self.context));
                agent.audit().map_err(|error| error.to_string())?;
            }
            Machine::Dispatch { dispatch, config, keeping, by_hand, is_audited } => {
                if let Some(job) = rest.strip_prefix("why ") {
                    let id: JobId = read(job, &self.context)?;
                    let why = dispatch.why(id);
                    told.push(why.map_or("unknown".into(), |why| print(&why, &self.context)));
                    return Ok(told);
                }
                let mut effects = Vec::new();
                if let Some(change) = rest.strip_prefix("restart") {
                    if let Some(lease) = change.trim().strip_prefix("lease ") {
                        config.lease = read(lease, &self.context)?;
                    }
                    (*dispatch, effects) = keeping.start(config.clone(), now);
                } else {
                    let event: dispatch::Event = read(rest, &self.context)?;
                    event.learn(&mut self.context);
                    dispatch.handle(now, event, &mut effects);
                }
                told.extend(texts(&effects, &mut self.context));
                let last = commit(keeping, &effects);
                if let Some(last) = last.filter(|_| !*by_hand) {
                    let mut effects = Vec::new();
                    dispatch.handle(now, dispatch::Event::Committed(last), &mut effects);
                    told.extend(texts(&effects, &mut self.context));
                    assert_eq!(commit(keeping, &effects), None, "a receipt stores nothing");
                }
                if *is_audited {
                    dispatch.audit().map_err(|error| error.to_string())?;
                }
            }
        }
        Ok(told)
    }
}

/// Keeps what is to be kept, and says up to where.
fn commit(keeping: &mut Keeping, effects: &[dispatch::Effect]) -> Option<CommitNo> {
    let mut last = None;
    for effect in effects {
        if let dispatch::Effect::Commit { number, mutations } = effect {
            keeping.apply(*number, mutations);
            last = Some(*number);
        }
    }
    last
}

fn read<T: filch_scheduler::trace::Readable>(text: &str, context: &Context) -> Result<T, String> {
    parse(text, context).map_err(|error| error.to_string())
}

/// Each effect as text. A later one may leave out what an earlier one has told.
fn texts<T: Traced>(effects: &[T], context: &mut Context) -> Vec<String> {
    let text = |effect: &T| {
        let text = print(effect, context);
        effect.learn(context);
        text
    };
    effects.iter().map(text).collect()
}

/// Takes `name value` out of the header's words.
fn setting<T: filch_scheduler::trace::Readable>(
    words: &mut Vec<&str>,
    name: &str,
    count: usize,
    context: &Context,
) -> Result<Option<T>, String> {
    let Some(at) = words.iter().position(|word| *word == name) else {
        return Ok(None);
    };
    if at + count >= words.len() {
        return Err(format!("`{name}` lacks its value"));
    }
    let value: Vec<&str> = words.drain(at..=at + count).skip(1).collect();
    read(&value.join(" "), context).map(Some)
}

fn dispatch_machine(words: &mut Vec<&str>, context: &Context) -> Result<Machine, String> {
    let mut config = dispatch::Config { strategy: Strategy::Fifo, ..dispatch::Config::default() };
    if let Some(seed) = setting(words, "seed", 1, context)? {
        config.seed = seed;
    }
    if let Some(lease) = setting::<Duration>(words, "lease", 1, context)? {
        config.lease = lease;
    }
    if let Some(steal) = setting(words, "steal", 1, context)? {
        config.steal = steal;
    }
    let aging = words.contains(&"priority");
    if let Some(strategy) = setting(words, "strategy", if aging { 2 } else { 1 }, context)? {
        config.strategy = strategy;
    }
    let by_hand = words.ends_with(&["receipts", "by-hand"]);
    if by_hand {
        words.truncate(words.len() - 2);
    }
    let is_audited = !words.contains(&"unaudited");
    words.retain(|word| *word != "unaudited");
    let dispatch = Dispatch::new(config.clone(), Now::default());
    let keeping = Keeping::default();
    Ok(Machine::Dispatch { dispatch, config, keeping, by_hand, is_audited })
}

fn agent_config(words: &mut Vec<&str>, context: &Context) -> Result<agent::Config, String> {
    let mut config = agent::Config::default();
    if let Some(seed) = setting(words, "seed", 1, context)? {
        config.seed = seed;
    }
    if let Some(slots) = setting(words, "slots", 1, context)? {
        config.slots = slots;
    }
    if let Some(reserve) = setting(words, "reserve", 1, context)? {
        config.reserve = agent::Reserve::Fixed(reserve);
    }
    Ok(config)
}
