//! `filch logs`: the output of a job.

use crate::server::{Running, Server};

#[test]
fn stdout_and_stderr_are_separate_in_the_live_log() {
    let server = Server::up();
    let id = server.id(&["submit", "--", "sh", "-c", "echo out; echo err >&2; printf '\\033[1mx'"]);
    server.filch(&["wait", &id]).fine();
    let ended = server.filch(&["logs", &id]).fine();
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("out\n\u{1b}[1mx", "err\n"));
    let lines = server.filch(&["logs", "--jsonl", "@last"]).fine().json_lines();
    let text = |stream: &str| {
        let pieces = lines.iter().filter(|line| line["stream"] == stream);
        pieces.map(|line| line["text"].as_str().unwrap()).collect::<String>()
    };
    assert_eq!((text("stdout"), text("stderr")), ("out\n\u{1b}[1mx".into(), "err\n".into()));
}

#[test]
fn following_ends_with_the_job() {
    let server = Server::up();
    let go = server.folder().join("go");
    let script = "echo first; until [ -e go ]; do sleep 0.01; done; echo second";
    let id = server.id(&["submit", "--", "sh", "-c", script]);
    let mut following = Running::start(&mut server.command(&["logs", "-f", &id]));
    assert_eq!(following.next_line(), "first");
    std::fs::write(go, "").unwrap();
    assert_eq!(following.next_line(), "second");
    assert_eq!(following.code(), Some(0));
}

#[test]
fn an_unknown_job_is_an_error_and_a_waiting_one_has_no_output() {
    let server = Server::idle();
    server.filch(&["logs", "0123abcd"]).refused(3, "no job 0123abcd");
    let id = server.id(&["submit", "--", "echo", "never"]);
    assert_eq!(server.filch(&["logs", &id]).fine().stdout, "");
}
