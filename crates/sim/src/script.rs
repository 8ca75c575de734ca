//! A plan as text: the format of the files in `found/`, which a replay plays.
//!
//! ```text
//! run seed 17 lease 10s strategy fifo steal half commit 100us 2ms retention - heals 90s
//! clients delay 200us 20ms lost 0 repeated 0 overtaken 0
//! worker slots 1 reserve auto home apart rate 1000000 delay 100us 2ms lost 0 repeated 0 overtaken 0 serves all
//! http slots 1 id 1 rate 1000000 delay 100us 2ms lost 0 repeated 0 overtaken 0 serves all
//! 1s ask 3 submit [a kind run-20ms; b after a]
//! 2s crash 1 away 3s
//! ```
//!
//! Workers are numbered from 1, in their order, and so are workers over plain HTTP (`http`). Empty
//! lines and lines that begin with `#` are ignored.

use std::fmt::{Display, Write as _};
use std::time::Duration;

use filch_scheduler::agent::{Home, Reserve};
use filch_scheduler::dispatch::{Request, Steal};
use filch_scheduler::message::Serves;
use filch_scheduler::record::Strategy;
use filch_scheduler::trace::{self, Context, Readable};

use crate::plan::{
    CrashMoment, CutDirection, CutMessages, HttpFault, HttpMember, Intrusion, Member,
    NetworkConditions, Paused, Plan, PlannedEvent, SeenBy,
};
use crate::work;

/// The plan as text.
#[must_use]
pub fn print(plan: &Plan) -> String {
    let mut lines = vec![print_head(plan), format!("clients {}", print_network(plan.clients))];
    lines.extend(plan.members.iter().map(print_member));
    lines.extend(plan.http_members.iter().map(print_http_member));
    lines.extend(plan.acts.iter().map(|(at, act)| format!("{} {}", word(at), print_act(act))));
    lines.into_iter().fold(String::new(), |mut text, line| {
        writeln!(text, "{line}").expect("a string takes everything");
        text
    })
}

/// Parses the output of [`print()`].
///
/// # Errors
/// Names the invalid line, and what was expected there.
pub fn parse(text: &str) -> Result<Plan, String> {
    let mut plan: Option<Plan> = None;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut words = Words { rest: line };
        let read = match &mut plan {
            None => parse_head(&mut words).map(|head| plan = Some(head)),
            Some(plan) => parse_line(&mut words, plan),
        };
        read.map_err(|error| format!("line {}: {error}", at + 1))?;
    }
    let plan = plan.ok_or_else(|| "no line begins with `run`".to_owned())?;
    if plan.members.is_empty() {
        return Err("no line begins with `worker`: at least one worker is needed".into());
    }
    Ok(plan)
}

/// The longest duration, so that no clock overflows.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// With a shorter lease there would be little but heartbeats.
const SHORTEST_LEASE: Duration = Duration::from_millis(100);

/// The largest jump of a wall clock.
const FARTHEST_JUMP_MS: i64 = 365 * 24 * 60 * 60 * 1_000;

fn in_bounds(span: Duration, least: Duration, most: Duration) -> Result<(), String> {
    match (least..=most).contains(&span) {
        true => Ok(()),
        false => Err(format!("{span:?} is not between {least:?} and {most:?}")),
    }
}

fn check_range((least, most): (Duration, Duration)) -> Result<(), String> {
    in_bounds(most, Duration::ZERO, LONGEST)?;
    match least <= most {
        true => Ok(()),
        false => Err(format!("the minimum {least:?} is longer than the maximum {most:?}")),
    }
}

fn word<T: Readable>(value: &T) -> String {
    trace::print(value, &Context::default())
}

fn print_head(plan: &Plan) -> String {
    let full_at = plan.unreceipted.map(|most| format!(" full-at {most}")).unwrap_or_default();
    let batches = plan.batch_bytes.map(|most| format!(" batch-bytes {most}")).unwrap_or_default();
    let Plan { seed, lease, strategy, steal, commit: (least, most), retention, heals_at, .. } =
        plan;
    format!(
        "run seed {seed} lease {} strategy {} steal {} commit {} {} retention {} heals {}{full_at}{batches}",
        word(lease),
        word(strategy),
        word(steal),
        word(least),
        word(most),
        optional(retention),
        optional(heals_at)
    )
}

