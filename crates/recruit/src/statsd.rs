//! Draws and slices told to a StatsD server, as they end: by UDP, so that nobody waits for anybody.

use std::io;
use std::net::{ToSocketAddrs, UdpSocket};
use std::time::Duration;

use crate::stats::Outcome;

/// What is counted for everybody who is drawn.
const SELECTED: &str = "selected";

/// Where a StatsD server listens.
#[derive(Debug)]
pub struct StatsD {
    socket: UdpSocket,
    prefix: String,
}

impl StatsD {
    /// Tells everything to this address, under names that begin with `recruiter`.
    ///
    /// # Errors
    /// If there is no such address, or no socket.
    pub fn connect(address: impl ToSocketAddrs) -> io::Result<Self> {
        let address = address.to_socket_addrs()?.next();
        let address = address.ok_or_else(|| io::Error::other("the name has no address"))?;
        let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any)?;
        socket.connect(address)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, prefix: "recruiter".to_owned() })
    }

    /// Under names that begin with this instead.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// A slice has ended.
    pub(crate) fn tell_slice(&self, job: &str, outcome: Outcome, used: Duration, is_overrun: bool) {
        let millis = used.as_secs_f64() * 1e3;
        let mut lines = self.count(job, outcome.word());
        lines.push_str(&format!("\n{}:{millis:.3}|ms\n", self.name(job, "slice")));
        lines.push_str(&self.count(job, SELECTED));
        if is_overrun {
            lines.push('\n');
            lines.push_str(&self.count(job, "overrun"));
        }
        self.send(&lines);
    }

    /// Somebody was drawn, and there was no slice for this reason.
    pub(crate) fn tell_draw(&self, job: &str, reason: &str) {
        self.send(&format!("{}\n{}", self.count(job, reason), self.count(job, SELECTED)));
    }

    fn count(&self, job: &str, what: &str) -> String {
        format!("{}:1|c", self.name(job, what))
    }

    fn name(&self, job: &str, what: &str) -> String {
        format!("{}.{}.{what}", plain(&self.prefix), plain(job))
    }

    fn send(&self, lines: &str) {
        // What does not arrive is not told: statistics must not cost more than what they count.
        let _ = self.socket.send(lines.as_bytes());
    }
}

/// A name without the characters that mean something in a line.
fn plain(text: &str) -> String {
    let plain_char = |char: char| match char {
        ':' | '|' | '@' | '#' | '.' => '_',
        char if char.is_whitespace() || char.is_control() => '_',
        char => char,
    };
    text.chars().map(plain_char).collect()
}
