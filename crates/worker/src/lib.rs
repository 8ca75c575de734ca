//! A worker: connects to a server, runs jobs by handlers or as child processes, and reports their
//! ends.
//!
//! `shell` is the loop that feeds the worker's engine (`filch-engine`) and performs its actions;
//! [`connect`] opens connections to servers; [`handler`] maps kinds of jobs to your code;
//! `command_handler` runs jobs that are commands; `threads` runs sync handlers; [`side_job`] uses
//! idle moments. [`command`] runs child processes, and [`guardian`] is the process that ends them
//! if this one cannot.

mod clock;
pub mod command;
mod command_handler;
pub mod connect;
pub mod guardian;
pub mod handler;
mod shell;
pub mod side_job;
mod threads;
mod worker_log;

pub use shell::{Left, RunningWorker, WorkerConfig};
