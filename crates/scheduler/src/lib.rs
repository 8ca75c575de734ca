//! Decides what happens next to every job: no I/O, no clock, no threads.
//!
//! Two machines of one shape live here. [`dispatch::Dispatch`] is the server's brain for one shard of
//! jobs, [`agent::Agent`] is a worker's. Each is given one event at one moment and says what it causes:
//! `handle(now, event, &mut effects)`. A shell around it has the sockets, the store and the clock, and
//! performs the effects in order; [`gate::Gate`] keeps it from telling anything before its receipt.
//!
//! ```
//! use filch_scheduler::dispatch::{DispatchConfig, Dispatch, DispatchEvent, Request};
//! use filch_scheduler::id::{JobId, RequestNo};
//! use filch_scheduler::spec::JobSpec;
//! use filch_scheduler::time::{Now, Wall};
//! use filch_scheduler::trace::{Context, Traced, print};
//!
//! let now = Now::default();
//! let mut dispatch = Dispatch::new(DispatchConfig::default(), now);
//! let job = JobSpec::new(JobId::named("a", Wall(0)).expect("a short name"));
//! let request = Request::Submit(vec![job]);
//! let mut effects = Vec::new();
//! dispatch.handle(now, DispatchEvent::Request { from: RequestNo(1), request }, &mut effects);
//!
//! // What it causes, in the words of a trace: store this, then answer.
//! let mut context = Context::default();
//! let mut lines = effects.iter().map(|effect| {
//!     let line = print(effect, &context);
//!     effect.learn(&mut context);
//!     line
//! });
//! assert_eq!(lines.next().as_deref(), Some("commit 1: put #1 at 0s: a: queued"));
//! assert_eq!(lines.next().as_deref(), Some("after 1 reply r1 submitted a #1 new"));
//! assert_eq!(lines.next(), None);
//! ```
//!
//! The nouns are in [`id`], [`name`], [`time`], [`spec`] (what is submitted), [`state`] (the one table
//! of what may follow what), [`message`] (what workers and server say) and [`record`] (what a store
//! keeps). [`trace`] is the one text form of all of it.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod agent;
pub mod dispatch;
pub mod gate;
pub mod id;
pub mod message;
pub mod name;
#[cfg(not(feature = "planted"))]
#[expect(unreachable_pub, reason = "public only where bugs can be planted")]
mod planted;
#[cfg(feature = "planted")]
pub mod planted;
pub mod random;
pub mod record;
pub mod spec;
pub mod state;
pub mod time;
pub mod trace;
