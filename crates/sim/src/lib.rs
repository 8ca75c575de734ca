//! A cluster in one thread out of one seed: the real `dispatch` and `agent` code in an invented world.
//!
//! [`search`] runs many seeds and shrinks what goes wrong, [`whatif`] runs a workload without faults and
//! measures, [`replay`] plays a trace.

pub mod check;
mod clock;
pub mod log;
pub mod plan;
mod random;
pub mod replay;
pub mod script;
pub mod search;
mod shrink;
pub mod svg;
mod swarm;
pub mod whatif;
mod work;
mod world;
