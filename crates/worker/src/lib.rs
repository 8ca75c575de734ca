//! The shell around a worker's brain: connections, handlers, child processes.
//!
//! `shell` is the loop that gives the brain its events and performs what it causes; `connect` is the
//! way to a server; `handler` is what can be run, `errand` a command among them, `threads` where sync
//! handlers run, `spare` which idle moments are offered to the server. [`command`] runs child processes, and [`guardian`] is
//! the process that ends them should this one not be able to.

mod clock;
pub mod command;
pub mod connect;
mod connection_log;
mod errand;
pub mod guardian;
pub mod handler;
mod shell;
mod spare;
mod threads;

pub use shell::{Config, Left, Worker};
