//! The side jobs for Redis, tested with a real server.

mod commands;
mod failures;
mod hash;
mod interposed;
mod model;
mod monitor;
mod race;
mod server;
mod tracker;

use std::time::Duration;

use filch_recruit::Slice;

/// A slice that is long enough for everything.
fn slice() -> Slice {
    Slice::new(Duration::from_secs(60))
}
