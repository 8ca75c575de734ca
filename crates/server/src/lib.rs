//! The shell around the brain: sockets, clocks and the store.
//!
//! `brain` is the loop that gives the brain its events and performs what it causes, by the time of `clock`;
//! `writer` makes commits durable; `link` is what a worker's connection looks like from here; `payloads` joins jobs
//! with what the brain does not hold; `logs` keeps what running jobs print; `events` tells what has
//! happened; `retention` purges ended jobs, a slice at a time; [`tokens`] are who is who; [`Bounds`] say how much is let in. Everything under `http` is a door to these.

mod bounds;
mod brain;
mod clock;
mod events;
pub mod exposure;
mod http;
mod link;
mod logs;
mod metrics;
mod payloads;
mod retention;
mod roster;
mod server;
mod throttle;
pub mod tokens;
mod writer;

pub use bounds::Bounds;
pub use link::{Embedded, LinkClosed};
pub use retention::SideWork;
pub use server::{Server, ServerConfig, StartError, Stopped};
