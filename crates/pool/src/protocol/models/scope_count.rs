//! The owner of a scope does not leave it before its tasks have finished, and does not sleep while
//! one is queued.

use std::sync::Arc;

use loom::thread;

use super::payload::Payload;
use super::{beside, explore_and_plant, sleeper};
use crate::protocol::scope_count::ScopeCount;
use crate::protocol::sync::{self, Mutex};

struct Model {
    count: ScopeCount,
    queue: Mutex<Vec<Task>>,
    done: Payload,
}

/// A task whose effect can be seen, and which may spawn another.
#[derive(Clone, Copy)]
enum Task {
    Plain(usize),
    Spawns,
    Nothing,
}

impl Model {
    fn new(tasks: usize) -> Arc<Self> {
        let queue = Mutex::new(Vec::new());
        Arc::new(Self { count: ScopeCount::new(), queue, done: Payload::new(tasks) })
    }

    fn spawn(&self, task: Task) {
        self.count.add(|| sync::lock(&self.queue).push(task));
    }

    /// Runs one task, if there is any.
    fn step(&self) -> bool {
        if !self.count.is_queued() {
            return false;
        }
        let Some(task) = sync::lock(&self.queue).pop() else {
            // Another thread has taken it, and will count that.
            thread::yield_now();
            return false;
        };
        self.count.started();
        match task {
            Task::Plain(number) => drop(self.done.make(number)),
            Task::Spawns => self.spawn(Task::Nothing),
            Task::Nothing => {}
        }
        self.count.finished();
        true
    }

    /// What the owner does in the end.
    fn finish(&self) {
        loop {
            while self.step() {}
            if self.count.is_over() {
                return;
            }
            self.count.sleep();
        }
    }
}

#[test]
fn the_owner_sees_what_the_tasks_did() {
    explore_and_plant(3, "Causality violation", || {
        sleeper(|| {
            let model = Model::new(2);
            (1..=2).for_each(|number| model.spawn(Task::Plain(number)));
            let helpers = vec![beside(&model, Model::step), beside(&model, Model::step)];
            model.finish();
            (1..=2).for_each(|number| {
                model.done.take(std::ptr::without_provenance_mut(number));
            });
            helpers
        });
    });
}

/// The helper runs one task and ends; the task that this one spawned is left to the owner.
#[test]
fn the_owner_does_not_sleep_while_a_task_spawned_by_a_task_is_queued() {
    explore_and_plant(3, "deadlock", || {
        sleeper(|| {
            let model = Model::new(0);
            model.spawn(Task::Spawns);
            let helper = beside(&model, Model::step);
            model.finish();
            vec![helper]
        });
    });
}
