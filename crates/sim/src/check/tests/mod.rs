//! Tests of each rule: histories that break it, and the smallest changes that make them valid.
//!
//! A history is a log in the format of a trace. The server receives events and has the effects that
//! the arrows list, a commit is stored and acknowledged at once (`store commit ...` is one that is
//! not acknowledged yet), and messages arrive when they are sent. Events of workers that are not
//! messages have lines of their own: `w1 starts a.1`, `w1 ends a.1 finished`,
//! `w1 runs a.1 finished` for both and the report; `w1 pauses` with its jobs, `w1 pauses alone` if
//! its jobs continue. Worker 1 runs on node 1, and so on; a worker that replaces another runs on
//! the same node.
//!
//! Histories are written as differences. A line with `-` is only in the log that breaks the rule,
//! one with `+` only in the valid one; `-2`, `+2` and so on are further versions of either kind.
//! Unmarked lines are in all.
//!
//! The other files have the histories of the checkers of the same name.

mod cancel;
mod charge;
mod liveness;
mod order;
mod outcome;
mod ownership;
mod retention;
mod shell;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use filch_scheduler::agent::Verdict;
use filch_scheduler::dispatch::{DispatchEffect, DispatchEvent};
use filch_scheduler::id::WorkerId;
use filch_scheduler::message::{FromWorker, HelloKind, ToWorker};
use filch_scheduler::record::Strategy;
use filch_scheduler::time::Now;
use filch_scheduler::trace::{Context, Readable, Traced, parse, parse_line, print};

use super::{Checkers, Rule, Violation};
use crate::log::{ExecutionEnd, Observed, Observer};
use crate::plan::Paused;
use crate::work;

/// How long a worker may be silent, in every history.
const LEASE: Duration = Duration::from_secs(10);

/// How long ended jobs are kept.
const RETENTION: Duration = Duration::from_secs(60);

/// `a` is submitted and goes to the first worker, which has just been heard.
const OWNED: &str = "
    0s    submit a
      -> commit 1: put #1 at 0s: a: queued
    0s    w1: hello new slots 1 want 1
      -> commit 2: lease 1 w1 claimed a.1 at 0s
      -> tell w1: renewed 1, reconcile lease 10s keep [], assign a.1
";

/// The same, but `a` may be tried only once.
const OWNED_ONCE: &str = "
    0s    submit a attempts 1
      -> commit 1: put #1 at 0s: a attempts 1: queued
    0s    w1: hello new slots 1 want 1
      -> commit 2: lease 1 w1 claimed a.1 at 0s
      -> tell w1: renewed 1, reconcile lease 10s keep [], assign a.1
";

/// The first worker is lost, and a second one is given `a`.
const LOST: &str = "
    10s   tick
      -> commit 3: note lost w1 with 1, note attempt a.1 by w1 lost-alone, write a queued fence 2 charged 1 suspicions 1, lease 2 nobody lost-by w1 a.2 at 10s
    10s   w2: hello new slots 1 want 1
      -> commit 4: lease 3 w2 claimed a.3 at 10s
      -> tell w2: renewed 1, reconcile lease 10s keep [], assign a.3
";

/// Holds each version of a history against the rules: those with `-` break this one and say so in
/// these words, those with `+` break none.
fn breaks(rule: Rule, what: &str, history: &[&str]) {
    let history = history.concat();
    let lines = history.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let lines: Vec<(&str, &str)> = lines.map(marked).collect();
    let mut marks = BTreeSet::from(["-", "+"]);
    marks.extend(lines.iter().map(|(mark, _)| mark).filter(|mark| !mark.is_empty()));
    for mark in marks {
        let log = lines.iter().filter(|(it, _)| it.is_empty() || *it == mark);
        let log: Vec<&str> = log.map(|(_, line)| *line).collect();
        let found = play(&log, Some(RETENTION));
        let is_right = match &found {
            Some(found) => mark.starts_with('-') && found.rule == rule && found.what.contains(what),
            None => mark.starts_with('+'),
        };
        let log = log.join("\n");
        assert!(is_right, "version {mark} of {}, {what:?}: {found:?}\n{log}", rule.name());
    }
}

/// The mark of a line, if it has one, and the rest.
fn marked(line: &str) -> (&str, &str) {
    let (mark, rest) = line.split_once(' ').unwrap_or((line, ""));
    let number = mark.strip_prefix(['-', '+']);
    match number.is_some_and(|number| number.chars().all(|it| it.is_ascii_digit())) {
        true => (mark, rest.trim()),
        false => ("", line),
    }
}

