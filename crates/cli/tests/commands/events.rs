//! `filch events` and `filch job events`: past events, new events, and reconnecting.

use crate::server::{Running, Server, filch};

#[test]
fn past_events_are_printed_and_filtered() {
    let server = Server::up();
    let a = server.id(&["submit", "--queue", "a", "--", "true"]);
    let b = server.id(&["submit", "--queue", "b", "--", "true"]);
    server.filch(&["wait", &a, &b]).fine();
    let ended = server.filch(&["events", "--queue", "a"]).fine();
    let rows: Vec<Vec<&str>> =
        ended.lines().iter().map(|line| line.split('\t').collect()).collect();
    assert_eq!((rows[0][1], rows[0][2], rows[0][3]), ("submitted", &a[28..], "command in queue a"));
    assert!(rows.iter().all(|row| row[2] == &a[28..]), "{rows:?}");
    assert!(rows.iter().any(|row| row[1] == "claimed" && row[3].starts_with("to ")), "{rows:?}");
    assert_eq!(rows.last().unwrap()[1], "succeeded");
    let of_job = server.filch(&["events", "--job", &b[28..], "--jsonl"]).fine().json_lines();
    assert_eq!((&of_job[0]["event"], &of_job[0]["id"]), (&"submitted".into(), &b.as_str().into()));
    let worker = server.filch(&["worker", "list"]).fine().rows()[0][0].to_owned();
    let of_worker = server.filch(&["events", "--worker", &worker, "--since", "1h"]).fine();
    assert!(of_worker.lines().iter().all(|line| !line.contains("submitted")), "{of_worker:?}");
    assert!(!of_worker.lines().is_empty());
    assert_eq!(server.filch(&["events", "--since", "2100-01-01T00:00:00Z"]).fine().stdout, "");
    server.filch(&["events", "--job", "0123abcd"]).refused(3, "no job 0123abcd");
    server.filch(&["events", "--since", "soon"]).refused(2, "--since soon");
    filch(&["events", "-f", "--server", "http://127.0.0.1:1"]).refused(6, "no server answers");
}

#[test]
fn acts_of_operators_are_printed_and_filtered() {
    let server = Server::idle();
    server.filch(&["queue", "pause", "mail"]).fine();
    server.filch(&["queue", "set", "video", "--limit", "3"]).fine();
    let printed = server.filch(&["events", "--acts"]).fine();
    assert!(printed.stdout.contains("paused") && printed.stdout.contains("limited"), "{printed:?}");
    let of_mail = server.filch(&["events", "--acts", "--queue", "mail", "--jsonl"]).fine();
    let acts = of_mail.json_lines();
    assert_eq!(acts.len(), 1, "{of_mail:?}");
    assert_eq!((&acts[0]["act"], &acts[0]["queue"]), (&"paused".into(), &"mail".into()));
    let none = server.filch(&["events", "--acts", "--since", "2100-01-01T00:00:00Z"]).fine();
    assert_eq!(none.stdout, "");
}

#[test]
fn following_resumes_after_the_server_has_restarted() {
    let mut server = Server::idle();
    let mut reader = Running::start(&mut server.command(&["events", "-f", "--jsonl"]));
    // The reader does not print when its subscription starts, so jobs are submitted until it sees
    // one.
    let (mut ids, mut line) = (Vec::new(), None);
    while line.is_none() {
        ids.push(server.id(&["submit", "--", "true"]));
        line = reader.line_within(std::time::Duration::from_millis(200));
    }
    let first: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
    assert!(ids.iter().any(|id| first["id"] == id.as_str()), "{first}");
    server.restart();
    let id = server.id(&["submit", "--", "true"]);
    loop {
        let event: serde_json::Value = serde_json::from_str(&reader.next_line()).unwrap();
        if event["id"] == id.as_str() {
            break;
        }
    }
    let said = reader.kill_and_read_stderr();
    assert!(said.contains("lost; reconnecting\nreconnected\n"), "{said}");
}

#[test]
fn the_history_of_a_job_is_followed_until_it_has_ended() {
    let server = Server::up();
    let gate = server.folder().join("gate");
    let script = "echo on >&2; until [ -e gate ]; do sleep 0.02; done; exit 3";
    let id = server.id(&["submit", "--retry", "1", "--", "sh", "-c", script]);
    let mut following = Running::start(&mut server.command(&["job", "events", "-f", "@last"]));
    let word = |line: String| line.split('\t').nth(1).unwrap().to_owned();
    assert_eq!(word(following.next_line()), "submitted");
    assert_eq!(word(following.next_line()), "claimed");
    assert_eq!(word(following.next_line()), "running");
    std::fs::write(gate, "").unwrap();
    let failed = following.next_line();
    assert!(failed.contains("attempt-failed") && failed.contains("exit code 3"), "{failed}");
    assert_eq!(word(following.next_line()), "dead");
    assert_eq!(following.code(), Some(0));

    let events = server.filch(&["job", "events", "--jsonl", &id]).fine().json_lines();
    let words: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(words, ["submitted", "claimed", "attempt-failed", "dead"]);
    let document = server.filch(&["job", "events", "--json", &id]).fine().json();
    assert_eq!((&document["state"], &document["ended"]), (&"dead".into(), &true.into()));
    server.filch(&["job", "retry", &id]).fine();
    server.filch(&["wait", &id]).refused(100, "");
    let ended = server.filch(&["job", "events", &id]).fine();
    assert!(ended.stdout.contains("retried"), "{ended:?}");
    server.filch(&["job", "events", "0123abcd"]).refused(3, "no job 0123abcd");
}
