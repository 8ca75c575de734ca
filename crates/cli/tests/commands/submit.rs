//! `filch submit`: single jobs, arrays and lines.

use std::collections::BTreeSet;

use crate::server::{Server, filch};

#[test]
fn a_command_is_submitted_and_its_id_printed() {
    let server = Server::up();
    let id = server.id(&["submit", "--env", "GREETING=hello", "--", "sh", "-c", "echo $GREETING"]);
    assert_eq!(id.len(), 36, "a whole UUID");
    server.filch(&["wait", &id]).fine();
    assert_eq!(server.filch(&["logs", &id]).fine().stdout, "hello\n");

    let receipt = server.filch(&["submit", "--json", "--", "true"]).fine().json();
    assert_eq!((receipt["seq"].as_u64(), receipt["new"].as_bool()), (Some(2), Some(true)));
    let lines = server.filch(&["submit", "--jsonl", "--", "true"]).fine().json_lines();
    assert_eq!(lines[0]["seq"], 3);
}

#[test]
fn a_command_runs_where_it_was_submitted() {
    let server = Server::up();
    std::fs::create_dir(server.folder().join("sub")).unwrap();
    for (words, end) in [(&["submit"][..], ""), (&["submit", "--dir", "sub"], "/sub")] {
        let id = server.id(&[words, &["--", "pwd", "-P"]].concat());
        server.filch(&["wait", &id]).fine();
        let here = server.folder().canonicalize().unwrap();
        let seen = server.filch(&["logs", &id]).fine().stdout;
        assert_eq!(seen, format!("{}{end}\n", here.display()));
    }
}

#[test]
fn each_job_of_an_array_has_its_own_number() {
    let server = Server::up();
    let words = ["submit", "--array", "1,4-8:2", "--", "sh", "-c", "echo {index} $FILCH_INDEX"];
    let ended = server.filch(&words).fine();
    let mut seen = Vec::new();
    for id in ended.lines() {
        server.filch(&["wait", id]).fine();
        seen.push(server.filch(&["logs", id]).fine().stdout);
    }
    assert_eq!(seen, ["1 1\n", "4 4\n", "6 6\n", "8 8\n"]);

    let document =
        server.filch(&["submit", "--json", "--array", "1-3", "--", "true"]).fine().json();
    assert_eq!(document["count"], 3);
    assert_eq!(document["ids"].as_array().unwrap().len(), 3);
}

#[test]
fn more_than_fit_into_one_array_are_sent_as_lines() {
    let server = Server::idle();
    let ended = server.filch(&["submit", "--array", "1-10001", "--", "echo", "{index}"]).fine();
    let ids: BTreeSet<&str> = ended.lines().into_iter().collect();
    assert_eq!(ids.len(), 10_001);
    let last = server.job(ended.lines()[10_000]);
    assert_eq!(last["run"][1], "10001");
    assert_eq!(server.filch(&["queue", "list"]).fine().rows()[0][2], "10001");
}

#[test]
fn each_line_is_a_job() {
    let server = Server::up();
    let words = ["--", "sh", "-c", "echo {index} {stem} $0 \"$FILCH_LINE\"", "{line}"];
    let lines = "in/a b.png\n\n{index}.tar.gz\n";
    let from_stdin = server.feed(&[&["submit", "--each-line", "-"][..], &words].concat(), lines);
    let path = server.file("lines.txt", lines);
    let path = path.to_str().unwrap();
    let from_file = server.filch(&[&["submit", "--each-line", path][..], &words].concat());
    for ended in [from_stdin.fine(), from_file.fine()] {
        let [first, second] = ended.lines()[..] else { panic!("two jobs in {ended:?}") };
        server.filch(&["wait", first, second]).fine();
        let log = |id| server.filch(&["logs", id]).fine().stdout;
        assert_eq!(log(first), "1 a b in/a b.png in/a b.png\n");
        assert_eq!(log(second), "3 {index}.tar {index}.tar.gz {index}.tar.gz\n");
    }
    server
        .filch(&["submit", "--each-line", "none.txt", "--", "true"])
        .refused(2, "cannot read none.txt");
}

