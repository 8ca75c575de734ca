//! The concurrent building blocks, each small enough for loom to try every interleaving.
//!
//! Nothing here knows what a task is. `deque` holds the exposed forks of a worker, `ring` its
//! exposed tasks, and `locked_queue` is one queue of the shared queue. `latch` is the state of a
//! fork, `ancestry` decides which work is a part of which, `waiters` lists the workers that wait
//! for a stolen fork, and `scope_count` counts the tasks of a scope. `outcome` and `event` wake the
//! thread that waits for one thing, `join_set` holds the threads to join, `reserve` counts the
//! threads that replace waiting ones, and `sleep` decides which worker is woken for new work.
//!
//! Each protocol is described at the top of its file: sleeping and waking in `sleep`, private forks
//! and their promotion in `local`, restricted stealing in `ancestry`.

pub(crate) mod ancestry;
pub(crate) mod deque;
pub(crate) mod event;
pub(crate) mod join_set;
pub(crate) mod latch;
pub(crate) mod locked_queue;
pub(crate) mod outcome;
pub(crate) mod reserve;
pub(crate) mod ring;
#[cfg(all(not(loom), filch_sanitized))]
mod sanitizer_locks;
pub(crate) mod scope_count;
pub(crate) mod sleep;
pub(crate) mod sync;
pub(crate) mod waiters;

#[cfg(all(test, loom, not(shuttle)))]
mod models;
#[cfg(all(test, any(shuttle, not(loom))))]
mod small_pool;
