//! Who waits for a visit to the pool, or for a future, sees what was done.

use std::sync::Arc;

use super::freight::Freight;
use super::{beside, explore, sleeper};
use crate::protocol::bell::Bell;

struct Story {
    bell: Bell,
    done: Freight,
}

/// (That a wake alone would do here is a liberty of loom's: it lets nothing come between the ring and
/// the wake, which carries everything along. What is planted is found by the sanitizer.)
#[test]
fn who_hears_the_bell_sees_what_was_done() {
    explore(4, || {
        sleeper(|| {
            let story = Arc::new(Story { bell: Bell::new(), done: Freight::new(1) });
            let other = beside(&story, |story| {
                story.done.make(1);
                story.bell.ring();
            });
            story.bell.wait();
            story.done.take(std::ptr::without_provenance_mut(1));
            vec![other]
        });
    });
}

/// As a future does that is woken while it is looked at.
#[test]
fn a_bell_that_rings_again_is_heard_again() {
    explore(3, || {
        sleeper(|| {
            let bell = Arc::new(Bell::new());
            let twice = beside(&bell, |bell| {
                bell.ring();
                bell.ring();
            });
            bell.wait();
            let last = beside(&bell, Bell::ring);
            bell.wait();
            vec![twice, last]
        });
    });
}
