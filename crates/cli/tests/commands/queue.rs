//! `filch queue`: pause, limit, weight and strategy.

use crate::server::Server;

#[test]
fn queues_are_listed_and_changed() {
    let server = Server::idle();
    server.id(&["submit", "--queue", "img", "--", "true"]);
    let ended = server.filch(&["queue", "list"]).fine();
    assert_eq!(ended.lines()[0], "queue\tstate\tready\towned\tlimit\tweight");
    assert_eq!(ended.rows(), [["img", "open", "1", "0", "-", "1"]]);

    let ended = server.filch(&["queue", "set", "img", "--limit", "4", "--weight", "3"]).fine();
    assert_eq!((ended.fact("limit"), ended.fact("weight"), ended.stderr.as_str()), ("4", "3", ""));
    assert_eq!(server.filch(&["queue", "pause", "img"]).fine().fact("state"), "paused");
    assert_eq!(server.filch(&["queue", "show", "img"]).fine().fact("state"), "paused");
    assert_eq!(server.filch(&["queue", "resume", "img"]).fine().fact("state"), "open");
    let document =
        server.filch(&["queue", "set", "--limit", "none", "img", "--json"]).fine().json();
    assert!(document["limit"].is_null() && document["weight"] == 3, "{document}");
    let document = server.filch(&["queue", "list", "--json"]).fine().json();
    assert_eq!(document["queues"][0]["name"], "img");
    assert_eq!(server.filch(&["queue", "list", "--jsonl"]).fine().json_lines()[0]["ready"], 1);
}

#[test]
fn a_queue_is_shown_in_detail_and_purged() {
    let server = Server::idle();
    let first = server.id(&["submit", "--queue", "img", "--", "true"]);
    server.id(&["submit", "--queue", "img", "--at", "2100-01-01T00:00:00Z", "--", "true"]);
    let child = server.id(&["submit", "--queue", "img", "--after", &first, "--", "true"]);
    let other = server.id(&["submit", "--queue", "other", "--", "true"]);
    let seen = server.filch(&["queue", "show", "img"]).fine();
    for (fact, value) in [
        ("queued", "1"),
        ("scheduled", "1"),
        ("blocked", "1"),
        ("running", "0"),
        ("limited by", "no worker serves it"),
        ("try", "filch worker start --queues img"),
    ] {
        assert_eq!(seen.fact(fact), value);
    }
    assert!(seen.fact("oldest").starts_with(&first[28..]), "{seen:?}");
    let document = server.filch(&["queue", "show", "img", "--json"]).fine().json();
    assert_eq!((&document["name"], &document["depth"]["blocked"]), (&"img".into(), &1.into()));

    let dry = server.filch(&["queue", "purge", "img", "--dry-run"]).fine();
    assert_eq!(dry.line(), "3");
    assert!(dry.stderr.ends_with("\n3 jobs would be cancelled\n"), "{dry:?}");
    let some =
        server.filch(&["queue", "purge", "img", "--state", "scheduled", "--json", "--yes"]).fine();
    assert_eq!(some.json()["count"], 1);
    server.filch(&["queue", "purge", "img"]).refused(
        2,
        "matching `state:blocked,scheduled,queued,leased queue:img`: confirmation needed",
    );
    let done = server.filch(&["queue", "purge", "img", "--yes"]).fine();
    assert_eq!(done.line(), "2");
    assert!(done.stderr.ends_with("\n2 jobs cancelled\n"), "{done:?}");
    assert_eq!(server.job(&child)["state"], "cancelled");
    assert_eq!(server.job(&other)["state"], "queued");
    server.filch(&["queue", "purge", "othre"]).refused(3, "did you mean \"other\"?");
    server.filch(&["queue", "purge", "other", "--state", "dead"]).refused(2, "cannot be cancelled");
}

#[test]
fn a_queue_that_may_be_misspelt_is_pointed_out() {
    let server = Server::idle();
    server.id(&["submit", "--queue", "images", "--", "true"]);
    server.filch(&["queue", "show", "image"]).refused(3, "did you mean \"images\"?");
    // A queue may be changed before its first job.
    let ended = server.filch(&["queue", "pause", "imagse"]).fine();
    assert!(ended.stderr.contains("queue \"imagse\" has no jobs"), "{ended:?}");
    assert!(ended.stderr.contains("did you mean \"images\"?"), "{ended:?}");
    for (words, said) in [
        (&["images"][..], "--limit <N|none>"),
        (&["images", "--limit", "0"], "use `filch queue pause` for that"),
        (&["images", "--limit", "some"], "write a number or none"),
        (&["images", "--weight", "0"], "0 is not in 1..=4294967295"),
    ] {
        server.filch(&[&["queue", "set"], words].concat()).refused(2, said);
    }
}

#[test]
fn the_strategy_is_shown_and_set() {
    let server = Server::idle();
    for strategy in ["fifo", "priority", "round-robin", "fair"] {
        assert_eq!(server.filch(&["queue", "strategy", strategy]).fine().line(), strategy);
        assert_eq!(server.filch(&["queue", "strategy"]).fine().line(), strategy);
    }
    let document = server.filch(&["queue", "strategy", "--json"]).fine().json();
    assert_eq!(document["strategy"], "fair");
    server.filch(&["queue", "strategy", "fare"]).refused(2, "'fair'");
}
