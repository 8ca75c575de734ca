//! A small pool, made of the real building blocks: several workers that fork down a tree, steal
//! from one another, wait for stolen forks, and sleep.
//!
//! It is too large for loom. shuttle runs it in many random orders (`RUSTFLAGS='--cfg loom --cfg
//! shuttle' cargo test --package filch-pool --lib small`), and threads run it under
//! ThreadSanitizer, which checks the plain memory that is handed over.
#![expect(unsafe_code, reason = "plain memory that threads share is what is to be checked")]

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::Arc;

use super::deque::{Deque, Theft};
use super::latch::Latch;
use super::sleep::Sleep;
use super::sync::atomic::AtomicBool;
use super::sync::atomic::Ordering::{Acquire, SeqCst};
use super::sync::thread;

/// The content of a fork before it is run.
const UNDONE: u64 = u64::MAX;

struct Small {
    /// A binary tree: the children of `n` are `2n + 1`, which is a call, and `2n + 2`, which is a
    /// fork.
    nodes: Vec<Node>,
    decks: Vec<Deque<()>>,
    sleep: Sleep,
    does_sleep: bool,
    is_closed: AtomicBool,
}

struct Node {
    latch: Latch,
    /// How many leaves are below it.
    leaves: UnsafeCell<u64>,
}

// SAFETY: this is the claim to be checked: deque and latch hand the memory from one to the next.
unsafe impl Sync for Node {}

impl Node {
    fn write(&self, leaves: u64) {
        // SAFETY: as claimed above.
        unsafe { *self.leaves.get() = leaves };
    }

    fn read(&self) -> u64 {
        // SAFETY: as claimed above.
        unsafe { *self.leaves.get() }
    }
}

impl Small {
    fn new(nodes: usize, workers: usize, does_sleep: bool) -> Self {
        let node = |_| Node { latch: Latch::new(), leaves: UnsafeCell::new(0) };
        Self {
            nodes: (0..nodes).map(node).collect(),
            decks: (0..workers).map(|_| Deque::new()).collect(),
            sleep: Sleep::new(workers),
            does_sleep,
            is_closed: AtomicBool::new(false),
        }
    }

    /// Counts the leaves below a node.
    fn count(&self, me: usize, node: usize) -> u64 {
        let (left, right) = (2 * node + 1, 2 * node + 2);
        let Some(fork) = self.nodes.get(right) else { return 1 };
        fork.write(UNDONE);
        self.decks[me].push(ptr::without_provenance_mut(right));
        if self.does_sleep {
            self.sleep.wake_one();
        }
        let first = self.count(me, left);
        match self.decks[me].pop() {
            Some(newest) => {
                assert_eq!(newest.addr(), right, "the newest fork ends first");
                assert_eq!(fork.read(), UNDONE);
                first + self.count(me, right)
            }
            None => {
                self.wait(&fork.latch);
                first + fork.read()
            }
        }
    }

    fn wait(&self, latch: &Latch) {
        while !latch.is_done() {
            if !self.does_sleep {
                thread::yield_now();
                continue;
            }
            if latch.sleep() {
                thread::park();
            }
            latch.wake();
        }
    }

    /// Takes a fork from another worker, and runs it; false if there is none.
    fn steal(&self, me: usize, searching: &mut bool) -> bool {
        let victims = (0..self.decks.len()).filter(|victim| *victim != me);
        for victim in victims {
            if let Theft::Taken(fork) = self.decks[victim].steal(|| true) {
                if std::mem::take(searching) && self.sleep.stop_searching() && self.is_exposed() {
                    self.sleep.wake_one();
                }
                let node = &self.nodes[fork.addr()];
                assert_eq!(node.read(), UNDONE, "it is run once");
                node.write(self.count(me, fork.addr()));
                if node.latch.done() {
                    self.sleep.unpark(victim);
                }
                return true;
            }
        }
        false
    }

    fn is_exposed(&self) -> bool {
        self.decks.iter().any(|deck| !deck.is_empty())
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Acquire)
    }

    fn work(&self, me: usize) {
        let mut searching = false;
        while !self.is_closed() {
            if self.steal(me, &mut searching) {
                continue;
            }
            if !self.does_sleep {
                thread::yield_now();
                continue;
            }
            self.sleep.announce_sleep(me, searching);
            if !self.is_exposed() {
                while !self.sleep.is_woken(me) && !self.is_closed() {
                    thread::park();
                }
            }
            self.sleep.end_sleep(me);
            searching = true;
        }
    }
}

/// Runs it once.
fn play(depth: u32, workers: usize, does_sleep: bool) {
    let small = Arc::new(Small::new((1 << (depth + 1)) - 1, workers, does_sleep));
    let threads: Vec<_> = (1..workers)
        .map(|worker| {
            let small = Arc::clone(&small);
            thread::spawn(move || {
                small.sleep.register(worker);
                small.work(worker);
            })
        })
        .collect();
    small.sleep.register(0);
    assert_eq!(small.count(0, 0), 1 << depth, "every leaf is counted once");
    small.is_closed.store(true, SeqCst);
    (1..workers).for_each(|worker| small.sleep.unpark(worker));
    for thread in threads {
        thread.join().expect("it ends");
    }
}

#[cfg(shuttle)]
#[test]
fn in_many_orders() {
    shuttle::check_random(|| play(3, 3, true), 30_000);
    shuttle::check_pct(|| play(2, 3, true), 30_000, 3);
}

#[cfg(not(shuttle))]
#[test]
fn on_threads_that_sleep() {
    (0..200).for_each(|_| play(6, 4, true));
}

#[cfg(not(shuttle))]
#[test]
fn on_threads_that_do_not() {
    (0..200).for_each(|_| play(8, 4, false));
}
