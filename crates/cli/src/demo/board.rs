//! The state of the demo's workers, computed from server events and the list of workers.
//!
//! No I/O: events in, rows out.

use std::collections::BTreeMap;

use filch_api::cluster::Worker;
use filch_api::event::ClusterEvent;
use filch_api::time::Moment;

/// A worker with its counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WorkerRow {
    pub(super) name: String,
    /// Jobs in its deque that have not started.
    pub(super) waiting: u64,
    pub(super) running: u64,
    pub(super) done: u64,
    /// Jobs that it has stolen from others.
    pub(super) stolen: u64,
    /// Jobs that others have stolen from it.
    pub(super) given: u64,
    pub(super) status: WorkerStatus,
}

/// The status of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WorkerStatus {
    #[default]
    Alive,
    /// Killed while it held this many jobs; the server has not noticed yet.
    Killed { held: u64 },
    /// Its lease has expired, and its jobs are back in the queue.
    Lost { held: u64 },
}

/// All rows and totals.
#[derive(Clone, Debug, Default)]
pub(super) struct Board {
    pub(super) rows: Vec<WorkerRow>,
    /// Steals that moved jobs.
    pub(super) steals: u64,
    /// Jobs that were moved by steals.
    pub(super) moved: u64,
    /// When each job of the lost worker got a new owner.
    rescued: BTreeMap<u64, Option<Moment>>,
    /// The row of each worker id.
    row_of: BTreeMap<String, usize>,
    owners: BTreeMap<u64, usize>,
    ends: BTreeMap<u64, u32>,
}

impl Board {
    pub(super) fn new(names: &[String]) -> Self {
        let row = |name: &String| WorkerRow { name: name.clone(), ..WorkerRow::default() };
        Self { rows: names.iter().map(row).collect(), ..Self::default() }
    }

    /// Applies the server's list of workers.
    pub(super) fn update_workers(&mut self, workers: &[Worker]) {
        for worker in workers {
            let Some(name) = &worker.name else { continue };
            let Some(index) = self.rows.iter().position(|row| row.name == *name) else {
                continue;
            };
            let is_new = self.row_of.insert(worker.id.clone(), index).is_none();
            let row = &mut self.rows[index];
            if is_new {
                // On a busy machine a worker may have missed its lease and come back.
                row.status = WorkerStatus::Alive;
            }
            if row.status == WorkerStatus::Alive {
                row.waiting = worker.waiting.into();
                row.running = worker.held.saturating_sub(worker.waiting.into());
            }
        }
    }

    /// The living worker with the most jobs, if one has any.
    pub(super) fn fullest(&self) -> Option<usize> {
        let alive =
            self.rows.iter().enumerate().filter(|(_, row)| row.status == WorkerStatus::Alive);
        let full = alive.filter(|(_, row)| row.waiting + row.running > 0);
        full.max_by_key(|(_, row)| row.waiting + row.running).map(|(index, _)| index)
    }

    /// Whether others would have to take over jobs of this worker: it holds some now, or was lost
    /// with some.
    pub(super) fn holds_jobs(&self, index: usize, workers: &[Worker]) -> bool {
        let row = &self.rows[index];
        match row.status {
            WorkerStatus::Lost { held } => held > 0,
            WorkerStatus::Alive | WorkerStatus::Killed { .. } => workers
                .iter()
                .any(|worker| worker.name.as_ref() == Some(&row.name) && worker.held > 0),
        }
    }

    /// Marks a worker as killed.
    pub(super) fn kill(&mut self, index: usize) {
        let row = &mut self.rows[index];
        if row.status == WorkerStatus::Alive {
            row.status = WorkerStatus::Killed { held: row.waiting + row.running };
        }
        (row.waiting, row.running) = (0, 0);
    }

    pub(super) fn apply(&mut self, event: &ClusterEvent) {
        match event {
            ClusterEvent::Changed { seq, state, .. } if state == "succeeded" => {
                *self.ends.entry(*seq).or_default() += 1;
                if let Some(&owner) = self.owners.get(seq) {
                    self.rows[owner].done += 1;
                }
            }
            ClusterEvent::Moved { at, cause, from, to, jobs, .. } => {
                let index_of =
                    |id: &Option<String>| id.as_ref().and_then(|id| self.row_of.get(id)).copied();
                let (from, to) = (index_of(from), index_of(to));
                let count = jobs.len() as u64;
                match cause.as_str() {
                    "steal" => {
                        self.steals += 1;
                        self.moved += count;
                        if let (Some(from), Some(to)) = (from, to) {
                            self.rows[from].given += count;
                            self.rows[to].stolen += count;
                        }
                    }
                    "lost" => {
                        self.rescued.extend(jobs.iter().map(|&job| (job, None)));
                        if let Some(from) = from {
                            let row = &mut self.rows[from];
                            let before =
                                if let WorkerStatus::Lost { held } = row.status { held } else { 0 };
                            row.status = WorkerStatus::Lost { held: before + count };
                        }
                    }
                    _ => {}
                }
                for job in jobs {
                    match to {
                        Some(to) => self.owners.insert(*job, to),
                        None => self.owners.remove(job),
                    };
                    if let Some(rescued) = self.rescued.get_mut(job).filter(|_| to.is_some()) {
                        rescued.get_or_insert(*at);
                    }
                }
            }
            ClusterEvent::Submitted { .. }
            | ClusterEvent::Changed { .. }
            | ClusterEvent::WorkerLost { .. } => {}
        }
    }

