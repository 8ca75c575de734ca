//! `filch worker` and `filch server status`.

use crate::server::{Running, Server, interrupt, until};

#[test]
fn a_worker_is_listed_and_drained() {
    let server = Server::idle();
    assert_eq!(
        server.filch(&["worker", "list"]).fine().stdout,
        "id\tname\tstate\tslots\trunning\twaiting\tqueues\tkinds\n"
    );
    let mut worker = Running::start(&mut server.command(&["worker", "start", "--slots", "3"]));
    until("the worker is connected", || {
        let ended = server.filch(&["worker", "list"]).fine();
        ended.rows().iter().any(|row| row[2] == "connected" && row[3] == "3")
    });
    let document = server.filch(&["worker", "list", "--json"]).fine().json();
    let id = document["workers"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(
        server.filch(&["worker", "list", "--jsonl"]).fine().json_lines()[0]["id"],
        id.as_str()
    );
    assert_eq!(server.filch(&["server", "status", "--json"]).fine().json()["workers"], 1);

    let dry = server.filch(&["worker", "drain", "--all", "--dry-run"]).fine();
    assert_eq!(dry.rows()[0][0], &id[8..]);
    let done = server.filch(&["worker", "drain", &id[10..]]).fine();
    assert_eq!(done.line(), id);
    assert_eq!(worker.code(), Some(0));
    until("the worker has gone", || server.filch(&["worker", "list"]).fine().rows().is_empty());
}

#[test]
fn a_stopped_worker_returns_its_jobs_and_exits_with_0() {
    let server = Server::idle();
    let words = ["worker", "start", "--slots", "1", "--name", "builder", "--queues", "default"];
    let mut worker = Running::start(&mut server.command(&words));
    until("the worker is connected", || {
        let ended = server.filch(&["worker", "list"]).fine();
        ended.rows().iter().any(|row| row[1] == "builder" && row[2] == "connected")
    });
    let row = server.filch(&["worker", "list"]).fine();
    assert_eq!(row.rows()[0][6..], ["default", "clock,command,fib,noop,sleep"]);
    let id = server.id(&["submit", "--retry", "1", "--", "sleep", "1000"]);
    until("it runs", || server.job(&id)["state"] == "running");

    server.filch(&["worker", "stop", "biulder"]).refused(3, "did you mean \"builder\"?");
    let dry = server.filch(&["worker", "stop", "builder", "--dry-run"]).fine();
    assert_eq!(dry.stderr, "1 worker would be stopped\n");
    let stopped = server.filch(&["worker", "stop", "--grace", "200ms", "--wait", "builder"]).fine();
    assert_eq!(stopped.stderr, "1 worker stopping\n");
    assert_eq!(worker.code(), Some(0));
    let said = worker.kill_and_read_stderr();
    assert!(said.contains("as the server asked: running jobs have 200ms to finish"), "{said}");
    assert!(said.contains("Stopped."), "{said}");

    // The interruption does not count as an attempt.
    let job = server.job(&id);
    assert_eq!((&job["state"], &job["attempts"]), (&"queued".into(), &0.into()), "{job}");
    assert_eq!(job["failures"][0]["outcome"], "interrupted");
}

#[test]
fn all_workers_are_stopped_at_once() {
    let server = Server::idle();
    let words = ["worker", "start", "--slots", "1"];
    let mut worker = Running::start(&mut server.command(&words));
    until("the worker is connected", || {
        !server.filch(&["worker", "list"]).fine().rows().is_empty()
    });
    let id = server.id(&["submit", "--", "sleep", "1000"]);
    until("it runs", || server.job(&id)["state"] == "running");
    for verb in ["drain", "stop"] {
        server.filch(&["worker", verb, "--all"]).refused(2, "confirmation needed");
    }
    let all = ["worker", "stop", "--all", "--now", "--json", "--yes"];
    let done = server.filch(&all).fine().json();
    assert_eq!(done["count"], 1);
    assert_eq!(worker.code(), Some(0));
    let both = ["worker", "stop", "--now", "--grace", "1s", "--all"];
    server.filch(&both).refused(2, "cannot be used with");
}

#[test]
fn unknown_workers_are_rejected() {
    let server = Server::up();
    server.filch(&["worker", "drain", "0123abcd"]).refused(3, "no worker 0123abcd");
    server.filch(&["worker", "drain", "xyz!"]).refused(3, "no worker with the name or id");
    server.filch(&["worker", "drain"]).refused(2, "<WORKER>");
    let id = server.filch(&["worker", "list"]).fine().rows()[0][0].to_owned();
    server.filch(&["worker", "drain", "--all", &id]).refused(2, "cannot be used with");
}

#[test]
fn a_worker_prints_the_schedule_trace_on_request() {
    let server = Server::idle();
    let start = ["worker", "start", "--slots", "2"];
    let flag = [&start[..], &["--trace-schedule", "100ms"]].concat();
    let mut by_variable = server.command(&start);
    by_variable.env("FILCH_SCHEDTRACE", "100");
    for command in [&mut server.command(&flag), &mut by_variable] {
        let mut worker = Running::start(command);
        let id = server.id(&["enqueue", "fib", "{\"n\": 20}"]);
        server.filch(&["wait", &id]).fine();
        assert_eq!(server.filch(&["job", "result", &id]).fine().line(), "6765");
        // A line while it works, and a last line when it exits.
        let mut line = worker.next_stderr_line();
        while !line.starts_with("SCHED ") || line.ends_with(" done=0") {
            line = worker.next_stderr_line();
            assert!(!line.is_empty(), "it has ended");
        }
        assert!(line.contains("ms: workers=2 idle="), "{line}");
        interrupt(&worker);
        assert_eq!(worker.code(), Some(0));
        assert!(worker.kill_and_read_stderr().lines().any(|line| line.starts_with("SCHED ")));
    }
    server.id(&["enqueue", "--retry", "1", "fib", "{\"n\": 41}"]);
    let mut silent = Running::start(&mut server.command(&start));
    until("it has failed", || {
        let dead = server.filch(&["dead", "list"]).fine().stdout;
        dead.contains("n is 41, but at most 40 is allowed")
    });
    interrupt(&silent);
    assert_eq!(silent.code(), Some(0));
    assert!(!silent.kill_and_read_stderr().contains("SCHED "));
}
