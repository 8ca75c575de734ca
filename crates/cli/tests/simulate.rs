//! `filch simulate`: output and exit codes.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

/// The output and exit code of a command.
struct Ended {
    code: i32,
    stdout: String,
    stderr: String,
}

/// Runs `filch` with these arguments and this input.
fn filch(words: &str, input: &str) -> Ended {
    let mut child = Command::new(env!("CARGO_BIN_EXE_filch"))
        .args(words.split_whitespace())
        .env("NO_COLOR", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built for this test");
    // The program may exit without reading its input.
    let _ = child.stdin.take().expect("it is piped").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("it was started");
    Ended {
        code: output.status.code().expect("it was not killed"),
        stdout: String::from_utf8(output.stdout).expect("it prints text"),
        stderr: String::from_utf8(output.stderr).expect("it prints text"),
    }
}

/// A file for this test.
fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn invalid_options_exit_with_2_and_help() {
    for (words, said) in [
        ("", &["Usage: filch [OPTIONS] <COMMAND>", "simulate"][..]),
        ("simulte", &["'simulate'"]),
        ("simulate --sed 4", &["'--seed'"]),
        (
            "simulate --svg a.svg",
            &["--svg needs a workload\n  help: add --workload W (for example"],
        ),
        ("simulate --slots 2", &["--slots needs a workload\n  help: add --workload W"]),
        ("simulate --seed 2", &["help: use --seeds N for one seed, or add --workload"]),
        ("simulate --seeds 9..1", &["'9..1'", "write 1..9"]),
        ("simulate --seeds x", &["write a range like 1..100, or a single number"]),
        ("simulate --seeds 1..", &["write a range like 1..100"]),
        ("simulate --workers 0", &["0 is not in 1..=10000"]),
        ("simulate --threads 0", &["0 is not in 1..=1024"]),
        ("simulate --duration 5", &["'5'", "write one like 90s, 10m, 1h30m"]),
        ("simulate --duration 0s", &["between 1ms and 720h"]),
        ("simulate --faults some", &["none, swarm, all"]),
        ("simulate --workload uniform:9:1ms --faults all", &["help: remove --faults, or remove"]),
        ("simulate --workload uniform:9:1ms --seeds 7", &["help: use --seed N instead"]),
        ("simulate --workload uniform:9:1ms --steal all", &["half, one, none"]),
        ("simulate --workload uniform:9:1ms --reserve all", &["write a number or auto"]),
        ("simulate --workload uniform:9:1ms --reserve 99999", &["at most 16384"]),
        ("simulate --workload uniform:9:1ms --delay 2s", &["at most 1s"]),
        ("simulate --workload uniform:9", &["help: write uniform:N:COST, for example"]),
        ("simulate --workload file:none.jsonl", &["cannot read the workload none.jsonl"]),
        ("simulate --replay none.trace", &["cannot read none.trace", "help: name a trace"]),
        ("simulate --replay a --workload b", &["help: remove --workload"]),
        ("simulate --replay a --json", &["help: remove --json"]),
    ] {
        let Ended { code, stdout, stderr } = filch(words, "");
        assert_eq!((code, stdout.as_str()), (2, ""), "{words}: {stderr}");
        for said in said {
            assert!(stderr.contains(said), "{words}: {stderr}");
        }
    }
}

#[test]
fn help_and_version_are_printed_on_stdout() {
    for (words, said) in [
        ("--version", &["filch 0."][..]),
        ("--help", &["Run the real scheduler", "Usage: filch [OPTIONS] <COMMAND>"]),
        (
            "simulate --help",
            &[
                "1..100",
                "10m",
                "200us",
                "auto",
                "fifo",
                "uniform:N:COST",
                "Examples:",
                "exit code 1",
            ],
        ),
    ] {
        let Ended { code, stdout, stderr } = filch(words, "");
        assert_eq!((code, stderr.as_str()), (0, ""), "{words}");
        for said in said {
            assert!(stdout.contains(said), "{words}: {stdout}");
        }
    }
}

#[test]
fn a_search_without_faults_finds_no_violations() {
    let search = "simulate --seeds 1..2 --duration 1s --workers 2 --faults none --threads 2";
    let Ended { code, stdout, stderr } = filch(search, "");
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.starts_with("seeds\t2\n") && stdout.contains("\nviolations\t0\n"), "{stdout}");

    let json: Value = serde_json::from_str(&filch(&format!("{search} --json"), "").stdout).unwrap();
    assert_eq!((&json["v"], &json["seeds"]), (&1.into(), &2.into()));
    assert_eq!((&json["violations"], &json["failure"]), (&0.into(), &Value::Null));
    for key in ["steps", "faults", "jobs", "starts", "steals", "stolen", "stale", "lost"] {
        assert!(json[key].is_u64(), "{key}");
    }
    assert!(json["cluster_hours"].is_f64());
}