/// What the rules find in this log, where ended jobs are kept for so long.
fn play(log: &[&str], retention: Option<Duration>) -> Option<Violation> {
    let mut player = Player {
        context: Context::default(),
        checkers: Checkers::new(retention),
        now: Now::default(),
        places: BTreeMap::new(),
    };
    player.start_server();
    for line in log {
        player.line(line);
    }
    player.checkers.violation().cloned()
}

struct Player {
    context: Context,
    checkers: Checkers,
    now: Now,
    /// Where each worker lives.
    places: BTreeMap<WorkerId, usize>,
}

impl Player {
    fn observe(&mut self, seen: Observed<'_>) {
        self.checkers.observe(self.now.monotonic, seen);
    }

    fn read<T: Readable>(&self, text: &str) -> T {
        parse(text, &self.context).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn start_server(&mut self) {
        self.observe(Observed::ServerStarted { lease: LEASE, strategy: Strategy::Fifo });
        self.observe(Observed::ServerRead(self.now));
    }

    fn line(&mut self, line: &str) {
        if let Some(effect) = line.strip_prefix("->") {
            let effect = self.read(effect);
            return self.server_does(effect);
        }
        let moment = parse_line(line, &mut self.context);
        let (now, what) = moment.unwrap_or_else(|error| panic!("{line}: {error}"));
        self.now = now;
        let (first, rest) = what.split_once(' ').unwrap_or((what, ""));
        if let Ok(worker) = parse(first, &self.context) {
            return self.worker_does(worker, rest);
        }
        match what {
            "server crashes" => self.observe(Observed::ServerCrashed),
            "server starts" => self.start_server(),
            "healed" => self.observe(Observed::Healed),
            "over" => self.observe(Observed::Over(now.wall)),
            _ if first == "trouble" => {
                let until = rest.strip_prefix("until ").expect("it has an end");
                self.observe(Observed::Trouble { place: None, until: self.read(until) });
            }
            _ if first == "store" => self.store(self.read(rest)),
            _ => self.server_hears(self.read(what)),
        }
    }

    fn server_hears(&mut self, event: DispatchEvent) {
        event.learn(&mut self.context);
        match &event {
            DispatchEvent::Request { from, request, .. } => {
                self.observe(Observed::Asked { request: *from, what: request });
            }
            DispatchEvent::Worker { worker, session, number, messages } => {
                let place = self.meet(*worker, messages);
                self.observe(Observed::Sent { place, worker: *worker, messages });
                let (worker, session, number) = (*worker, *session, *number);
                self.observe(Observed::Arrived { worker, session, number, messages });
            }
            DispatchEvent::Closed { worker, session } => {
                self.observe(Observed::Closed { worker: *worker, session: *session });
            }
            DispatchEvent::Committed(number) => self.observe(Observed::Receipted(*number)),
            DispatchEvent::Fetched { .. }
            | DispatchEvent::Expired(_)
            | DispatchEvent::Outdated { .. }
            | DispatchEvent::Tick => {}
        }
        self.observe(Observed::ServerRead(self.now));
    }

    /// The place from which this comes. The process of a newcomer begins with its hello.
    fn meet(&mut self, worker: WorkerId, messages: &[FromWorker]) -> usize {
        if let Some(FromWorker::Hello(hello)) = messages.first()
            && !self.places.contains_key(&worker)
        {
            let place = match hello.kind {
                HelloKind::Replace(older) | HelloKind::ReportFor(older) => self.places[&older],
                HelloKind::New | HelloKind::Resume => worker.random() as usize - 1,
            };
            self.places.insert(worker, place);
            if hello.kind == HelloKind::New {
                let (slots, serves, is_embedded) =
                    (hello.slots, &hello.serves, worker.is_embedded());
                self.observe(Observed::Began { place, slots, serves, is_embedded });
            }
        }
        self.places[&worker]
    }

    fn server_does(&mut self, effect: DispatchEffect) {
        match &effect {
            DispatchEffect::Commit { number, .. } => {
                let number = *number;
                self.store(effect);
                self.observe(Observed::Receipted(number));
            }
            DispatchEffect::Send { worker, session, messages, .. } => {
                self.observe(Observed::Told { worker: *worker, session: *session, messages });
                let jobs = messages.iter().filter_map(|message| match message {
                    ToWorker::Assign(jobs) => Some(jobs),
                    _ => None,
                });
                let works: Vec<_> =
                    jobs.flatten().map(|job| (job.hold, work::payload(job.id))).collect();
                self.observe(Observed::Posted { worker: *worker, messages, works: &works });
                self.worker_hears(*worker, messages);
            }
            DispatchEffect::Reply { to, answer, .. } => {
                self.observe(Observed::Answered { request: *to, answer });
            }
            DispatchEffect::Fetch { .. } | DispatchEffect::HangUp { .. } => {}
        }
    }

    fn store(&mut self, effect: DispatchEffect) {
        effect.learn(&mut self.context);
        let DispatchEffect::Commit { number, mutations } = effect else {
            panic!("{effect:?} is no commit");
        };
        let decided = (self.now.monotonic, self.now);
        self.observe(Observed::Stored { number, decided, mutations: &mutations });
    }

    fn worker_hears(&mut self, worker: WorkerId, messages: &[ToWorker]) {
        let place = self.places[&worker];
        self.observe(Observed::Heard { place, worker, messages });
        for message in messages {
            if let ToWorker::Accepted(holds) = message {
                for &hold in holds {
                    self.observe(Observed::Settled { place, hold, verdict: Verdict::Accepted });
                }
            }
        }
    }

    fn worker_does(&mut self, worker: WorkerId, what: &str) {
        let place = self.places[&worker];
        let (verb, rest) = what.split_once(' ').unwrap_or((what, ""));
        match (verb, rest) {
            ("starts", job) => {
                self.observe(Observed::Started { place, worker, assignment: &self.read(job) });
            }
            ("runs", rest) => {
                let (job, how) = rest.split_once(' ').expect("it ends in some way");
                let ending = match how {
                    "failed" => r#"failed again "x""#,
                    "failed for-good" => r#"failed for-good "x""#,
                    "snoozed" => "snoozed 1s",
                    "stopped" => "interrupted",
                    how => how,
                };
                self.worker_does(worker, &format!("starts {job}"));
                self.worker_does(worker, &format!("ends {job} {how}"));
                let worker = print(&worker, &self.context);
                self.server_hears(self.read(&format!("{worker}: report {job} {ending}")));
            }
            ("stops", rest) => {
                let (job, why) = rest.split_once(' ').unwrap_or((rest, "fenced"));
                let (hold, why) = (self.read(job), self.read(why));
                self.observe(Observed::Stopping { place, hold, why });
            }
            ("ends", rest) => {
                let (job, how) = rest.split_once(' ').expect("it ends in some way");
                let how = match how {
                    "finished" => ExecutionEnd::Finished,
                    "failed" | "failed for-good" => ExecutionEnd::Failed,
                    "snoozed" => ExecutionEnd::Snoozed,
                    "stopped" => ExecutionEnd::Stopped,
                    "killed" => ExecutionEnd::Killed,
                    _ => panic!("{how} is no way to end"),
                };
                self.observe(Observed::Ended { place, hold: self.read(job), how });
            }
            ("drains", rest) => {
                let until = rest.strip_prefix("until ").expect("there is a grace");
                self.observe(Observed::Draining { place, until: self.read(until) });
            }
            ("has", rest) => {
                let until = rest.strip_prefix("trouble until ").expect("it has trouble");
                self.observe(Observed::Trouble { place: Some(place), until: self.read(until) });
            }
            ("is", "late") => self.observe(Observed::PastDeadline { place }),
            ("pauses", "") => self.observe(Observed::Paused { place, jobs: Paused::Frozen }),
            ("pauses", "alone") => self.observe(Observed::Paused { place, jobs: Paused::GoOn }),
            ("resumes", "") => self.observe(Observed::Resumed { place }),
            ("crashes", "") => self.observe(Observed::Crashed { place }),
            ("leaves", "") => self.observe(Observed::Left { place }),
            _ => panic!("{what} is nothing that a worker does"),
        }
    }
}

#[test]
fn a_life_without_faults_breaks_nothing() {
    let log = "
        0s    submit [a; b after a]
          -> commit 1: put #1 at 0s: a: queued, put #2 at 0s: b after a: blocked
          -> reply submitted [a #1 new; b #2 new]
        1s    w1: hello new slots 1 want 1
          -> commit 2: lease 1 w1 claimed a.1 at 1s
          -> tell w1: renewed 1, reconcile lease 10s keep [], assign a.1
        1s    w1 starts a.1
        2s    w1: started a.1
          -> commit 3: write a running fence 1 held-by w1 written 2s, close 1
          -> tell w1: renewed 2
        3s    w1 ends a.1 finished
        3s    w1: report a.1 finished
          -> commit 4: write a succeeded fence 1 written 3s, lease 2 w1 claimed b.1 at 3s
          -> tell w1: renewed 3, accepted a.1, assign b.1
        3s    w1 starts b.1
        4s    healed
        5s    w1 ends b.1 finished
        5s    w1: report b.1 finished
          -> commit 5: write b succeeded fence 1 written 5s, close 2
          -> tell w1: renewed 4, accepted b.1
        6s    w1 drains until 8s
        6s    w1: drain, goodbye
          -> tell w1: renewed 5
        6s    w1 leaves
        30s   over
    ";
    let log: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(play(&log, None), None);
}
