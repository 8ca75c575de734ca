//! Replays a trace or a run.
//!
//! A run is a plan (see [`crate::script`]): a whole cluster is simulated with all checkers. A trace
//! is about one scheduler core (`dispatch` or `agent`): it gets the events of the trace, and its
//! effects are printed. The first line that is not a comment names the core and its settings:
//!
//! ```text
//! dispatch lease 10s strategy fifo steal half seed 0      and `receipts by-hand`
//! agent slots 2 reserve 3 seed 0
//! ```
//!
//! Without `receipts by-hand` every commit is durable at once. Two lines are not events: `why a`
//! asks why a job is in its state, and `restart` stops the server and loads a new one from the
//! store, perhaps with another lease (`restart lease 2s`). With `restart stored 7`, exactly the
//! commits up to number 7 were durable, acknowledged or not. The effects of an event that is
//! followed by `...` are not shown. The core is audited after every event, except for `dispatch
//! unaudited`.

use std::collections::VecDeque;
use std::fmt::Write as _;

use filch_scheduler::agent::{self, Agent, Home, Reserve};
use filch_scheduler::dispatch::{self, Dispatch, DispatchEffect};
use filch_scheduler::id::{CommitNo, JobId};
use filch_scheduler::message::Serves;
use filch_scheduler::record::{Mutation, Strategy};
use filch_scheduler::time::{Duration, Now};
use filch_scheduler::trace::{Context, Readable, Traced, parse, parse_line, print};
use filch_store::Memory;

use crate::check::Violation;
use crate::script;
use crate::search::{self, SearchStats};

/// The result of a replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Replayed {
    /// A trace, as it plays now. `difference` is the first line that differs from the file.
    Trace {
        /// The whole trace.
        played: String,
        /// The line of the file, and the line that was played.
        difference: Option<(String, String)>,
    },
    /// A run.
    Run {
        /// What happened.
        stats: SearchStats,
        /// The rule that was broken, if one was.
        violation: Option<Violation>,
    },
}

/// Plays a trace or a run.
///
/// # Errors
/// Names the invalid line.
pub fn replay(text: &str) -> Result<Replayed, String> {
    let mut lines = text.lines().map(str::trim);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
    let Some(first) = first else {
        return Err("the file is empty: expected a trace or a run".to_owned());
    };
    if first.split_whitespace().next() == Some("run") {
        let (stats, violation) = search::play(&script::parse(text)?);
        return Ok(Replayed::Run { stats, violation });
    }
    let played = play(text)?;
    // A trace without effects has nothing to compare with.
    if !text.lines().any(|line| line.trim_start().starts_with("->")) {
        return Ok(Replayed::Trace { played, difference: None });
    }
    let pairs = text.lines().map(str::trim_end).zip(played.lines());
    let different = |(written, now): (&str, &str)| (written.to_owned(), now.to_owned());
    let difference = pairs.into_iter().find(|(written, now)| written != now).map(different);
    let lengths = (text.lines().count(), played.lines().count());
    let longer = || (format!("{} lines", lengths.0), format!("{} lines", lengths.1));
    let difference = difference.or_else(|| (lengths.0 != lengths.1).then(longer));
    Ok(Replayed::Trace { played, difference })
}

/// The same trace with the present effects of its events, or why it cannot be played.
///
/// # Errors
/// Names the invalid line, or the line at which an audit failed.
pub fn play(trace: &str) -> Result<String, String> {
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
    brain: Brain,
}

#[expect(clippy::large_enum_variant, reason = "there is one of it")]
enum Brain {
    Dispatch(Server),
    Agent(Agent),
}

/// A server with its store.
struct Server {
    dispatch: Dispatch,
    config: dispatch::DispatchConfig,
    store: Memory,
    /// Commits that are not durable yet.
    pending: VecDeque<(CommitNo, Vec<Mutation>)>,
    receipts: Receipts,
    is_audited: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Receipts {
    AtOnce,
    ByHand,
}

impl Player {
    fn new(header: &str) -> Result<(Self, Vec<String>), String> {
        let mut words: Vec<&str> = header.split_whitespace().collect();
        let name = words.remove(0);
        let mut context = Context::default();
        let (brain, effects) = match name {
            "dispatch" => (Brain::Dispatch(Server::new(&mut words, &context)?), Vec::new()),
            "agent" => {
                let config = agent_config(&mut words, &context)?;
                let mut effects = Vec::new();
                let agent = Agent::new(config, Now::default(), &mut effects);
                (Brain::Agent(agent), texts(&effects, &mut context))
            }
            _ => return Err(format!("expected `dispatch` or `agent`, found `{name}`")),
        };
        match words.first() {
            Some(word) => Err(format!("unknown setting `{word}`")),
            None => Ok((Self { context, brain }, effects)),
        }
    }

