//! The pieces that several threads touch at once, each small enough for loom to try every order.
//!
//! Nothing here knows what a task is: `deque` and `ring` carry pointers, `lane` carries anything,
//! `latch` says whether a fork is done, `lineage` of what it is a part, `waiters` who wants to hear of more,
//! `tally` counts the tasks of a scope, `outcome` and `bell` tell who waits for one thing, `crew` knows who has
//! to be waited for in the end, `reserve` who takes the place of those who wait, and `sleep` who searches and who
//! sleeps.

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
