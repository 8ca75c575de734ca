//! loom models: small scenarios of two or three threads, each run in every interleaving that the
//! memory model allows.
//!
//! `RUSTFLAGS='--cfg loom' cargo test --package filch-pool --lib models`. Some are explored a
//! second time without the fences, and without other things that matter: then they must fail.

mod ancestry;
mod deque;
mod event;
mod join_set;
mod latch;
mod locked_queue;
mod outcome;
mod payload;
mod reserve;
mod ring;
mod scope_count;
mod sleep;
mod waiters;

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use loom::thread::{self, JoinHandle};

use super::sync::planted::IN_THIS_MODEL;

/// Runs a model in every interleaving with at most that many preemptions: few suffice to find the
/// bugs there are, and each more costs a multiple.
fn explore(interruptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(model);
}

/// `some` preemptions, or `all` if the variable `FILCH_MODELS` is `whole`: for models that would
/// take too long for every run of the tests.
fn sampled(some: usize, all: usize) -> usize {
    if std::env::var_os("FILCH_MODELS").is_some_and(|value| value == "whole") { all } else { some }
}

/// Explores, and then explores again with mistakes planted: now loom must find an order that fails
/// with a message that contains `expected`.
fn explore_and_plant(
    interruptions: usize,
    expected: &str,
    model: impl Fn() + Sync + Send + 'static,
) {
    let model = Arc::new(model);
    let correct = Arc::clone(&model);
    explore(interruptions, move || correct());
    // For the rest of this test, which has its own thread.
    IN_THIS_MODEL.set(true);
    let explored =
        panic::catch_unwind(AssertUnwindSafe(|| explore(interruptions, move || model())));
    let payload = explored.expect_err("the planted mistake goes unnoticed");
    let message = payload.downcast_ref::<String>().map(String::as_str);
    let message = message.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or_default();
    assert!(
        message.contains(expected),
        "expected a failure with {expected:?}, but got {message:?}"
    );
}

/// Starts another thread of the model.
fn beside<S, R>(model: &Arc<S>, part: impl FnOnce(&S) -> R + 'static) -> JoinHandle<R>
where
    S: 'static,
    R: 'static,
{
    let model = Arc::clone(model);
    thread::spawn(move || part(&model))
}

/// A model whose main thread sleeps and starts others, which are joined when it has ended. (loom
/// takes a wake for the end of anything its thread waits for, so a thread that is woken must not
/// join others.)
fn sleeper<R: 'static>(part: impl FnOnce() -> Vec<JoinHandle<R>> + 'static) {
    for other in thread::spawn(part).join().unwrap() {
        other.join().unwrap();
    }
}