    fn line(&mut self, line: &str) -> Result<Vec<String>, String> {
        let (now, rest) = parse_line(line, &mut self.context).map_err(|e| e.to_string())?;
        match &mut self.brain {
            Brain::Dispatch(server) => server.line(now, rest, &mut self.context),
            Brain::Agent(agent) => {
                let event: agent::AgentEvent = read(rest, &self.context)?;
                event.learn(&mut self.context);
                let mut effects = Vec::new();
                agent.handle(now, event, &mut effects);
                agent.audit().map_err(|error| error.to_string())?;
                Ok(texts(&effects, &mut self.context))
            }
        }
    }
}

impl Server {
    fn new(words: &mut Vec<&str>, context: &Context) -> Result<Self, String> {
        let receipts = match words.ends_with(&["receipts", "by-hand"]) {
            true => Receipts::ByHand,
            false => Receipts::AtOnce,
        };
        if receipts == Receipts::ByHand {
            words.truncate(words.len() - 2);
        }
        let is_audited = !words.contains(&"unaudited");
        words.retain(|word| *word != "unaudited");
        let config = dispatch_config(words, context)?;
        let dispatch = Dispatch::new(config.clone(), Now::default());
        let (store, pending) = (Memory::default(), VecDeque::new());
        Ok(Self { dispatch, config, store, pending, receipts, is_audited })
    }

    fn line(&mut self, now: Now, line: &str, context: &mut Context) -> Result<Vec<String>, String> {
        if let Some(job) = line.strip_prefix("why ") {
            let id: JobId = read(job, context)?;
            let why = self.dispatch.why(id);
            return Ok(vec![why.map_or("unknown".into(), |why| print(&why, context))]);
        }
        let mut effects = Vec::new();
        if let Some(change) = line.strip_prefix("restart") {
            self.restart(now, change, context, &mut effects)?;
        } else {
            let event: dispatch::DispatchEvent = read(line, context)?;
            event.learn(context);
            if let dispatch::DispatchEvent::Committed(number) = event {
                self.store_up_to(number)?;
            }
            self.dispatch.handle(now, event, &mut effects);
        }
        let mut told = texts(&effects, context);
        let last = self.gather(effects);
        if let Some(last) = last.filter(|_| self.receipts == Receipts::AtOnce) {
            self.store_up_to(last)?;
            let mut effects = Vec::new();
            self.dispatch.handle(now, dispatch::DispatchEvent::Committed(last), &mut effects);
            told.extend(texts(&effects, context));
            if self.gather(effects).is_some() {
                return Err("an acknowledged commit must not cause another commit".into());
            }
        }
        if self.is_audited {
            self.dispatch.audit().map_err(|error| error.to_string())?;
        }
        Ok(told)
    }

