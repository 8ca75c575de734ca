//! The shell around the brain: sockets, clocks and the store.
//!
//! `brain` is the loop that gives the brain its events and performs what it causes; `writer` makes
//! commits durable; `link` is what a worker's connection looks like from here; `payloads` joins jobs
//! with what the brain does not hold; `logs` keeps what running jobs print; `events` tells what has
//! happened. Everything under `http` is a door to these.

mod brain;
mod events;
mod http;
mod link;
mod logs;
mod payloads;
mod retention;
mod server;
mod writer;

pub use link::{Embedded, LinkClosed};
pub use server::{Config, Server, StartError, Stopped};
