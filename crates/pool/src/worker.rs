//! The main loop of a worker: the order in which it looks for work, cheapest first, and how it
//! sleeps.
//!
//! Search order: `next` slot, own tasks, shared queue (first on every 61st turn), I/O and timers,
//! half of the exposed tasks of a random other worker, low-priority tasks, the idle hook, sleep.

use std::hint;

use crate::blocking;
use crate::core::Core;
use crate::current;
use crate::events::PoolEventKind;
use crate::fork::Stolen;
use crate::local::Local;
use crate::protocol::ancestry::WaitTarget;
use crate::protocol::latch::Latch;
use crate::protocol::ring::CAPACITY;
use crate::protocol::sync::thread;
use crate::raw_task::{Task, contain};
use crate::reactor::Woken;
use crate::stats::WorkerState;
use crate::steal::StealPolicy;
use crate::worker_shared::WorkerShared;

/// On every turn of this number the shared queue comes first, so that its tasks never starve.
const FAIRNESS: u32 = 61;

/// How many tasks in a row may come from the `next` slot, so that two tasks that spawn each other
/// in turn do not starve the rest.
const STREAK_MAX: u32 = 3;

/// How often all other workers are searched before this one sleeps.
const ROUNDS: u32 = 12;

/// How many pauses between two searches.
const PAUSES: u32 = 40;

/// From this round on, the `next` slot of another worker is stolen too, if that worker has not
/// taken a turn meanwhile: a new task is best run where it was spawned, but not if that takes long.
const PATIENCE: u32 = 6;

/// A worker that may have no time for the task in its `next` slot, and how many turns it had taken
/// when that was first seen.
#[derive(PartialEq)]
struct Suspect {
    victim: usize,
    turns: u64,
}

pub(crate) enum Work {
    Task(Task),
    Fork(Stolen),
}

/// Waits for some microseconds between two searches.
fn pause() {
    for _ in 0..PAUSES {
        hint::spin_loop();
    }
}

/// Runs as the worker in that slot until the pool is closed.
pub(crate) fn run(core: &Core, index: usize) {
    let local = Local::new(core, index);
    core.sleep.register(index);
    current::enter(&local, || {
        while !core.is_closed() {
            local.retire_if_surplus();
            match local.find() {
                Some(work) => local.execute(work),
                None => local.rest(),
            }
        }
    });
    // No longer a worker: tasks that are dropped now may want to spawn, which is refused.
    local.discard();
    core.sleep.unregister(index);
}

