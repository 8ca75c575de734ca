//! A worker that waits for a stolen fork is woken, and sees its result.

use std::sync::Arc;

use loom::thread;

use super::payload::Payload;
use super::{beside, explore};
use crate::protocol::latch::Latch;
use crate::protocol::sleep::Sleep;

const OWNER: usize = 0;

struct Model {
    latch: Latch,
    sleep: Sleep,
    result: Payload,
}

impl Model {
    /// What a thief does with a fork.
    fn run(&self) {
        self.result.make(1);
        if self.latch.done() {
            self.sleep.unpark(OWNER);
        }
    }

    /// What the owner does meanwhile, without searching in between.
    fn wait(&self) {
        while !self.latch.is_done() {
            if self.latch.sleep() {
                thread::park();
            }
            self.latch.wake();
        }
    }
}

#[test]
fn the_owner_of_a_stolen_fork_is_woken_and_sees_its_result() {
    explore(4, || {
        let model =
            Arc::new(Model { latch: Latch::new(), sleep: Sleep::new(2), result: Payload::new(1) });
        model.sleep.register(OWNER);
        let thief = beside(&model, |model| model.run());
        model.wait();
        assert_eq!(model.result.take(std::ptr::without_provenance_mut(1)), 1);
        thief.join().unwrap();
    });
}

/// Another thread wakes the owner for another reason, at any time. (The owner is not the thread
/// that joins the others: loom takes a wake for the end of anything its thread waits for.)
#[test]
fn a_wake_for_another_reason_does_no_harm() {
    explore(3, || {
        let model =
            Arc::new(Model { latch: Latch::new(), sleep: Sleep::new(2), result: Payload::new(1) });
        let owner = beside(&model, |model| {
            model.sleep.register(OWNER);
            model.wait();
            model.result.take(std::ptr::without_provenance_mut(1))
        });
        let thief = beside(&model, Model::run);
        model.sleep.unpark(OWNER);
        thief.join().unwrap();
        assert_eq!(owner.join().unwrap(), 1);
    });
}