fn optional(span: &Option<Duration>) -> String {
    span.as_ref().map_or_else(|| "-".to_owned(), word)
}

fn print_network(network: NetworkConditions) -> String {
    let NetworkConditions { delay: (least, most), lost, repeated, overtaken } = network;
    let (least, most) = (word(&least), word(&most));
    format!("delay {least} {most} lost {lost} repeated {repeated} overtaken {overtaken}")
}

fn print_member(member: &Member) -> String {
    let Member { slots, reserve, home, is_hostile, serves, rate, network } = member;
    let reserve = match reserve {
        Reserve::Auto { .. } => "auto".to_owned(),
        Reserve::Fixed(reserve) => reserve.to_string(),
    };
    let home = match home {
        Home::Apart if *is_hostile => "hostile",
        Home::Apart => "apart",
        Home::Embedded => "embedded",
    };
    let (serves, network) = (word(serves), print_network(*network));
    format!(
        "worker slots {slots} reserve {reserve} home {home} rate {rate} {network} serves {serves}"
    )
}

fn print_http_member(member: &HttpMember) -> String {
    let HttpMember { slots, id, serves, rate, network } = member;
    let (serves, network) = (word(serves), print_network(*network));
    format!("http slots {slots} id {id} rate {rate} {network} serves {serves}")
}

fn print_http_fault(fault: &HttpFault) -> String {
    match fault {
        HttpFault::Crash { away } => format!("crash away {}", word(away)),
        HttpFault::Pause { span } => format!("pause for {}", word(span)),
        HttpFault::Cut { span } => format!("cut for {}", word(span)),
        HttpFault::Drain => "drain".to_owned(),
    }
}

fn print_act(act: &PlannedEvent) -> String {
    let number = |place: &usize| place + 1;
    match act {
        PlannedEvent::Ask { request, tries } => format!("ask {tries} {}", word(request)),
        PlannedEvent::OperatorDrain { place } => format!("operator-drain {}", number(place)),
        PlannedEvent::Drain { place, grace } => {
            format!("drain {} grace {}", number(place), word(grace))
        }
        PlannedEvent::Crash { place, away } => {
            format!("crash {} away {}", number(place), word(away))
        }
        PlannedEvent::Pause { place, span, jobs } => {
            let jobs = one_of(&PAUSED, *jobs);
            format!("pause {} for {} jobs {jobs}", number(place), word(span))
        }
        PlannedEvent::Cut { place, direction, span, messages } => {
            let (direction, messages) =
                (one_of(&DIRECTIONS, *direction), one_of(&MESSAGES, *messages));
            format!("cut {} {direction} for {} messages {messages}", number(place), word(span))
        }
        PlannedEvent::Break { place, seen_by } => {
            format!("break {} seen-by {}", number(place), one_of(&SEEN_BY, *seen_by))
        }
        PlannedEvent::BreakAll { seen_by } => {
            format!("break-all seen-by {}", one_of(&SEEN_BY, *seen_by))
        }
        PlannedEvent::NetworkConditions { place, span, network } => {
            let network = print_network(*network);
            format!("network {} for {} {network}", number(place), word(span))
        }
        PlannedEvent::JumpWall { place, by_ms } => {
            let whose = place.map_or("server".to_owned(), |place| (place + 1).to_string());
            format!("jump-wall {whose} by-ms {by_ms}")
        }
        PlannedEvent::CrashServer { away, noticed, when } => {
            let (noticed, when) = (one_of(&YES_OR_NO, *noticed), one_of(&MOMENTS, *when));
            format!("crash-server away {} noticed {noticed} when {when}", word(away))
        }
        PlannedEvent::SuspendServer { span } => format!("suspend-server for {}", word(span)),
        PlannedEvent::Reconfigure { away, lease, strategy, retention } => {
            let (away, lease, strategy) = (word(away), word(lease), word(strategy));
            let retention = optional(retention);
            format!(
                "reconfigure away {away} lease {lease} retention {retention} strategy {strategy}"
            )
        }
        PlannedEvent::Reshape { place, slots, serves } => {
            format!("reshape {} slots {slots} serves {}", number(place), word(serves))
        }
        PlannedEvent::Http { member, fault } => {
            format!("http {} {}", number(member), print_http_fault(fault))
        }
        PlannedEvent::Intrude { place, deed } => {
            format!("intrude {} {}", number(place), one_of(&INTRUSIONS, *deed))
        }
        PlannedEvent::SlowStore { span, by } => {
            format!("slow-store for {} by {}", word(span), word(by))
        }
        PlannedEvent::FailingRetention { span, failed } => {
            format!("failing-retention for {} failed {failed}", word(span))
        }
        PlannedEvent::UnreliableStore { span, unknown } => {
            format!("unreliable-store for {} unknown {unknown}", word(span))
        }
    }
}

