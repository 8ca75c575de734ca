//! Events for readers of the event stream: a bounded ring, in which each event has the number of
//! its commit and its place in it. Readers that ask for older events get a notice that these are
//! gone.
//!
//! The ring holds only small facts, so that it costs next to nothing without readers; the rest is
//! looked up when events are sent.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use filch_scheduler::id::{CommitNo, Fence, JobId, Seq, WorkerId};
use filch_scheduler::name::Name;
use filch_scheduler::record::{LeaseCause, Mutation, Note};
use filch_scheduler::state::JobState;
use filch_scheduler::time::Wall;
use tokio::sync::watch;

/// How many events are held.
const THINGS: usize = 16_384;

/// How many jobs these may name altogether.
const NAMED: usize = 262_144;

/// The position of an event: its commit, and its place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct EventNo(pub(crate) u64, pub(crate) u32);

/// An event.
#[derive(Debug)]
pub(crate) struct Happened {
    pub(crate) at: Wall,
    pub(crate) what: What,
}

#[derive(Debug)]
pub(crate) enum What {
    Submitted { seq: Seq, id: JobId, queue: Name, kind: Name },
    Changed { seq: Seq, state: JobState, attempts: u16, fence: Fence, holder: Option<WorkerId> },
    Moved { cause: LeaseCause, to: Option<WorkerId>, jobs: Vec<Seq> },
    WorkerLost { worker: WorkerId, jobs: u32 },
}

impl Happened {
    /// The events of these mutations; `now` is the time of those that have none.
    pub(crate) fn all(mutations: &[Mutation], now: Wall) -> Vec<Self> {
        mutations.iter().filter_map(|mutation| Self::of(mutation, now)).collect()
    }

    /// `None` if the mutation is not an event.
    fn of(mutation: &Mutation, now: Wall) -> Option<Self> {
        let (at, what) = match mutation {
            Mutation::Put(row) => {
                let (queue, kind) = (row.spec.queue.clone(), row.spec.kind.clone());
                let what = What::Submitted { seq: row.seq, id: row.spec.id, queue, kind };
                (row.submitted_at, what)
            }
            Mutation::Write(write) => {
                let what = What::Changed {
                    seq: write.job,
                    state: write.state,
                    attempts: write.attempts,
                    fence: write.fence,
                    holder: write.holder,
                };
                (write.at, what)
            }
            Mutation::Lease(row) => {
                let jobs = row.jobs.iter().map(|hold| hold.job).collect();
                (row.at, What::Moved { cause: row.cause, to: row.worker, jobs })
            }
            &Mutation::Note(Note::WorkerLost { worker, jobs }) => {
                (now, What::WorkerLost { worker, jobs })
            }
            _ => return None,
        };
        Some(Self { at, what })
    }

    /// The jobs that the event names by number.
    pub(crate) fn jobs(&self) -> &[Seq] {
        match &self.what {
            What::Changed { seq, .. } => std::slice::from_ref(seq),
            What::Moved { jobs, .. } => jobs,
            What::Submitted { .. } | What::WorkerLost { .. } => &[],
        }
    }
}

pub(crate) struct Events {
    ring: Mutex<Ring>,
    /// The newest position, for readers that wait.
    newest: watch::Sender<EventNo>,
}

struct Ring {
    things: VecDeque<(EventNo, Arc<Happened>)>,
    /// How many jobs the events name.
    named: usize,
    /// The newest event that was dropped, and its time, if there is any.
    lost: (EventNo, Option<Wall>),
}

/// How many events a reader gets at once, and how many jobs these may name altogether; a single
/// event may name more.
const TOGETHER: usize = 256;
const NAMED_TOGETHER: usize = 4_096;

/// The first events after a position.
pub(crate) enum Since {
    These(Vec<(EventNo, Arc<Happened>)>),
    /// Some are no longer available; the held ones start after this position.
    Lost(EventNo),
}

impl Events {
    /// An empty ring that starts at this commit and time.
    pub(crate) fn new(last: CommitNo, now: Wall) -> Self {
        let last = EventNo(last.0, u32::MAX);
        // In a new store there are no events that could be missed.
        let lost_at = (last.0 > 0).then_some(now);
        let ring = Ring { things: VecDeque::new(), named: 0, lost: (last, lost_at) };
        Self { ring: Mutex::new(ring), newest: watch::Sender::new(last) }
    }

