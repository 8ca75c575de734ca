//! Closing a pool while tasks are spawned from outside: each task is run, dropped or handed back,
//! and no worker keeps sleeping.

use std::sync::Arc;

use loom::sync::atomic::AtomicBool;
use loom::sync::atomic::AtomicUsize;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use loom::thread;

use super::{beside, explore, explore_and_plant};
use crate::protocol::locked_queue::LockedQueue;
use crate::protocol::sleep::Sleep;

/// A pool of one worker.
struct Model {
    queue: LockedQueue<Task>,
    sleep: Sleep,
    is_closed: AtomicBool,
    /// How many tasks are gone, in any way.
    gone: Arc<AtomicUsize>,
}

/// Counts its end.
struct Task(Arc<AtomicUsize>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.fetch_add(1, Relaxed);
    }
}

impl Model {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            queue: LockedQueue::new(),
            sleep: Sleep::new(1),
            is_closed: AtomicBool::new(false),
            gone: Arc::new(AtomicUsize::new(0)),
        })
    }

    fn spawn(&self) {
        let task = Task(Arc::clone(&self.gone));
        if self.queue.push(task).is_ok() {
            self.sleep.wake_one();
        }
    }

    fn close(&self) {
        self.is_closed.store(true, SeqCst);
        self.sleep.unpark(0);
        self.queue.close();
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Acquire)
    }

    fn work(&self) {
        self.sleep.register(0);
        let mut searching = false;
        while !self.is_closed() {
            if let Some(task) = self.queue.pop() {
                drop(task);
                if std::mem::take(&mut searching) {
                    let _ = self.sleep.stop_searching();
                }
                continue;
            }
            self.sleep.announce_sleep(0, searching);
            if self.queue.len() == 0 {
                while !self.sleep.is_woken(0) && !self.is_closed() {
                    thread::park();
                }
            }
            self.sleep.end_sleep(0);
            searching = true;
        }
    }
}

#[test]
fn a_task_added_while_the_pool_is_closed_is_dropped() {
    explore_and_plant(3, "nothing is left in a closed pool", || {
        let model = Model::new();
        let outsider = beside(&model, Model::spawn);
        model.close();
        outsider.join().unwrap();
        assert_eq!(model.gone.load(Relaxed), 1, "nothing is left in a closed pool");
    });
}

#[test]
fn the_worker_ends_and_no_task_is_left() {
    explore(2, || {
        let model = Model::new();
        let worker = beside(&model, Model::work);
        let outsider = beside(&model, Model::spawn);
        model.close();
        worker.join().unwrap();
        outsider.join().unwrap();
        assert_eq!(model.gone.load(Relaxed), 1);
    });
}