    /// Jobs that have succeeded.
    pub(super) fn done(&self) -> u64 {
        self.ends.len() as u64
    }

    /// Jobs that were reported as succeeded more than once.
    pub(super) fn double(&self) -> u64 {
        self.ends.values().filter(|count| **count > 1).count() as u64
    }

    /// How many jobs the lost worker had, and when the last of them got a new owner.
    pub(super) fn rescue(&self) -> Option<(u64, Moment)> {
        let last = self.rescued.values().flatten().max()?;
        Some((self.rescued.len() as u64, *last))
    }

    /// The length of the longest deque.
    pub(super) fn longest(&self) -> u64 {
        self.rows.iter().map(|row| row.waiting).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use filch_scheduler::time::Wall;

    use super::*;

    fn moved(
        at: u64,
        cause: &str,
        from: Option<&str>,
        to: Option<&str>,
        jobs: &[u64],
    ) -> ClusterEvent {
        ClusterEvent::Moved {
            at: Moment(Wall(at)),
            cause: cause.to_owned(),
            from: from.map(str::to_owned),
            to: to.map(str::to_owned),
            jobs: jobs.to_vec(),
            ids: Vec::new(),
        }
    }

    fn done(seq: u64) -> ClusterEvent {
        ClusterEvent::Changed {
            at: Moment(Wall(9)),
            id: None,
            seq,
            state: "succeeded".to_owned(),
            attempts: 1,
            fence: 1,
            queue: None,
            kind: None,
            worker: None,
        }
    }

    fn worker(id: &str, held: u64, waiting: u32) -> Worker {
        Worker {
            id: id.to_owned(),
            name: Some(format!("w{id}")),
            state: "connected".to_owned(),
            slots: 1,
            held,
            waiting,
            queues: None,
            kinds: None,
            pid: None,
        }
    }

    #[test]
    fn jobs_of_a_killed_worker_are_counted_until_they_have_a_new_owner() {
        let mut board = Board::new(&["w1".to_owned(), "w2".to_owned()]);
        board.update_workers(&[worker("1", 3, 2), worker("2", 0, 0)]);
        board.apply(&moved(1, "claim", None, Some("1"), &[1, 2, 3]));
        board.apply(&moved(2, "steal", Some("1"), Some("2"), &[3]));
        board.apply(&done(3));
        assert_eq!((board.steals, board.moved, board.done(), board.double()), (1, 1, 1, 0));
        assert_eq!((board.rows[0].given, board.rows[1].stolen, board.rows[1].done), (1, 1, 1));
        assert_eq!((board.fullest(), board.longest()), (Some(0), 2));

        assert!(board.holds_jobs(0, &[worker("1", 1, 0)]));
        assert!(!board.holds_jobs(0, &[worker("1", 0, 0), worker("2", 3, 2)]));
        assert!(!board.holds_jobs(0, &[]), "an older list does not count");
        board.kill(0);
        assert_eq!(
            (board.rows[0].status, board.fullest()),
            (WorkerStatus::Killed { held: 3 }, None)
        );
        board.update_workers(&[worker("2", 1, 0)]);
        assert_eq!(board.fullest(), Some(1));
        board.update_workers(&[worker("1", 2, 2)]);
        assert_eq!(board.rows[0].waiting, 0, "the stale list of the server is not shown");
        assert_eq!(board.rescue(), None);
        board.apply(&moved(5, "lost", Some("1"), None, &[1, 2]));
        assert_eq!(board.rows[0].status, WorkerStatus::Lost { held: 2 });
        assert!(board.holds_jobs(0, &[]));
        board.kill(0);
        assert_eq!(
            board.rows[0].status,
            WorkerStatus::Lost { held: 2 },
            "a lost worker stays lost"
        );
        board.apply(&moved(6, "claim", None, Some("2"), &[1]));
        board.apply(&moved(8, "claim", None, Some("2"), &[2]));
        board.apply(&moved(9, "steal", Some("2"), Some("1"), &[1]));
        assert_eq!(board.rescue(), Some((2, Moment(Wall(8)))));
        for seq in [1, 2, 2] {
            board.apply(&done(seq));
        }
        assert_eq!((board.done(), board.double()), (3, 1));
    }
}
