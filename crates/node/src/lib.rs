//! The cluster node: a cluster of simulated workers in one process that reads JSON messages,
//! replies to them, and moves stolen jobs between workers.
//!
//! `cluster` holds the deques and every way a job moves; `simulation` runs a cluster in virtual
//! time; `random` chooses victims. This core does no I/O. Around it, `scan` and `stream` split the
//! input into JSON values, `request` parses a message, `node` executes it, `reply` writes the
//! answer, and `serve` is the loop. The protocol is described in `docs/node.md`.

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
