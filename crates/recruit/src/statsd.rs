//! Sends each draw and slice to a StatsD server, over UDP so that no thread waits for it.

use std::io;
use std::net::{ToSocketAddrs, UdpSocket};
use std::time::Duration;

use crate::stats::Outcome;

/// The counter of all draws that selected a job.
const SELECTED: &str = "selected";

/// A connection to a StatsD server.
#[derive(Debug)]
pub struct StatsD {
    socket: UdpSocket,
    prefix: String,
}

impl StatsD {
    /// Sends metrics to this address, under names that start with `recruiter`.
    ///
    /// # Errors
    /// If the address cannot be resolved, or the socket cannot be created.
    pub fn connect(address: impl ToSocketAddrs) -> io::Result<Self> {
        let address = address.to_socket_addrs()?.next();
        let address = address.ok_or_else(|| io::Error::other("the host name has no address"))?;
        let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any)?;
        socket.connect(address)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, prefix: "recruiter".to_owned() })
    }

    /// Replaces the prefix `recruiter` of the metric names.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Reports a slice that has ended.
    pub(crate) fn send_slice(&self, job: &str, outcome: Outcome, used: Duration, is_overrun: bool) {
        let millis = used.as_secs_f64() * 1e3;
        let mut lines = self.count(job, outcome.label());
        lines.push_str(&format!("\n{}:{millis:.3}|ms\n", self.name(job, "slice")));
        lines.push_str(&self.count(job, SELECTED));
        if is_overrun {
            lines.push('\n');
            lines.push_str(&self.count(job, "overrun"));
        }
        self.send(&lines);
    }

    /// Reports a draw that did not lead to a slice, with the reason.
    pub(crate) fn send_draw(&self, job: &str, reason: &str) {
        self.send(&format!("{}\n{}", self.count(job, reason), self.count(job, SELECTED)));
    }

    fn count(&self, job: &str, what: &str) -> String {
        format!("{}:1|c", self.name(job, what))
    }

    fn name(&self, job: &str, what: &str) -> String {
        format!("{}.{}.{what}", plain(&self.prefix), plain(job))
    }

    fn send(&self, lines: &str) {
        // A lost packet is ignored: metrics must not cost more than the work they measure.
        let _ = self.socket.send(lines.as_bytes());
    }
}

/// Replaces the characters that have a meaning in the StatsD format.
fn plain(text: &str) -> String {
    let plain_char = |char: char| match char {
        ':' | '|' | '@' | '#' | '.' => '_',
        char if char.is_whitespace() || char.is_control() => '_',
        char => char,
    };
    text.chars().map(plain_char).collect()
}
