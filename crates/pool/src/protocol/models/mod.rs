//! What loom has to find right: small stories of two or three threads, each played in every order
//! that the memory model allows.
//!
//! `RUSTFLAGS='--cfg loom' cargo test --package filch-pool --lib models`. With `--cfg filch_planted`
//! as well, fences are left out, and other things that matter; then the stories that say so must fail.

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

use std::sync::Arc;

use loom::thread::{self, JoinHandle};

/// Plays a story in every order with at most so many interruptions of a thread that could have gone
/// on: few suffice to find what there is to find, and each more costs a multiple.
fn explore(interruptions: usize, story: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(story);
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
