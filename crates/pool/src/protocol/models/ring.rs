//! Thieves take half of the tasks by one exchange, while the owner adds and takes.

use std::sync::Arc;

use loom::thread;

use super::payload::Payload;
use super::{beside, explore_and_plant, sampled};
use crate::protocol::ring::{CAPACITY, Ring};

struct Model {
    tasks: Ring<()>,
    payload: Payload,
}

impl Model {
    fn new(pieces: usize) -> Arc<Self> {
        Arc::new(Self { tasks: Ring::new(), payload: Payload::new(pieces) })
    }

    fn push(&self, number: usize) {
        self.tasks.push(self.payload.make(number));
    }

    fn pop(&self) -> Option<usize> {
        self.tasks.pop().map(|task| self.payload.take(task))
    }

    fn steal_half(&self) -> Vec<usize> {
        let batch = self.tasks.steal(|there| there.div_ceil(2));
        batch.as_slice().iter().map(|task| self.payload.take(*task)).collect()
    }

    fn thief(self: &Arc<Self>) -> thread::JoinHandle<Vec<usize>> {
        beside(self, Self::steal_half)
    }
}

#[test]
fn two_thieves_and_the_owner_take_each_task_once_and_in_order() {
    explore_and_plant(sampled(2, 3), "not an empty slot", || {
        let model = Model::new(3);
        let thieves = [model.thief(), model.thief()];
        (1..=3).for_each(|number| model.push(number));
        let mut popped = vec![];
        while let Some(number) = model.pop() {
            popped.push(number);
        }
        let stolen = thieves.map(|thief| thief.join().unwrap());
        for part in stolen.iter().chain([&popped]) {
            assert!(part.is_sorted(), "the oldest first: {part:?}");
        }
        assert_eq!(popped.len() + stolen[0].len() + stolen[1].len(), 3);
        assert_eq!(model.payload.taken(), 3);
    });
}

#[test]
// The thief sees a head that is newer than the tail, for ever.
fn slots_are_used_again_only_when_they_are_free() {
    explore_and_plant(3, "exceeded maximum number of branches", || {
        let model = Model::new(CAPACITY + 2);
        let thief = model.thief();
        let mut taken = 0;
        for number in 1..=CAPACITY + 2 {
            if model.tasks.room() == 0 {
                taken += usize::from(model.pop().is_some());
            }
            if model.tasks.room() > 0 {
                model.push(number);
            }
        }
        taken += thief.join().unwrap().len();
        while model.pop().is_some() {
            taken += 1;
        }
        assert_eq!(taken, CAPACITY + 2);
        assert_eq!(model.payload.taken(), CAPACITY + 2);
    });
}
