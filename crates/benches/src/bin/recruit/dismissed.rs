//! The cost of a dismissed call, and whether two threads that enlist at the same time write shared
//! memory: then each would take longer than with its own recruiter. Two threads that increment one
//! shared counter show how much longer.
//!
//! On a busy machine, two threads seldom run at the same time. So the work is split into turns of
//! some microseconds, and only turns that overlapped count. One thread alone is not a good
//! reference, because two processors may be halves of one core.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::thread;
use std::time::Instant;

use filch_benches::contest::Contest;
use filch_benches::figure::{Aim, Figure};
use filch_benches::report::Findings;
use filch_benches::samples::Samples;
use filch_recruit::{Duty, Lottery, Rate, Recruiter};

use crate::sizes::Sizes;

/// The number of calls in a turn.
const CALLS: u32 = 10_000;

/// The fraction of a turn that must overlap with the turn of the other thread.
const AT_ONCE: f64 = 0.9;

/// With fewer turns the figures mean nothing.
const TURNS_LEAST: usize = 20;

/// Three jobs with a rate of 0: every caller is dismissed, after all jobs were checked.
fn recruiter(lottery: Lottery) -> Recruiter {
    let builder = ["a", "b", "c"].iter().fold(Recruiter::builder(), |builder, id| {
        builder.job(*id, Rate::NONE, |_: &mut _| Ok(Duty::Done))
    });
    builder.lottery(lottery).build().expect("valid set-up")
}

/// The start and the end of a turn.
type Turn = (Instant, Instant);

fn turn(call: &impl Fn()) -> Turn {
    let begun = Instant::now();
    (0..CALLS).for_each(|_| call());
    (begun, Instant::now())
}

/// The time of a call in that turn.
fn ns_per_call((begun, ended): Turn) -> f64 {
    (ended - begun).as_secs_f64() * 1e9 / f64::from(CALLS)
}

/// The time of a call in each turn of one thread.
fn alone(turns: usize, call: impl Fn()) -> Samples {
    Samples::new((0..turns).map(|_| ns_per_call(turn(&call))).collect())
}

/// The time of a call in the overlapping turns of two threads, each with its own call.
fn together(turns: usize, one: impl Fn(), other: impl Fn() + Send) -> Vec<f64> {
    let arrived = AtomicUsize::new(0);
    let (one, other) = thread::scope(|scope| {
        let other = scope.spawn(|| take_turns(turns, &arrived, other));
        (take_turns(turns, &arrived, one), other.join().expect("the calls do not panic"))
    });
    let pairs = one.into_iter().zip(other).filter(|(one, other)| are_at_once(*one, *other));
    pairs.map(|(one, other)| ns_per_call(one).max(ns_per_call(other))).collect()
}

/// The turns of one of two threads; each turn starts when both threads are ready.
fn take_turns(turns: usize, arrived: &AtomicUsize, call: impl Fn()) -> Vec<Turn> {
    // The first call of a thread is slower, and is not measured.
    call();
    let take = |number: usize| {
        arrived.fetch_add(1, AcqRel);
        // Spins without yielding, so that both threads run when the turn starts.
        while arrived.load(Acquire) < 2 * (number + 1) {
            spin_loop();
        }
        turn(&call)
    };
    (0..turns).map(take).collect()
}

/// Whether most of the longer turn overlapped with the other.
fn are_at_once(one: Turn, other: Turn) -> bool {
    let common = one.1.min(other.1).saturating_duration_since(one.0.max(other.0));
    let longer = (one.1 - one.0).max(other.1 - other.0);
    common.as_secs_f64() >= AT_ONCE * longer.as_secs_f64()
}

pub(crate) fn measure(sizes: &Sizes) -> Findings {
    let (weyl, random) = (recruiter(Lottery::Weyl), recruiter(Lottery::Random));
    let outcome = Contest::new()
        .rival("Weyl", || alone(sizes.turns, || enlist(&weyl)).median())
        .rival("Random", || alone(sizes.turns, || enlist(&random)).median())
        .run(sizes.rounds);
    let title = "enlist and be dismissed, three jobs";
    let mut findings = Findings::default();
    for figure in outcome.figures(title, "ns") {
        findings.push(figure.aiming(Aim::AtMost(20.0)));
    }
    findings.extend(two_at_once(title, sizes));
    findings
}

fn enlist(recruiter: &Recruiter) {
    black_box(black_box(recruiter).enlist());
}

fn two_at_once(title: &str, sizes: &Sizes) -> Findings {
    let (one, other) = (recruiter(Lottery::Weyl), recruiter(Lottery::Weyl));
    let shared = AtomicU64::new(0);
    let count = || _ = black_box(&shared).fetch_add(1, Relaxed);
    let (mut own, mut same, mut counts) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..sizes.rounds {
        own.extend(together(sizes.turns, || enlist(&one), || enlist(&other)));
        same.extend(together(sizes.turns, || enlist(&one), || enlist(&one)));
        counts.extend(together(sizes.turns, count, count));
    }
    let title = format!("{title}, two threads at once");
    let mut findings = Findings::default();
    let least = [&own, &same, &counts].map(Vec::len).into_iter().min().unwrap_or(0);
    if least < TURNS_LEAST {
        let turns = sizes.turns * sizes.rounds;
        findings.skip(title, format!("the threads overlapped in only {least} of {turns} turns"));
        return findings;
    }
    let [own, same, counts] = [own, same, counts].map(|times| Samples::new(times).median());
    let counter = alone(sizes.turns, count).median();
    findings.push(once(format!("{title}: a recruiter each"), own, "ns"));
    findings.push(once(format!("{title}: the same recruiter"), same, "ns"));
    let ratio = once(format!("{title}: the same against one each"), same / own, "times");
    findings.push(ratio.aiming(Aim::AtMost(1.2)));
    let what = "for comparison, one shared counter: two threads at once against one alone";
    findings.push(once(what, counts / counter, "times"));
    findings
}

fn once(what: impl Into<String>, value: f64, unit: &'static str) -> Figure {
    Figure::new(what, Samples::new(vec![value]), unit)
}
