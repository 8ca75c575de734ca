//! The schedule trace, read back by a parser that accepts nothing but the documented format.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::io::{BufRead, BufReader};
use std::process::{Command, Output};
use std::time::Duration;

use filch_pool::Pool;

/// One line of a trace, by field.
#[derive(Debug, PartialEq)]
struct Line {
    at_ms: u64,
    workers: usize,
    idle: usize,
    searching: usize,
    parked: usize,
    shared: u64,
    queues: Vec<u64>,
    ticks: Vec<u64>,
    /// `steal`, `stealfail`, `stolen`, `overflow`, `done`.
    sums: [u64; 5],
}

fn parse(line: &str) -> Line {
    let number = |text: &str| text.parse::<u64>().unwrap_or_else(|_| panic!("`{text}` in {line}"));
    let row = |text: &str| text.split(' ').map(number).collect();
    let rest = line.strip_prefix("SCHED ").unwrap();
    let (at, rest) = rest.split_once("ms: ").unwrap();
    let (head, rest) = rest.split_once(" [").unwrap();
    let (queues, rest) = rest.split_once("] ticks=[").unwrap();
    let (ticks, tail) = rest.split_once("] ").unwrap();
    let fields = |text: &str, names: &[&str]| -> Vec<u64> {
        let fields: Vec<_> = text.split(' ').map(|field| field.split_once('=').unwrap()).collect();
        assert_eq!(fields.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names, "{line}");
        fields.iter().map(|(_, value)| number(value)).collect()
    };
    let head = fields(head, &["workers", "idle", "searching", "parked", "runqueue"]);
    let tail = fields(tail, &["steal", "stealfail", "stolen", "overflow", "done"]);
    let line = Line {
        at_ms: number(at),
        workers: head[0] as usize,
        idle: head[1] as usize,
        searching: head[2] as usize,
        parked: head[3] as usize,
        shared: head[4],
        queues: row(queues),
        ticks: row(ticks),
        sums: tail.try_into().unwrap(),
    };
    assert_eq!(line.queues.len(), line.workers);
    assert_eq!(line.ticks.len(), line.workers);
    assert!(line.idle >= line.searching && line.parked <= line.workers);
    line
}

#[test]
fn the_documented_line_parses() {
    let line = parse(
        "SCHED 1000ms: workers=4 idle=1 searching=0 parked=1 runqueue=0 [0 5 0 0] \
         ticks=[17 42 9 11] steal=47 stealfail=3 stolen=112 overflow=0 done=1033",
    );
    assert_eq!((line.at_ms, line.workers, line.queues[1], line.sums[4]), (1000, 4, 5, 1033));
}

#[test]
fn a_line_agrees_with_the_stats() {
    let pool = Pool::builder().threads(3).build().unwrap();
    let fork = || pool.install(|| filch_pool::join(|| 1, || 2));
    (0..100).for_each(|_| assert_eq!(fork(), (1, 2)));
    let stats = pool.stats();
    let line = parse(&stats.trace_line());
    assert_eq!(line.sums[0], stats.steals());
    assert_eq!(line.sums[1], stats.failed_steals());
    assert_eq!(line.sums[2], stats.stolen());
    assert_eq!(line.sums[3], stats.overflowed());
    assert_eq!(line.sums[4], stats.executed());
    assert_eq!(line.ticks.iter().sum::<u64>(), stats.ticks());
    assert_eq!(line.queues.iter().sum::<u64>() + line.shared, stats.queued() as u64);
    assert_eq!(line.searching, stats.searching);
    assert_eq!(line.idle, stats.searching + stats.sleeping);
    assert!(stats.executed() >= 100);
}

#[test]
fn lines_are_printed_periodically_and_once_at_the_end() {
    let (reader, writer) = std::io::pipe().unwrap();
    let period = Duration::from_millis(1);
    let pool = Pool::builder().threads(2).trace(period).trace_to(writer).build().unwrap();
    let mut lines = BufReader::new(reader).lines().map(|line| parse(&line.unwrap()));
    let first = lines.next().unwrap();
    assert_eq!(first.workers, 2);
    (0..10).for_each(|_| pool.install(|| ()));
    let second = lines.next().unwrap();
    assert!(second.at_ms > first.at_ms);
    drop(pool);
    // The pipe ends, because the thread that printed is gone.
    assert_eq!(lines.last().unwrap().sums[4], 10);
}

#[test]
fn the_last_line_is_printed_even_if_the_first_is_not_due() {
    let (reader, writer) = std::io::pipe().unwrap();
    let period = Duration::from_secs(3600);
    let pool = Pool::builder().threads(1).trace(period).trace_to(writer).build().unwrap();
    pool.install(|| ());
    drop(pool);
    let text = std::io::read_to_string(reader).unwrap();
    let lines: Vec<_> = text.lines().map(parse).collect();
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].sums[4], 1);
}

/// What this program prints if it runs only the test below, with that environment.
fn child(value: &str) -> Output {
    let program = std::env::current_exe().unwrap();
    let arguments = ["--exact", "a_pool_configured_by_the_environment", "--nocapture"];
    Command::new(program).args(arguments).env("FILCH_SCHEDTRACE", value).output().unwrap()
}

/// Run in a child process: see [`child`].
#[test]
fn a_pool_configured_by_the_environment() {
    let pool = Pool::builder().threads(1).build().unwrap();
    assert_eq!(pool.install(|| 1), 1);
}

#[test]
fn the_environment_enables_a_trace() {
    let output = child("3600000");
    assert!(output.status.success());
    let errors = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<_> = errors.lines().filter(|line| line.starts_with("SCHED ")).collect();
    assert_eq!(lines.len(), 1, "{errors}");
    assert_eq!(parse(lines[0]).sums[4], 1);
}

#[test]
fn a_bad_value_in_the_environment_is_reported_and_ignored() {
    let output = child("often");
    assert!(output.status.success());
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("FILCH_SCHEDTRACE=often is not a number of milliseconds"), "{errors}");
    assert!(errors.contains("help: FILCH_SCHEDTRACE=1000"), "{errors}");
    assert!(!errors.contains("SCHED 0") && !errors.lines().any(|line| line.starts_with("SCHED ")));
}

#[test]
fn zero_in_the_environment_disables_the_trace() {
    let errors = String::from_utf8(child("0").stderr).unwrap();
    assert!(!errors.contains("SCHED"), "{errors}");
}
