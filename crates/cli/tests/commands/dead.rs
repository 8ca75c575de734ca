//! `filch dead`: dead jobs, which have used all attempts.

use crate::server::Server;

#[test]
fn dead_jobs_are_listed_with_their_errors() {
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
fn a_filter_selects_and_counts_dead_jobs() {
    let server = Server::up();
    for queue in ["a", "a", "b"] {
        server.dead(&["--queue", queue]);
    }
    let dry = server.filch(&["dead", "retry", "--queue", "a", "--dry-run"]).fine();
    let target = "retry 2 jobs matching `state:dead queue:a`\n";
    assert_eq!(dry.line(), "2");
    assert_eq!(dry.stderr, format!("{target}2 jobs would be retried\n"));
    assert_eq!(server.filch(&["dead", "list"]).fine().rows().len(), 3);

    // The same with filter arguments; without a terminal there is no confirmation.
    for words in [&["--queue", "a"][..], &["queue:a"], &["state:dead", "queue:a"]] {
        let words = [&["dead", "discard"], words].concat();
        server
            .filch(&words)
            .refused(2, "discard 2 jobs matching `state:dead queue:a`: confirmation needed");
    }
    server.filch(&["dead", "discard", "state:queued"]).refused(2, "only selects dead jobs");
    server
        .filch(&["dead", "discard", "queue:a", "--queue", "b"])
        .refused(2, "the filter `queue` is given twice");
    let done = server.filch(&["dead", "discard", "queue:a", "--yes"]).fine();
    assert_eq!(done.line(), "2");
    let target = "discard 2 jobs matching `state:dead queue:a`\n";
    assert_eq!(done.stderr, format!("{target}2 jobs discarded\n"));
    assert_eq!(server.filch(&["dead", "list"]).fine().rows().len(), 1);
    let done = server.filch(&["dead", "discard", "--all", "--yes", "--json"]).fine().json();
    assert_eq!(done["count"], 1);
    assert_eq!(server.filch(&["dead", "retry", "--all"]).fine().line(), "0");
}

#[test]
fn dead_jobs_with_similar_errors_are_one_group() {
    let server = Server::up();
    let script = "echo fine; exit $1";
    for code in ["3", "4", "3"] {
        let id = server.id(&["submit", "--retry", "1", "--", "sh", "-c", script, "sh", code]);
        server.filch(&["wait", &id]).refused(100, &format!("exit code {code}"));
    }
    let ended = server.filch(&["dead", "groups"]).fine();
    assert_eq!(ended.lines()[0], "group\tjobs\tqueue\tkind\tnewest\texample\terror");
    let rows = ended.rows();
    let seen: Vec<_> = rows.iter().map(|row| (row[1], row[2], row[3], row[6])).collect();
    let group = |count, error| (count, "default", "command", error);
    assert_eq!(seen, [group("2", "exit code 3"), group("1", "exit code 4")]);
    let name = rows[0][0];
    assert_eq!(ended.stderr, format!("  try: filch dead retry --group {name}\n"));

    let document = server.filch(&["dead", "groups", "--json"]).fine().json();
    assert_eq!(
        (&document["jobs"], &document["groups"][0]["fingerprint"]),
        (&3.into(), &name.into())
    );
    let lines = server.filch(&["dead", "groups", "--jsonl", "-n", "1"]).fine().json_lines();
    assert_eq!((lines.len(), &lines[0]["count"]), (1, &2.into()));
    assert_eq!(server.filch(&["dead", "list", "--group", name]).fine().rows().len(), 2);
    let done = server.filch(&["dead", "discard", "--group", name, "--yes"]).fine();
    assert!(done.stderr.ends_with("\n2 jobs discarded\n"), "{done:?}");
    assert_eq!(server.filch(&["dead", "list"]).fine().rows().len(), 1);
    server
        .filch(&["dead", "retry", "--group", "xyz"])
        .refused(2, "expected a fingerprint from `filch dead groups`: twelve hexadecimal digits");
    server
        .filch(&["dead", "retry", "--group", name, "--all"])
        .refused(2, "are selected in two ways");
}

#[test]
fn commands_are_grouped_by_their_last_line_of_stderr() {
    let server = Server::up();
    let script = "echo starting >&2; printf '\\033[31m%s\\033[0m\\n\\n' \"$1\" >&2; exit 1";
    for last in ["no table 18", "no table 19", "no route to host"] {
        let id = server.id(&["submit", "--retry", "1", "--", "sh", "-c", script, "sh", last]);
        server.filch(&["wait", &id]).refused(100, &format!("exit code 1: {last}"));
    }
    let rows = server.filch(&["dead", "groups"]).fine();
    let rows: Vec<_> =
        rows.rows().iter().map(|row| (row[1].to_owned(), row[6].to_owned())).collect();
    let group = |count: &str, error: &str| (count.to_owned(), error.to_owned());
    let newest = group("2", "exit code 1: no table 19");
    assert_eq!(rows, [newest, group("1", "exit code 1: no route to host")]);
}

#[test]
fn dead_jobs_are_retried_and_discarded_by_id() {
    let server = Server::up();
    let script = "[ -e there ] || { touch there; exit 1; }";
    let id = server.id(&["submit", "--retry", "1", "--", "sh", "-c", script]);
    server.filch(&["wait", &id]).refused(100, "exit code 1");
    assert_eq!(server.filch(&["dead", "retry", &id[28..]]).fine().line(), "1");
    server.filch(&["wait", &id]).fine();
    // It has succeeded: there is nothing to retry.
    server.filch(&["dead", "retry", &id]).refused(4, "error: ");

    let id = server.dead(&[]);
    server.filch(&["dead", "discard", &id]).fine();
    server.filch(&["job", "show", &id]).refused(3, "no job");
}

#[test]
fn selecting_no_jobs_is_an_error() {
    let server = Server::idle();
    server.filch(&["dead", "retry"]).refused(2, "no jobs selected to retry");
    server.filch(&["dead", "discard", "--dry-run"]).refused(2, "or --all");
    server
        .filch(&["dead", "discard", "--all", "--queue", "a"])
        .refused(2, "are selected in two ways");
    server
        .filch(&["dead", "retry", "--kind", "k", "0123abcd"])
        .refused(2, "are selected in two ways");
    server.filch(&["dead", "retry", "0123abcd"]).refused(3, "no job 0123abcd");
}
