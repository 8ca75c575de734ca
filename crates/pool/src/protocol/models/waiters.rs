//! A worker that waits for a stolen fork is woken for every part of it that is exposed meanwhile.

use std::sync::Arc;

use loom::thread;

use super::payload::Payload;
use super::{beside, explore, explore_and_plant, sleeper};
use crate::protocol::ancestry::WaitTarget;
use crate::protocol::deque::{Deque, Theft};
use crate::protocol::latch::Latch;
use crate::protocol::sleep::Sleep;
use crate::protocol::sync;
use crate::protocol::waiters::Waiters;

const OWNER: usize = 0;

/// The thief's forks, and the workers that wait for them.
struct Model {
    forks: Deque<()>,
    waiters: Waiters,
    latches: Vec<Latch>,
    sleep: Sleep,
    payload: Payload,
}

impl Model {
    fn new(waiters: usize) -> Arc<Self> {
        Arc::new(Self {
            forks: Deque::new(),
            waiters: Waiters::new(),
            latches: (0..waiters).map(|_| Latch::new()).collect(),
            sleep: Sleep::new(waiters),
            payload: Payload::new(2),
        })
    }

    /// All exposed forks are parts of what every worker waits for.
    fn call(&self) {
        if !self.waiters.is_empty()
            && let Some(waiter) = self.waiters.call(|_, _| true)
        {
            self.sleep.unpark(waiter);
        }
    }

    /// The thief exposes forks, and wakes one worker that waits for them.
    fn expose(&self, forks: usize) {
        (1..=forks).for_each(|fork| self.forks.push(self.payload.make(fork)));
        sync::fence();
        self.call();
    }

    fn done(&self, waiter: usize) {
        if self.latches[waiter].done() {
            self.sleep.unpark(waiter);
        }
    }

    /// What a waiting worker does. Returns whether it has helped before the end.
    fn wait(&self, me: usize) -> bool {
        self.sleep.register(me);
        let latch = &self.latches[me];
        while !latch.is_done() {
            match self.forks.steal(|| true) {
                Theft::Taken(fork) => {
                    if !self.forks.is_empty() {
                        self.call();
                    }
                    self.payload.take(fork);
                    return true;
                }
                // Another worker took it; this one looks again.
                Theft::Lost => continue,
                Theft::Empty | Theft::Refused => {}
            }
            self.waiters.wait(me, WaitTarget::of(latch));
            if self.forks.is_empty() {
                if latch.sleep() {
                    thread::park();
                }
                latch.wake();
            }
            if self.waiters.leave(me) && latch.is_done() && !self.forks.is_empty() {
                self.call();
            }
        }
        false
    }
}

/// The thief does not finish before it was helped.
#[test]
fn a_waiting_worker_is_woken_for_a_fork() {
    explore_and_plant(3, "deadlock", || {
        sleeper(|| {
            let model = Model::new(1);
            let thief = beside(&model, |model| model.expose(1));
            assert!(model.wait(OWNER));
            vec![thief]
        });
    });
}

/// The thief takes its fork back, or the waiting worker takes it; in both cases the latter ends.
#[test]
fn a_waiting_worker_helps_or_is_woken_at_the_end() {
    explore(2, || {
        sleeper(|| {
            let model = Model::new(1);
            let thief = beside(&model, |model| {
                model.expose(1);
                let _ = model.forks.pop().map(|fork| model.payload.take(fork));
                model.done(OWNER);
            });
            let has_helped = model.wait(OWNER);
            assert!(has_helped || model.payload.taken() == 1, "one of both has run it");
            vec![thief]
        });
    });
}

/// Two workers wait, two forks are exposed at once, and one of the two is woken: it wakes the
/// other. The thief does not finish before both have helped.
#[test]
fn a_woken_worker_wakes_the_next() {
    explore_and_plant(2, "deadlock", || {
        let model = Model::new(2);
        let waiters = [0, 1].map(|me| beside(&model, move |model| model.wait(me)));
        model.expose(2);
        for waiter in waiters {
            assert!(waiter.join().unwrap());
        }
    });
}
