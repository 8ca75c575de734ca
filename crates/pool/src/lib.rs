//! A work-stealing thread pool: fork-join, tasks and futures on the same threads.
//!
//! - **Fork-join**: [`join`] two closures, [`scope`](scope()) for tasks that borrow from the stack,
//!   [`for_each`] and [`map_reduce`] over slices and ranges.
//! - **Tasks**: [`spawn`](spawn()) returns a handle; the module [`task`] has cancellation, three
//!   priorities and names.
//! - **Futures**: [`spawn_future`] and [`block_on`]. Sockets (`net`) and timers (`time`) come with
//!   the feature `net`; the feature `tokio` lets futures use tokio's instead.
//! - **Blocking**: wrap a call that waits in [`blocking`], and another thread takes over meanwhile.
//!
//! ```
//! fn sum(numbers: &[u64]) -> u64 {
//!     if numbers.len() <= 1000 {
//!         return numbers.iter().sum();
//!     }
//!     let (left, right) = numbers.split_at(numbers.len() / 2);
//!     let (left, right) = filch_pool::join(|| sum(left), || sum(right));
//!     left + right
//! }
//! let numbers: Vec<u64> = (0..100_000).collect();
//! assert_eq!(sum(&numbers), 4_999_950_000);
//! ```
//!
//! A fork that is not stolen costs a fraction of a nanosecond more than a call, so there is no need
//! to stop forking when the parts become small. A thread that waits in a join runs only descendants
//! of the fork it waits for, so a lock may be held across a join. The page `docs/pool.md` in the
//! repository describes the design, its figures and its limits.
//!
//! The free functions use the pool that the calling thread belongs to, or else the
//! [global pool](Pool::global).
//!
//! # Features
//!
//! None is enabled by default.
//!
//! | feature | adds |
//! |---|---|
//! | `net` | the modules `net` (sockets) and `time` (timers) |
//! | `tokio` | `PoolBuilder::tokio`: futures that need tokio's reactor |
//! | `watch` | the module `watch`: a pool's events as they happen |
//! | `deterministic` | the module `deterministic`: tests whose schedule is chosen by a seed |
//! | `full` | all of these but `tokio` |
//!
//! # Search order
//!
//! A worker looks for work in its `next` slot, its own tasks, the shared queue (checked first on
//! every 61st turn), I/O and timers, and half of the exposed tasks of a random other worker; then
//! among low-priority tasks, and last it calls its idle hook. If it finds nothing, it sleeps
//! without spinning until new work wakes it.
#![cfg_attr(
    loom,
    expect(
        dead_code,
        reason = "only the protocol is compiled, and the models do not use all of it"
    )
)]

#[cfg(not(loom))]
mod block_on;
#[cfg(not(loom))]
mod blocking;
#[cfg(all(feature = "net", not(loom)))]
mod budget;
#[cfg(not(loom))]
mod builder;
#[cfg(not(loom))]
mod cancel;
#[cfg(not(loom))]
mod core;
#[cfg(not(loom))]
mod counters;
#[cfg(not(loom))]
mod current;
#[cfg(all(feature = "net", not(loom)))]
mod deadlines;
#[cfg(all(feature = "deterministic", not(loom)))]
pub mod deterministic;
#[cfg(all(not(feature = "deterministic"), not(loom)))]
#[path = "deterministic_off.rs"]
mod deterministic;
#[cfg(not(loom))]
mod events;
#[cfg(not(loom))]
mod fork;
#[cfg(not(loom))]
mod future;
#[cfg(not(loom))]
mod future_list;
#[cfg(not(loom))]
mod global;
#[cfg(not(loom))]
mod handle;
#[cfg(not(loom))]
mod install;
#[cfg(not(loom))]
mod local;
#[cfg(not(loom))]
mod metrics;
#[cfg(not(loom))]
mod monitor;
#[cfg(all(feature = "net", not(loom)))]
pub mod net;
#[cfg(not(loom))]
mod pool;
mod protocol;
#[cfg(not(loom))]
mod random;
#[cfg(not(loom))]
mod raw_task;
#[cfg(all(feature = "net", not(loom)))]
mod reactor;
#[cfg(all(not(feature = "net"), not(loom)))]
#[path = "reactor_off.rs"]
mod reactor;
#[cfg(not(loom))]
mod scope;
#[cfg(not(loom))]
mod shared_queue;
#[cfg(not(loom))]
mod slots;
#[cfg(all(feature = "net", not(loom)))]
mod source;
#[cfg(not(loom))]
mod spawn;
#[cfg(not(loom))]
mod split;
#[cfg(not(loom))]
mod starvation;
#[cfg(not(loom))]
pub mod stats;
#[cfg(not(loom))]
mod steal;
#[cfg(not(loom))]
pub mod task;
#[cfg(not(loom))]
mod task_error;
#[cfg(not(loom))]
mod task_memory;
#[cfg(all(feature = "net", not(loom)))]
pub mod time;
#[cfg(not(loom))]
mod trace;
#[cfg(all(test, not(loom)))]
mod two_workers;
#[cfg(all(feature = "watch", not(loom)))]
pub mod watch;
#[cfg(all(not(feature = "watch"), not(loom)))]
#[path = "watch_off.rs"]
mod watch;
#[cfg(not(loom))]
mod worker;
#[cfg(not(loom))]
mod worker_shared;

#[cfg(all(not(loom), filch_sanitized))]
#[doc(hidden)]
pub use protocol::sync::planted::plant_races;
#[cfg(not(loom))]
pub use {
    block_on::block_on,
    blocking::blocking,
    builder::{BuildError, PoolBuilder},
    fork::join,
    future::spawn_future,
    pool::Pool,
    scope::{Scope, scope},
    spawn::spawn,
    split::{Splittable, for_each, map_reduce},
    steal::StealPolicy,
};

/// Runs the examples of the page on the pool.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/pool.md")]
struct Page;
