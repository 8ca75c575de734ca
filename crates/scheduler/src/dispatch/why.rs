//! Why is this job not running? One answer for any job in memory.

use alloc::vec::Vec;

use super::Dispatch;
use super::job::Job;
use super::worker::Worker;
use crate::id::{JobId, WorkerId};
use crate::name::Name;
use crate::spec::{Condition, Verdict};
use crate::state::JobState;
use crate::time::{Monotonic, Wall};

/// Jobs ahead are counted up to here.
const AHEAD_MAX: usize = 10_000;

/// At most this many parents are named.
const PARENTS_MAX: usize = 100;

/// The one reason that decides what a job waits for, with related facts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Why {
    /// It waits for parents.
    Blocked {
        /// The condition on their outcomes.
        condition: Condition,
        /// The parents that have not ended, up to a hundred.
        waiting_for: Vec<Parent>,
        /// How many have not ended.
        pending: u32,
        /// The condition can no longer be met, and the job is held: only an operator can move it.
        held: bool,
    },
    /// It waits for its time.
    NotBefore {
        /// Its time.
        due: Wall,
        /// How many attempts are charged to it so far.
        attempts: u16,
    },
    /// It is ready.
    Queued {
        /// In this queue.
        queue: Name,
        /// Whether the queue is paused.
        paused: bool,
        /// How many of the queue's jobs are owned, and how many may be.
        limit: Option<(u32, u32)>,
        /// How many ready jobs of the queue come before it.
        ahead: Ahead,
        /// How many connected workers serve the queue; with none, it will not start.
        workers: u32,
    },
    /// A worker owns it.
    Owned {
        /// Which one.
        worker: WorkerId,
        /// Since when.
        since: Monotonic,
        /// Whether it reported the start.
        started: bool,
        /// Whether the worker has a connection now.
        connected: bool,
    },
    /// It has ended.
    Ended {
        /// How.
        state: JobState,
        /// The worker that has yet to let go of a cancelled job.
        held_by: Option<WorkerId>,
    },
}

/// A parent that has not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parent {
    /// The parent.
    pub id: JobId,
    /// Its state.
    pub state: JobState,
}

/// How many jobs come before this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ahead {
    /// Exactly this many.
    Exactly(u32),
    /// At least this many; counting stopped.
    AtLeast(u32),
}

impl Dispatch {
    /// Why this job is where it is; `None` if it is not in memory, because it ended long ago or
    /// never existed.
    #[must_use]
    pub fn why(&self, id: JobId) -> Option<Why> {
        let seq = self.jobs.by_id(id)?;
        let job = self.jobs.get(seq);
        Some(match job.state() {
            JobState::Blocked => {
                let extra = job.extra.as_ref()?;
                let parents = extra.parents.iter().map(|&parent| self.jobs.get(parent));
                let unfinished = parents.filter(|parent| !parent.state().is_ended());
                let parent = |parent: &Job| Parent { id: parent.id, state: parent.state() };
                Why::Blocked {
                    condition: extra.condition,
                    waiting_for: unfinished.take(PARENTS_MAX).map(parent).collect(),
                    pending: extra.tally.pending,
                    held: extra.condition.judge(extra.tally) == Verdict::Never,
                }
            }
            JobState::Scheduled => Why::NotBefore { due: job.due, attempts: job.attempts },
            JobState::Queued => {
                let queue = self.queues.get(job.queue);
                let ahead = self.queues.ahead(job.queue, self.rank(job), seq, AHEAD_MAX + 1);
                Why::Queued {
                    queue: queue.settings.queue.clone(),
                    paused: queue.settings.paused,
                    limit: queue.settings.limit.map(|limit| (queue.room.owned, limit)),
                    ahead: match u32::try_from(ahead) {
                        Ok(ahead) if ahead as usize <= AHEAD_MAX => Ahead::Exactly(ahead),
                        _ => Ahead::AtLeast(AHEAD_MAX as u32),
                    },
                    workers: self.workers_serving(job.queue),
                }
            }
            JobState::Leased | JobState::Running => {
                let worker = job.phase.owner()?;
                Why::Owned {
                    worker,
                    since: *self.workers.get(worker).held.get(&seq)?,
                    started: job.state() == JobState::Running,
                    connected: self.workers.get(worker).connected,
                }
            }
            state => Why::Ended { state, held_by: job.phase.holder() },
        })
    }

    fn workers_serving(&self, queue: u32) -> u32 {
        let serves =
            |worker: &Worker| worker.connected && !worker.draining && worker.served.includes(queue);
        let serving = self.workers.iter().filter(|(_, worker)| serves(worker));
        u32::try_from(serving.count()).unwrap_or(u32::MAX)
    }
}