#[test]
fn the_same_key_is_the_same_job() {
    let server = Server::idle();
    for many in [&[][..], &["--array", "1-3"], &["--each-line", "-"]] {
        let key = format!("key of {}", many.len() + many.join("").len());
        let words = |command| [&["submit", "--key", &key][..], many, &["--", command]].concat();
        let first = server.feed(&words("echo"), "a\nb\n").fine();
        let again = server.feed(&words("echo"), "a\nb\n").fine();
        assert_eq!(first.stdout, again.stdout);
        let other = server.feed(&words("cat"), "a\nb\n");
        assert_eq!((other.code, other.stdout.as_str()), (4, ""), "{other:?}");
    }
    let again = server.filch(&["submit", "--key", "key of 0", "--json", "--", "echo"]).fine();
    assert_eq!(again.json()["new"], false);
    assert!(again.stderr.contains("already exists"));
    let array = |numbers| {
        let words = ["submit", "--key", "grows", "--array", numbers, "--", "echo"];
        server.filch(&words).fine().stderr
    };
    assert_eq!(array("1-3"), "");
    assert_eq!(array("1-3"), "all 3 jobs already exist\n");
    assert_eq!(array("1-5"), "3 of 5 jobs already exist\n");
}

#[test]
fn existing_jobs_are_counted() {
    let server = Server::idle();
    let lines = |text: &str| {
        let words = ["submit", "--key", "grows", "--each-line", "-", "--", "echo", "{line}"];
        server.feed(&words, text).fine().stderr
    };
    assert_eq!(lines("a\n\n"), "");
    assert_eq!(lines("a\n\n"), "this job already exists\n");
    assert_eq!(lines("a\n\nb\nc\n"), "1 of 3 jobs already exist\n");
    assert_eq!(lines("a\n\nb\nc\n"), "all 3 jobs already exist\n");
    // Large enough to be sent as lines, in several chunks.
    let array = |numbers| {
        let words = ["submit", "--key", "many", "--array", numbers, "--", "true"];
        server.filch(&words).fine().stderr
    };
    assert_eq!(array("1-10001"), "");
    assert_eq!(array("1-10002"), "10001 of 10002 jobs already exist\n");
    let enqueue = || server.feed(&["enqueue", "--key", "typed", "resize", "-"], "1\n2\n").fine();
    assert_eq!(enqueue().stderr, "");
    assert_eq!(enqueue().stderr, "all 2 jobs already exist\n");
}

#[test]
fn a_job_has_dependencies_and_a_start_time() {
    let server = Server::up();
    let parent = server.id(&["submit", "--at", "1h", "--", "true"]);
    let child = server.id(&["submit", "--after", "@last", "--when", "all-done", "--", "true"]);
    let seen = server.job(&child);
    assert_eq!(
        (seen["state"].as_str(), seen["after"][0].as_str()),
        (Some("blocked"), Some(&*parent))
    );
    assert_eq!(seen["when"], "all-done");

    // Also by a short id.
    let grandchild = server.id(&["submit", "--after", &child[28..], "--", "true"]);
    assert_eq!(server.job(&grandchild)["after"][0], child.as_str());
    server.filch(&["job", "cancel", &parent]).fine();
    server.filch(&["wait", &child, &grandchild]).fine();
}

#[test]
fn invalid_submissions_are_rejected() {
    let server = Server::idle();
    for (words, code, said) in [
        (&["--after", "0123abcd", "--", "true"][..], 3, "no job 0123abcd"),
        (&["--after", "x", "--", "true"], 2, "\"x\" is not a job id"),
        (&["--when", "all-done", "--", "true"], 2, "--after"),
        (&["--at", "tomorrow", "--", "true"], 2, "expected a time or a duration"),
        (&["--array", "9-1", "--", "true"], 2, "write 1-9"),
        (&["--array", "1-2", "--each-line", "-", "--", "true"], 2, "cannot be used with"),
        (&["--env", "NAME", "--", "true"], 2, "write --env NAME=VALUE"),
        (&["--retry", "0", "--", "true"], 2, "0 is not in 1..=65535"),
        (&["--timeout", "5 apples", "--", "true"], 2, "malformed duration"),
        (&["--queue", "", "--", "true"], 2, "`queue` is empty"),
        (&["--"], 2, "<CMD>"),
        (&["true"], 2, "Usage: filch submit [OPTIONS] -- <CMD>..."),
        (&["--", ""], 2, "the command has no program"),
    ] {
        let ended = server.filch(&[&["submit"], words].concat()).refused(code, said);
        assert_eq!(ended.stdout, "");
    }
    assert_eq!(server.filch(&["job", "list"]).fine().rows().len(), 0, "nothing was submitted");
}

#[test]
fn an_unreachable_server_is_reported() {
    // A port that was just released.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}");
    for words in [
        &["submit", "--server", &url, "--", "true"][..],
        &["submit", "--server", &url, "--array", "1-20000", "--", "true"],
        &["wait", "--server", &url, "abcd"],
        &["queue", "list", "--server", &url],
    ] {
        filch(words).refused(6, "help: start one with `filch up`");
    }
    // It must not look like the exit code of the command.
    filch(&["run", "--server", &url, "--", "true"]).refused(125, "no server answers");
}
