//! Owner and thieves take forks: each fork is taken once.

use std::sync::Arc;

use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::{Acquire, Release};
use loom::thread;

use super::payload::Payload;
use super::{beside, explore, explore_and_plant};
use crate::protocol::deque::{CAPACITY, Deque, Theft};

struct Model {
    forks: Deque<()>,
    payload: Payload,
}

impl Model {
    fn new(pieces: usize) -> Arc<Self> {
        Arc::new(Self { forks: Deque::new(), payload: Payload::new(pieces) })
    }

    fn push(&self, number: usize) {
        self.forks.push(self.payload.make(number));
    }

    fn pop(&self) -> Option<usize> {
        self.forks.pop().map(|fork| self.payload.take(fork))
    }

    fn steal(&self) -> Option<usize> {
        match self.forks.steal(|| true) {
            Theft::Taken(fork) => Some(self.payload.take(fork)),
            Theft::Empty | Theft::Refused | Theft::Lost => None,
        }
    }

    fn thief(self: &Arc<Self>) -> thread::JoinHandle<Option<usize>> {
        beside(self, Self::steal)
    }
}

/// Everything that was taken, in order of the numbers.
fn all(parts: impl IntoIterator<Item = Option<usize>>) -> Vec<usize> {
    let mut all: Vec<usize> = parts.into_iter().flatten().collect();
    all.sort_unstable();
    all
}

#[test]
fn the_last_fork_is_taken_by_one_of_three() {
    explore(3, || {
        let model = Model::new(1);
        let thieves = [model.thief(), model.thief()];
        model.push(1);
        let popped = model.pop();
        let stolen = thieves.map(|thief| thief.join().unwrap());
        assert_eq!(all([popped, stolen[0], stolen[1]]), [1]);
    });
}

#[test]
fn owner_and_two_thieves_share_two_forks() {
    explore_and_plant(3, "Causality violation", || {
        let model = Model::new(2);
        let thieves = [model.thief(), model.thief()];
        model.push(1);
        model.push(2);
        let popped = [model.pop(), model.pop()];
        let stolen = thieves.map(|thief| thief.join().unwrap());
        assert_eq!(all(popped.into_iter().chain(stolen)), [1, 2]);
    });
}

/// A thief that sees the end only as a `pop` has left it must still see the slots before it.
#[test]
fn a_fork_below_one_that_was_taken_back_is_whole() {
    explore(3, || {
        let model = Model::new(2);
        let thief = model.thief();
        model.push(1);
        model.push(2);
        let popped = model.pop();
        let stolen = thief.join().unwrap();
        let left = model.pop();
        assert_eq!(all([popped, stolen, left]), [1, 2]);
        assert!(popped == Some(2) || stolen.is_some());
    });
}

/// The slot of a fork that was taken back is used again.
#[test]
fn a_late_thief_does_not_take_the_previous_fork() {
    explore_and_plant(3, "Causality violation", || {
        let model = Model::new(3);
        let thieves = [model.thief(), model.thief()];
        model.push(1);
        model.push(2);
        let first = model.pop();
        model.push(3);
        let second = model.pop();
        let stolen = thieves.map(|thief| thief.join().unwrap());
        let left = [model.pop(), model.pop()];
        assert_eq!(all([first, second].into_iter().chain(stolen).chain(left)), [1, 2, 3]);
    });
}

/// More forks than slots, one after the other: slots are reused.
#[test]
fn slots_are_used_again_only_when_they_are_free() {
    explore(2, || {
        let model = Model::new(CAPACITY + 1);
        let thief = model.thief();
        let mut taken = vec![];
        for number in 1..=CAPACITY + 1 {
            if model.forks.room() == 0 {
                taken.push(model.pop());
            }
            model.push(number);
        }
        taken.push(thief.join().unwrap());
        taken.extend((0..=CAPACITY).map(|_| model.pop()));
        assert_eq!(all(taken), (1..=CAPACITY + 1).collect::<Vec<_>>());
    });
}

/// Forks 1 and 2 are made within work 7, fork 3 within work 8: a thief that may take only forks of
/// work 7 never gets the third, whenever it looks.
#[test]
fn a_fork_of_later_work_is_not_taken() {
    explore(3, || {
        let model = Model::new(3);
        let place = Arc::new(AtomicUsize::new(7));
        let waiter = {
            let (model, place) = (Arc::clone(&model), Arc::clone(&place));
            thread::spawn(move || match model.forks.steal(|| place.load(Acquire) == 7) {
                Theft::Taken(fork) => Some(model.payload.take(fork)),
                Theft::Empty | Theft::Refused | Theft::Lost => None,
            })
        };
        model.push(1);
        model.push(2);
        let mut taken = vec![model.pop(), model.pop()];
        place.store(8, Release);
        model.push(3);
        taken.push(model.pop());
        place.store(7, Release);
        let stolen = waiter.join().unwrap();
        assert_ne!(stolen, Some(3), "made at another place");
        taken.push(stolen);
        assert_eq!(all(taken), [1, 2, 3]);
    });
}
