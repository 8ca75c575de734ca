//! The commands that a server executes, as its MONITOR command reports them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use redis::Connection;

use crate::server::{LONG, Server};

pub(crate) struct Monitor(BufReader<TcpStream>);

/// One command: the client that sent it, and its words.
pub(crate) struct Executed {
    pub(crate) client: String,
    pub(crate) words: Vec<String>,
}

impl Monitor {
    pub(crate) fn new(server: &Server) -> Self {
        let url = server.url();
        let address = url.trim_start_matches("redis://").trim_end_matches('/');
        let mut stream = TcpStream::connect(address).expect("it answers");
        stream.set_read_timeout(Some(LONG)).expect("it can be set");
        stream.write_all(b"MONITOR\r\n").expect("it is sent");
        let mut lines = BufReader::new(stream);
        let mut line = String::new();
        lines.read_line(&mut line).expect("it answers");
        assert_eq!(line, "+OK\r\n");
        Self(lines)
    }

    /// All commands executed since the monitor was created, in order.
    pub(crate) fn all(self, connection: &mut Connection) -> Vec<Executed> {
        let () = redis::cmd("ECHO").arg("over").query(connection).expect("it works");
        let mut all = Vec::new();
        for line in self.0.lines() {
            let executed = read(&line.expect("it goes on"));
            if executed.words == ["ECHO", "over"] {
                return all;
            }
            all.push(executed);
        }
        panic!("the server has ended");
    }
}

/// `+MOMENT [DATABASE CLIENT] "WORD" "WORD"`, where no word contains quotes.
fn read(line: &str) -> Executed {
    let client = line.split([' ', ']']).nth(2).expect("it names the client");
    let words = line.split('"').skip(1).step_by(2);
    Executed { client: client.to_owned(), words: words.map(str::to_owned).collect() }
}
