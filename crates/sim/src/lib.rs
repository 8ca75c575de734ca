//! A deterministic simulator: the real `dispatch` and `agent` code in a simulated cluster, in one
//! thread.
//!
//! [`search`] runs many seeds with faults and shrinks the first run that breaks a rule, [`whatif`]
//! runs a workload without faults and measures it, [`replay`] plays a trace or a run again. A run
//! is determined by its plan ([`plan`]), which comes from a seed or from a file ([`script`]).

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
