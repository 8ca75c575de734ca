//! `filch dead`: jobs whose attempts are used up.

use crate::server::Server;

#[test]
fn dead_jobs_are_listed_with_what_went_wrong() {
    let server = Server::up();
    assert_eq!(server.filch(&["dead", "list"]).fine().rows().len(), 0);
    let a = server.dead(&["--queue", "a"]);
    let b = server.dead(&["--queue", "b"]);
    server.filch(&["run", "--", "true"]).fine();
    let ended = server.filch(&["dead", "list"]).fine();
    assert_eq!(ended.lines()[0], "id\tqueue\tkind\tattempts\tdied\terror");
    let mut seen: Vec<_> = ended.rows().iter().map(|row| row[0].to_owned()).collect();
    seen.sort();
    let mut ids = vec![a[28..].to_owned(), b[28..].to_owned()];
    ids.sort();
    assert_eq!(seen, ids);
    let ended = server.filch(&["dead", "list", "--queue", "b"]).fine();
    assert_eq!(ended.rows().len(), 1);
    assert_eq!((ended.rows()[0][3], ended.rows()[0][5]), ("1", "exit code 1"));
    let ended = server.filch(&["dead", "list", "--since", "2100-01-01T00:00:00Z"]).fine();
    assert_eq!(ended.rows().len(), 0);
    let document = server.filch(&["dead", "list", "--json", "-n", "1"]).fine().json();
    assert_eq!(document["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(server.filch(&["dead", "list", "--jsonl"]).fine().json_lines().len(), 2);
}

#[test]
fn a_filter_names_many_and_says_how_many() {
    let server = Server::up();
    for queue in ["a", "a", "b"] {
        server.dead(&["--queue", queue]);
    }
    let dry = server.filch(&["dead", "retry", "--queue", "a", "--dry-run"]).fine();
    assert_eq!((dry.line(), dry.stderr.as_str()), ("2", "2 jobs would be retried\n"));
    assert_eq!(server.filch(&["dead", "list"]).fine().rows().len(), 3);

    let done = server.filch(&["dead", "discard", "--queue", "a"]).fine();
    assert_eq!((done.line(), done.stderr.as_str()), ("2", "2 jobs discarded\n"));
    assert_eq!(server.filch(&["dead", "list"]).fine().rows().len(), 1);
    let done = server.filch(&["dead", "discard", "--all", "--yes", "--json"]).fine().json();
    assert_eq!(done["count"], 1);
    assert_eq!(server.filch(&["dead", "retry", "--all"]).fine().line(), "0");
}

#[test]
fn the_dead_come_back_by_name() {
    let server = Server::up();
    let script = "[ -e there ] || { touch there; exit 1; }";
    let id = server.id(&["submit", "--retry", "1", "--", "sh", "-c", script]);
    server.filch(&["wait", &id]).refused(100, "exit code 1");
    assert_eq!(server.filch(&["dead", "retry", &id[28..]]).fine().line(), "1");
    server.filch(&["wait", &id]).fine();
    // It lives now: there is nothing to retry.
    server.filch(&["dead", "retry", &id]).refused(4, "error: ");

    let id = server.dead(&[]);
    server.filch(&["dead", "discard", &id]).fine();
    server.filch(&["job", "show", &id]).refused(3, "no job");
}

#[test]
fn nobody_means_everything_by_saying_nothing() {
    let server = Server::idle();
    server.filch(&["dead", "retry"]).refused(2, "which jobs to retry is not said");
    server.filch(&["dead", "discard", "--dry-run"]).refused(2, "or --all");
    server.filch(&["dead", "discard", "--all", "--queue", "a"]).refused(2, "is said twice");
    server.filch(&["dead", "retry", "--kind", "k", "0123abcd"]).refused(2, "is said twice");
    server.filch(&["dead", "retry", "0123abcd"]).refused(3, "no job 0123abcd");
}
