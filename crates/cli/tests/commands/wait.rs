//! `filch wait`: the exit code is the outcome.

use crate::server::{Running, Server, interrupt};

#[test]
fn the_exit_code_is_the_outcome_of_the_jobs() {
    let server = Server::up();
    let fine = server.id(&["submit", "--", "true"]);
    let bad = server.id(&["submit", "--retry", "1", "--", "sh", "-c", "exit 7"]);
    let never = server.id(&["submit", "--at", "1h", "--", "true"]);

    let ended = server.filch(&["wait", &fine]).fine();
    assert_eq!(ended.line(), format!("{}\tsucceeded", &fine[28..]));
    server.filch(&["wait", &bad]).refused(100, &format!("{}: exit code 7", &bad[28..]));
    server.filch(&["wait", "--timeout", "50ms", &never]).refused(124, "timed out waiting");

    server.filch(&["job", "cancel", &never]).fine();
    assert_eq!(server.filch(&["wait", &never]).code, 102);
    let all = server.filch(&["wait", &fine, &never, &bad[24..]]);
    assert_eq!((all.code, all.lines().len()), (100, 3), "a failure counts more: {all:?}");

    let document = server.filch(&["wait", "--json", &fine, &never]);
    assert_eq!(document.code, 102);
    assert_eq!(document.json()["jobs"][1]["state"], "cancelled");
    let lines = server.filch(&["wait", "--jsonl", &fine]).fine().json_lines();
    assert_eq!(lines[0]["id"], fine.as_str());
}

#[test]
fn ids_are_read_from_stdin_and_last_is_the_newest() {
    let server = Server::up();
    server.filch(&["wait", "@last"]).refused(3, "no job has been submitted yet");
    let ids = server.filch(&["submit", "--array", "1-20", "--", "true"]).fine().stdout;
    let ended = server.feed(&["wait", "-"], &ids).fine();
    assert_eq!(ended.lines().len(), 20);
    assert!(ended.lines().iter().all(|line| line.ends_with("\tsucceeded")));
    let last = server.filch(&["wait", "@last", "@last"]).fine();
    assert_eq!(last.line(), ended.lines()[19]);
}

#[test]
fn unknown_jobs_are_rejected() {
    let server = Server::idle();
    server.filch(&["wait", "0123abcd"]).refused(3, "no job 0123abcd");
    server.filch(&["wait", "abc"]).refused(2, "at least the last 4 digits");
    server.filch(&["wait", "@first"]).refused(2, "write @last for the newest job");
    server.filch(&["wait"]).refused(2, "<JOB>");
    server.filch(&["wait", "--timeout", "5", "abcd"]).refused(2, "malformed duration");
}

#[test]
fn an_empty_list_of_ids_is_reported() {
    let server = Server::idle();
    for input in ["", "\n \n"] {
        let ended = server.feed(&["wait", "-"], input).fine();
        assert_eq!(ended.stdout, "");
        assert_eq!(ended.stderr, "nothing to wait for: stdin holds no job ids\n");
    }
    let ended = server.feed(&["wait", "--json", "-"], "").fine();
    assert_eq!(ended.json()["jobs"], serde_json::json!([]));
}

#[test]
fn an_interrupted_wait_has_its_exit_code() {
    let server = Server::idle();
    let id = server.id(&["submit", "--", "true"]);
    let mut waiting = Running::start(&mut server.command(&["wait", &id]));
    interrupt(&waiting);
    assert_eq!(waiting.code(), Some(130));
}
