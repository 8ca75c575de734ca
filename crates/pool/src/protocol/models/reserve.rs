//! As many reserves work as threads wait, and none sleeps on the bench that was called.

use std::sync::Arc;

use loom::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use loom::sync::atomic::{AtomicBool, AtomicUsize};
use loom::thread;

use super::{beside, explore, explore_and_plant, sleeper};
use crate::protocol::bell::Bell;
use crate::protocol::reserve::Reserve;
use crate::protocol::sleep::Sleep;

const WORKER: usize = 0;
const RESERVE: usize = 1;

struct Story {
    reserve: Reserve,
    sleep: Sleep,
    started: AtomicUsize,
    /// How many tasks lie open.
    open: AtomicUsize,
    is_closed: AtomicBool,
}

impl Story {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            reserve: Reserve::new(),
            sleep: Sleep::new(2),
            started: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
        })
    }

    /// One more thread waits.
    fn call(&self) {
        let start = || {
            self.started.fetch_add(1, Relaxed);
            true
        };
        if let Some(seat) = self.reserve.call(start) {
            self.sleep.unpark(seat);
        }
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Acquire)
    }

    fn is_exposed(&self) -> bool {
        self.open.load(Relaxed) > 0
    }

    fn take(&self) -> bool {
        self.open.fetch_update(Relaxed, Relaxed, |open| open.checked_sub(1)).is_ok()
    }

    /// What a reserve does before it looks for work.
    fn make_way(&self) {
        if !self.reserve.is_surplus() || !self.reserve.sit_down(RESERVE) {
            return;
        }
        while self.reserve.sits(RESERVE) && !self.is_closed() {
            thread::park();
        }
    }

    fn found(&self, searching: &mut bool) {
        if std::mem::take(searching) && self.sleep.found() && self.is_exposed() {
            self.sleep.wake_one();
        }
    }

    /// Searches again after this.
    fn rest(&self, seat: usize, searched: bool) {
        self.sleep.lie_down(seat, searched);
        if !self.is_exposed() && !self.is_closed() {
            while !self.sleep.is_called(seat) && !self.is_closed() {
                thread::park();
            }
        }
        self.sleep.get_up(seat);
    }

    /// A worker until it has done one task.
    fn work(&self) {
        self.sleep.sit(WORKER);
        let mut searching = false;
        while !self.take() {
            self.rest(WORKER, searching);
            searching = true;
        }
        self.found(&mut searching);
    }

    /// A reserve until it has done a task, or the pool is closed.
    fn stand_in(&self) {
        self.sleep.sit(RESERVE);
        let mut searching = false;
        while !self.is_closed() {
            if self.reserve.is_surplus() {
                self.found(&mut searching);
                self.make_way();
            } else if self.take() {
                self.found(&mut searching);
                return;
            } else {
                self.rest(RESERVE, searching);
                searching = true;
            }
        }
    }
}

/// A thread is back, and another waits while the reserve is about to sit down.
#[test]
fn who_is_called_while_it_sits_down_gets_up() {
    explore_and_plant(4, "deadlock", || {
        let story = Story::new();
        story.call();
        let reserve = beside(&story, |story| {
            story.sleep.sit(RESERVE);
            story.make_way();
        });
        story.reserve.dismiss(1);
        story.call();
        reserve.join().unwrap();
        assert_eq!((story.reserve.active(), story.started.load(Relaxed)), (1, 1));
    });
}

#[test]
fn as_many_come_as_wait() {
    explore(3, || {
        let story = Story::new();
        let others = [beside(&story, Story::call), beside(&story, Story::call)];
        story.call();
        story.reserve.dismiss(1);
        others.into_iter().for_each(|other| other.join().unwrap());
        let started = story.started.load(Relaxed);
        assert!(started == 2 || started == 3, "{started}");
        assert_eq!(story.reserve.active(), started);
    });
}

/// The reserve is not needed any more, but it sleeps, and is the one that is woken for a task: it
/// wakes another before it goes.
#[test]
fn a_task_is_not_lost_with_who_makes_way() {
    explore_and_plant(2, "deadlock", || {
        let story = Story::new();
        story.call();
        story.reserve.dismiss(1);
        let worker = beside(&story, Story::work);
        let reserve = beside(&story, Story::stand_in);
        story.open.fetch_add(1, Relaxed);
        story.sleep.wake_one();
        worker.join().unwrap();
        story.is_closed.store(true, SeqCst);
        story.sleep.unpark(RESERVE);
        reserve.join().unwrap();
    });
}

/// Two reserves work, and one who waited is back: one of the two goes.
#[test]
fn only_one_makes_way_for_one_who_is_back() {
    explore_and_plant(4, "one of the two stays", || {
        let story = Story::new();
        (0..2).for_each(|_| story.call());
        let reserves = [WORKER, RESERVE].map(|seat| {
            beside(&story, move |story| story.reserve.is_surplus() && story.reserve.sit_down(seat))
        });
        story.reserve.dismiss(1);
        let gone = reserves.map(|reserve| reserve.join().unwrap());
        assert!(gone != [true; 2], "one of the two stays");
        assert_eq!(story.reserve.active(), gone.iter().filter(|gone| !**gone).count());
    });
}

/// The only worker waits, comes back and waits again, each time until somebody has done what it left behind.
/// The reserve, which sits on the bench or is about to, is there each time.
#[test]
fn who_waits_again_and_again_is_relieved_each_time() {
    explore_and_plant(2, "deadlock", || {
        sleeper(|| {
            let story = Story::new();
            story.call();
            story.reserve.dismiss(1);
            let bell = Arc::new(Bell::new());
            let ring = Arc::clone(&bell);
            let reserve = beside(&story, move |story| {
                for _ in 0..2 {
                    story.stand_in();
                    ring.ring();
                }
            });
            for _ in 0..2 {
                story.call();
                story.open.fetch_add(1, Relaxed);
                story.sleep.wake_one();
                bell.wait();
                story.reserve.dismiss(1);
            }
            vec![reserve]
        });
    });
}

#[test]
fn who_sits_on_the_bench_ends_with_the_pool() {
    explore(4, || {
        let story = Story::new();
        story.call();
        story.reserve.dismiss(1);
        let reserve = beside(&story, Story::stand_in);
        story.is_closed.store(true, SeqCst);
        story.sleep.unpark(RESERVE);
        reserve.join().unwrap();
    });
}
