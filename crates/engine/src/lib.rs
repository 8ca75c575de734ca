//! Everything between the scheduler and the outside, for a server and for a worker: no I/O, no
//! clock, no threads.
//!
//! An engine takes one input at one moment and appends actions. A shell (`filch-server`,
//! `filch-worker`) feeds it from sockets, disks and clocks, and performs the actions in order. It
//! decides nothing. The simulator (`filch-sim`) feeds the same code from virtual ones.

pub mod planted;
pub mod server;
pub mod worker;
