//! What filch's processes say to one another, and the rules for it.
//!
//! [`session`] is what workers and server say, in JSON, [`protocol`] the number of that language; [`work`] is the same for workers of forty lines.
//! [`submission`] and [`flow`] are what clients ask for and how it is judged; [`job`], [`turn`], [`cluster`]
//! and [`event`] are what they are shown, [`dead`] what is done about jobs that ended badly, [`fingerprint`]
//! which of them ended alike; [`recruit`] what is done in spare moments; [`problem`] is how a request is refused, [`token`] who may ask at all,
//! [`access`] and [`tls`] how programs come to a server.
//! [`limits`] are the bounds, [`span`] and [`id`] are how people write spans of time and ids. [`suggest`]
//! is which word was meant, and `flow_file`, behind a feature, how people write flows. Nothing here does
//! I/O but the client, behind the feature of that name, and what reads files with tokens and keys.

pub mod access;
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
