//! Shutdown against tasks from outside: each is run, dropped or handed back, and nobody sleeps on.

use std::sync::Arc;

use loom::sync::atomic::AtomicBool;
use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use loom::thread;

use super::{beside, explore, explore_and_plant};
use crate::protocol::lane::Lane;
use crate::protocol::sleep::Sleep;

/// A pool of one worker.
struct Story {
    lane: Lane<Task>,
    sleep: Sleep,
    is_closed: AtomicBool,
    /// How many tasks have gone, in whatever way.
    gone: Arc<AtomicUsize>,
}

/// Counts its end.
struct Task(Arc<AtomicUsize>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

impl Story {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            lane: Lane::new(),
            sleep: Sleep::new(1),
            is_closed: AtomicBool::new(false),
            gone: Arc::new(AtomicUsize::new(0)),
        })
    }

    fn spawn(&self) {
        let task = Task(Arc::clone(&self.gone));
        if self.lane.push(task).is_ok() {
            self.sleep.wake_one();
        }
    }

    fn close(&self) {
        self.is_closed.store(true, SeqCst);
        self.sleep.unpark(0);
        self.lane.close();
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Acquire)
    }

    fn work(&self) {
        self.sleep.sit(0);
        let mut searching = false;
        while !self.is_closed() {
            if let Some(task) = self.lane.pop() {
                drop(task);
                if std::mem::take(&mut searching) {
                    let _ = self.sleep.found();
                }
                continue;
            }
            self.sleep.lie_down(0, searching);
            if self.lane.len() == 0 {
                while !self.sleep.is_called(0) && !self.is_closed() {
                    thread::park();
                }
            }
            self.sleep.get_up(0);
            searching = true;
        }
    }
}

#[test]
fn a_task_that_comes_while_the_pool_is_closed_goes() {
    explore_and_plant(3, "nothing is left in a closed pool", || {
        let story = Story::new();
        let outsider = beside(&story, Story::spawn);
        story.close();
        outsider.join().unwrap();
        assert_eq!(story.gone.load(Relaxed), 1, "nothing is left in a closed pool");
    });
}

#[test]
fn the_worker_ends_and_leaves_nothing() {
    explore(2, || {
        let story = Story::new();
        let worker = beside(&story, Story::work);
        let outsider = beside(&story, Story::spawn);
        story.close();
        worker.join().unwrap();
        outsider.join().unwrap();
        assert_eq!(story.gone.load(Relaxed), 1);
    });
}
