//! Details of one queue: its jobs by state, and the workers that own or serve it.
//!
//! Everything here is read-only and bounded, however many jobs there are.

use alloc::vec::Vec;

use super::view::{JobView, QueueView};
use super::worker::Worker;
use super::{Dispatch, Why};
use crate::id::{JobId, Seq, WorkerId};
use crate::name::Name;

/// The most jobs that are examined one by one, of each sort.
const LOOKED_AT: usize = 100_000;

/// The most ready jobs that are examined one by one.
const READY_LOOKED_AT: usize = 10_000;

/// The details of a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueSnapshot {
    /// The summary that lists show.
    pub view: QueueView,
    /// Jobs that wait for parents.
    pub blocked: u64,
    /// Jobs that wait for their time. If there are very many, some are counted as blocked.
    pub scheduled: u64,
    /// Jobs that workers own and are not known to have started.
    pub leased: u32,
    /// The ready job that was submitted first, among those that are next.
    pub oldest: Option<JobView>,
    /// The workers that own jobs of it.
    pub holders: Vec<Holder>,
    /// The workers that serve it: connected, not draining.
    pub serving: Vec<WorkerId>,
    /// How many jobs these can run at once.
    pub slots: u64,
    /// How many of these slots are free.
    pub free_slots: u64,
}

/// A worker that owns jobs of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Which one.
    pub worker: WorkerId,
    /// How many.
    pub held: u32,
}

/// What decides how soon a waiting job starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Takers {
    /// The workers that serve its queue.
    pub workers: Vec<WorkerId>,
    /// How many ready jobs of its queue are of its kind.
    pub alike: u32,
    /// Jobs of its queue that workers own and are not known to have started.
    pub leased: u32,
}

impl Dispatch {
    /// The details of this queue, if it has jobs or settings.
    #[must_use]
    pub fn queue_snapshot(&self, name: &Name) -> Option<QueueSnapshot> {
        let number = self.queues.number(name)?;
        let queue = self.queues.get(number);
        let view = QueueView {
            settings: queue.settings.clone(),
            ready: queue.ready_count(),
            owned: queue.room.owned,
        };
        let is_here = |seq: Seq| self.jobs.get(seq).queue == number;
        let due = self.scheduled.iter().take(LOOKED_AT);
        let scheduled = due.filter(|(_, seq)| is_here(*seq)).count() as u64;
        let later = u64::from(queue.jobs).saturating_sub(view.ready as u64 + u64::from(view.owned));
        let ready = queue.ready_jobs().take(READY_LOOKED_AT);
        let oldest = ready.min_by_key(|&seq| (self.jobs.get(seq).submitted_at, seq));
        let serving = self.serving(number);
        let workers = || serving.iter().map(|&id| self.workers.get(id));
        let free =
            |worker: &Worker| u64::from(worker.slots).saturating_sub(worker.held.len() as u64);
        Some(QueueSnapshot {
            blocked: later.saturating_sub(scheduled),
            scheduled,
            leased: queue.room.leased,
            oldest: oldest.and_then(|seq| self.job_at(seq)),
            holders: self.holders(is_here),
            slots: workers().map(|worker| u64::from(worker.slots)).sum(),
            free_slots: workers().map(free).sum(),
            serving,
            view,
        })
    }

    /// For a job that is ready, or that failed and waits for another attempt; `None` for any other.
    #[must_use]
    pub fn takers(&self, id: JobId) -> Option<Takers> {
        let seq = self.jobs.by_id(id)?;
        match self.why(id)? {
            Why::Queued { .. } => {}
            Why::NotBefore { attempts, .. } if attempts > 0 => {}
            _ => return None,
        }
        let job = self.jobs.get(seq);
        let queue = self.queues.get(job.queue);
        let ready = queue.ready_jobs().take(READY_LOOKED_AT);
        let alike = ready.filter(|&other| self.jobs.get(other).kind == job.kind).count();
        Some(Takers {
            workers: self.serving(job.queue),
            alike: u32::try_from(alike).unwrap_or(u32::MAX),
            leased: queue.room.leased,
        })
    }

    fn serving(&self, queue: u32) -> Vec<WorkerId> {
        let serves =
            |worker: &Worker| worker.connected && !worker.draining && worker.served.includes(queue);
        let serving = self.workers.iter().filter(|(_, worker)| serves(worker));
        serving.map(|(id, _)| id).collect()
    }

    fn holders(&self, is_here: impl Fn(Seq) -> bool) -> Vec<Holder> {
        let mut left = LOOKED_AT;
        let mut holders = Vec::new();
        for (worker, state) in self.workers.iter() {
            let looked_at = state.held.keys().take(left);
            let held = looked_at.filter(|seq| is_here(**seq)).count();
            left = left.saturating_sub(state.held.len());
            if held > 0 {
                holders.push(Holder { worker, held: u32::try_from(held).unwrap_or(u32::MAX) });
            }
        }
        holders
    }
}
