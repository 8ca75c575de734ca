//! As many reserves run as threads wait, and none keeps sleeping that was requested.

use std::sync::Arc;

use loom::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use loom::sync::atomic::{AtomicBool, AtomicUsize};
use loom::thread;

use super::{beside, explore, explore_and_plant, sleeper};
use crate::protocol::event::Event;
use crate::protocol::reserve::Reserve;
use crate::protocol::sleep::Sleep;

const WORKER: usize = 0;
const RESERVE: usize = 1;

struct Model {
    reserve: Reserve,
    sleep: Sleep,
    started: AtomicUsize,
    /// How many tasks are exposed.
    open: AtomicUsize,
    is_closed: AtomicBool,
}

impl Model {
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
        if let Some(worker) = self.reserve.request(start) {
            self.sleep.unpark(worker);
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
    fn retire_if_surplus(&self) {
        if !self.reserve.is_surplus() || !self.reserve.go_idle(RESERVE) {
            return;
        }
        while self.reserve.is_idle(RESERVE) && !self.is_closed() {
            thread::park();
        }
    }

    fn found(&self, searching: &mut bool) {
        if std::mem::take(searching) && self.sleep.stop_searching() && self.is_exposed() {
            self.sleep.wake_one();
        }
    }

    /// It searches again after this.
    fn rest(&self, worker: usize, searched: bool) {
        self.sleep.announce_sleep(worker, searched);
        if !self.is_exposed() && !self.is_closed() {
            while !self.sleep.is_woken(worker) && !self.is_closed() {
                thread::park();
            }
        }
        self.sleep.end_sleep(worker);
    }

    /// A worker that ends after one task.
    fn work(&self) {
        self.sleep.register(WORKER);
        let mut searching = false;
        while !self.take() {
            self.rest(WORKER, searching);
            searching = true;
        }
        self.found(&mut searching);
    }

    /// A reserve that ends after one task, or when the pool is closed.
    fn stand_in(&self) {
        self.sleep.register(RESERVE);
        let mut searching = false;
        while !self.is_closed() {
            if self.reserve.is_surplus() {
                self.found(&mut searching);
                self.retire_if_surplus();
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

/// A thread is back, and another waits while the reserve is about to go idle.
#[test]
fn a_reserve_requested_while_it_goes_idle_comes_back() {
    explore_and_plant(4, "deadlock", || {
        let model = Model::new();
        model.call();
        let reserve = beside(&model, |model| {
            model.sleep.register(RESERVE);
            model.retire_if_surplus();
        });
        model.reserve.release(1);
        model.call();
        reserve.join().unwrap();
        assert_eq!((model.reserve.active(), model.started.load(Relaxed)), (1, 1));
    });
}

#[test]
fn as_many_reserves_run_as_threads_wait() {
    explore(3, || {
        let model = Model::new();
        let others = [beside(&model, Model::call), beside(&model, Model::call)];
        model.call();
        model.reserve.release(1);
        others.into_iter().for_each(|other| other.join().unwrap());
        let started = model.started.load(Relaxed);
        assert!(started == 2 || started == 3, "{started}");
        assert_eq!(model.reserve.active(), started);
    });
}

/// The reserve is not needed any more, but it sleeps, and is the one that is woken for a task: it
/// wakes another before it goes idle.
#[test]
fn a_task_is_not_lost_with_a_reserve_that_goes_idle() {
    explore_and_plant(2, "deadlock", || {
        let model = Model::new();
        model.call();
        model.reserve.release(1);
        let worker = beside(&model, Model::work);
        let reserve = beside(&model, Model::stand_in);
        model.open.fetch_add(1, Relaxed);
        model.sleep.wake_one();
        worker.join().unwrap();
        model.is_closed.store(true, SeqCst);
        model.sleep.unpark(RESERVE);
        reserve.join().unwrap();
    });
}

/// Two reserves run, and one waiting thread is back: one of the two goes idle.
#[test]
fn only_one_reserve_goes_idle_for_one_returning_thread() {
    explore_and_plant(4, "one of the two stays", || {
        let model = Model::new();
        (0..2).for_each(|_| model.call());
        let reserves = [WORKER, RESERVE].map(|worker| {
            beside(&model, move |model| model.reserve.is_surplus() && model.reserve.go_idle(worker))
        });
        model.reserve.release(1);
        let gone = reserves.map(|reserve| reserve.join().unwrap());
        assert!(gone != [true; 2], "one of the two stays");
        assert_eq!(model.reserve.active(), gone.iter().filter(|gone| !**gone).count());
    });
}

/// The only worker waits, comes back and waits again, each time until its task was done. The
/// reserve, which is idle or about to be, comes back each time.
#[test]
fn a_worker_that_waits_repeatedly_is_replaced_each_time() {
    explore_and_plant(2, "deadlock", || {
        sleeper(|| {
            let model = Model::new();
            model.call();
            model.reserve.release(1);
            let event = Arc::new(Event::new());
            let ring = Arc::clone(&event);
            let reserve = beside(&model, move |model| {
                for _ in 0..2 {
                    model.stand_in();
                    ring.set();
                }
            });
            for _ in 0..2 {
                model.call();
                model.open.fetch_add(1, Relaxed);
                model.sleep.wake_one();
                event.wait();
                model.reserve.release(1);
            }
            vec![reserve]
        });
    });
}

#[test]
fn an_idle_reserve_ends_with_the_pool() {
    explore(4, || {
        let model = Model::new();
        model.call();
        model.reserve.release(1);
        let reserve = beside(&model, Model::stand_in);
        model.is_closed.store(true, SeqCst);
        model.sleep.unpark(RESERVE);
        reserve.join().unwrap();
    });
}