#[test]
fn a_workload_is_reported_and_drawn() {
    let svg = file("workload.svg");
    let words = format!("simulate --workload uniform:8:2ms --workers 2 --svg {}", svg.display());
    let Ended { code, stdout, stderr } = filch(&words, "");
    assert_eq!(code, 0, "{stderr}");
    assert!(stdout.starts_with("jobs\t8\nmakespan_ms\t") && stdout.contains("\nideal_ms\t8.000\n"));
    assert!(stdout.contains("\nworker\tjobs\tbusy_ms\tstolen\tgiven\n"), "{stdout}");
    assert!(stderr.starts_with("wrote "), "{stderr}");
    let drawn = std::fs::read_to_string(&svg).unwrap();
    assert!(drawn.starts_with("<svg ") && drawn.contains("uniform:8:2ms on 2 workers of 1 slot<"));

    let json = filch("simulate --workload uniform:8:2ms --workers 2 --json", "").stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["v"], &json["ideal_ms"], &json["bound_ms"]),
        (&1.into(), &8.0.into(), &8.0.into())
    );
    for key in ["makespan_ms", "utilisation", "steals", "stolen"] {
        assert!(json[key].is_number(), "{key}");
    }
    assert!(json["wait_ms"]["p99"].is_f64() && json["workers"].is_array());

    let words = "simulate --workload uniform:8:2ms --svg no/such/folder/a.svg";
    let Ended { code, stderr, .. } = filch(words, "");
    assert_eq!(code, 1);
    assert!(stderr.contains("cannot write no/such/folder/a.svg: "), "{stderr}");
}

/// The first 64 of 512 jobs are long, and eight workers prefetch up to 65 each: stealing balances
/// that.
#[test]
fn stealing_shortens_an_uneven_workload() {
    let uneven = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/uneven.jsonl");
    let times_ideal = |steal: &str| {
        let words = format!(
            "simulate --workload file:{uneven} --workers 8 --slots 1 --reserve 64 --steal {steal} --json"
        );
        let json: Value = serde_json::from_str(&filch(&words, "").stdout).unwrap();
        assert_eq!(json["ideal_ms"], 912.0);
        json["makespan_ms"].as_f64().expect("a number") / 912.0
    };
    assert!(times_ideal("half") <= 1.15, "{}", times_ideal("half"));
    assert!(times_ideal("one") <= 1.15, "{}", times_ideal("one"));
    assert!(times_ideal("none") >= 3.0, "{}", times_ideal("none"));
}

#[test]
fn a_run_is_replayed() {
    let run = "\
run seed 7 lease 10s strategy fifo steal half commit 100us 1ms retention - heals 20s
clients delay 200us 2ms lost 0 repeated 0 overtaken 0
worker slots 1 reserve auto home apart rate 1000000 delay 100us 1ms lost 0 repeated 0 overtaken 0 serves all
1s ask 3 submit [a kind run-20ms; b kind run-5s after a]
2s crash 1 away 3s
";
    let Ended { code, stdout, stderr } = filch("simulate --replay -", run);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.contains("\nstarts\t3\n"), "b runs again after the crash: {stdout}");

    let broken = run.replace("crash 1", "crash 2");
    let Ended { code, stdout, stderr } = filch("simulate --replay -", &broken);
    assert_eq!((code, stdout.as_str()), (1, ""));
    let said = "error: cannot replay stdin: line 5: unknown worker `2`";
    assert!(stderr.starts_with(said), "{stderr}");
}

#[test]
fn a_closed_pipe_keeps_the_exit_code() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_filch"))
        .args(["simulate", "--replay", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program was built for this test");
    // The pipes are closed before it has read its input.
    drop((child.stdout.take(), child.stderr.take()));
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(b"dispatch\n0s submit a\n  -> nothing\n").expect("it reads");
    drop(stdin);
    let status = child.wait().expect("it was started");
    assert_eq!(status.code(), Some(1), "the replay differs");
}

#[test]
fn a_trace_is_replayed() {
    let trace = "dispatch lease 10s\n\n0s    r1 submit a\n";
    let played = filch("simulate --replay -", trace);
    assert_eq!((played.code, played.stderr.as_str()), (0, ""));
    assert!(
        played.stdout.contains("  -> commit 1: put #1 at 0s: a: queued\n"),
        "{}",
        played.stdout
    );

    let claimed = format!("{trace}  -> commit 1: put #1 at 0s: b: queued\n");
    let Ended { code, stderr, .. } = filch("simulate --replay -", &claimed);
    assert_eq!(code, 1);
    assert!(stderr.starts_with("error: stdin: the replay differs from the trace\n"), "{stderr}");

    let Ended { code, stdout, stderr } = filch("simulate --replay -", "nonsense\n");
    assert_eq!((code, stdout.as_str()), (1, ""));
    assert!(stderr.starts_with("error: cannot replay stdin: line 1: "), "{stderr}");
}
