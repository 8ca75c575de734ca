//! Facts about workers by id, for as long as the scheduler knows the worker, or a little longer.
//!
//! Workers come and go, and anyone who may work can invent ids. So every now and then the entries
//! of workers that are gone are dropped: there are never more than twice as many entries as known
//! workers, besides a small number, and dropping costs little per entry that is added.

use std::collections::{BTreeMap, BTreeSet};

use filch_scheduler::id::WorkerId;

/// So many entries are always kept.
const ENTRIES_MIN: usize = 1_024;

/// Facts about workers by id.
#[derive(Debug)]
pub struct WorkerTable<T> {
    entries: BTreeMap<WorkerId, T>,
    /// Beyond this many entries, those of workers that are gone are dropped.
    entries_max: usize,
}

impl<T> Default for WorkerTable<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), entries_max: ENTRIES_MIN }
    }
}

impl<T> WorkerTable<T> {
    /// Adds or replaces an entry. `known` lists the workers whose entries are still needed.
    pub fn insert<I: IntoIterator<Item = WorkerId>>(
        &mut self,
        worker: WorkerId,
        fact: T,
        known: impl FnOnce() -> I,
    ) {
        self.entries.insert(worker, fact);
        if self.entries.len() > self.entries_max {
            let known: BTreeSet<WorkerId> = known().into_iter().collect();
            self.entries.retain(|it, _| known.contains(it) || *it == worker);
            self.entries_max = ENTRIES_MIN.max(2 * self.entries.len());
        }
    }

    /// The entry of this worker.
    #[must_use]
    pub fn get(&self, worker: WorkerId) -> Option<&T> {
        self.entries.get(&worker)
    }

    /// Removes the entry of this worker.
    pub fn remove(&mut self, worker: WorkerId) -> Option<T> {
        self.entries.remove(&worker)
    }

    /// Removes all other entries.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&T) -> bool) {
        self.entries.retain(|_, fact| is_kept(fact));
    }

    /// How many entries there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_workers_that_are_gone_are_dropped_in_time() {
        let mut table = WorkerTable::default();
        let known = || [WorkerId::apart(1), WorkerId::apart(2)];
        let mut most = 0;
        for number in 1..=10 * ENTRIES_MIN as u64 {
            table.insert(WorkerId::apart(number), number, known);
            most = most.max(table.count());
        }
        assert_eq!(most, ENTRIES_MIN);
        assert_eq!(
            (table.get(WorkerId::apart(2)), table.get(WorkerId::apart(3))),
            (Some(&2), None)
        );
    }

    #[test]
    fn entries_of_known_workers_stay() {
        let mut table = WorkerTable::default();
        let count = 3 * ENTRIES_MIN as u64;
        let known = || (1..=count).map(WorkerId::apart);
        for number in 1..=count {
            table.insert(WorkerId::apart(number), number, known);
        }
        assert_eq!(table.count(), count as usize);
    }
}
