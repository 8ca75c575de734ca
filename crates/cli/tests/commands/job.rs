//! `filch job`: lists, shows and changes jobs.

use crate::server::Server;

#[test]
fn lists_are_filtered_and_sorted_both_ways() {
    let server = Server::idle();
    let a = server.id(&["submit", "--queue", "a", "--", "true"]);
    let b = server.id(&["enqueue", "--queue", "b", "--at", "1h", "resize", "1"]);
    let c = server.id(&["submit", "--queue", "a", "--after", &a, "--", "true"]);
    let list = |words: &[&str]| {
        let ended = server.filch(&[&["job", "list"], words].concat()).fine();
        let rows = ended.rows();
        rows.iter().map(|row| row[0].to_owned()).collect::<Vec<_>>()
    };
    let short = |ids: &[&String]| ids.iter().map(|id| id[28..].to_owned()).collect::<Vec<_>>();
    assert_eq!(list(&[]), short(&[&c, &b, &a]), "the newest first");
    assert_eq!(list(&["--reverse"]), short(&[&a, &b, &c]));
    assert_eq!(list(&["--queue", "a"]), short(&[&c, &a]));
    assert_eq!(list(&["--kind", "resize"]), short(&[&b]));
    assert_eq!(list(&["--state", "queued,scheduled"]), short(&[&b, &a]));
    assert_eq!(list(&["--state", "PENDING"]), short(&[&c, &b]));
    assert_eq!(list(&["--since", "1h"]).len(), 3);
    assert_eq!(list(&["--since", "2100-01-01T00:00:00Z"]).len(), 0);
    assert_eq!(list(&["--limit", "1"]), short(&[&c]));

    let ended = server.filch(&["job", "list", "-n", "1"]).fine();
    assert_eq!(ended.lines()[0], "id\tstate\tqueue\tkind\tattempts\tsubmitted\tworker\tcommand");
    assert!(ended.stderr.contains("more jobs match"), "{ended:?}");
    let document = server.filch(&["job", "list", "--json", "-n", "2"]).fine().json();
    assert_eq!(document["jobs"][0]["id"], c.as_str(), "whole ids for programs");
    assert_eq!(document["more"], true);
    let lines = server.filch(&["job", "list", "--jsonl", "--all"]).fine().json_lines();
    assert_eq!(lines.len(), 3);

    server.filch(&["job", "list", "--state", "succeded"]).refused(2, "did you mean \"succeeded\"?");
    server.filch(&["job", "list", "--since", "then"]).refused(2, "since then: expected a time");
}

