//! `filch enqueue`: typed jobs, one or one per line.

use crate::server::Server;

#[test]
fn arguments_arrive_digit_for_digit() {
    let server = Server::up();
    let args = r#"{"n": 12345678901234567890123, "f": 1.50}"#;
    let id = server.id(&["enqueue", "--queue", "img", "noop", args]);
    server.filch(&["wait", &id]).fine();
    let shown = server.filch(&["job", "show", &id]).fine();
    assert_eq!(
        (shown.fact("kind"), shown.fact("queue"), shown.fact("args")),
        ("noop", "img", args)
    );
    assert!(server.filch(&["job", "show", "--json", &id]).fine().stdout.contains(args));

    let id = server.id(&["enqueue", "noop"]);
    server.filch(&["wait", &id]).fine();
}

#[test]
fn each_line_of_stdin_is_a_job() {
    let server = Server::idle();
    let lines = (1..=9_999).map(|n| format!("[{n}]\n")).collect::<String>() + "\n[10000]";
    let ended = server.feed(&["enqueue", "resize", "-"], &lines).fine();
    assert_eq!(ended.lines().len(), 10_000);
    for (place, args) in [(0, "[1]"), (9_998, "[9999]"), (9_999, "[10000]")] {
        let shown = server.filch(&["job", "show", ended.lines()[place]]).fine();
        assert_eq!(shown.fact("args"), args);
    }
    let document = server.feed(&["enqueue", "--json", "resize", "-"], "1\n2\n").fine().json();
    assert_eq!((&document["count"], document["ids"].as_array().unwrap().len()), (&2.into(), 2));
    let lines = server.feed(&["enqueue", "--jsonl", "resize", "-"], "1\n2\n").fine().json_lines();
    assert!(lines.iter().all(|line| line["id"].is_string()), "{lines:?}");
    assert_eq!(server.feed(&["enqueue", "resize", "-"], "").fine().stdout, "");
}

#[test]
fn the_same_key_and_lines_are_the_same_jobs() {
    let server = Server::idle();
    let words = ["enqueue", "--key", "monday", "resize", "-"];
    let first = server.feed(&words, "1\n\n2\n").fine();
    let more = server.feed(&words, "1\n\n2\n3\n").fine();
    assert_eq!(more.lines()[..2], first.lines());
    assert_eq!(server.filch(&["queue", "list"]).fine().rows()[0][2], "3");
    let other = server.feed(&words, "other\n");
    let other = other.refused(2, "line 1 of stdin: invalid JSON");
    assert!(other.stderr.contains("0 jobs submitted before the error; to continue"), "{other:?}");
    server.feed(&words, "7\n").refused(4, "submit it under a new id");
}

#[test]
fn jobs_before_an_invalid_line_are_kept() {
    let server = Server::idle();
    let ended = server.feed(&["enqueue", "resize", "-"], "{\"a\": 1}\n\n{\"a\": }\n[2]\n");
    let ended = ended.refused(2, "line 3 of stdin: invalid JSON: expected value at column 7");
    assert_eq!(ended.lines().len(), 1);
    assert!(ended.stderr.contains("1 job submitted before the error"), "{ended:?}");
    assert_eq!(server.job(ended.line())["state"], "queued");
}

#[test]
fn invalid_arguments_are_rejected() {
    let server = Server::idle();
    for (words, said) in [
        (&["resize", "{"][..], "the arguments: invalid JSON"),
        (&["resize", "a b"], "write JSON, for example"),
        (&["command", "1"], "a command needs a program"),
        (&["", "1"], "`kind` is empty"),
        (&[], "<KIND>"),
    ] {
        server.filch(&[&["enqueue"], words].concat()).refused(2, said);
    }
}
