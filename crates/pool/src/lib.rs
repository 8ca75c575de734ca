//! Threads of one process that steal work from one another.
//!
//! - **Fork-join**: [`join`] two closures, [`scope`] for tasks that borrow from the stack,
//!   [`for_each`] and [`map_reduce`] over slices and ranges.
//! - **Tasks**: [`Pool::spawn`] with a result, cancelling, three priorities and names.
//! - **Blocking**: [`blocking`] tells the pool that a thread will wait; another takes its place.
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
//! A fork that nobody steals costs a fraction of a nanosecond more than a call, so there is no need
//! to stop forking where the parts become small. A thread that waits in a join runs only what
//! descends from what it waits for: a lock may be held across a join. How all this works is told in
//! the page `docs/pool.md` of the repository.
//!
//! Under the free functions lies the pool that the calling thread belongs to, or the [`global`] one.
//!
//! # Looking for work
//!
//! A worker looks at its `next` slot, at its own tasks, at the queue that all share (first at one
//! turn in 61), at I/O and timers, at half of what a random other has open, at what is not urgent, and
//! asks its idle hook; then it sleeps without spinning, and is woken by whoever brings work.
#![cfg_attr(
    loom,
    expect(dead_code, reason = "only the protocol is there, and not all of it is tried")
)]

#[cfg(not(loom))]
mod block_on;
#[cfg(not(loom))]
mod blocking;
#[cfg(not(loom))]
mod blocks;
#[cfg(not(loom))]
mod budget;
#[cfg(not(loom))]
mod builder;
#[cfg(not(loom))]
mod cancel;
#[cfg(not(loom))]
mod core;
mod counters;
#[cfg(not(loom))]
mod current;
#[cfg(not(loom))]
mod deadlines;
#[cfg(not(loom))]
mod deterministic;
#[cfg(not(loom))]
mod fork;
#[cfg(not(loom))]
mod future;
#[cfg(not(loom))]
mod global;
#[cfg(not(loom))]
mod handle;
#[cfg(not(loom))]
mod local;
#[cfg(not(loom))]
mod lost;
#[cfg(not(loom))]
mod metrics;
#[cfg(not(loom))]
mod monitor;
#[cfg(not(loom))]
mod net;
#[cfg(not(loom))]
mod pool;
mod protocol;
mod random;
#[cfg(not(loom))]
mod reactor;
#[cfg(not(loom))]
mod relief;
#[cfg(not(loom))]
mod roster;
#[cfg(not(loom))]
mod scope;
#[cfg(not(loom))]
mod seat;
#[cfg(not(loom))]
mod shared_queue;
#[cfg(not(loom))]
mod slots;
#[cfg(not(loom))]
mod source;
#[cfg(not(loom))]
mod spawn;
#[cfg(not(loom))]
mod split;
#[cfg(all(test, not(loom)))]
mod stage;
#[cfg(not(loom))]
mod stats;
mod steal;
#[cfg(not(loom))]
mod task;
#[cfg(not(loom))]
mod timer;
#[cfg(not(loom))]
mod trace;
#[cfg(not(loom))]
mod visit;
#[cfg(not(loom))]
mod watch;
#[cfg(not(loom))]
mod worker;

#[cfg(all(not(loom), filch_sanitized))]
#[doc(hidden)]
pub use protocol::sync::planted::plant_races;
pub use steal::Steal;
#[cfg(not(loom))]
pub use {
    block_on::block_on,
    blocking::blocking,
    builder::{BuildError, Builder, THREADS_MAX},
    cancel::{CancelToken, is_cancelled},
    deterministic::{Schedule, deterministic, interleave},
    fork::join,
    future::{JoinHandle, spawn_future},
    global::global,
    handle::Handle,
    lost::Lost,
    net::{Async, Incoming},
    pool::Pool,
    scope::{Scope, scope},
    shared_queue::Priority,
    source::IoSafe,
    spawn::{TaskBuilder, spawn, spawn_detached, task_name},
    split::{Parts, for_each, map_reduce},
    stats::{State, Stats, WorkerStats},
    timer::{Elapsed, Interval, Sleep, Timeout, interval, sleep, sleep_until, timeout},
    watch::{Event, EventKind, Watch},
};

/// The examples of the page on the pool.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/pool.md")]
struct Page;
