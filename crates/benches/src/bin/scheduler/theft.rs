//! Theft: an idle worker asks, and a busy one gives half of the jobs it has not started.
//!
//! The thief then finishes the stolen jobs and wants no more while the victim is refilled, so that
//! every theft starts from the same state.

use std::time::Duration;

use filch_scheduler::message::FromWorker;
use filch_scheduler::record::Strategy;

use crate::shard::{Priorities, Shard};
use crate::worker::Worker;

/// Jobs that the victim has not started.
const UNSTARTED: u32 = 256;

/// Half of them.
const STOLEN: u32 = UNSTARTED / 2;

/// Jobs that the victim runs.
const SLOTS: u32 = 8;

pub(crate) struct Theft {
    shard: Shard,
    victim: Worker,
    thief: Worker,
}

impl Theft {
    pub(crate) fn new() -> Self {
        let mut theft = Self {
            shard: Shard::new(Strategy::default(), Priorities::Same),
            victim: Worker::new(0),
            thief: Worker::new(1),
        };
        let hello = theft.victim.say_hello(SLOTS, SLOTS + UNSTARTED);
        theft.shard.handle(hello);
        let hello = theft.thief.say_hello(STOLEN, 0);
        theft.shard.handle(hello);
        // Each round adds the other half.
        theft.shard.fill((SLOTS + UNSTARTED - STOLEN) as usize);
        theft.deliver();
        theft
    }

    /// Nanoseconds per stolen job.
    pub(crate) fn sample(&mut self, rounds: usize) -> f64 {
        let taken: Duration = (0..rounds).map(|_| self.round()).sum();
        taken.as_nanos() as f64 / (rounds * STOLEN as usize) as f64
    }

    /// The time to find the victim, and to move the jobs it gives.
    fn round(&mut self) -> Duration {
        self.shard.fill(STOLEN as usize);
        self.deliver();
        let want = self.thief.say(vec![FromWorker::Want(STOLEN)]);
        let asking = self.shard.handle_timed(want);
        self.deliver();
        let given = self.victim.give(STOLEN as usize);
        let giving = self.shard.handle_timed(self.victim.say(vec![given]));
        self.deliver();
        let mut done = self.thief.finish(STOLEN as usize);
        done.push(FromWorker::Want(0));
        self.shard.handle(self.thief.say(done));
        self.deliver();
        self.shard.handle(self.shard.receipt());
        asking + giving
    }

    fn deliver(&mut self) {
        for (to, message) in self.shard.take_messages() {
            if to == self.thief.id() {
                self.thief.receive(message);
            } else {
                self.victim.receive(message);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_moves_half_and_finishes_it() {
        let mut theft = Theft::new();
        assert!(theft.sample(3) > 0.0);
        let counters = theft.shard.dispatch().counters();
        assert_eq!(
            (counters.steals, counters.stolen, counters.steals_empty),
            (3, 3 * u64::from(STOLEN), 0)
        );
        assert_eq!(theft.thief.accepted(), 3 * STOLEN as usize);
        assert_eq!(theft.victim.held(), (SLOTS + UNSTARTED - STOLEN) as usize);
        assert_eq!(theft.shard.dispatch().audit(), Ok(()));
    }
}
