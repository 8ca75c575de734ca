//! Admission: limits, the room that they leave, and which worker may take which job.
//!
//! Ready jobs are of a few classes: their queue has a limit or not, and a worker may hold any
//! number of them or only one. A worker may take all jobs of a class or none, so queues with room
//! and ready jobs are in one index per class, by standing. The next queue for a worker is the first
//! in the indexes of its classes: no other queue is looked at, however many there are.
//!
//! Every new kind of limit belongs here: as room of a queue if it depends on the queue only, and as
//! a class if it depends on the worker, too. `queue` keeps the jobs and the order of each queue;
//! `claim` and `steal` move jobs.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::Dispatch;
use super::job::{Job, THEFTS_FREE};
use super::queue::Queues;
use super::strategy::Standing;
use super::worker::{Served, Worker};
use crate::id::{Seq, WorkerId};
use crate::message::Placement;
use crate::planted::{Bug, planted};
use crate::record::QueueSettings;
use crate::state::JobState;

/// What decides, besides the queue, whether a worker may take a ready job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Class {
    /// Its queue has a limit.
    pub(crate) is_limited: bool,
    /// A worker may hold only one job of this kind.
    pub(crate) is_solo: bool,
}

impl Class {
    const COUNT: usize = 4;

    fn index(self) -> usize {
        usize::from(self.is_limited) + 2 * usize::from(self.is_solo)
    }

    fn all() -> impl Iterator<Item = Self> {
        let with = |is_solo| [false, true].map(|is_limited| Self { is_limited, is_solo });
        [false, true].into_iter().flat_map(with)
    }
}

/// Which jobs a worker may take now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fit {
    /// It may take jobs of queues with a limit.
    pub(crate) limited: bool,
    /// It may take a job of which it may hold only one.
    pub(crate) solo: bool,
}

impl Fit {
    pub(crate) const fn includes(self, class: Class) -> bool {
        (self.limited || !class.is_limited) && (self.solo || !class.is_solo)
    }
}

/// A queue's limit, and what counts against it.
#[derive(Default)]
pub(crate) struct Room {
    /// Jobs that count: owned, or cancelled and not yet let go of.
    pub(crate) owned: u32,
    /// How many of those are leased, and not known to have started.
    pub(crate) leased: u32,
    limit: Option<u32>,
    /// How many jobs were owned beyond the limit when it was set, at most.
    excess: u32,
}

impl Room {
    pub(crate) const fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// Whether one more job may be owned.
    pub(crate) fn is_free(&self) -> bool {
        self.limit.is_none_or(|limit| self.owned < limit)
    }

    pub(crate) fn take(&mut self, state: JobState) {
        self.owned += 1;
        self.leased += u32::from(state == JobState::Leased);
    }

    pub(crate) fn leave(&mut self, state: JobState) {
        self.owned -= 1;
        self.leased -= u32::from(state == JobState::Leased);
    }

    /// The limit is this one from now on. Jobs that are owned already stay owned.
    pub(crate) fn set_limit(&mut self, settings: &QueueSettings) {
        self.limit = settings.limit;
        self.accept();
    }

    /// The jobs that are owned now may stay owned, whatever the limit is.
    pub(crate) fn accept(&mut self) {
        self.excess = self.beyond();
    }

    /// Of the jobs beyond the limit, those that are gone do not come back.
    pub(crate) fn lower_excess(&mut self) {
        self.excess = self.excess.min(self.beyond());
    }

    fn beyond(&self) -> u32 {
        self.limit.map_or(0, |limit| self.owned.saturating_sub(limit))
    }

    pub(crate) fn audit(&self) -> Result<(), &'static str> {
        match self.beyond() <= self.excess {
            true => Ok(()),
            false => Err("no more jobs are owned than the queue's limit allows"),
        }
    }
}

/// Where a queue stands in the indexes: with its first job of each class that it has.
pub(crate) type Places = [Option<(Class, Standing)>; 2];

/// The queues with room and ready jobs, by standing, for each class of jobs.
#[derive(Default, PartialEq, Eq)]
pub(crate) struct OpenQueues {
    classes: [BTreeSet<(Standing, u32)>; Class::COUNT],
}

