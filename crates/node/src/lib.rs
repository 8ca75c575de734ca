//! The cluster node: a cluster of simulated workers in one process that reads JSON messages, answers
//! them, and coordinates who steals from whom.
//!
//! `cluster` holds the deques and every way a job moves; `simulation` lets a cluster work in virtual
//! time; `random` chooses victims. Around this core, which knows no I/O: `scan` and `stream` cut the
//! input into JSON values, `request` reads a message, `node` answers it, `reply` writes the answer, and
//! `serve` is the loop. The protocol is described in `docs/node.md`.

mod cluster;
mod limits;
mod node;
mod random;
mod ranks;
mod reply;
mod request;
mod scan;
mod serve;
mod simulation;
mod stream;

pub use node::DEFAULT_SEED;
pub use serve::serve;
