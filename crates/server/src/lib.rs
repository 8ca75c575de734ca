//! The server: the I/O around the scheduler, with HTTP, WebSockets, clocks and the store.
//!
//! `shell` is the loop that feeds the engine (`filch-engine`) and performs its actions, by the time
//! of `clock`; `writer` makes commits durable; `link` is the server's end of a worker's connection;
//! `logs` keeps the output of running jobs; `events` keeps the newest events for readers;
//! `ownership` confirms that the server still owns its store; `retention` picks idle moments in
//! which the engine may purge ended jobs; [`tokens`] authenticates clients; [`Bounds`] limits what
//! a server accepts at once; `throttle` limits log lines. The endpoints are under `http`.

mod bounds;
mod clock;
mod events;
pub mod exposure;
mod http;
mod link;
mod logs;
mod metrics;
mod ownership;
mod retention;
mod roster;
mod server;
mod shell;
mod throttle;
pub mod tokens;
mod writer;

pub use bounds::Bounds;
pub use link::Embedded;
pub use retention::SideWork;
pub use server::{Server, ServerConfig, StartError, Stopped};