impl OpenQueues {
    /// The queue that comes first among those with a job that fits.
    pub(crate) fn first(&self, fit: Fit) -> Option<u32> {
        let fitting = Class::all().filter(|&class| fit.includes(class));
        let firsts = fitting.filter_map(|class| self.classes[class.index()].first());
        firsts.min().map(|&(_, number)| number)
    }

    /// The standing of the queue that comes first.
    pub(crate) fn lead(&self) -> Option<Standing> {
        let firsts = self.classes.iter().filter_map(BTreeSet::first);
        firsts.min().map(|&(standing, _)| standing)
    }

    /// A queue moves from one place to another.
    pub(crate) fn shift(&mut self, number: u32, before: Places, now: Places) {
        if before == now {
            return;
        }
        for (class, standing) in before.into_iter().flatten() {
            self.classes[class.index()].remove(&(standing, number));
        }
        self.add(number, now);
    }

    pub(crate) fn add(&mut self, number: u32, places: Places) {
        for (class, standing) in places.into_iter().flatten() {
            self.classes[class.index()].insert((standing, number));
        }
    }
}

impl Queues {
    /// The queue that a worker is served from next, and the job it gets.
    fn next(&self, served: &Served, fit: Fit) -> Option<(u32, Seq)> {
        let number = match served {
            Served::All => self.open().first(fit)?,
            Served::Named(numbers) => {
                let place = |&number: &u32| {
                    let places = self.get(number).places().into_iter().flatten();
                    let fitting = places.filter(|&(class, _)| fit.includes(class));
                    fitting.map(|(_, standing)| (standing, number)).min()
                };
                numbers.iter().filter_map(place).min()?.1
            }
        };
        let (_, seq) = self.get(number).first(fit.solo).expect("an open queue has a ready job");
        Some((number, seq))
    }
}

impl Worker {
    /// A job that counts against a limit must not wait behind others. It goes into a free slot, or
    /// to the very front of a deque if the worker has fewer such jobs than slots: then it is among
    /// the next to start. Without the second rule, a worker whose reserve is always full would
    /// never get one.
    pub(crate) fn has_place_for_limited(&self) -> bool {
        self.free_slots() > 0 || self.limited < self.slots
    }

    fn fit(&self) -> Fit {
        Fit { limited: self.has_place_for_limited(), solo: self.solo == 0 }
    }
}

impl Dispatch {
    /// The job that the worker would get next, and its queue.
    pub(super) fn next_for(&self, id: WorkerId) -> Option<(u32, Seq)> {
        let worker = self.workers.get(id);
        self.queues.next(&worker.served, worker.fit())
    }

    /// Whether a thief may get this job of another worker. Unlike a ready job, one that counts
    /// against a limit needs a free slot.
    pub(super) fn has_place_for(&self, thief: WorkerId, seq: Seq) -> bool {
        let Some(worker) = self.workers.find(thief) else {
            return false;
        };
        let job = self.jobs.get(seq);
        worker.room() > 0
            && (worker.free_slots() > 0 || self.place_of(job) == Placement::Anywhere)
            && (worker.solo == 0 || !job.is_solo())
            && worker.served.includes(job.queue)
    }

    /// Where the job may be put now.
    pub(super) fn place_of(&self, job: &Job) -> Placement {
        let is_worn = job.thefts >= THEFTS_FREE && !planted(Bug::StolenWithoutEnd);
        match self.queues.get(job.queue).room.is_limited() || is_worn {
            true => Placement::FreeSlot,
            false => Placement::Anywhere,
        }
    }

    /// A queue got or lost its limit: counts the jobs of limited queues again at every worker.
    pub(super) fn recount_limited(&mut self) {
        let is_limited = |seq: &&Seq| self.queues.get(self.jobs.get(**seq).queue).room.is_limited();
        let count = |worker: &Worker| worker.held.keys().filter(is_limited).count();
        let counts: Vec<_> = self.workers.iter().map(|(id, it)| (id, count(it))).collect();
        for (id, count) in counts {
            self.workers.get_mut(id).limited = u32::try_from(count).unwrap_or(u32::MAX);
        }
        self.workers.touch_all();
    }
}