impl Local<'_> {
    pub(crate) fn execute(&self, work: Work) {
        match work {
            Work::Task(task) => {
                self.shared.counters.executed.add(1);
                task.run();
            }
            Work::Fork(fork) => self.run_fork(fork),
        }
    }

    /// A surplus reserve hands its tasks over to others and sleeps.
    fn retire_if_surplus(&self) {
        if self.index < self.core.threads || !self.core.reserve.is_surplus() {
            return;
        }
        self.stop_searching();
        blocking::wait_in_reserve(self);
    }

    /// Steps 1 to 7 of the search order.
    fn find(&self) -> Option<Work> {
        let found = self.find_near().or_else(|| self.search()).or_else(|| self.find_late());
        if found.is_some() {
            self.stop_searching();
        }
        found
    }

    /// Searches where it costs nanoseconds: its own queue and the shared one.
    fn find_near(&self) -> Option<Work> {
        let tick = self.tick.get().wrapping_add(1);
        self.tick.set(tick);
        self.shared.counters.ticks.add(1);
        if tick.is_multiple_of(FAIRNESS)
            && let Some(woken) = self.core.reactor().and_then(|reactor| reactor.poll_in_passing())
        {
            self.deliver(woken);
        }
        let queue = &self.core.shared_queue;
        let fair = || {
            let low_first = tick.is_multiple_of(2 * FAIRNESS);
            tick.is_multiple_of(FAIRNESS).then(|| queue.pop_any(low_first)).flatten()
        };
        let task = fair()
            .or_else(|| queue.pop_high())
            .or_else(|| self.find_own())
            .or_else(|| {
                queue.pop_batch(self.core.threads, CAPACITY / 2, |task| self.push_task(task))
            })
            .or_else(|| self.core.poll(self));
        task.map(Work::Task)
    }

    fn find_own(&self) -> Option<Task> {
        if self.streak.get() < STREAK_MAX
            && let Some(task) = self.take_next()
        {
            self.streak.set(self.streak.get() + 1);
            return Some(task);
        }
        self.streak.set(0);
        self.pop_task().or_else(|| self.take_next())
    }

    /// Searches all other workers repeatedly, unless enough workers are searching already.
    fn search(&self) -> Option<Work> {
        if self.core.is_alone() {
            return None;
        }
        if !self.searching.get() {
            if !self.core.sleep.start_searching(self.core.threads) {
                return None;
            }
            self.searching.set(true);
            self.shared.set_state(WorkerState::Searching);
        }
        let mut suspect = None;
        for round in 0..ROUNDS {
            if let Some(work) = self.steal(round, &mut suspect) {
                return Some(work);
            }
            pause();
            if let Some(task) = self.core.shared_queue.pop_high().or_else(|| {
                self.core
                    .shared_queue
                    .pop_batch(self.core.threads, CAPACITY / 2, |task| self.push_task(task))
            }) {
                return Some(Work::Task(task));
            }
            if self.core.is_closed() {
                return None;
            }
        }
        self.shared.counters.failed_steals.add(1);
        None
    }

    /// Searches every other worker once, from a random one on, in steps that reach all.
    fn steal(&self, round: u32, suspect: &mut Option<Suspect>) -> Option<Work> {
        for victim in self.core.others(self.index, &self.random) {
            if let Some(fork) = Stolen::take(self, victim, |_| true) {
                return Some(Work::Fork(fork));
            }
            if let Some(task) = self.steal_tasks(victim) {
                return Some(Work::Task(task));
            }
            if let Some(task) = self.steal_next(victim, round, suspect) {
                return Some(Work::Task(task));
            }
        }
        None
    }

    /// Steals the task in another worker's `next` slot, if that worker has been busy for the whole
    /// search.
    fn steal_next(&self, victim: usize, round: u32, suspect: &mut Option<Suspect>) -> Option<Task> {
        let shared = self.core.worker(victim);
        let now = Suspect { victim, turns: shared.counters.ticks.get() };
        match suspect {
            Some(other) if other.victim != victim => None,
            Some(_) if shared.next.is_empty() => {
                *suspect = None;
                None
            }
            Some(before) if *before == now => {
                let task = (round >= PATIENCE).then(|| shared.next.take()).flatten();
                if task.is_some() {
                    self.count_theft(victim, 1);
                }
                task
            }
            Some(_) | None => {
                *suspect = (!shared.next.is_empty()).then_some(now);
                None
            }
        }
    }

    pub(crate) fn steal_tasks(&self, victim: usize) -> Option<Task> {
        let shared = self.core.worker(victim);
        let count = match self.core.steal {
            StealPolicy::One => |there: usize| there.min(1),
            StealPolicy::Half => |there: usize| there.div_ceil(2),
        };
        let mut first = None;
        let stolen = shared.tasks.steal(count, |task| match first {
            None => first = Some(task),
            Some(_) => self.push_task(task),
        });
        if stolen > 0 {
            self.count_theft(victim, stolen);
        }
        first
    }

    /// Counts a theft of that many from that worker.
    pub(crate) fn count_theft(&self, victim: usize, stolen: usize) {
        self.shared.counters.steals.add(1);
        self.shared.counters.stolen.add(stolen as u64);
        self.core.worker(victim).counters.stolen_from.add_shared(stolen as u64);
        self.notify(PoolEventKind::Steal { from: victim, to: self.index, count: stolen });
    }

    /// Low-priority tasks, and work from the idle hook.
    fn find_late(&self) -> Option<Work> {
        if let Some(task) = self.core.shared_queue.pop_low() {
            return Some(Work::Task(task));
        }
        let hook = self.core.idle_hook.as_ref()?;
        // The hook may take a while: threads that add work meanwhile must not rely on this worker
        // to find it.
        self.stop_searching();
        let mut has_brought = false;
        contain(|| has_brought = hook());
        has_brought.then(|| self.find_near()).flatten()
    }

    fn stop_searching(&self) {
        if !self.searching.replace(false) {
            return;
        }
        self.shared.set_state(WorkerState::Working);
        if !self.core.sleep.stop_searching() {
            return;
        }
        // This was the last searching worker: threads that added work meanwhile woke no other.
        if self.core.is_exposed() {
            if self.core.wake_one() {
                self.shared.counters.wakes.add(1);
            }
        } else if self.core.has_next() {
            // Its owner takes it, or the monitor notices that it does not.
            self.core.monitor.request_check(self.core);
        }
    }

    /// Step 8: sleeps until there is new work.
    fn rest(&self) {
        self.core.request_work_from_all();
        let mut woken = Woken::default();
        self.core.sleep.announce_sleep(self.index, self.searching.replace(false));
        if self.core.is_quiet() && self.is_still_quiet() {
            if self.core.has_next() {
                // Its owner takes it, or the monitor notices that it does not.
                self.core.monitor.request_check(self.core);
            }
            self.shared.counters.parks.add(1);
            self.notify(PoolEventKind::Park);
            self.shared.set_state(WorkerState::Sleeping);
            woken = self.core.park(self);
            self.notify(PoolEventKind::Unpark);
        }
        self.core.sleep.end_sleep(self.index);
        self.searching.set(true);
        self.shared.set_state(WorkerState::Searching);
        self.deliver(woken);
    }

    /// A worker that spawns a task checks for a request without a fence in between, which would
    /// cost more than the spawn. A task that it pushed just before it could see the request is
    /// visible by now.
    fn is_still_quiet(&self) -> bool {
        pause();
        self.core.is_quiet()
    }

    /// Waits until a stolen fork is done, and meanwhile runs only its descendants: anything else
    /// could need a lock that this thread holds, or take longer than the fork. See
    /// `protocol::ancestry`.
    ///
    /// At this point the worker has no forks. Its newest was stolen, thieves take the oldest, and
    /// older ones are exposed first; so all are gone.
    #[cold]
    pub(crate) fn wait(&self, latch: &Latch, target: WaitTarget) {
        let rest = || {
            if latch.sleep() {
                thread::park();
            }
            latch.wake();
        };
        self.wait_for(target, || latch.is_done(), || (), rest);
    }

    /// Waits until `is_over`. The thread that makes it so wakes this one out of `rest`. Meanwhile
    /// this worker does what `work` finds, and steals descendants of what it waits for; the latter
    /// only if it has no forks itself, which would be taken for parts of what it stole.
    pub(crate) fn wait_for(
        &self,
        target: WaitTarget,
        is_over: impl Fn() -> bool,
        work: impl Fn(),
        rest: impl Fn(),
    ) {
        let mut looks = 0;
        loop {
            work();
            if is_over() {
                return;
            }
            if let Some(fork) = self.take_descendant(target) {
                self.core.call_waiters();
                self.run_fork(fork);
                looks = 0;
            } else if looks < ROUNDS {
                looks += 1;
                pause();
            } else {
                self.sleep_until(target, &is_over, &rest);
            }
        }
    }

    fn sleep_until(&self, target: WaitTarget, is_over: impl Fn() -> bool, rest: impl Fn()) {
        self.expose_all();
        self.hand_over_tasks();
        self.core.waiters.wait(self.index, target);
        if !self.can_help(target) {
            self.shared.counters.parks.add(1);
            self.notify(PoolEventKind::Park);
            self.shared.set_state(WorkerState::Waiting);
            rest();
            self.notify(PoolEventKind::Unpark);
            self.shared.set_state(WorkerState::Working);
        }
        let was_called = self.core.waiters.leave(self.index);
        if was_called && is_over() {
            // Another worker may help with what this one was woken for.
            self.core.call_waiters();
        }
    }

    /// Steals a fork that is a part of what it waits for, from any worker.
    fn take_descendant(&self, target: WaitTarget) -> Option<Stolen> {
        if self.has_forks() || self.core.is_alone() {
            return None;
        }
        let may_take = |work| self.core.descends(work, target);
        let mut others = self.core.others(self.index, &self.random);
        others.find_map(|victim| Stolen::take(self, victim, may_take))
    }

    /// Whether there is such a fork.
    fn can_help(&self, target: WaitTarget) -> bool {
        let is_part = |shared: &WorkerShared| {
            !shared.forks.is_empty() && self.core.descends(shared.ancestry.current(), target)
        };
        !self.has_forks()
            && (0..self.core.worker_count()).any(|worker| is_part(self.core.worker(worker)))
    }

    /// Drops the tasks that will not run any more.
    fn discard(&self) {
        drop(self.shared.next.take());
        while let Some(task) = self.shared.tasks.pop() {
            drop(task);
        }
    }
}

#[cfg(test)]
mod tests;