    /// Adds the events of durable commits.
    pub(crate) fn tell(&self, commits: impl IntoIterator<Item = (CommitNo, Vec<Happened>)>) {
        let mut ring = self.ring.lock().expect("no thread panics while it holds this lock");
        let mut newest = None;
        for (commit, things) in commits {
            newest = Some(EventNo(commit.0, u32::MAX));
            for (thing, index) in things.into_iter().zip(0..) {
                ring.named += thing.jobs().len();
                ring.things.push_back((EventNo(commit.0, index), Arc::new(thing)));
            }
        }
        while (ring.things.len() > THINGS || ring.named > NAMED)
            && let Some((number, thing)) = ring.things.pop_front()
        {
            ring.named -= thing.jobs().len();
            ring.lost = (number, Some(thing.at));
        }
        drop(ring);
        if let Some(newest) = newest {
            self.newest.send_replace(newest);
        }
    }

    /// The next events after this position: a reader that is slow holds no more than these.
    pub(crate) fn since(&self, after: EventNo) -> Since {
        let ring = self.ring.lock().expect("no thread panics while it holds this lock");
        // An id from the future belongs to another store.
        let newest = self.newest();
        if after > newest {
            return Since::Lost(newest);
        }
        if after < ring.lost.0 {
            return Since::Lost(ring.lost.0);
        }
        let from = ring.things.partition_point(|(number, _)| *number <= after);
        let mut named = 0;
        let mut these = Vec::new();
        for (number, thing) in ring.things.range(from..).take(TOGETHER) {
            named += thing.jobs().len();
            if named > NAMED_TOGETHER && !these.is_empty() {
                break;
            }
            these.push((*number, Arc::clone(thing)));
        }
        Since::These(these)
    }

    /// The position from which to read all events since this time. If some of them are no longer
    /// held, it is before all held ones.
    pub(crate) fn before(&self, moment: Wall) -> EventNo {
        let ring = self.ring.lock().expect("no thread panics while it holds this lock");
        if ring.lost.1.is_some_and(|lost_at| lost_at >= moment) {
            return EventNo::default();
        }
        // Commits are in order, the times of their events only nearly.
        let begins = ring.things.iter().position(|(_, thing)| thing.at >= moment);
        match begins {
            Some(0) => ring.lost.0,
            Some(place) => ring.things[place - 1].0,
            None => self.newest(),
        }
    }

    pub(crate) fn newest(&self) -> EventNo {
        *self.newest.borrow()
    }

    pub(crate) fn listen(&self) -> watch::Receiver<EventNo> {
        self.newest.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(jobs: usize) -> Happened {
        let jobs = (0..jobs as u64).map(Seq).collect();
        Happened { at: Wall(0), what: What::Moved { cause: LeaseCause::Claim, to: None, jobs } }
    }

    fn next(events: &Events, after: EventNo) -> Vec<(EventNo, usize)> {
        match events.since(after) {
            Since::These(these) => {
                these.iter().map(|(number, thing)| (*number, thing.jobs().len())).collect()
            }
            Since::Lost(_) => panic!("they are held"),
        }
    }

    #[test]
    fn a_reader_gets_a_bounded_part_at_once_and_misses_nothing() {
        let events = Events::new(CommitNo(0), Wall(0));
        let sizes = (0..THINGS).map(|index| if index % 100 == 0 { 2 * NAMED_TOGETHER } else { 1 });
        let sizes: Vec<usize> = sizes.take(1_000).collect();
        let things = sizes.iter().map(|jobs| moved(*jobs)).collect();
        events.tell([(CommitNo(1), things)]);
        let (mut after, mut seen) = (EventNo(0, u32::MAX), Vec::new());
        loop {
            let these = next(&events, after);
            let Some((last, _)) = these.last() else { break };
            after = *last;
            let named: usize = these.iter().map(|(_, jobs)| jobs).sum();
            assert!(these.len() == 1 || (these.len() <= TOGETHER && named <= NAMED_TOGETHER));
            seen.extend(these.into_iter().map(|(_, jobs)| jobs));
        }
        assert_eq!(seen, sizes);
    }
}
