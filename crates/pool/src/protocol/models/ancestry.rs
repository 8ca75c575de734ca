//! What a worker publishes about its work is read whole, or not at all.

use std::ptr;
use std::sync::Arc;

use super::{beside, explore, explore_and_plant};
use crate::protocol::ancestry::{Ancestry, Origin, WaitTarget, descends};

/// Any addresses.
const TARGETS: [*const u8; 3] =
    [ptr::without_provenance(8), ptr::without_provenance(16), ptr::without_provenance(24)];

struct Model {
    thief: Ancestry,
    other: Ancestry,
}

impl Model {
    fn worker(&self, index: usize) -> &Ancestry {
        [&self.thief, &self.other][index]
    }
}

/// A worker executes one piece of work after another, published in the same memory: a reader that
/// finds the second does not take it for a part of what the first was a part of.
#[test]
fn two_pieces_of_work_in_a_row_are_not_mixed_up() {
    explore(3, || {
        let [outer, first, second] = TARGETS.map(WaitTarget::of);
        let model = Arc::new(Model { thief: Ancestry::new(), other: Ancestry::new() });
        let owner = Arc::clone(&model);
        owner.other.run(1, Origin { target: outer, within: None }, || {
            let within = model.other.current();
            let thief = beside(&model, move |model| {
                model.thief.run(0, Origin { target: first, within }, || {});
                model.thief.run(0, Origin { target: second, within: None }, || {});
            });
            let work = model.thief.current();
            let is_second = descends(|worker| model.worker(worker), work, second);
            let is_part = descends(|worker| model.worker(worker), work, outer);
            assert!(!(is_second && is_part), "the second is a part of nothing");
            thief.join().unwrap();
        });
    });
}

/// A reader that sees which work another worker executes sees all ancestors of it, as long as that
/// lasts.
#[test]
fn all_ancestors_are_seen() {
    explore(3, || {
        let [outer, inner, _] = TARGETS.map(WaitTarget::of);
        let model = Arc::new(Model { thief: Ancestry::new(), other: Ancestry::new() });
        let watcher = beside(&model, move |model| {
            let work = model.thief.current();
            assert!(work.is_none() || descends(|worker| model.worker(worker), work, outer));
        });
        model.other.run(1, Origin { target: outer, within: None }, || {
            let within = model.other.current();
            model.thief.run(0, Origin { target: inner, within }, || watcher.join().unwrap());
        });
    });
}

/// A worker executes one piece of work, then another, then the first again, and it can publish only
/// one: a reader that looks up the ancestors of the first all the while never gets those of the
/// second.
fn look_up_outer_work(asked: usize) {
    explore_and_plant(3, "a part of nothing", move || {
        let targets = TARGETS.map(WaitTarget::of);
        let [outer, inner, far] = targets;
        let model = Arc::new(Model { thief: Ancestry::new(), other: Ancestry::new() });
        let owner = Arc::clone(&model);
        owner.other.run(1, Origin { target: far, within: None }, || {
            let within = model.other.current();
            model.thief.run(0, Origin { target: outer, within: None }, || {
                let work = model.thief.current();
                let watcher = beside(&model, move |model| {
                    let is_part = descends(|worker| model.worker(worker), work, targets[asked]);
                    assert!(!is_part, "the outer thing is a part of nothing");
                });
                model.thief.run(0, Origin { target: inner, within }, || {});
                watcher.join().unwrap();
                assert!(descends(|worker| model.worker(worker), work, outer), "it is shown again");
            });
        });
    });
}

#[test]
fn outer_work_never_has_the_target_of_inner_work() {
    look_up_outer_work(1);
}

#[test]
fn outer_work_never_has_the_ancestors_of_inner_work() {
    look_up_outer_work(2);
}
