//! Who owns a scope does not leave it before its tasks have ended, and does not sleep over one.

use std::sync::Arc;

use loom::thread;

use super::freight::Freight;
use super::{beside, explore_and_plant, sleeper};
use crate::protocol::sync::{self, Mutex};
use crate::protocol::tally::Tally;

struct Story {
    tally: Tally,
    queue: Mutex<Vec<Task>>,
    done: Freight,
}

/// Something that is seen to be done, and perhaps spawns.
#[derive(Clone, Copy)]
enum Task {
    Plain(usize),
    Spawns,
    Nothing,
}

impl Story {
    fn new(tasks: usize) -> Arc<Self> {
        let queue = Mutex::new(Vec::new());
        Arc::new(Self { tally: Tally::new(), queue, done: Freight::new(tasks) })
    }

    fn spawn(&self, task: Task) {
        self.tally.add(|| sync::lock(&self.queue).push(task));
    }

    /// Runs one task, if there is any.
    fn step(&self) -> bool {
        if !self.tally.is_queued() {
            return false;
        }
        let Some(task) = sync::lock(&self.queue).pop() else {
            // Somebody has taken it, and will say so.
            thread::yield_now();
            return false;
        };
        self.tally.begun();
        match task {
            Task::Plain(number) => drop(self.done.make(number)),
            Task::Spawns => self.spawn(Task::Nothing),
            Task::Nothing => {}
        }
        self.tally.ended();
        true
    }

    /// What the owner does in the end.
    fn finish(&self) {
        loop {
            while self.step() {}
            if self.tally.is_over() {
                return;
            }
            self.tally.rest();
        }
    }
}

#[test]
fn the_owner_sees_what_the_last_task_did() {
    explore_and_plant(3, "Causality violation", || {
        sleeper(|| {
            let story = Story::new(2);
            (1..=2).for_each(|number| story.spawn(Task::Plain(number)));
            let helpers = vec![beside(&story, Story::step), beside(&story, Story::step)];
            story.finish();
            (1..=2).for_each(|number| {
                story.done.take(std::ptr::without_provenance_mut(number));
            });
            helpers
        });
    });
}

/// The helper runs one task and goes; the one that it spawned is left to the owner.
#[test]
fn the_owner_does_not_sleep_over_a_task_that_a_task_spawned() {
    explore_and_plant(3, "deadlock", || {
        sleeper(|| {
            let story = Story::new(0);
            story.spawn(Task::Spawns);
            let helper = beside(&story, Story::step);
            story.finish();
            vec![helper]
        });
    });
}
