//! Starvation: futures make progress even if every worker computes for long.
//!
//! A worker that computes for long takes no turns, and a future that has become ready may be queued
//! behind its task, or in the shared queue. If no worker has taken a turn for a while, although a
//! task is queued and the pool has futures, the monitor requests a reserve; it stays until the
//! workers take their turns again. Meanwhile the pool computes on one thread more than it was built
//! with. A pool without futures never does: its tasks are promised no more threads than it was
//! built with.

use crate::blocking;
use crate::core::Core;

/// After this many checks without a turn, a reserve is requested.
const CHECKS: u32 = 10;

/// The most reserves. More would be needed only if that many futures in a row computed for long.
const EXTRA_MAX: usize = 8;

#[derive(Default)]
pub(crate) struct Starvation {
    /// Turns taken by all workers, at the last check.
    turns: u64,
    /// Of these, turns of the pool's own threads.
    own_turns: u64,
    /// For how many checks no worker has taken a turn.
    idle_checks: u32,
    /// How many reserves were requested.
    count: usize,
}

impl Starvation {
    /// One check by the monitor.
    pub(crate) fn check(&mut self, core: &Core) {
        let turns = |workers: usize| {
            (0..workers)
                .map(|worker| core.worker(worker).counters.ticks.get())
                .fold(0, u64::wrapping_add)
        };
        let (all, own) = (turns(core.worker_count()), turns(core.threads));
        let is_still = all == self.turns && core.sleep.sleepers() == 0;
        let is_over = own != self.own_turns;
        (self.turns, self.own_turns) = (all, own);
        if is_over && self.count > 0 {
            core.reserve.release(std::mem::take(&mut self.count));
        }
        self.idle_checks = if is_still && core.has_waiting() { self.idle_checks + 1 } else { 0 };
        if self.idle_checks >= CHECKS && self.count < EXTRA_MAX && core.has_futures() {
            self.idle_checks = 0;
            self.count += 1;
            blocking::request_reserve(core);
        }
    }

    /// Whether the monitor has to continue checking.
    pub(crate) fn is_needed(&self) -> bool {
        self.idle_checks > 0 || self.count > 0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::builder::PoolBuilder;
    use crate::raw_task::Task;
    use crate::shared_queue::Priority;

    /// A pool whose only worker takes no turns, with a task in the queue.
    fn stuck_core() -> Arc<Core> {
        let core = Core::new(PoolBuilder::default().threads(1).settings().unwrap());
        core.shared_queue.push(Task::new(|| ()), Priority::Normal).unwrap();
        core
    }

    #[test]
    fn a_pool_without_futures_gets_no_extra_thread() {
        let core = stuck_core();
        let mut starvation = Starvation::default();
        (0..10 * CHECKS).for_each(|_| starvation.check(&core));
        assert_eq!((starvation.count, core.worker_count()), (0, 1));
        core.close();
    }

    #[test]
    fn a_starving_future_gets_an_extra_thread_after_some_checks() {
        let core = stuck_core();
        let (_runnable, _task) = core.futures().insert(None, async {}).expect("it is open");
        let mut starvation = Starvation::default();
        (1..CHECKS).for_each(|_| starvation.check(&core));
        assert_eq!((starvation.count, core.worker_count()), (0, 1));
        starvation.check(&core);
        assert_eq!((starvation.count, core.worker_count()), (1, 2));
        core.close();
        core.join();
    }
}
