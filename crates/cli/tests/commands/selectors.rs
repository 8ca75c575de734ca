//! Job selectors: ids and filters.

use crate::server::Server;

#[test]
fn a_job_can_be_selected_in_many_ways() {
    let server = Server::idle();
    let first = server.id(&["submit", "--queue", "img", "--", "true"]);
    let id = server.id(&["submit", "--at", "1h", "--", "true"]);
    let upper = id.to_ascii_uppercase();
    let names = [id.as_str(), &id[28..], &id[20..], "@last", "state:scheduled", &upper];
    for name in names {
        for words in [&["job", "show", "--json"][..], &["why", "--json"]] {
            let seen = server.filch(&[words, &[name]].concat()).fine().json();
            assert_eq!(seen["id"], id.as_str(), "{name}");
        }
        server.filch(&["logs", name]).fine();
        server.filch(&["job", "result", name]).refused(4, "has not ended");
        server.filch(&["job", "priority", name, "3"]).fine();
        server.filch(&["wait", "--timeout", "1ms", name]).refused(124, "timed out waiting");
    }
    for name in [&id, &id[28..], "state:scheduled"] {
        let child = server.id(&["submit", "--queue", "child", "--after", name, "--", "true"]);
        assert_eq!(server.job(&child)["after"][0], id.as_str(), "{name}");
    }
    let seen = server.filch(&["job", "show", "--json", "queue:img state:queued"]).fine().json();
    assert_eq!(seen["id"], first.as_str());
    server.filch(&["job", "show", "state:dead"]).refused(3, "no job matches `state:dead`");
    server.id(&["submit", "--queue", "img", "--", "true"]);
    let several = server.filch(&["why", "queue:img"]).refused(4, "2 jobs match `queue:img`");
    assert!(several.stderr.contains("`filch job list queue:img`"), "{several:?}");
}

#[test]
fn lists_accept_filters_as_arguments_and_flags() {
    let server = Server::idle();
    server.id(&["submit", "--queue", "img", "--", "true"]);
    server.id(&["enqueue", "--queue", "img", "--at", "1h", "resize", "1"]);
    server.id(&["submit", "--", "true"]);
    let count =
        |words: &[&str]| server.filch(&[&["job", "list"], words].concat()).fine().rows().len();
    assert_eq!(count(&["queue:img"]), 2);
    assert_eq!(count(&["queue:img", "state:scheduled"]), 1);
    assert_eq!(count(&["queue:img kind:resize"]), 1, "one word with a blank in it");
    assert_eq!(count(&["--queue", "img", "kind:command"]), 1);
    assert_eq!(count(&["state:queued,scheduled"]), 3);
    assert_eq!(count(&["since:1h"]), 3);
    for (words, said) in [
        (&["queue:img", "--queue", "a"][..], "the filter `queue` is given twice"),
        (&["sate:dead"], "did you mean \"state\"?"),
        (&["state:ded"], "did you mean \"dead\"?"),
        (&["state:"], "the filter `state` has no value"),
        (&["3f2a"], "unknown filter `3f2a`"),
    ] {
        server.filch(&[&["job", "list"], words].concat()).refused(2, said);
    }
    let none = server.filch(&["job", "list", "queue:imgs"]).fine();
    assert!(none.stderr.contains("did you mean \"img\"?"), "{none:?}");
    let none = server.filch(&["job", "list", "kind:resise"]).fine();
    assert!(none.stderr.contains("did you mean \"resize\"?"), "{none:?}");
}

#[test]
fn a_filtered_command_announces_its_jobs_first() {
    let server = Server::idle();
    server.filch(&["submit", "--queue", "img", "--array", "1-1284", "--", "true"]).fine();
    let kept = server.id(&["submit", "--", "true"]);
    let words = ["job", "cancel", "queue:img", "state:queued"];
    let target = "cancel 1,284 jobs matching `state:queued queue:img`";
    // There is no terminal to ask on.
    let refused = server.filch(&words).refused(2, target);
    assert!(refused.stderr.contains("help: add --yes"), "{refused:?}");
    let dry = server.filch(&[&words[..], &["--dry-run"]].concat()).fine();
    assert_eq!(dry.rows().len(), 1_284);
    assert_eq!(dry.stderr, format!("{target}\n1,284 jobs would be cancelled\n"));
    assert_eq!(
        server.filch(&["job", "list", "-n", "9999", "state:queued"]).fine().rows().len(),
        1_285
    );

    let done = server.filch(&[&words[..], &["--yes"]].concat()).fine();
    assert_eq!(done.lines().len(), 1_284);
    // A slow run also prints its progress.
    let is_so_far = |line: &&str| line.ends_with(" of 1,284 jobs cancelled");
    let said: Vec<&str> = done.stderr.lines().filter(|line| !is_so_far(line)).collect();
    assert_eq!(said, [target, "1,284 jobs cancelled"]);
    assert_eq!(server.filch(&["job", "list", "state:queued"]).fine().rows().len(), 1);
    assert_eq!(server.job(&kept)["state"], "queued");

    // Ended jobs are not selected, and without jobs no confirmation is needed.
    let none = server.filch(&["job", "cancel", "queue:img"]).fine();
    assert!(none.stderr.contains("0 jobs cancelled"), "{none:?}");
    server.filch(&["job", "cancel", "queue:img", &kept]).refused(2, "use either ids or filters");
}

#[test]
fn dead_jobs_are_retried_by_filter() {
    let server = Server::up();
    let script = "[ -e there ] || { touch there; exit 1; }";
    let id = server.id(&["submit", "--retry", "1", "--queue", "img", "--", "sh", "-c", script]);
    server.filch(&["wait", &id]).refused(100, "exit code 1");
    let other = server.dead(&[]);
    server.filch(&["job", "retry", "queue:img"]).refused(2, "retry 1 job matching `queue:img`");
    let document = server.filch(&["job", "retry", "--json", "--yes", "queue:img"]).fine().json();
    assert_eq!((&document["count"], &document["ids"][0]), (&1.into(), &id.as_str().into()));
    server.filch(&["wait", "queue:img"]).fine();
    assert_eq!(server.filch(&["wait", "state:dead"]).code, 100);
    assert_eq!(server.job(&other)["state"], "dead");
}
