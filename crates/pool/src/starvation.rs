//! Starvation: futures are served although every worker computes.
//!
//! A worker that computes for long looks at nothing else, and a future that has become ready may lie
//! behind what it does, or in the shared queue, where nobody comes along. If no worker has taken a turn
//! for a while, though something waits and the pool has futures, a reserve comes in; it stays until the
//! workers take their turns again. Meanwhile one thread more than usual computes. A pool without
//! futures never has relief: its tasks are promised no more threads than it was made with.

use crate::blocking;
use crate::core::Core;

/// After so many looks of the monitor without a turn, somebody comes.
const LOOKS: u32 = 10;

/// The most who come. More would be needed only if so many futures in a row computed for long.
const EXTRA_MAX: usize = 8;

#[derive(Default)]
pub(crate) struct Starvation {
    /// Turns taken by all who work, when the monitor last looked.
    turns: u64,
    /// Of these, turns of those who are no reserves.
    own_turns: u64,
    /// For how many looks nobody has taken a turn.
    looks: u32,
    /// How many have come.
    count: usize,
}

impl Starvation {
    /// One look of the monitor.
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
        self.looks = if is_still && core.has_waiting() { self.looks + 1 } else { 0 };
        if self.looks >= LOOKS && self.count < EXTRA_MAX && core.has_futures() {
            self.looks = 0;
            self.count += 1;
            blocking::request_reserve(core);
        }
    }

    /// Whether the monitor has to go on looking.
    pub(crate) fn is_needed(&self) -> bool {
        self.looks > 0 || self.count > 0
    }
}
