//! Limits of one server: connections, workers over plain HTTP, readers, and slow clients.
//!
//! Limits of a single request are the same for every server (`filch_api::limits`). Only tests need
//! other values than the defaults, because they cannot open ten thousand connections.

use std::time::Duration;

/// What a server accepts at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How many connections may be open at once; further ones wait to be accepted.
    pub connections: usize,
    /// How many workers may use plain HTTP at once.
    pub plain_workers: usize,
    /// How many clients may read events or logs at once.
    pub readers: usize,
    /// How long a client may be silent while it sends a body.
    pub body_silence: Duration,
    /// How long a request may wait until the store can be read.
    pub read_wait: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 16_384,
            plain_workers: 10_000,
            readers: 1_000,
            body_silence: Duration::from_secs(30),
            read_wait: Duration::from_secs(5),
        }
    }
}
