//! The types that filch's processes exchange, and the rules for them.
//!
//! - Workers and server: [`session`] is the wire form of their messages, [`delivery`] writes and
//!   reads jobs on their way to a worker, [`protocol`] is the protocol's version, [`work`] is the
//!   same over plain HTTP. `frame_schema`, behind the feature `schema`, is the frames as JSON
//!   Schema.
//! - Clients: [`submission`] and [`flow`] are what they submit and how it is validated; [`job`],
//!   [`turn`], [`cluster`], [`event`], [`act`] and [`recruit`] are what they get back; [`dead`] and
//!   [`fingerprint`] are about dead jobs.
//! - Requests in general: [`problem`] is how a request is refused, [`limits`] are the bounds,
//!   [`json`] checks nesting, [`token`] is authorization, [`access`] and [`tls`] are how programs
//!   reach a server.
//! - Text forms: [`id`], [`span`], [`time`]; [`suggest`] finds the word that was meant;
//!   `flow_file`, behind a feature, reads flows from files.
//!
//! Nothing here does I/O except the client, behind the feature `client`, and reading token and key
//! files.

pub mod access;
pub mod act;
#[cfg(feature = "client")]
pub mod client;
pub mod cluster;
pub mod dead;
pub mod delivery;
pub mod event;
pub mod fingerprint;
pub mod flow;
#[cfg(feature = "flow-file")]
pub mod flow_file;
#[cfg(feature = "schema")]
pub mod frame_schema;
pub mod id;
pub mod job;
pub mod json;
pub mod limits;
pub mod problem;
pub mod protocol;
pub mod recruit;
#[cfg(feature = "schema")]
mod schema;
pub mod session;
pub mod span;
pub mod submission;
pub mod suggest;
pub mod time;
pub mod tls;
pub mod token;
pub mod turn;
pub mod work;
