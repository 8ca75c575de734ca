//! The worker's deque of jobs that have not started.
//!
//! The job at the owner end starts next: jobs that needed a free slot come first, then by rank,
//! then in the order of submission. The job at the steal end would start last. Starting and giving
//! away both take jobs out here, so no job can be taken twice.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::id::{CommitNo, Hold, Seq};
use crate::message::{Assignment, Placement, Serves, StartMode, Suspects};

/// Jobs that wait for a slot.
#[derive(Default)]
pub(crate) struct Deque {
    jobs: BTreeMap<Key, Assignment>,
    /// Where to find a job.
    keys: BTreeMap<Seq, Key>,
}

/// A place in the deque; lower runs sooner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    may_wait: bool,
    era: CommitNo,
    rank: i64,
    job: Seq,
}

/// A request to give jobs away.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) most: u32,
    pub(crate) most_bound: u32,
    pub(crate) suspects: Suspects,
    pub(crate) serves: &'a Serves,
}

impl Deque {
    /// Inserts a job by its rank. An entry with an older fence is replaced.
    pub(crate) fn insert(&mut self, assignment: Assignment) {
        let seq = assignment.hold.job;
        self.take_out(seq);
        let may_wait = assignment.place == Placement::Anywhere;
        let key = Key { may_wait, era: assignment.era, rank: assignment.rank, job: seq };
        self.keys.insert(seq, key);
        self.jobs.insert(key, assignment);
    }

    pub(crate) fn contains(&self, hold: Hold) -> bool {
        let found = self.keys.get(&hold.job).and_then(|key| self.jobs.get(key));
        found.is_some_and(|assignment| assignment.hold == hold)
    }

    /// Takes out one job, if it is there under this fence.
    pub(crate) fn remove(&mut self, hold: Hold) -> bool {
        self.contains(hold) && self.take_out(hold.job)
    }

    /// Takes out the first job, from the owner end, that may start.
    pub(crate) fn pop_owner_end(
        &mut self,
        may_start: impl Fn(&Assignment) -> bool,
    ) -> Option<Assignment> {
        let (&key, _) = self.jobs.iter().find(|(_, assignment)| may_start(assignment))?;
        self.keys.remove(&key.job);
        self.jobs.remove(&key)
    }

    /// Takes out half, rounded up, of the jobs that the asker may run, at the steal end.
    pub(crate) fn give(&mut self, wanted: Wanted<'_>) -> Vec<Hold> {
        let Wanted { most, most_bound, suspects, serves } = wanted;
        let may_run = |assignment: &&Assignment| {
            let is_served = match serves {
                Serves::All => true,
                Serves::Named(names) => names.contains(&assignment.queue),
            };
            is_served && (suspects == Suspects::Move || assignment.start == StartMode::Freely)
        };
        let half = self.jobs.values().filter(may_run).count().div_ceil(2);
        let mut bound_left = most_bound;
        let fits = |assignment: &&Assignment| match assignment.place {
            Placement::Anywhere => true,
            Placement::FreeSlot if bound_left == 0 => false,
            Placement::FreeSlot => {
                bound_left -= 1;
                true
            }
        };
        let given = self.jobs.values().rev().filter(may_run).filter(fits);
        let given: Vec<Hold> =
            given.take(half.min(most as usize)).map(|assignment| assignment.hold).collect();
        for hold in &given {
            self.take_out(hold.job);
        }
        given
    }

    /// Takes out everything, owner end first.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Hold> {
        self.keys.clear();
        core::mem::take(&mut self.jobs).into_values().map(|assignment| assignment.hold)
    }

    /// Everything, owner end first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Hold> {
        self.jobs.values().map(|assignment| assignment.hold)
    }

    pub(crate) fn count(&self) -> usize {
        self.jobs.len()
    }

    fn take_out(&mut self, seq: Seq) -> bool {
        let key = self.keys.remove(&seq);
        key.and_then(|key| self.jobs.remove(&key)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Fence, JobId};

    fn job(number: u64, rank: i64, queue: &str, place: Placement) -> Assignment {
        Assignment {
            hold: Hold { job: Seq(number), fence: Fence(1) },
            id: JobId(u128::from(number)),
            queue: queue.into(),
            kind: "default".into(),
            era: CommitNo(0),
            rank,
            attempt: 1,
            start: StartMode::Freely,
            place,
            timeout: None,
        }
    }

    fn wanted(most: u32, most_bound: u32, serves: &Serves) -> Wanted<'_> {
        Wanted { most, most_bound, suspects: Suspects::Move, serves }
    }

    fn numbers(holds: impl IntoIterator<Item = Hold>) -> Vec<u64> {
        holds.into_iter().map(|hold| hold.job.0).collect()
    }

    #[test]
    fn the_owner_takes_by_rank_then_submission_and_a_thief_from_the_other_end() {
        let mut deque = Deque::default();
        for (number, rank) in [(1, 0), (2, 0), (3, -5), (4, 0), (5, 7)] {
            deque.insert(job(number, rank, "q", Placement::Anywhere));
        }
        assert_eq!(numbers(deque.iter()), [3, 1, 2, 4, 5]);
        assert_eq!(
            numbers(deque.give(wanted(9, 9, &Serves::All))),
            [5, 4, 2],
            "half of five, rounded up"
        );
        let first = deque.pop_owner_end(|_| true).expect("two are left");
        assert_eq!(first.hold.job, Seq(3));
        assert_eq!(numbers(deque.drain()), [1]);
    }

    #[test]
    fn a_thief_gets_only_jobs_of_queues_that_it_serves() {
        let mut deque = Deque::default();
        for (number, queue) in [(1, "a"), (2, "b"), (3, "a"), (4, "a")] {
            deque.insert(job(number, 0, queue, Placement::Anywhere));
        }
        let named = Serves::Named(["a".into()].into());
        assert_eq!(numbers(deque.give(wanted(9, 9, &named))), [4, 3]);
    }

    #[test]
    fn jobs_that_need_a_free_slot_are_given_only_to_free_slots() {
        let mut deque = Deque::default();
        for number in 1..=6 {
            deque.insert(job(number, 0, "a", Placement::FreeSlot));
        }
        assert_eq!(numbers(deque.give(wanted(9, 1, &Serves::All))), [6]);
    }

    #[test]
    fn suspects_are_not_given_away_while_they_must_stay() {
        let mut deque = Deque::default();
        for number in 1..=5 {
            let start = if number > 3 { StartMode::Confirmed } else { StartMode::Freely };
            deque.insert(Assignment { start, ..job(number, 0, "a", Placement::Anywhere) });
        }
        let wanted = Wanted { suspects: Suspects::Stay, ..wanted(9, 9, &Serves::All) };
        assert_eq!(numbers(deque.give(wanted)), [3, 2], "half of the other three, rounded up");
    }

    #[test]
    fn a_job_with_another_fence_is_not_found() {
        let mut deque = Deque::default();
        deque.insert(job(1, 0, "a", Placement::Anywhere));
        let older = Hold { job: Seq(1), fence: Fence(0) };
        assert!(!deque.contains(older) && !deque.remove(older));
        assert_eq!(deque.count(), 1);
    }
}
