//! `filch worker` and `filch server status`: who is there.

use crate::server::{Running, Server, until};

#[test]
fn a_worker_is_listed_and_leaves_when_it_is_told_to() {
    let server = Server::idle();
    assert_eq!(
        server.filch(&["worker", "list"]).fine().stdout,
        "id\tstate\tslots\theld\twaiting\n"
    );
    let mut worker = Running::start(&mut server.command(&["worker", "start", "--slots", "3"]));
    until("the worker is there", || {
        let ended = server.filch(&["worker", "list"]).fine();
        ended.rows().iter().any(|row| row[1] == "connected" && row[2] == "3")
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
fn nobody_else_is_drained() {
    let server = Server::up();
    server.filch(&["worker", "drain", "0123abcd"]).refused(3, "no worker 0123abcd");
    server.filch(&["worker", "drain", "xyz!"]).refused(2, "is no id of a worker");
    server.filch(&["worker", "drain"]).refused(2, "<ID>");
    let id = server.filch(&["worker", "list"]).fine().rows()[0][0].to_owned();
    server.filch(&["worker", "drain", "--all", &id]).refused(2, "cannot be used with");
}
