//! The ladder: where a worker looks for the next thing to do, cheapest first; and how it rests.
//!
//! `next` slot, own tasks, shared queue (first at one turn in 61), I/O and timers, half of what a
//! random other has exposed, what is not urgent, the idle hook, sleep.

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

/// At one turn in so many the shared queue comes first: what waits there never starves.
const FAIRNESS: u32 = 61;

/// How many tasks in a row may come from the `next` slot: two that ready each other in turn do not
/// starve the rest.
const STREAK_MAX: u32 = 3;

/// How often all others are looked at before a worker rests.
const ROUNDS: u32 = 12;

/// How many pauses between two looks.
const PAUSES: u32 = 40;

/// From this look on the `next` slot of another is taken too, if that one has not come to look at it
/// meanwhile: a task just made ready is best run where it was made, but not if that takes long.
const PATIENCE: u32 = 6;

/// A worker that may have no time for the task it has made ready: how many turns it had taken when it
/// was first looked at.
#[derive(PartialEq)]
struct Suspect {
    victim: usize,
    turns: u64,
}

pub(crate) enum Work {
    Task(Task),
    Fork(Stolen),
}

/// Some microseconds are let pass between two looks.
fn pause() {
    for _ in 0..PAUSES {
        hint::spin_loop();
    }
}

/// Works on that seat until the pool is closed.
pub(crate) fn run(core: &Core, index: usize) {
    let local = Local::new(core, index);
    core.sleep.register(index);
    current::enter(&local, || {
        while !core.is_closed() {
            local.make_way();
            match local.find() {
                Some(work) => local.execute(work),
                None => local.rest(),
            }
        }
    });
    // Not a worker any more: what is dropped now may want to spawn, and that is refused.
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

    /// A reserve that is not needed any more leaves what it has to others.
    fn make_way(&self) {
        if self.index < self.core.threads || !self.core.reserve.is_surplus() {
            return;
        }
        self.stop_searching();
        blocking::wait_in_reserve(self);
    }

    /// Rungs 1 to 8.
    fn find(&self) -> Option<Work> {
        let found = self.find_near().or_else(|| self.search()).or_else(|| self.find_late());
        if found.is_some() {
            self.stop_searching();
        }
        found
    }

    /// What costs nanoseconds: its own, and what all share.
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

    /// Looks at all others, again and again for a while, unless enough do already.
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
        self.shared.counters.failed_thefts.add(1);
        None
    }

    /// One look at every other worker, from a random one on, in steps that reach all.
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

    /// The task that another has just made ready, if that one has been at something else for the
    /// whole search.
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

    /// So many were taken from there.
    pub(crate) fn count_theft(&self, victim: usize, stolen: usize) {
        self.shared.counters.thefts.add(1);
        self.shared.counters.stolen.add(stolen as u64);
        self.core.worker(victim).counters.stolen_from.add_shared(stolen as u64);
        self.notify(PoolEventKind::Steal { from: victim, to: self.index, count: stolen });
    }

    /// What can wait, and what the idle hook brings.
    fn find_late(&self) -> Option<Work> {
        if let Some(task) = self.core.shared_queue.pop_low() {
            return Some(Work::Task(task));
        }
        let hook = self.core.idle_hook.as_ref()?;
        // It may take a while: whoever brings work meanwhile must not count on this one to find it.
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
        // The last one who searched: who brought work while this one did woke nobody.
        if self.core.is_exposed() {
            if self.core.wake_one() {
                self.shared.counters.wakes.add(1);
            }
        } else if self.core.has_next() {
            // Its owner takes it, or the monitor sees that it does not.
            self.core.monitor.request_check(self.core);
        }
    }

    /// Rung 9: sleeps until somebody brings work.
    fn rest(&self) {
        self.core.request_work_from_all();
        let mut woken = Woken::default();
        self.core.sleep.announce_sleep(self.index, self.searching.replace(false));
        if self.core.is_quiet() && self.is_still_quiet() {
            if self.core.has_next() {
                // Its owner takes it, or the monitor sees that it does not.
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

    /// Who spawns a task looks whether it was asked for without a fence between: that would cost
    /// more than the spawn. What it pushed just before it could see the wish is seen by now.
    fn is_still_quiet(&self) -> bool {
        pause();
        self.core.is_quiet()
    }

    /// Waits until a stolen fork is done, and takes meanwhile only what descends from it: whatever
    /// else it would take could want a lock that this thread holds, or take longer than the fork.
    ///
    /// At this point the worker has no forks of its own. Its newest was stolen, thieves take the
    /// oldest, and older ones are exposed first; so all are gone.
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

    /// Waits until `is_over`, which whoever makes it so tells this thread if it does `rest`. Meanwhile it does
    /// what `work` finds, and takes what descends from what it waits for; that only if it has no forks of
    /// its own, which would be taken for parts of what it took.
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
            // Somebody else may help with what this one was called for.
            self.core.call_waiters();
        }
    }

    /// A fork that is a part of what it waits for, wherever it lies open.
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

    /// Drops what will not be done any more.
    fn discard(&self) {
        drop(self.shared.next.take());
        while let Some(task) = self.shared.tasks.pop() {
            drop(task);
        }
    }
}

#[cfg(test)]
mod tests;
