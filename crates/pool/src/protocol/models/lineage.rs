//! What a worker shows of what it is at is read whole, or not at all.

use std::ptr;
use std::sync::Arc;

use super::{beside, explore, explore_and_plant};
use crate::protocol::lineage::{Cause, Lineage, Origin, descends};

/// Some addresses.
const CAUSES: [*const u8; 3] =
    [ptr::without_provenance(8), ptr::without_provenance(16), ptr::without_provenance(24)];

struct Story {
    thief: Lineage,
    other: Lineage,
}

impl Story {
    fn seat(&self, index: usize) -> &Lineage {
        [&self.thief, &self.other][index]
    }
}

/// A worker is at one thing after the other, in the same place of memory: whoever finds it at the second
/// does not take that for a part of what the first was a part of.
#[test]
fn what_is_shown_of_two_things_in_a_row_is_not_mixed_up() {
    explore(3, || {
        let [outer, first, second] = CAUSES.map(Cause::of);
        let story = Arc::new(Story { thief: Lineage::new(), other: Lineage::new() });
        let owner = Arc::clone(&story);
        owner.other.apart(1, Origin { cause: outer, within: None }, || {
            let within = story.other.place();
            let thief = beside(&story, move |story| {
                story.thief.apart(0, Origin { cause: first, within }, || {});
                story.thief.apart(0, Origin { cause: second, within: None }, || {});
            });
            let place = story.thief.place();
            let is_second = descends(|seat| story.seat(seat), place, second);
            let is_part = descends(|seat| story.seat(seat), place, outer);
            assert!(!(is_second && is_part), "the second is a part of nothing");
            thief.join().unwrap();
        });
    });
}

/// Whoever sees what another is at sees all the way up, as long as that lasts.
#[test]
fn the_way_up_is_whole() {
    explore(3, || {
        let [outer, inner, _] = CAUSES.map(Cause::of);
        let story = Arc::new(Story { thief: Lineage::new(), other: Lineage::new() });
        let watcher = beside(&story, move |story| {
            let place = story.thief.place();
            assert!(place.is_none() || descends(|seat| story.seat(seat), place, outer));
        });
        story.other.apart(1, Origin { cause: outer, within: None }, || {
            let within = story.other.place();
            story.thief.apart(0, Origin { cause: inner, within }, || watcher.join().unwrap());
        });
    });
}

/// A worker is at one thing, then at another, then at the first again, and in the memory where it shows them is
/// room for one: who reads all the while what is shown of the first never takes a part of the second for it.
fn the_outer_thing_is_asked_for(asked: usize) {
    explore_and_plant(3, "a part of nothing", move || {
        let causes = CAUSES.map(Cause::of);
        let [outer, inner, far] = causes;
        let story = Arc::new(Story { thief: Lineage::new(), other: Lineage::new() });
        let owner = Arc::clone(&story);
        owner.other.apart(1, Origin { cause: far, within: None }, || {
            let within = story.other.place();
            story.thief.apart(0, Origin { cause: outer, within: None }, || {
                let place = story.thief.place();
                let watcher = beside(&story, move |story| {
                    let is_part = descends(|seat| story.seat(seat), place, causes[asked]);
                    assert!(!is_part, "the outer thing is a part of nothing");
                });
                story.thief.apart(0, Origin { cause: inner, within }, || {});
                watcher.join().unwrap();
                assert!(descends(|seat| story.seat(seat), place, outer), "it is shown again");
            });
        });
    });
}

#[test]
fn the_outer_thing_never_has_the_cause_of_the_inner_one() {
    the_outer_thing_is_asked_for(1);
}

#[test]
fn the_outer_thing_never_lies_within_what_the_inner_one_does() {
    the_outer_thing_is_asked_for(2);
}
