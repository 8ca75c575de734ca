//! Exposed tasks: half of them by one exchange, against an owner who adds and takes.

use std::sync::Arc;

use loom::thread;

use super::freight::Freight;
use super::{beside, explore_and_plant};
use crate::protocol::ring::{PLACES, Ring};

struct Story {
    tasks: Ring<()>,
    freight: Freight,
}

impl Story {
    fn new(pieces: usize) -> Arc<Self> {
        Arc::new(Self { tasks: Ring::new(), freight: Freight::new(pieces) })
    }

    fn push(&self, number: usize) {
        self.tasks.push(self.freight.make(number));
    }

    fn pop(&self) -> Option<usize> {
        self.tasks.pop().map(|task| self.freight.take(task))
    }

    fn steal_half(&self) -> Vec<usize> {
        let loot = self.tasks.steal(|there| there.div_ceil(2));
        loot.as_slice().iter().map(|task| self.freight.take(*task)).collect()
    }

    fn thief(self: &Arc<Self>) -> thread::JoinHandle<Vec<usize>> {
        beside(self, Self::steal_half)
    }
}

#[test]
fn two_thieves_and_the_owner_take_each_task_once_and_in_order() {
    explore_and_plant(3, "not an empty slot", || {
        let story = Story::new(3);
        let thieves = [story.thief(), story.thief()];
        (1..=3).for_each(|number| story.push(number));
        let mut popped = vec![];
        while let Some(number) = story.pop() {
            popped.push(number);
        }
        let stolen = thieves.map(|thief| thief.join().unwrap());
        for part in stolen.iter().chain([&popped]) {
            assert!(part.is_sorted(), "the oldest first: {part:?}");
        }
        assert_eq!(popped.len() + stolen[0].len() + stolen[1].len(), 3);
        assert_eq!(story.freight.taken(), 3);
    });
}

#[test]
// The thief sees a head that is newer than the tail, for ever.
fn slots_are_used_again_only_when_they_are_free() {
    explore_and_plant(3, "exceeded maximum number of branches", || {
        let story = Story::new(PLACES + 2);
        let thief = story.thief();
        let mut taken = 0;
        for number in 1..=PLACES + 2 {
            if story.tasks.room() == 0 {
                taken += usize::from(story.pop().is_some());
            }
            if story.tasks.room() > 0 {
                story.push(number);
            }
        }
        taken += thief.join().unwrap().len();
        while story.pop().is_some() {
            taken += 1;
        }
        assert_eq!(taken, PLACES + 2);
        assert_eq!(story.freight.taken(), PLACES + 2);
    });
}
