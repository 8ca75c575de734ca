//! The scheduler core: decides what happens next to every job, without I/O, clock or threads.
//!
//! Two state machines of the same shape live here: [`dispatch::Dispatch`] for the server, and
//! [`agent::Agent`] for a worker. Each takes one event at one moment and returns its effects:
//! `handle(now, event, &mut effects)`. A shell around it has the sockets, the store and the clock,
//! and performs the effects in order. It sends nothing before the commit that the effect names is
//! durable.
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
//! dispatch.handle(now, DispatchEvent::Request { from: RequestNo(1), by: None, request }, &mut effects);
//!
//! // The effects, in the text form of a trace: store this, then answer.
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
//! The data types are in [`id`], [`name`], [`time`], [`spec`] (submitted jobs), [`state`] (the
//! table of state transitions), [`message`] (messages between workers and server) and [`record`]
//! (what a store keeps). [`trace`] is the text form of all of it, and [`random`] the random
//! generator.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod agent;
pub mod dispatch;
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
