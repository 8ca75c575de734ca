//! The metrics, parsed by the official Prometheus client for Python.

use std::io::{ErrorKind, Write as _};
use std::process::{Command, Stdio};

use filch_recruit::{Duty, Rate, Recruiter, SideError, Slice};

/// Prints one line per sample, with sorted labels; invalid input fails.
const PROGRAM: &str = r"
import json, sys
from prometheus_client.parser import text_string_to_metric_families
for family in text_string_to_metric_families(sys.stdin.read()):
    for sample in family.samples:
        labels = json.dumps(sample.labels, sort_keys=True)
        print(family.type, family.name, sample.name, labels, json.dumps(sample.value))
";

/// The first that has the module is used: a custom Python may lack the system's packages.
const PYTHONS: [&str; 2] = ["python3", "/usr/bin/python3"];

fn parse(page: &str) -> Vec<String> {
    for python in PYTHONS {
        let spawned = Command::new(python)
            .args(["-c", "import prometheus_client.parser"])
            .stderr(Stdio::null())
            .status();
        match spawned {
            Ok(status) if status.success() => return parse_with(python, page),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => panic!("cannot start {python}: {error}"),
        }
    }
    panic!("no Prometheus parser found: apt-get install python3-prometheus-client");
}

fn parse_with(python: &str, page: &str) -> Vec<String> {
    let mut child = Command::new(python)
        .args(["-c", PROGRAM])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it started before");
    let mut input = child.stdin.take().expect("it is piped");
    input.write_all(page.as_bytes()).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("it is ours");
    assert!(output.status.success(), "Prometheus cannot parse this:\n{page}");
    let text = String::from_utf8(output.stdout).expect("it is text");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn prometheus_can_parse_the_metrics() {
    let found = |_: &mut Slice| Ok(Duty::Done);
    let fails = |_: &mut Slice| -> Result<Duty, SideError> { Err("no network".into()) };
    let strange = "a \"job\" \\ of\ntwo lines, ä {x}";
    let recruiter = Recruiter::builder()
        .unbounded()
        .job("gc", Rate::ALL, found)
        .job(strange, Rate::NONE, fails)
        .build()
        .expect("valid set-up");
    for _ in 0..3 {
        recruiter.enlist();
    }
    let samples = parse(&recruiter.stats().metrics());
    let has = |line: &str| samples.iter().any(|sample| sample == line);
    let label = r#""a \"job\" \\ of\ntwo lines, \u00e4 {x}""#;
    for line in [
        "counter recruiter_enlisted recruiter_enlisted_total {} 3.0".to_owned(),
        "counter recruiter_enlisted_before_setup recruiter_enlisted_before_setup_total {} 0.0".to_owned(),
        r#"counter recruiter_not_awaited recruiter_not_awaited_total {"job": "gc"} 0.0"#.to_owned(),
        r#"counter recruiter_slices recruiter_slices_total {"job": "gc", "outcome": "contended"} 0.0"#
            .to_owned(),
        r#"counter recruiter_selected recruiter_selected_total {"job": "gc"} 3.0"#.to_owned(),
        r#"counter recruiter_slices recruiter_slices_total {"job": "gc", "outcome": "recruited"} 3.0"#
            .to_owned(),
        format!(
            r#"counter recruiter_slices recruiter_slices_total {{"job": {label}, "outcome": "failed"}} 0.0"#
        ),
        r#"gauge recruiter_rate recruiter_rate {"job": "gc"} 1.0"#.to_owned(),
        r#"histogram recruiter_slice_seconds recruiter_slice_seconds_bucket {"job": "gc", "le": "+Inf"} 3.0"#
            .to_owned(),
        r#"histogram recruiter_slice_seconds recruiter_slice_seconds_count {"job": "gc"} 3.0"#
            .to_owned(),
        format!(
            r#"histogram recruiter_slice_seconds recruiter_slice_seconds_sum {{"job": {label}}} 0.0"#
        ),
    ] {
        assert!(has(&line), "no {line}\n{samples:#?}");
    }
    check_buckets(&samples);
}

/// Histogram buckets are cumulative, so their counts never decrease.
fn check_buckets(samples: &[String]) {
    let buckets = samples.iter().filter(|sample| {
        sample.contains("recruiter_slice_seconds_bucket") && sample.contains(r#""job": "gc""#)
    });
    let counts: Vec<f64> = buckets
        .map(|sample| sample.rsplit(' ').next().expect("it has a value").parse().expect("a number"))
        .collect();
    assert_eq!(counts.len(), 9);
    assert!(counts.is_sorted());
}
