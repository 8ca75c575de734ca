//! No wake is lost: not between who brings work and who lies down, not when the last who searches
//! finds something else, not when the pool is closed.
//!
//! In all stories work that nobody comes for leaves a thread asleep for ever, which loom reports.

use std::sync::Arc;

use loom::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use loom::sync::atomic::{AtomicBool, AtomicUsize};
use loom::thread;

use super::{beside, explore, explore_and_plant};
use crate::protocol::sleep::Sleep;

struct Story {
    sleep: Sleep,
    /// How many tasks lie open.
    open: AtomicUsize,
    is_closed: AtomicBool,
}

impl Story {
    fn new(seats: usize) -> Arc<Self> {
        Arc::new(Self {
            sleep: Sleep::new(seats),
            open: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
        })
    }

    /// What everybody does who brings a task.
    fn bring(&self) {
        self.open.fetch_add(1, Relaxed);
        self.sleep.wake_one();
    }

    /// Takes a task, if one lies open.
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
    fn rest(&self, seat: usize, searched: bool) {
        self.sleep.lie_down(seat, searched);
        if !self.is_exposed() && !self.is_closed() {
            while !self.sleep.is_called(seat) && !self.is_closed() {
                thread::park();
            }
        }
        self.sleep.get_up(seat);
    }

    /// What the last who searched does when it has found something.
    fn found(&self) {
        if self.sleep.found() && self.is_exposed() {
            self.sleep.wake_one();
        }
    }

    /// A worker that ends after so many tasks, or when the pool is closed.
    fn work(&self, seat: usize, tasks: usize) {
        self.go_on(seat, tasks, false);
    }

    /// The same, for one that may be searching.
    fn go_on(&self, seat: usize, tasks: usize, mut searching: bool) {
        self.sleep.sit(seat);
        let mut done = 0;
        while done < tasks && !self.is_closed() {
            if self.take() {
                done += 1;
                if std::mem::take(&mut searching) {
                    self.found();
                }
            } else {
                self.rest(seat, searching);
                searching = true;
            }
        }
    }
}

#[test]
fn who_lies_down_while_work_is_brought_is_woken() {
    explore_and_plant(4, "deadlock", || {
        let story = Story::new(1);
        let worker = beside(&story, |story| story.work(0, 1));
        story.bring();
        worker.join().unwrap();
    });
}

#[test]
fn two_who_bring_work_wake_who_is_needed() {
    explore_and_plant(2, "deadlock", || {
        let story = Story::new(1);
        let worker = beside(&story, |story| story.work(0, 2));
        let other = beside(&story, |story| story.bring());
        story.bring();
        worker.join().unwrap();
        other.join().unwrap();
    });
}

/// While somebody searches nobody is woken; so who ends the search has to look.
#[test]
fn the_last_who_searches_and_finds_wakes_the_next() {
    explore_and_plant(3, "deadlock", || {
        let story = Story::new(2);
        assert!(story.sleep.search(2));
        let sleeper = beside(&story, |story| story.work(1, 1));
        // It has found something else, which takes for ever.
        let searcher = beside(&story, |story| story.found());
        story.bring();
        sleeper.join().unwrap();
        searcher.join().unwrap();
    });
}

/// Who brings two tasks while somebody searches relies on that one, which finds them only when it lies down,
/// takes one and does not come back: the other is told of the second.
#[test]
fn who_does_not_sleep_after_all_wakes_the_next() {
    explore_and_plant(2, "deadlock", || {
        let story = Story::new(2);
        assert!(story.sleep.search(2));
        let workers = [true, false].map(|searching| {
            beside(&story, move |story| story.go_on(usize::from(searching), 1, searching))
        });
        (0..2).for_each(|_| story.bring());
        for worker in workers {
            worker.join().unwrap();
        }
    });
}

#[test]
fn a_pool_that_is_closed_lets_nobody_sleep() {
    explore(4, || {
        let story = Story::new(1);
        let worker = beside(&story, |story| story.work(0, usize::MAX));
        story.close();
        worker.join().unwrap();
    });
}

#[test]
fn closing_and_bringing_work_at_once_ends_the_worker() {
    explore(2, || {
        let story = Story::new(1);
        let worker = beside(&story, |story| story.work(0, usize::MAX));
        let closer = beside(&story, |story| story.close());
        story.bring();
        worker.join().unwrap();
        closer.join().unwrap();
    });
}
