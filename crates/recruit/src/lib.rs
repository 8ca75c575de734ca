//! Side-work in slices, done by whoever has a moment to spare.
//!
//! Some work has to be done some time, and never now: expired things are to be removed, counters to
//! be rolled up, caches to be trimmed. A daemon for it is one more thing that can be down, a cron job
//! runs twice or not at all. Here such a job says what part of all passers-by it wants, and whoever
//! has a moment to spare (a cache hit, an empty queue, an idle worker) *enlists*. A lottery decides:
//! nearly always one is *dismissed* at once, which costs nanoseconds; now and then one is *recruited*
//! for a slice of some milliseconds. There is no daemon, no shared state, and nothing to coordinate:
//! every process draws for itself.
//!
//! ```
//! use std::time::Duration;
//! use filch_recruit::{Duty, Enlisted, Rate, Recruiter, Slice};
//!
//! let reap = |slice: &mut Slice| {
//!     while !slice.out_of_time() {
//!         // Remove a few things that have expired; if there are none left:
//!         return Ok(Duty::NoWork);
//!     }
//!     Ok(Duty::Done)
//! };
//! let recruiter = Recruiter::builder()
//!     .job("reap", Rate::new(0.003)?, reap)
//!     .budget(Duration::from_millis(20), Duration::from_millis(50))
//!     .build()?;
//!
//! // Wherever there is a moment to spare:
//! match recruiter.enlist() {
//!     Enlisted::Dismissed => {} // nearly always
//!     other => println!("{other:?}"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Moments to spare are where nobody waits: after a cheap response (feature `tower`), after an empty poll
//! of a queue, and in the hook of a pool's thread that has found nothing to do, before it sleeps:
//!
//! ```
//! # use std::sync::Arc;
//! # use filch_recruit::{Duty, Rate, Recruiter};
//! # let builder = Recruiter::builder().job("reap", Rate::ALL, |_: &mut _| Ok(Duty::Done));
//! let recruiter = Arc::new(builder.build()?);
//! let idle = Arc::clone(&recruiter);
//! // To be given to `filch_pool::PoolBuilder::idle_hook`, or whatever another pool has.
//! let hook = move || {
//!     idle.enlist();
//!     false // it brings no tasks
//! };
//! # hook();
//! # assert_eq!(recruiter.stats().enlisted, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Jobs may await. Who enlists for them does so, too, and with a timer it is bounded how long they can take:
//!
//! ```
//! use std::time::Duration;
//! use filch_recruit::{Duty, Enlisted, Rate, Recruiter, Slice};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let roll_up = |slice: Slice| async move {
//!     while !slice.out_of_time() {
//!         // Ask a database, and write down a little; if there is nothing left:
//!         tokio::task::yield_now().await;
//!         return Ok(Duty::NoWork);
//!     }
//!     Ok(Duty::Done)
//! };
//! let stuck = |_: Slice| async {
//!     std::future::pending::<()>().await;
//!     Ok(Duty::Done)
//! };
//! let recruiter = Recruiter::builder()
//!     .async_job("roll up", Rate::new(0.5)?, roll_up)
//!     .async_job("stuck", Rate::new(0.5)?, stuck)
//!     .budget(Duration::from_millis(1), Duration::from_millis(5))
//!     .timer(tokio::time::sleep) // or that of another runtime
//!     .build()?;
//!
//! for _ in 0..2 {
//!     match recruiter.enlist_async().await {
//!         Enlisted::NoWork { job } => assert_eq!(job, "roll up"),
//!         Enlisted::Failed { job } => assert_eq!(job, "stuck"), // after 5 ms
//!         other => panic!("{other:?}"),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Nothing that *must* happen belongs here: nobody promises that anybody passes by.

mod adaptive;
mod budget;
mod builder;
mod ending;
mod enlisted;
mod global;
mod job;
mod lottery;
mod panics;
mod rate;
mod recruiter;
#[cfg(feature = "redis")]
pub mod redis;
mod stats;
mod statsd;
#[cfg(feature = "tower")]
pub mod tower;

pub use builder::{RecruiterBuilder, SetupError};
pub use global::{enlist, enlist_async, enlisted_before_setup, global};
pub use job::{AsyncSideJob, Contended, Duty, SideError, SideFuture, SideJob, Slice};
pub use lottery::Lottery;
pub use panics::trace_panics;
pub use rate::{BadRate, Rate};
pub use recruiter::{Enlisted, Recruiter};
pub use stats::{JobCounts, JobStats, RecruiterStats};
pub use statsd::StatsD;
