//! A thread that waits for a task, or a future that awaits it, gets its result.

use std::sync::Arc;
use std::task::{Poll, Wake, Waker};

use super::payload::Payload;
use super::{beside, explore, explore_and_plant, sleeper};
use crate::protocol::event::Event;
use crate::protocol::outcome::Outcome;

/// The outcome is the number of a payload that was made before.
struct Model {
    outcome: Outcome<usize>,
    pieces: Payload,
}

impl Model {
    fn new() -> Arc<Self> {
        Arc::new(Self { outcome: Outcome::new(), pieces: Payload::new(1) })
    }

    /// What a worker does that has run the task.
    fn keep(&self) {
        self.outcome.settle(self.pieces.make(1).addr());
    }

    fn take(&self, number: usize) {
        self.pieces.take(std::ptr::without_provenance_mut(number));
    }
}

struct Woken(Event);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.set();
    }
}

#[test]
fn a_waiting_thread_gets_the_result() {
    explore(4, || {
        let model = Model::new();
        let worker = beside(&model, Model::keep);
        model.outcome.wait();
        model.take(model.outcome.take());
        worker.join().unwrap();
    });
}

#[test]
fn an_awaiting_future_is_woken() {
    explore_and_plant(4, "deadlock", || {
        sleeper(|| {
            let model = Model::new();
            let worker = beside(&model, Model::keep);
            let woken = Arc::new(Woken(Event::new()));
            let waker = Waker::from(Arc::clone(&woken));
            let number = loop {
                match model.outcome.poll(&waker) {
                    Poll::Ready(number) => break number,
                    Poll::Pending => woken.0.wait(),
                }
            };
            model.take(number);
            vec![worker]
        });
    });
}

/// A task ends while its pool is closed: one of the two results counts, and the waiting thread gets
/// it.
#[test]
fn one_of_two_results_counts() {
    explore(3, || {
        let outcome = Arc::new(Outcome::new());
        let others = [1, 2].map(|number| beside(&outcome, move |it| it.settle(number)));
        outcome.wait();
        let number = outcome.take();
        assert!(number == 1 || number == 2);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert!(outcome.is_settled(), "and it stays so");
    });
}
