//! What is known of the demo's workers: out of what the server tells of, and what it is seen to hold.
//!
//! Nothing here waits or draws: events in, rows out.

use std::collections::BTreeMap;

use filch_api::cluster::Worker;
use filch_api::event::ClusterEvent;
use filch_api::time::Moment;

/// A worker and how it has fared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WorkerRow {
    pub(super) name: String,
    /// Jobs in its deque that have not started.
    pub(super) waiting: u64,
    pub(super) running: u64,
    pub(super) done: u64,
    /// Jobs that it has taken from others.
    pub(super) stolen: u64,
    /// Jobs that others have taken from it.
    pub(super) given: u64,
    pub(super) status: WorkerStatus,
}

/// How a worker is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WorkerStatus {
    #[default]
    Alive,
    /// It was killed with this many jobs, and nobody has noticed yet.
    Killed { held: u64 },
    /// Its lease ran out, and its jobs went back to the queue.
    Lost { held: u64 },
}

/// Everything that is shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Board {
    pub(super) rows: Vec<WorkerRow>,
    /// Thefts that moved something.
    pub(super) thefts: u64,
    /// Jobs that were moved by thefts.
    pub(super) moved: u64,
    /// When each job that the lost worker had was somebody's again.
    rescued: BTreeMap<u64, Option<Moment>>,
    /// Which row is which worker's.
    places: BTreeMap<String, usize>,
    owners: BTreeMap<u64, usize>,
    ends: BTreeMap<u64, u32>,
}

impl Board {
    pub(super) fn new(names: &[String]) -> Self {
        let row = |name: &String| WorkerRow { name: name.clone(), ..WorkerRow::default() };
        Self { rows: names.iter().map(row).collect(), ..Self::default() }
    }

    /// What the server shows of its workers.
    pub(super) fn update_workers(&mut self, workers: &[Worker]) {
        for worker in workers {
            let Some(name) = &worker.name else { continue };
            let Some(place) = self.rows.iter().position(|row| row.name == *name) else {
                continue;
            };
            let is_new = self.places.insert(worker.id.clone(), place).is_none();
            let row = &mut self.rows[place];
            if is_new {
                // On a busy machine a worker may have been too slow, and has come back.
                row.status = WorkerStatus::Alive;
            }
            if row.status == WorkerStatus::Alive {
                row.waiting = worker.waiting.into();
                row.running = worker.held.saturating_sub(worker.waiting.into());
            }
        }
    }

    /// The fullest of those that live and have something.
    pub(super) fn fullest(&self) -> Option<usize> {
        let alive =
            self.rows.iter().enumerate().filter(|(_, row)| row.status == WorkerStatus::Alive);
        let full = alive.filter(|(_, row)| row.waiting + row.running > 0);
        full.max_by_key(|(_, row)| row.waiting + row.running).map(|(place, _)| place)
    }

    /// Whether there is something that others have to take over if this one never goes on: it is seen with
    /// jobs just now, or was lost with some.
    pub(super) fn holds_jobs(&self, place: usize, workers: &[Worker]) -> bool {
        let row = &self.rows[place];
        match row.status {
            WorkerStatus::Lost { held } => held > 0,
            WorkerStatus::Alive | WorkerStatus::Killed { .. } => workers
                .iter()
                .any(|worker| worker.name.as_ref() == Some(&row.name) && worker.held > 0),
        }
    }

    /// This one was killed just now.
    pub(super) fn kill(&mut self, place: usize) {
        let row = &mut self.rows[place];
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
                let place =
                    |id: &Option<String>| id.as_ref().and_then(|id| self.places.get(id)).copied();
                let (from, to) = (place(from), place(to));
                let count = jobs.len() as u64;
                match cause.as_str() {
                    "steal" => {
                        self.thefts += 1;
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

    /// Jobs that were accepted as done more than once.
    pub(super) fn double(&self) -> u64 {
        self.ends.values().filter(|count| **count > 1).count() as u64
    }

    /// How many jobs the lost worker had, and when the last of them was somebody's again.
    pub(super) fn rescue(&self) -> Option<(u64, Moment)> {
        let last = self.rescued.values().flatten().max()?;
        Some((self.rescued.len() as u64, *last))
    }

    /// The most jobs that any deque holds.
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
    fn a_killed_workers_jobs_are_counted_until_they_are_somebodys_again() {
        let mut board = Board::new(&["w1".to_owned(), "w2".to_owned()]);
        board.update_workers(&[worker("1", 3, 2), worker("2", 0, 0)]);
        board.apply(&moved(1, "claim", None, Some("1"), &[1, 2, 3]));
        board.apply(&moved(2, "steal", Some("1"), Some("2"), &[3]));
        board.apply(&done(3));
        assert_eq!((board.thefts, board.moved, board.done(), board.double()), (1, 1, 1, 0));
        assert_eq!((board.rows[0].given, board.rows[1].stolen, board.rows[1].done), (1, 1, 1));
        assert_eq!((board.fullest(), board.longest()), (Some(0), 2));

        assert!(board.holds_jobs(0, &[worker("1", 1, 0)]));
        assert!(!board.holds_jobs(0, &[worker("1", 0, 0), worker("2", 3, 2)]));
        assert!(!board.holds_jobs(0, &[]), "what was seen before may be over");
        board.kill(0);
        assert_eq!(
            (board.rows[0].status, board.fullest()),
            (WorkerStatus::Killed { held: 3 }, None)
        );
        board.update_workers(&[worker("2", 1, 0)]);
        assert_eq!(board.fullest(), Some(1));
        board.update_workers(&[worker("1", 2, 2)]);
        assert_eq!(board.rows[0].waiting, 0, "what the server still believes of it is not shown");
        assert_eq!(board.rescue(), None);
        board.apply(&moved(5, "lost", Some("1"), None, &[1, 2]));
        assert_eq!(board.rows[0].status, WorkerStatus::Lost { held: 2 });
        assert!(board.holds_jobs(0, &[]));
        board.kill(0);
        assert_eq!(board.rows[0].status, WorkerStatus::Lost { held: 2 }, "that is known already");
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
