//! The example `sessions` with a real Redis server: recruits remove the expired sessions.

#[path = "redis/server.rs"]
#[expect(dead_code, reason = "this test kills no server")]
mod server;

use std::env;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use redis::{Commands as _, Connection};

use server::{LONG, Server};

/// Each session has two kilobytes.
const SESSIONS: usize = 400;

/// The example process, and a connection to it.
struct Site {
    child: Child,
    stream: BufReader<TcpStream>,
}

impl Site {
    fn start(server: &Server, rate: &str) -> Self {
        // Cargo puts examples beside the folder of the tests.
        let test = env::current_exe().expect("it is running");
        let folder = test.parent().and_then(|folder| folder.parent()).expect("it is in a folder");
        let program = folder.join("examples").join("sessions");
        assert!(
            program.exists(),
            "not built: cargo build -p filch-recruit --all-features --examples"
        );
        let mut child = Command::new(program)
            .args([&server.url(), "0.001", rate])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("it prints its address");
        let address = line.trim().strip_prefix("http://").expect("it is an address");
        let stream = TcpStream::connect(address.trim_end_matches('/')).expect("it listens");
        stream.set_read_timeout(Some(LONG)).expect("it can be set");
        Self { child, stream: BufReader::new(stream) }
    }

    /// The status of the answer.
    fn ask(&mut self, method: &str, path: &str, header: &str) -> u16 {
        let request = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{header}\r\n");
        self.stream.get_mut().write_all(request.as_bytes()).expect("it is sent");
        let mut lines = self.stream.by_ref().lines();
        let mut line = || lines.next().expect("it answers").expect("it is text");
        let status = line().split(' ').nth(1).expect("it has a status").parse().expect("a number");
        let mut length = 0;
        loop {
            let line = line().to_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().expect("it is a number");
            }
        }
        // A 304 has no body, whatever its length header is.
        let length = if status == 304 { 0 } else { length };
        self.stream.read_exact(&mut vec![0; length]).expect("it is complete");
        status
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn memory(connection: &mut Connection) -> usize {
    let info: String = redis::cmd("INFO").arg("memory").query(connection).expect("it answers");
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
    line.expect("it reports its memory").parse().expect("it is a number")
}

/// Opens sessions that expire at once. Each visitor also gets the page, every other one as a 304.
fn visit(site: &mut Site, sessions: usize) {
    for visitor in 0..sessions {
        assert_eq!(site.ask("POST", "/sessions", "content-length: 0\r\n"), 200);
        match visitor % 2 {
            0 => assert_eq!(site.ask("GET", "/", ""), 200),
            _ => assert_eq!(site.ask("GET", "/", "if-none-match: \"1\"\r\n"), 304),
        }
    }
}

fn fields(connection: &mut Connection) -> usize {
    connection.hlen("{sessions}:fields").expect("Redis answers")
}

#[test]
fn without_recruits_expired_sessions_stay() {
    let server = Server::start();
    let mut connection = server.connect();
    let mut site = Site::start(&server, "0");
    let before = memory(&mut connection);
    visit(&mut site, SESSIONS);
    assert_eq!(fields(&mut connection), SESSIONS);
    let growth = memory(&mut connection).saturating_sub(before);
    assert!(growth > SESSIONS * 2048, "{growth}");
}

#[test]
fn with_recruits_all_expired_sessions_are_removed() {
    let server = Server::start();
    let mut connection = server.connect();
    let mut site = Site::start(&server, "0.2");
    let before = memory(&mut connection);
    for _ in 0..4 {
        visit(&mut site, SESSIONS / 4);
        // Visitors that only look at the page clean up the rest.
        let begun = Instant::now();
        while fields(&mut connection) > 0 {
            site.ask("GET", "/", "");
            assert!(begun.elapsed() < LONG, "expired sessions stay");
        }
    }
    let growth = memory(&mut connection).saturating_sub(before);
    assert!(growth < SESSIONS * 2048 / 2, "{growth}");
    // Only the counter of sessions is left.
    assert_eq!(redis::cmd("DBSIZE").query(&mut connection), Ok(1));
}
