//! The example `sessions`, with a real server of Redis: what it holds does not grow.

#[path = "redis/server.rs"]
#[expect(dead_code, reason = "no server is killed here")]
mod server;

use std::env;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use redis::{Commands as _, Connection};

use server::{LONG, Server};

/// Each has two kilobytes.
const SESSIONS: usize = 2000;

/// The example, and a connection to it.
struct Site {
    child: Child,
    stream: BufReader<TcpStream>,
}

impl Site {
    fn start(server: &Server, rate: &str) -> Self {
        // Examples lie beside the folder of tests.
        let test = env::current_exe().expect("it is running");
        let folder = test.parent().and_then(|folder| folder.parent()).expect("it is in a folder");
        let program = folder.join("examples").join("sessions");
        assert!(
            program.exists(),
            "build it: cargo build -p filch-recruit --all-features --examples"
        );
        let mut child = Command::new(program)
            .args([&server.url(), "0.001", rate])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut line).expect("it says where it is");
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
        // Nothing has a body in answer to who knows it already.
        let length = if status == 304 { 0 } else { length };
        self.stream.read_exact(&mut vec![0; length]).expect("it is complete");
        status
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // It may be dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn memory(connection: &mut Connection) -> usize {
    let info: String = redis::cmd("INFO").arg("memory").query(connection).expect("it answers");
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
    line.expect("it says so").parse().expect("it is a number")
}

/// What Redis held.
struct Held {
    fields_most: usize,
    fields_last: usize,
    growth: usize,
}

/// Sessions come and expire, and each visitor looks at the page, at times for the first time.
fn visit(server: &Server, rate: &str) -> Held {
    let mut connection = server.connect();
    let mut site = Site::start(server, rate);
    let before = memory(&mut connection);
    let mut held = Held { fields_most: 0, fields_last: 0, growth: 0 };
    for visitor in 0..SESSIONS {
        assert_eq!(site.ask("POST", "/sessions", "content-length: 0\r\n"), 200);
        match visitor % 2 {
            0 => assert_eq!(site.ask("GET", "/", ""), 200),
            _ => assert_eq!(site.ask("GET", "/", "if-none-match: \"1\"\r\n"), 304),
        }
        held.fields_last = connection.hlen("{sessions}:fields").expect("it answers");
        held.fields_most = held.fields_most.max(held.fields_last);
    }
    held.growth = memory(&mut connection).saturating_sub(before);
    held
}

#[test]
fn without_recruits_it_grows() {
    let server = Server::start();
    let held = visit(&server, "0");
    assert_eq!(held.fields_last, SESSIONS);
    assert!(held.growth > SESSIONS * 2048, "{}", held.growth);
}

#[test]
fn with_recruits_it_stays_flat() {
    let server = Server::start();
    let held = visit(&server, "0.2");
    // Each fifth visitor can remove 25; on a machine that is very busy some slices fail.
    assert!(held.fields_most < SESSIONS / 4, "{}", held.fields_most);
    assert!(held.growth < SESSIONS * 2048 / 2, "{}", held.growth);
    // The last visitors only look at the page, and nothing is left but the counter.
    let mut connection = server.connect();
    let mut site = Site::start(&server, "0.2");
    let begun = Instant::now();
    while redis::cmd("DBSIZE").query(&mut connection) != Ok(1) {
        site.ask("GET", "/", "");
        assert!(begun.elapsed() < LONG, "something stays");
    }
}