#[test]
fn long_lists_are_read_page_by_page() {
    let server = Server::idle();
    server.filch(&["submit", "--array", "1-2500", "--", "echo", "{index}"]).fine();
    let lines = server.filch(&["job", "list", "--all", "--jsonl"]).fine().json_lines();
    let numbers: Vec<u64> = lines.iter().map(|line| line["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=2_500).rev().collect::<Vec<_>>());
    assert_eq!(server.filch(&["job", "list", "-n", "1500"]).fine().rows().len(), 1_500);
}

#[test]
fn control_characters_of_a_command_are_escaped() {
    let server = Server::idle();
    let id = server.id(&["submit", "--", "echo", "\u{1b}[2J\u{202e}\n"]);
    let shown = server.filch(&["job", "show", &id]).fine();
    assert_eq!(shown.fact("command"), r"echo '\u001b[2J\u202e\n'");
}

#[test]
fn a_job_is_shown_in_detail() {
    let server = Server::up();
    let id = server.dead(&["--priority", "-3", "--timeout", "90s", "--key", "k"]);
    let shown = server.filch(&["job", "show", &id[20..]]).fine();
    assert_eq!((shown.fact("id"), shown.fact("state")), (id.as_str(), "dead (failed)"));
    assert_eq!((shown.fact("priority"), shown.fact("attempts")), ("-3", "1 of 1"));
    assert_eq!((shown.fact("timeout"), shown.fact("key")), ("1m30s", "k"));
    assert_eq!(shown.fact("command"), "false");
    let ledger = shown.fact("ledger");
    assert!(ledger.contains(": claimed by ") && ledger.contains(" (fence 1); "), "{shown:?}");
    assert!(ledger.contains("; failed: exit code 1, "), "{shown:?}");
    assert_eq!(server.job("@last")["failures"][0]["error"], "exit code 1");
    server.filch(&["job", "show", "0123abcd"]).refused(3, "`filch job list`");
}

#[test]
fn the_result_of_a_command_is_printed() {
    let server = Server::up();
    let id = server.id(&["submit", "--", "echo", "{\"total\": 1.50}"]);
    server.filch(&["wait", &id]).fine();
    assert_eq!(server.filch(&["job", "result", &id]).fine().stdout, "{\"total\": 1.50}\n");
    let document = server.filch(&["job", "result", "--json", &id]).fine();
    assert!(document.stdout.contains("\"result\": {\"total\": 1.50}"), "{document:?}");

    let id = server.id(&["submit", "--", "true"]);
    server.filch(&["wait", &id]).fine();
    assert_eq!(server.filch(&["job", "result", &id]).fine().stdout, "");

    let id = server.dead(&[]);
    server.filch(&["job", "result", &id]).refused(100, "failed: exit code 1");
    let id = server.id(&["submit", "--at", "1h", "--", "true"]);
    server.filch(&["job", "result", &id]).refused(4, "has not ended: its state is scheduled");
    server.filch(&["job", "cancel", &id]).fine();
    server.filch(&["job", "result", &id]).refused(102, "was cancelled");
}

#[test]
fn jobs_are_cancelled_except_in_a_dry_run() {
    let server = Server::idle();
    let a = server.id(&["submit", "--", "true"]);
    let b = server.id(&["submit", "--", "true"]);
    let dry = server.filch(&["job", "cancel", "--dry-run", &a, &b]).fine();
    assert_eq!(dry.rows(), [[&a[28..], "queued"], [&b[28..], "queued"]]);
    assert!(dry.stderr.contains("2 jobs would be cancelled"));
    assert_eq!(server.job(&a)["state"], "queued");

    // If one of the jobs does not exist, none is cancelled.
    server.filch(&["job", "cancel", &a, "0123abcd"]).refused(3, "no job 0123abcd");
    assert_eq!(server.job(&a)["state"], "queued");

    let done = server.feed(&["job", "cancel", "-"], &format!("{a}\n{b}\n")).fine();
    assert_eq!(done.stdout, format!("{a}\n{b}\n"));
    assert_eq!(server.job(&b)["state"], "cancelled");
    let c = server.id(&["submit", "--", "true"]);
    let document = server.filch(&["job", "cancel", "--json", &c]).fine().json();
    assert_eq!((&document["count"], &document["ids"][0]), (&1.into(), &c.as_str().into()));
}

#[test]
fn only_dead_jobs_are_retried() {
    let server = Server::up();
    let script = "[ -e there ] || { touch there; exit 1; }";
    let id = server.id(&["submit", "--retry", "1", "--", "sh", "-c", script]);
    server.filch(&["wait", &id]).refused(100, "exit code 1");
    assert_eq!(server.filch(&["job", "retry", "@last"]).fine().stdout, format!("{id}\n"));
    server.filch(&["wait", &id]).fine();
    let again = server.filch(&["job", "retry", &id]).refused(4, "error: ");
    assert!(again.stderr.contains("0 jobs retried"), "{again:?}");
}

#[test]
fn a_priority_can_be_changed_while_a_job_waits() {
    let server = Server::idle();
    let id = server.id(&["submit", "--", "true"]);
    server.filch(&["job", "priority", &id, "-7"]).fine();
    assert_eq!(server.job(&id)["priority"], -7);
    server.filch(&["job", "priority", &id, "99999"]).refused(2, "99999 is not in");
    server.filch(&["job", "cancel", &id]).fine();
    server.filch(&["job", "priority", &id, "1"]).refused(4, "error: ");
}
