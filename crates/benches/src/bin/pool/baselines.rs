//! The alternatives to stealing: a static split among threads, or one queue for all.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;

/// A static split: each part has its own thread.
pub(crate) fn dealt<P: Send>(parts: Vec<P>, work: impl Fn(P) -> u64 + Sync) -> u64 {
    let work = &work;
    thread::scope(|scope| {
        let threads = parts.into_iter().map(|part| scope.spawn(move || work(part)));
        let threads: Vec<_> = threads.collect();
        let sums = threads.into_iter().map(|thread| thread.join().expect("work does not panic"));
        sums.fold(0, u64::wrapping_add)
    })
}

/// One queue behind one lock, for all threads.
pub(crate) struct Central<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    tasks: VecDeque<T>,
    /// Waiting or being worked on.
    open: usize,
}

impl<T: Send> Central<T> {
    pub(crate) fn new(tasks: impl IntoIterator<Item = T>) -> Self {
        let tasks: VecDeque<T> = tasks.into_iter().collect();
        let open = tasks.len();
        Self { state: Mutex::new(State { tasks, open }), changed: Condvar::new() }
    }

    /// Adds an item, from a thread that works.
    pub(crate) fn push(&self, task: T) {
        let mut state = self.lock();
        state.tasks.push_back(task);
        state.open += 1;
        drop(state);
        self.changed.notify_one();
    }

    /// Processes all items, including those added meanwhile, with this many threads.
    pub(crate) fn run(&self, threads: usize, work: impl Fn(T) -> u64 + Sync) -> u64 {
        dealt(vec![(); threads], |()| {
            let mut sum = 0_u64;
            while let Some(task) = self.take() {
                sum = sum.wrapping_add(work(task));
                self.done();
            }
            sum
        })
    }

    fn take(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if let Some(task) = state.tasks.pop_front() {
                return Some(task);
            }
            if state.open == 0 {
                return None;
            }
            state = self.changed.wait(state).expect("work does not panic");
        }
    }

    fn done(&self) {
        let mut state = self.lock();
        state.open -= 1;
        if state.open == 0 {
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().expect("work does not panic")
    }
}
