//! Leases are renewed only by the owner of the store.
//!
//! Renewals wait for no commit, so a server that was superseded without noticing could go on with
//! them while the new owner gives the same jobs to other workers. So a renewal is sent only within
//! 7/10 of an owner's lease after the last question to the store that confirmed the ownership was
//! *asked*; that bears clocks that run 1.4 times apart. A new owner whose predecessor may still run
//! waits one owner's lease longer before it reclaims jobs.

use std::collections::BTreeMap;
use std::time::Duration;

use filch_scheduler::id::{SessionNo, WorkerId};
use filch_scheduler::message::ToWorker;
use filch_scheduler::time::Monotonic;

/// When the store last confirmed the ownership, and the renewals that wait for the next time.
#[derive(Debug, Default)]
pub(super) struct Ownership {
    /// How long an owner may renew leases after a confirmation; `None` if no other process can take
    /// over.
    renews_for: Option<Duration>,
    confirmed: Monotonic,
    /// The newest renewal of each worker, by its session.
    held: BTreeMap<WorkerId, (SessionNo, ToWorker)>,
}

impl Ownership {
    /// From now on the ownership must be confirmed within 7/10 of this lease.
    pub(super) fn bind(&mut self, lease: Duration, now: Monotonic) {
        self.renews_for = Some(lease * 7 / 10);
        self.confirmed = now;
    }

    /// Takes the renewals out of these messages if the ownership is in doubt.
    pub(super) fn pass(
        &mut self,
        now: Monotonic,
        worker: WorkerId,
        session: SessionNo,
        messages: &mut Vec<ToWorker>,
    ) {
        if self.is_confirmed(now) {
            return;
        }
        messages.retain(|message| match message {
            ToWorker::Renewed(_) => {
                self.held.insert(worker, (session, message.clone()));
                false
            }
            _ => true,
        });
    }

    /// The worker's session has ended, and with it what it would be told.
    pub(super) fn forget(&mut self, worker: WorkerId) {
        self.held.remove(&worker);
    }

    /// The store has confirmed the ownership, asked at this time. Returns the renewals that waited.
    pub(super) fn confirm(
        &mut self,
        asked: Monotonic,
        now: Monotonic,
    ) -> BTreeMap<WorkerId, (SessionNo, ToWorker)> {
        self.confirmed = self.confirmed.max(asked);
        if self.is_confirmed(now) { std::mem::take(&mut self.held) } else { BTreeMap::new() }
    }

    fn is_confirmed(&self, now: Monotonic) -> bool {
        self.renews_for.is_none_or(|span| now.since(self.confirmed) < span)
    }
}