const PAUSED: [(&str, Paused); 2] = [("frozen", Paused::Frozen), ("go-on", Paused::GoOn)];
const DIRECTIONS: [(&str, CutDirection); 3] = [
    ("both", CutDirection::Both),
    ("to-server", CutDirection::ToServer),
    ("to-worker", CutDirection::ToWorker),
];
const MESSAGES: [(&str, CutMessages); 3] =
    [("lost", CutMessages::Lost), ("late", CutMessages::Late), ("stuck", CutMessages::Stuck)];
const YES_OR_NO: [(&str, bool); 2] = [("yes", true), ("no", false)];
const MOMENTS: [(&str, CrashMoment); 3] = [
    ("now", CrashMoment::Now),
    ("during-commit", CrashMoment::DuringCommit),
    ("during-read", CrashMoment::DuringRead),
];
const INTRUSIONS: [(&str, Intrusion); 6] = [
    ("resume", Intrusion::Resume),
    ("goodbye", Intrusion::Goodbye),
    ("report", Intrusion::Report),
    ("same-session", Intrusion::SameSession),
    ("old-session", Intrusion::OldSession),
    ("many-ids", Intrusion::ManyIds),
];
const SEEN_BY: [(&str, SeenBy); 3] =
    [("both", SeenBy::Both), ("server", SeenBy::Server), ("worker", SeenBy::Worker)];

