//! The documented exit codes: a process that exits with each of them, and the page that lists them.

use std::collections::BTreeSet;

use crate::responses::stub_server;
use crate::server::{Ended, Running, Server, filch, interrupt, program};

/// An address without a server.
fn nowhere() -> String {
    // A port that was just released.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    format!("http://{}", listener.local_addr().expect("it listens"))
}

/// Starts two servers over one store, without the lock that prevents it. The first one steps down,
/// although it has nothing to write.
fn superseded() -> i32 {
    let folder = tempfile::tempdir().expect("a directory can be created");
    let start = || {
        let mut server = Running::start(
            program()
                .args(["server", "start", "--listen", "127.0.0.1:0"])
                .arg("--data")
                .arg(folder.path()),
        );
        server.next_line();
        server
    };
    let mut first = start();
    std::fs::remove_file(folder.path().join("filch.db.lock")).expect("the server has made it");
    let second = start();
    first.stderr_line_with("error: another server has taken over the store");
    let code = first.code().expect("it was not killed");
    drop(second);
    code
}

/// Runs a process that exits with this code.
fn end_with(code: i32, server: &Server) -> i32 {
    let never = || server.id(&["submit", "--at", "1h", "--", "true"]);
    let Ended { code, .. } = match code {
        0 => server.filch(&["server", "status"]),
        1 => filch(&["man", "/dev/null/pages"]),
        2 => filch(&["sumbit"]),
        3 => server.filch(&["job", "show", "0123abcd"]),
        4 => {
            server.filch(&["submit", "--key", "k", "--", "true"]).fine();
            server.filch(&["submit", "--key", "k", "--", "false"])
        }
        5 => {
            let guarded = Server::idle();
            guarded.filch(&["token", "create", "--role", "admin"]).fine();
            guarded.filch(&["queue", "list"])
        }
        6 => filch(&["queue", "list", "--server", &nowhere()]),
        7 => filch(&["queue", "list", "--server", &stub_server("200 OK", "<html>hello</html>")]),
        10 => return superseded(),
        100 => {
            let id = server.dead(&[]);
            server.filch(&["wait", &id])
        }
        102 => {
            let id = never();
            server.filch(&["job", "cancel", &id]).fine();
            server.filch(&["wait", &id])
        }
        124 => server.filch(&["wait", "--timeout", "1ms", &never()]),
        125 => filch(&["run", "--server", &nowhere(), "--", "true"]),
        130 => {
            let mut waiting = Running::start(&mut server.command(&["wait", &never()]));
            interrupt(&waiting);
            return waiting.code().expect("it was not killed");
        }
        code => panic!("{code} is documented, but no process here exits with it"),
    };
    code
}

/// The codes in the first column of the table.
fn published() -> BTreeSet<i32> {
    let page = include_str!("../../../../docs/cli.md");
    let (_, rest) = page.split_once("## Exit codes").expect("the page has the codes");
    let (section, _) = rest.split_once("\n## ").expect("the page goes on");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| "));
    rows.filter_map(|row| row.split(' ').next()?.parse().ok()).collect()
}

#[test]
fn every_documented_exit_code_occurs() {
    let codes = [0, 1, 2, 3, 4, 5, 6, 7, 10, 100, 102, 124, 125, 130];
    // Of a server whose disk or whose scheduler fails: the end-to-end test `sync` and a unit test
    // of `filch server` see them.
    let of_failing_servers = [8, 9];
    assert_eq!(published(), codes.into_iter().chain(of_failing_servers).collect::<BTreeSet<_>>());
    let server = Server::up();
    for code in codes {
        assert_eq!(end_with(code, &server), code);
    }
}

#[test]
fn run_exits_with_the_code_of_its_command() {
    let server = Server::up();
    for code in [0, 1, 3, 42, 125, 255] {
        let script = format!("exit {code}");
        assert_eq!(server.filch(&["run", "--", "sh", "-c", &script]).code, code);
    }
    assert_eq!(server.filch(&["run", "--", "sh", "-c", "kill -9 $$"]).code, 128 + 9);
}

#[test]
fn the_help_lists_all_exit_codes() {
    let help = filch(&["--help"]).fine().stdout;
    let (_, listed) = help.split_once("Exit codes:").expect("the help has the codes");
    for code in published() {
        let is_listed =
            listed.split(|c: char| !c.is_ascii_digit()).any(|it| it == code.to_string());
        assert!(is_listed, "{code} is not in {listed}");
    }
}
