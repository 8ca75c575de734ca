//! What loom has to find right: small stories of two or three threads, each played in every order
//! that the memory model allows.
//!
//! `RUSTFLAGS='--cfg loom' cargo test --package filch-pool --lib models`. Some are explored a second
//! time without the fences, and without other things that matter: then they must fail.

mod bell;
mod crew;
mod deque;
mod freight;
mod lane;
mod latch;
mod lineage;
mod outcome;
mod reserve;
mod ring;
mod sleep;
mod tally;
mod waiters;

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use loom::thread::{self, JoinHandle};

use super::sync::planted::IN_THIS_MODEL;

/// Plays a story in every order with at most so many interruptions of a thread that could have gone
/// on: few suffice to find what there is to find, and each more costs a multiple.
fn explore(interruptions: usize, story: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(story);
}

/// Explores, and then explores again with mistakes planted: now loom must find an order that fails
/// with a message that contains `expected`.
fn explore_and_plant(
    interruptions: usize,
    expected: &str,
    story: impl Fn() + Sync + Send + 'static,
) {
    let story = Arc::new(story);
    let correct = Arc::clone(&story);
    explore(interruptions, move || correct());
    // For the rest of this test, whose thread is its own.
    IN_THIS_MODEL.set(true);
    let explored =
        panic::catch_unwind(AssertUnwindSafe(|| explore(interruptions, move || story())));
    let payload = explored.expect_err("the planted mistake goes unnoticed");
    let message = payload.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or_default();
    assert!(
        message.contains(expected),
        "expected a failure with {expected:?}, but got {message:?}"
    );
}

/// Another thread of the story.
fn beside<S, R>(story: &Arc<S>, part: impl FnOnce(&S) -> R + 'static) -> JoinHandle<R>
where
    S: 'static,
    R: 'static,
{
    let story = Arc::clone(story);
    thread::spawn(move || part(&story))
}

/// A story told by a thread that sleeps, and starts others: they are waited for when it has ended. (loom
/// takes a wake for the end of whatever its thread waits for, so who is woken must not wait for threads.)
fn sleeper<R: 'static>(part: impl FnOnce() -> Vec<JoinHandle<R>> + 'static) {
    for other in thread::spawn(part).join().unwrap() {
        other.join().unwrap();
    }
}