    fn restart(
        &mut self,
        now: Now,
        change: &str,
        context: &Context,
        effects: &mut Vec<DispatchEffect>,
    ) -> Result<(), String> {
        let mut words: Vec<&str> = change.split_whitespace().collect();
        if let Some(lease) = setting(&mut words, "lease", 1, context)? {
            self.config.lease = lease;
        }
        let count = if words.contains(&"priority") { 2 } else { 1 };
        if let Some(strategy) = setting(&mut words, "strategy", count, context)? {
            self.config.strategy = strategy;
        }
        let stored: Option<u64> = setting(&mut words, "stored", 1, context)?;
        if let Some(word) = words.first() {
            return Err(format!("unknown setting of a restart: `{word}`"));
        }
        self.store_up_to(CommitNo(stored.unwrap_or(u64::MAX)))?;
        self.pending.clear();
        let loaded = Dispatch::load(self.config.clone(), now, self.store.load(), effects);
        self.dispatch = loaded.map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Collects the commits, and returns the number of the newest.
    fn gather(&mut self, effects: Vec<DispatchEffect>) -> Option<CommitNo> {
        for effect in effects {
            if let DispatchEffect::Commit { number, mutations } = effect {
                self.pending.push_back((number, mutations));
            }
        }
        self.pending.back().map(|(number, _)| *number)
    }

    fn store_up_to(&mut self, last: CommitNo) -> Result<(), String> {
        while let Some((number, mutations)) =
            self.pending.pop_front_if(|(number, _)| *number <= last)
        {
            self.store.commit(number, &mutations).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

fn read<T: Readable>(text: &str, context: &Context) -> Result<T, String> {
    parse(text, context).map_err(|error| error.to_string())
}

/// Each effect as text. A later one may omit what an earlier one has defined.
fn texts<T: Traced>(effects: &[T], context: &mut Context) -> Vec<String> {
    let text = |effect: &T| {
        let text = print(effect, context);
        effect.learn(context);
        text
    };
    effects.iter().map(text).collect()
}

/// Removes `name value` from the words of the header.
fn setting<T: Readable>(
    words: &mut Vec<&str>,
    name: &str,
    count: usize,
    context: &Context,
) -> Result<Option<T>, String> {
    let Some(at) = words.iter().position(|word| *word == name) else {
        return Ok(None);
    };
    if at + count >= words.len() {
        return Err(format!("`{name}` needs a value"));
    }
    let value: Vec<&str> = words.drain(at..=at + count).skip(1).collect();
    read(&value.join(" "), context).map(Some)
}

fn dispatch_config(
    words: &mut Vec<&str>,
    context: &Context,
) -> Result<dispatch::DispatchConfig, String> {
    let mut config = dispatch::DispatchConfig {
        strategy: Strategy::Fifo,
        ..dispatch::DispatchConfig::default()
    };
    if let Some(seed) = setting(words, "seed", 1, context)? {
        config.seed = seed;
    }
    if let Some(lease) = setting::<Duration>(words, "lease", 1, context)? {
        config.lease = lease;
    }
    if let Some(steal) = setting(words, "steal", 1, context)? {
        config.steal = steal;
    }
    if let Some(most) = setting::<u64>(words, "full-at", 1, context)? {
        config.limits.unreceipted = most as usize;
    }
    let aging = words.contains(&"priority");
    if let Some(strategy) = setting(words, "strategy", if aging { 2 } else { 1 }, context)? {
        config.strategy = strategy;
    }
    Ok(config)
}

fn agent_config(words: &mut Vec<&str>, context: &Context) -> Result<agent::AgentConfig, String> {
    let mut config = agent::AgentConfig::default();
    if let Some(seed) = setting(words, "seed", 1, context)? {
        config.seed = seed;
    }
    if let Some(slots) = setting(words, "slots", 1, context)? {
        config.slots = slots;
    }
    if let Some(reserve) = setting(words, "reserve", 1, context)? {
        config.reserve = Reserve::Fixed(reserve);
    }
    if let Some(bytes) = setting::<u32>(words, "report-bytes", 1, context)? {
        config.report_bytes_max = bytes as usize;
    }
    if let Some(rest) = setting(words, "rest", 1, context)? {
        config.rest_max = rest;
    }
    if words.first() == Some(&"embedded") {
        words.remove(0);
        config.home = Home::Embedded;
    }
    if words.first() == Some(&"serves") {
        let queues = words.drain(..).skip(1).map(Into::into).collect();
        config.serves = Serves::Named(queues);
    }
    Ok(config)
}

/// The first line of a server's trace.
pub(crate) fn dispatch_header(config: &dispatch::DispatchConfig) -> String {
    let context = Context::default();
    let (lease, strategy) = (print(&config.lease, &context), print(&config.strategy, &context));
    let (steal, seed) = (print(&config.steal, &context), config.seed);
    let most = config.limits.unreceipted;
    format!(
        "dispatch lease {lease} strategy {strategy} steal {steal} seed {seed} full-at {most} \
         receipts by-hand"
    )
}

/// The settings of a restarted server.
pub(crate) fn restart_settings(config: &dispatch::DispatchConfig) -> String {
    let context = Context::default();
    let (lease, strategy) = (print(&config.lease, &context), print(&config.strategy, &context));
    format!("lease {lease} strategy {strategy}")
}

/// The first line of a worker's trace.
pub(crate) fn agent_header(config: &agent::AgentConfig) -> String {
    let mut header = format!("agent slots {} seed {}", config.slots, config.seed);
    let mut add = |text: &str| header.push_str(text);
    if let Reserve::Fixed(reserve) = config.reserve {
        add(&format!(" reserve {reserve}"));
    }
    if config.report_bytes_max != agent::AgentConfig::default().report_bytes_max {
        add(&format!(" report-bytes {}", config.report_bytes_max));
    }
    if config.rest_max != agent::AgentConfig::default().rest_max {
        add(&format!(" rest {}", print(&config.rest_max, &Context::default())));
    }
    if config.home == Home::Embedded {
        add(" embedded");
    }
    if let Serves::Named(queues) = &config.serves {
        add(" serves");
        for queue in queues {
            add(&format!(" {queue}"));
        }
    }
    header
}
