//! What filch's processes say to one another, and the rules for it.
//!
//! [`session`] is what workers and server say, in JSON; [`work`] is the same for workers of forty lines.
//! [`submission`] and [`flow`] are what clients ask for and how it is judged; [`job`], [`cluster`] and
//! [`event`] are what they are shown, [`dead`] what is done about jobs that ended badly; [`problem`] is
//! how a request is refused. [`limits`] are the bounds, [`span`] and [`id`] are how people write spans
//! of time and ids. Nothing here does I/O but the client, behind the feature of that name.

#[cfg(feature = "client")]
pub mod client;
pub mod cluster;
pub mod dead;
pub mod delivery;
pub mod event;
pub mod flow;
pub mod id;
pub mod job;
pub mod json;
pub mod limits;
pub mod problem;
#[cfg(feature = "schema")]
mod schema;
pub mod session;
pub mod span;
pub mod submission;
pub mod time;
pub mod work;
