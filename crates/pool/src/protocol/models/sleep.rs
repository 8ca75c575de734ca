//! No wake is lost: not between a thread that adds work and a worker that goes to sleep, not when
//! the last searching worker finds other work, not when the pool is closed.
//!
//! In all models, work that no worker comes for leaves a thread asleep for ever, which loom
//! reports.

use std::sync::Arc;

use loom::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use loom::sync::atomic::{AtomicBool, AtomicUsize};
use loom::thread;

use super::{beside, explore, explore_and_plant};
use crate::protocol::sleep::Sleep;

struct Model {
    sleep: Sleep,
    /// How many tasks are exposed.
    open: AtomicUsize,
    is_closed: AtomicBool,
}

impl Model {
    fn new(workers: usize) -> Arc<Self> {
        Arc::new(Self {
            sleep: Sleep::new(workers),
            open: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
        })
    }

    /// What every thread does that adds a task.
    fn bring(&self) {
        self.open.fetch_add(1, Relaxed);
        self.sleep.wake_one();
    }

    /// Takes a task, if one is exposed.
    fn take(&self) -> bool {
        self.open.fetch_update(Relaxed, Relaxed, |open| open.checked_sub(1)).is_ok()
    }

    fn is_exposed(&self) -> bool {
        self.open.load(Relaxed) > 0
    }

    fn close(&self) {
        self.is_closed.store(true, SeqCst);
        self.sleep.unpark(0);
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Acquire)
    }

    /// What a worker does that has found nothing. It searches after this.
    fn rest(&self, worker: usize, searched: bool) {
        self.sleep.announce_sleep(worker, searched);
        if !self.is_exposed() && !self.is_closed() {
            while !self.sleep.is_woken(worker) && !self.is_closed() {
                thread::park();
            }
        }
        self.sleep.end_sleep(worker);
    }

    /// What the last searching worker does when it has found something.
    fn found(&self) {
        if self.sleep.stop_searching() && self.is_exposed() {
            self.sleep.wake_one();
        }
    }

    /// A worker that ends after that many tasks, or when the pool is closed.
    fn work(&self, worker: usize, tasks: usize) {
        self.go_on(worker, tasks, false);
    }

    /// The same, for a worker that may be searching.
    fn go_on(&self, worker: usize, tasks: usize, mut searching: bool) {
        self.sleep.register(worker);
        let mut done = 0;
        while done < tasks && !self.is_closed() {
            if self.take() {
                done += 1;
                if std::mem::take(&mut searching) {
                    self.found();
                }
            } else {
                self.rest(worker, searching);
                searching = true;
            }
        }
    }
}

#[test]
fn a_worker_that_goes_to_sleep_while_work_is_added_is_woken() {
    explore_and_plant(4, "deadlock", || {
        let model = Model::new(1);
        let worker = beside(&model, |model| model.work(0, 1));
        model.bring();
        worker.join().unwrap();
    });
}

#[test]
fn two_threads_that_add_work_wake_the_worker() {
    explore_and_plant(2, "deadlock", || {
        let model = Model::new(1);
        let worker = beside(&model, |model| model.work(0, 2));
        let other = beside(&model, |model| model.bring());
        model.bring();
        worker.join().unwrap();
        other.join().unwrap();
    });
}

/// No worker is woken while another searches, so the one that ends the search has to look.
#[test]
fn the_last_searching_worker_wakes_the_next() {
    explore_and_plant(3, "deadlock", || {
        let model = Model::new(2);
        assert!(model.sleep.start_searching(2));
        let sleeper = beside(&model, |model| model.work(1, 1));
        // It has found something else, which takes for ever.
        let searcher = beside(&model, |model| model.found());
        model.bring();
        sleeper.join().unwrap();
        searcher.join().unwrap();
    });
}

/// A thread that adds two tasks relies on the searching worker, which finds them only when it is
/// about to sleep, takes one and does not come back: the other worker is woken for the second.
#[test]
fn a_worker_that_does_not_sleep_after_all_wakes_the_next() {
    explore_and_plant(2, "deadlock", || {
        let model = Model::new(2);
        assert!(model.sleep.start_searching(2));
        let workers = [true, false].map(|searching| {
            beside(&model, move |model| model.go_on(usize::from(searching), 1, searching))
        });
        (0..2).for_each(|_| model.bring());
        for worker in workers {
            worker.join().unwrap();
        }
    });
}

#[test]
fn closing_the_pool_wakes_the_worker() {
    explore(4, || {
        let model = Model::new(1);
        let worker = beside(&model, |model| model.work(0, usize::MAX));
        model.close();
        worker.join().unwrap();
    });
}

#[test]
fn closing_while_work_is_added_ends_the_worker() {
    explore(2, || {
        let model = Model::new(1);
        let worker = beside(&model, |model| model.work(0, usize::MAX));
        let closer = beside(&model, |model| model.close());
        model.bring();
        worker.join().unwrap();
        closer.join().unwrap();
    });
}
