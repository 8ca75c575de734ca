//! How much of the world a server lets in at once, and how long it waits for the rest of it.
//!
//! These are a server's own; what one request may bring is the same everywhere (`filch_api::limits`). Nobody
//! needs other values than the usual ones but tests, which cannot open ten thousand of everything.

use std::time::Duration;

/// Bounds of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// So many connections at once; then others wait to be let in.
    pub connections: usize,
    /// So many workers over plain HTTP at once.
    pub plain_workers: usize,
    /// How long a client may take over the next piece of a body.
    pub body_silence: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { connections: 16_384, plain_workers: 10_000, body_silence: Duration::from_secs(30) }
    }
}