fn one_of<T: Copy + PartialEq>(names: &[(&'static str, T)], value: T) -> &'static str {
    names.iter().find(|(_, it)| *it == value).map_or("", |(name, _)| name)
}

/// A line that is being parsed.
struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Result<&'a str, String> {
        let (word, rest) = self.rest.split_once(' ').unwrap_or((self.rest, ""));
        self.rest = rest.trim_start();
        if word.is_empty() { Err("unexpected end of line".to_owned()) } else { Ok(word) }
    }

    fn expect(&mut self, expected: &str) -> Result<(), String> {
        let found = self.next()?;
        if found == expected {
            Ok(())
        } else {
            Err(format!("expected `{expected}`, found `{found}`"))
        }
    }

    /// The value after this name.
    fn read<T: Readable>(&mut self, name: &str) -> Result<T, String> {
        self.expect(name)?;
        read(self.next()?)
    }

    /// The duration after this name.
    fn span(&mut self, name: &str) -> Result<Duration, String> {
        let span = self.read(name)?;
        in_bounds(span, Duration::ZERO, LONGEST)?;
        Ok(span)
    }

    fn number<T: std::str::FromStr<Err: Display>>(&mut self, name: &str) -> Result<T, String> {
        self.expect(name)?;
        let found = self.next()?;
        found.parse().map_err(|error| format!("invalid number `{found}` for `{name}`: {error}"))
    }

    fn optional(&mut self, name: &str) -> Result<Option<Duration>, String> {
        self.expect(name)?;
        match self.next()? {
            "-" => Ok(None),
            span => read(span).map(Some),
        }
    }

    fn choice<T: Copy>(&mut self, names: &[(&'static str, T)]) -> Result<T, String> {
        let found = self.next()?;
        let choice = names.iter().find(|(name, _)| *name == found).map(|(_, value)| *value);
        let all: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        choice.ok_or_else(|| format!("expected one of {}, found `{found}`", all.join(", ")))
    }

    fn place(&mut self, plan: &Plan) -> Result<usize, String> {
        let found = self.next()?;
        let number: Option<usize> = found.parse().ok();
        let place = number.and_then(|number| number.checked_sub(1));
        let place = place.filter(|&place| place < plan.members.len());
        place.ok_or_else(|| format!("unknown worker `{found}`"))
    }

    fn http_member(&mut self, plan: &Plan) -> Result<usize, String> {
        let found = self.next()?;
        let number: Option<usize> = found.parse().ok();
        let member = number.and_then(|number| number.checked_sub(1));
        let member = member.filter(|&member| member < plan.http_members.len());
        member.ok_or_else(|| format!("unknown worker over plain HTTP `{found}`"))
    }

    fn end(&self) -> Result<(), String> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(format!("unexpected `{}` at the end of the line", self.rest))
        }
    }
}

fn read<T: Readable>(text: &str) -> Result<T, String> {
    trace::parse(text, &Context::default()).map_err(|error| error.to_string())
}

fn parse_head(words: &mut Words<'_>) -> Result<Plan, String> {
    words.expect("run")?;
    let seed = words.number("seed")?;
    let lease = words.read("lease")?;
    words.expect("strategy")?;
    // The strategy `priority` is followed by a duration.
    let strategy = match words.next()? {
        "priority" => read::<Strategy>(&format!("priority {}", words.next()?))?,
        name => read::<Strategy>(name)?,
    };
    let steal: Steal = words.read("steal")?;
    let commit = (words.read("commit")?, read(words.next()?)?);
    let (retention, heals_at) = (words.optional("retention")?, words.optional("heals")?);
    let is_small = words.rest.starts_with("full-at ");
    let unreceipted = is_small.then(|| words.number("full-at")).transpose()?;
    let is_paced = words.rest.starts_with("batch-bytes ");
    let batch_bytes = is_paced.then(|| words.number("batch-bytes")).transpose()?;
    words.end()?;
    in_bounds(lease, SHORTEST_LEASE, LONGEST)?;
    check_range(commit)?;
    let Some(heals) = heals_at else {
        return Err("`heals -` would never end: give the time at which faults end".to_owned());
    };
    in_bounds(heals, Duration::ZERO, LONGEST)?;
    let clients = NetworkConditions::fair(Duration::ZERO);
    let (members, http_members, acts) = (Vec::new(), Vec::new(), Vec::new());
    Ok(Plan {
        seed,
        lease,
        strategy,
        steal,
        commit,
        retention,
        unreceipted,
        batch_bytes,
        heals_at,
        clients,
        members,
        http_members,
        acts,
    })
}

fn parse_line(words: &mut Words<'_>, plan: &mut Plan) -> Result<(), String> {
    match words.next()? {
        "clients" => {
            plan.clients = parse_network(words)?;
            words.end()
        }
        "worker" => {
            plan.members.push(parse_member(words)?);
            Ok(())
        }
        "http" => {
            plan.http_members.push(parse_http_member(words)?);
            Ok(())
        }
        moment => {
            let at: Duration = read(moment)?;
            in_bounds(at, Duration::ZERO, LONGEST)?;
            let is_late = plan.acts.last().is_none_or(|(before, _)| *before <= at);
            if !is_late {
                return Err(format!("`{moment}` is before the time of the previous line"));
            }
            let act = parse_act(words, plan)?;
            plan.acts.push((at, act));
            Ok(())
        }
    }
}

fn parse_network(words: &mut Words<'_>) -> Result<NetworkConditions, String> {
    let delay: (Duration, Duration) = (words.read("delay")?, read(words.next()?)?);
    check_range(delay)?;
    let (lost, repeated) = (words.number("lost")?, words.number("repeated")?);
    Ok(NetworkConditions { delay, lost, repeated, overtaken: words.number("overtaken")? })
}

fn parse_slots(words: &mut Words<'_>) -> Result<u32, String> {
    match words.number("slots")? {
        0 => Err("a worker needs at least one slot".to_owned()),
        slots => Ok(slots),
    }
}

fn parse_rate(words: &mut Words<'_>) -> Result<u32, String> {
    let rate: u32 = words.number("rate")?;
    match (100_000..=10_000_000).contains(&rate) {
        true => Ok(rate),
        false => Err(format!("the rate of a clock must be from 100000 to 10000000, not {rate}")),
    }
}

fn parse_http_member(words: &mut Words<'_>) -> Result<HttpMember, String> {
    let (slots, id) = (parse_slots(words)?, words.number("id")?);
    let (rate, network) = (parse_rate(words)?, parse_network(words)?);
    words.expect("serves")?;
    Ok(HttpMember { slots, id, serves: read(words.rest)?, rate, network })
}

fn parse_http_fault(words: &mut Words<'_>) -> Result<HttpFault, String> {
    Ok(match words.next()? {
        "crash" => HttpFault::Crash { away: words.span("away")? },
        "pause" => HttpFault::Pause { span: words.span("for")? },
        "cut" => HttpFault::Cut { span: words.span("for")? },
        "drain" => HttpFault::Drain,
        other => return Err(format!("unknown event `http {other}`")),
    })
}

fn parse_member(words: &mut Words<'_>) -> Result<Member, String> {
    let slots = parse_slots(words)?;
    words.expect("reserve")?;
    let reserve = match words.next()? {
        "auto" => Reserve::default(),
        number => Reserve::Fixed(read(number)?),
    };
    words.expect("home")?;
    let (home, is_hostile) = words.choice(&[
        ("apart", (Home::Apart, false)),
        ("hostile", (Home::Apart, true)),
        ("embedded", (Home::Embedded, false)),
    ])?;
    let (rate, network) = (parse_rate(words)?, parse_network(words)?);
    words.expect("serves")?;
    let serves: Serves = read(words.rest)?;
    Ok(Member { slots, reserve, home, is_hostile, serves, rate, network })
}

fn parse_act(words: &mut Words<'_>, plan: &Plan) -> Result<PlannedEvent, String> {
    let act = match words.next()? {
        "ask" => {
            let found = words.next()?;
            let tries = found.parse().map_err(|_| format!("invalid number of tries `{found}`"))?;
            let request = read(words.rest)?;
            check_work(&request)?;
            words.rest = "";
            PlannedEvent::Ask { request, tries }
        }
        "operator-drain" => PlannedEvent::OperatorDrain { place: words.place(plan)? },
        "drain" => PlannedEvent::Drain { place: words.place(plan)?, grace: words.span("grace")? },
        "crash" => PlannedEvent::Crash { place: words.place(plan)?, away: words.span("away")? },
        "pause" => {
            let (place, span) = (words.place(plan)?, words.span("for")?);
            words.expect("jobs")?;
            PlannedEvent::Pause { place, span, jobs: words.choice(&PAUSED)? }
        }
        "cut" => {
            let (place, direction) = (words.place(plan)?, words.choice(&DIRECTIONS)?);
            let span = words.span("for")?;
            words.expect("messages")?;
            PlannedEvent::Cut { place, direction, span, messages: words.choice(&MESSAGES)? }
        }
        "suspend-server" => PlannedEvent::SuspendServer { span: words.span("for")? },
        "reconfigure" => {
            let (away, lease) = (words.span("away")?, words.span("lease")?);
            in_bounds(lease, SHORTEST_LEASE, LONGEST)?;
            let retention = words.optional("retention")?;
            words.expect("strategy")?;
            let strategy = read::<Strategy>(words.rest)?;
            words.rest = "";
            PlannedEvent::Reconfigure { away, lease, strategy, retention }
        }
        "reshape" => {
            let (place, slots) = (words.place(plan)?, words.number("slots")?);
            if slots == 0 {
                return Err("a worker needs at least one slot".to_owned());
            }
            words.expect("serves")?;
            let serves = read(words.rest)?;
            words.rest = "";
            PlannedEvent::Reshape { place, slots, serves }
        }
        "http" => {
            let member = words.http_member(plan)?;
            PlannedEvent::Http { member, fault: parse_http_fault(words)? }
        }
        "intrude" => {
            let place = words.place(plan)?;
            PlannedEvent::Intrude { place, deed: words.choice(&INTRUSIONS)? }
        }
        "break" => {
            let place = words.place(plan)?;
            words.expect("seen-by")?;
            PlannedEvent::Break { place, seen_by: words.choice(&SEEN_BY)? }
        }
        "break-all" => {
            words.expect("seen-by")?;
            PlannedEvent::BreakAll { seen_by: words.choice(&SEEN_BY)? }
        }
        "network" => {
            let (place, span) = (words.place(plan)?, words.span("for")?);
            PlannedEvent::NetworkConditions { place, span, network: parse_network(words)? }
        }
        "jump-wall" => {
            let place = match words.rest.strip_prefix("server ") {
                Some(rest) => {
                    words.rest = rest;
                    None
                }
                None => Some(words.place(plan)?),
            };
            let by_ms = words.number("by-ms")?;
            if !(-FARTHEST_JUMP_MS..=FARTHEST_JUMP_MS).contains(&by_ms) {
                return Err(format!("a wall clock can jump at most {FARTHEST_JUMP_MS} ms"));
            }
            PlannedEvent::JumpWall { place, by_ms }
        }
        "crash-server" => {
            let away = words.span("away")?;
            words.expect("noticed")?;
            let noticed = words.choice(&YES_OR_NO)?;
            words.expect("when")?;
            PlannedEvent::CrashServer { away, noticed, when: words.choice(&MOMENTS)? }
        }
        "slow-store" => PlannedEvent::SlowStore { span: words.span("for")?, by: words.span("by")? },
        "failing-retention" => PlannedEvent::FailingRetention {
            span: words.span("for")?,
            failed: words.number("failed")?,
        },
        "unreliable-store" => PlannedEvent::UnreliableStore {
            span: words.span("for")?,
            unknown: words.number("unknown")?,
        },
        other => return Err(format!("unknown event `{other}`")),
    };
    words.end()?;
    Ok(act)
}

/// What jobs do when they run comes to an end.
fn check_work(request: &Request) -> Result<(), String> {
    for spec in request.submitted() {
        let sum = work::all_runs(&spec.kind);
        let sum = sum.ok_or_else(|| format!("jobs of kind {:?} run for too long", spec.kind))?;
        in_bounds(sum, Duration::ZERO, LONGEST)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::Faults;

    #[test]
    fn a_printed_plan_can_be_parsed() {
        for seed in 0..50 {
            let plan = crate::swarm::draw(seed, 6, Duration::from_secs(60), Faults::All);
            let text = print(&plan);
            assert_eq!(parse(&text).as_ref(), Ok(&plan), "{text}");
        }
    }

    #[test]
    fn the_example_in_the_documentation_is_valid() {
        let text = include_str!("script.rs");
        let example = text.split("```text\n").nth(1).and_then(|rest| rest.split("//! ```").next());
        let lines = example.expect("it is there").lines();
        let example: Vec<&str> = lines.map(|line| line.trim_start_matches("//! ")).collect();
        let plan = parse(&example.join("\n")).expect("an example is right");
        assert_eq!((plan.members.len(), plan.acts.len()), (1, 2));
    }

    #[test]
    fn errors_name_the_invalid_line() {
        let head =
            "run seed 1 lease 10s strategy fifo steal half commit 1ms 1ms retention - heals 9s";
        for (text, error) in [
            ("", "no line begins with `run`"),
            ("walk", "line 1: expected `run`, found `walk`"),
            (head, "no line begins with `worker`: at least one worker is needed"),
            (
                &head.replace("1ms 1ms", "2ms 1ms"),
                "line 1: the minimum 2ms is longer than the maximum 1ms",
            ),
            (&head.replace("10s", "0s"), "line 1: 0ns is not between 100ms and 86400s"),
            (
                &head.replace("heals 9s", "heals -"),
                "line 1: `heals -` would never end: give the time at which faults end",
            ),
            (
                &format!("{head}\n1s ask 1 submit a kind fail-4000000000-1s"),
                "line 2: jobs of kind \"fail-4000000000-1s\" run for too long",
            ),
            (&format!("{head}\n1s crash 2 away 1s"), "line 2: unknown worker `2`"),
            (&format!("{head}\n\n1s explode"), "line 3: unknown event `explode`"),
            (&format!("{head} now"), "line 1: unexpected `now` at the end of the line"),
            (
                &format!("{head}\n2s crash-server away 1s noticed yes when now\n1s x"),
                "line 3: `1s` is before the time of the previous line",
            ),
        ] {
            assert_eq!(parse(text), Err(error.to_owned()), "{text}");
        }
    }
}
