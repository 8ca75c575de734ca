//! Side-work in small slices, done in idle moments, without a daemon or a cron job.
//!
//! Some work has to be done at some time, but never right now: remove expired entries, roll up
//! counters, trim caches. A daemon for it is one more process that can be down; a cron job runs
//! twice or not at all. With this crate, each such *side job* has a rate: the fraction of idle
//! moments it needs. Code that has a moment to spare (a cache hit, an empty queue, an idle worker)
//! *enlists*. A lottery decides. Almost always the caller is *dismissed* at once, which costs
//! nanoseconds. Now and then it is *recruited* for a slice of a few milliseconds. There is no
//! daemon, no shared state and nothing to coordinate: each process draws independently.
//!
//! ```
//! use std::time::Duration;
//! use filch_recruit::{Duty, Enlisted, Rate, Recruiter, Slice};
//!
//! let reap = |slice: &mut Slice| {
//!     while !slice.out_of_time() {
//!         // Remove a few expired entries. If none are left:
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
//!     Enlisted::Dismissed => {} // almost always
//!     other => println!("{other:?}"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Good places to enlist are those where no request is waiting: after a cheap response (feature
//! `tower`), after an empty poll of a queue, or in the idle hook of a thread pool, before a thread
//! sleeps:
//!
//! ```
//! # use std::sync::Arc;
//! # use filch_recruit::{Duty, Rate, Recruiter};
//! # let builder = Recruiter::builder().job("reap", Rate::ALL, |_: &mut _| Ok(Duty::Done));
//! let recruiter = Arc::new(builder.build()?);
//! let idle = Arc::clone(&recruiter);
//! // Pass this to the `idle_hook` of `filch_pool::Pool::builder`, or to any other pool's hook.
//! let hook = move || {
//!     idle.enlist();
//!     false // it added no tasks
//! };
//! # hook();
//! # assert_eq!(recruiter.stats().enlisted, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Side jobs can be async. Callers then enlist with [`Recruiter::enlist_async`]. With a timer, the
//! time that such a job can take is bounded:
//!
//! ```
//! use std::time::Duration;
//! use filch_recruit::{Duty, Enlisted, Rate, Recruiter, Slice};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let roll_up = |slice: Slice| async move {
//!     while !slice.out_of_time() {
//!         // Query a database and store a few rows. If nothing is left:
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
//!     .timer(tokio::time::sleep) // or the timer of another runtime
//!     .build()?;
//!
//! for _ in 0..2 {
//!     match recruiter.enlist_async().await {
//!         Enlisted::Recruited { job } | Enlisted::NoWork { job } => assert_eq!(job, "roll up"),
//!         Enlisted::Failed { job } => assert_eq!(job, "stuck"), // after 5 ms
//!         other => panic!("{other:?}"),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Do not use it for work that *must* happen: nothing guarantees that a caller ever enlists.

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
