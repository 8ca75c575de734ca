//! Assigning ready jobs to workers. Runs at the end of every event, over what the event touched.
//!
//! Between events, no worker that would take a job waits while a queue has one for it: a submit
//! that finds a waiting worker is claimed in the same commit, and a worker that reports gets more
//! jobs in the same commit. So only workers and queues that changed have to be checked. While too
//! many mutations wait for their receipts no job is assigned; these workers and queues are
//! remembered until a receipt makes room.

use alloc::vec::Vec;
use core::ops::Bound;

use super::Dispatch;
use super::worker::{Served, Tier, Waiter};
use crate::id::{Seq, WorkerId};
use crate::message::{Assignment, StartMode};
use crate::record::LeaseCause;
use crate::state::Verb;

impl Dispatch {
    /// Gives work to waiting workers, first from the queues, then from other workers.
    pub(super) fn settle(&mut self) {
        self.promote_due();
        if self.is_full() {
            self.postpone();
            return;
        }
        for worker in core::mem::take(&mut self.postponed) {
            self.workers.touch(worker);
        }
        let mut touched = Vec::new();
        while let Some(worker) = self.workers.pop_touched() {
            touched.push(worker);
            let slots = self.workers.get(worker).free_slots();
            self.claim(worker, slots);
        }
        while let Some(queue) = self.queues.pop_fresh() {
            self.offer(queue, &mut touched);
        }
        // Fills reserves only after every free slot has had its chance.
        for &worker in &touched {
            let room = self.workers.get(worker).room();
            self.claim(worker, room);
        }
        while let Some(worker) = self.workers.pop_touched() {
            self.seat(worker);
        }
        self.match_thieves(&touched);
    }

    /// Remembers the workers that changed, for the time when there is room again. Queues with new
    /// jobs stay marked.
    fn postpone(&mut self) {
        while let Some(worker) = self.workers.pop_touched() {
            self.seat(worker);
            self.postponed.insert(worker);
        }
    }

    /// Gives up to `most` jobs to a worker, in the order of the strategy. Returns how many.
    fn claim(&mut self, id: WorkerId, most: u32) -> u32 {
        let now = self.lease_clock();
        if most > 0 && self.workers.get(id).has_fallen_silent(now, self.config.lease) {
            // The worker may be lost. Jobs that it got now would wait until its lease expires, and
            // might even be charged for the loss. It is served again after its next message.
            self.workers.get_mut(id).is_silent = true;
        }
        let most = most.min(self.workers.get(id).room());
        let mut taken = 0;
        while taken < most {
            let Some((queue, seq)) = self.next_for(id) else {
                break;
            };
            self.hand_over(seq, Verb::Claim, Some(id), LeaseCause::Claim);
            self.queues.charge(queue);
            self.assign(id, seq);
            taken += 1;
        }
        self.counters.claimed += u64::from(taken);
        self.seat(id);
        taken
    }

    /// Offers a queue's jobs to waiting workers: free slots first, then reserves.
    fn offer(&mut self, queue: u32, touched: &mut Vec<WorkerId>) {
        let mut after = None;
        while self.queues.is_open(queue) {
            let Some(waiter) = self.waiter(queue, after) else {
                return;
            };
            after = Some(waiter);
            let worker = self.workers.get(waiter.worker);
            let most = match waiter.tier {
                Tier::FreeSlot => worker.free_slots(),
                Tier::Reserve | Tier::UnlimitedReserve => worker.room(),
            };
            if self.claim(waiter.worker, most) > 0 {
                touched.push(waiter.worker);
            }
        }
    }

    /// The first worker after `after` that would take a job of this queue.
    fn waiter(&self, queue: u32, after: Option<Waiter>) -> Option<Waiter> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let range = (from, Bound::Unbounded);
        let queue = self.queues.get(queue);
        let serves_all = self.workers.waiters.range(range).next();
        let names_it = queue.waiters.range(range).next();
        let first = serves_all.into_iter().chain(names_it).min().copied();
        // The workers that take no job of a limited queue come last.
        first.filter(|it| it.tier != Tier::UnlimitedReserve || !queue.room.is_limited())
    }

    /// Sends a worker the assignment of a job that it now owns.
    pub(super) fn assign(&mut self, worker: WorkerId, seq: Seq) {
        self.workers.took_turn(worker);
        let assignment = self.assignment(seq);
        if let Some(told) = self.told(worker) {
            told.assigned.push(assignment);
        }
    }

    fn assignment(&self, seq: Seq) -> Assignment {
        let job = self.jobs.get(seq);
        let queue = self.queues.get(job.queue);
        Assignment {
            hold: job.hold(seq),
            id: job.id,
            queue: queue.settings.queue.clone(),
            kind: self.kinds.get(job.kind).clone(),
            era: self.era,
            rank: self.rank(job),
            attempt: job.attempts.saturating_add(1),
            start: if job.is_suspect() { StartMode::Confirmed } else { StartMode::Freely },
            place: self.place_of(job),
            timeout: (job.timeout.0 > 0).then_some(job.timeout),
        }
    }

    /// Updates a worker's place among waiting workers and possible victims.
    pub(super) fn seat(&mut self, id: WorkerId) {
        let (before, now) = self.workers.seat(id);
        self.reseat(id, before, now);
    }

    pub(super) fn unseat(&mut self, id: WorkerId) {
        let (before, now) = self.workers.unseat(id);
        self.reseat(id, before, now);
    }

    /// Updates the queues that a worker names: it waits in each of them.
    fn reseat(&mut self, id: WorkerId, before: Option<Waiter>, now: Option<Waiter>) {
        if before == now {
            return;
        }
        if let Served::Named(queues) = &self.workers.get(id).served {
            for &queue in queues {
                let waiters = &mut self.queues.get_mut(queue).waiters;
                before.map(|before| waiters.remove(&before));
                waiters.extend(now);
            }
        }
    }
}
