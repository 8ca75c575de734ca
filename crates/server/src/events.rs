//! What has happened, for whoever listens now or asks later: a bounded ring, each thing under the number
//! of its commit and its place in it. Who asks for what the ring has lost is told so.
//!
//! What is held is small, so that it costs next to nothing when nobody asks; whoever tells of it looks up
//! the rest.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use filch_scheduler::id::{CommitNo, Fence, JobId, Seq, WorkerId};
use filch_scheduler::name::Name;
use filch_scheduler::record::{LeaseCause, Mutation, Note};
use filch_scheduler::state::JobState;
use filch_scheduler::time::Wall;
use tokio::sync::watch;

/// Things that are held.
const THINGS: usize = 16_384;

/// Jobs that are named by them altogether.
const NAMED: usize = 262_144;

/// Where a thing stands: its commit, and its place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct EventNo(pub(crate) u64, pub(crate) u32);

/// One thing that has happened.
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
    /// What these mutations tell; `now` for what has no time of its own.
    pub(crate) fn all(mutations: &[Mutation], now: Wall) -> Vec<Self> {
        mutations.iter().filter_map(|mutation| Self::of(mutation, now)).collect()
    }

    /// `None` if nobody need know.
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

    /// The jobs that are named by their numbers only.
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
    /// The newest, for whoever waits.
    newest: watch::Sender<EventNo>,
}

struct Ring {
    things: VecDeque<(EventNo, Arc<Happened>)>,
    /// Jobs that they name.
    named: usize,
    /// The newest that was let go, and when that happened; if there ever was anything that is not held.
    lost: (EventNo, Option<Wall>),
}

/// What came after something.
pub(crate) enum Since {
    These(Vec<(EventNo, Arc<Happened>)>),
    /// Some of it is not held any more; what is held begins after this.
    Lost(EventNo),
}

impl Events {
    /// Nothing has happened since this commit and this moment.
    pub(crate) fn new(last: CommitNo, now: Wall) -> Self {
        let last = EventNo(last.0, u32::MAX);
        // In a new store nothing has happened that could be missed.
        let lost_at = (last.0 > 0).then_some(now);
        let ring = Ring { things: VecDeque::new(), named: 0, lost: (last, lost_at) };
        Self { ring: Mutex::new(ring), newest: watch::Sender::new(last) }
    }

    /// These commits are durable.
    pub(crate) fn tell(&self, commits: impl IntoIterator<Item = (CommitNo, Vec<Happened>)>) {
        let mut ring = self.ring.lock().expect("nobody panics while telling");
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

    pub(crate) fn since(&self, after: EventNo) -> Since {
        let ring = self.ring.lock().expect("nobody panics while telling");
        // An id from the future is one of another store.
        let newest = self.newest();
        if after > newest {
            return Since::Lost(newest);
        }
        if after < ring.lost.0 {
            return Since::Lost(ring.lost.0);
        }
        let from = ring.things.partition_point(|(number, _)| *number <= after);
        Since::These(ring.things.range(from..).cloned().collect())
    }

    /// Where to begin for all that has happened since this moment. Where something of it is not held any
    /// more, that is before all that is held.
    pub(crate) fn before(&self, moment: Wall) -> EventNo {
        let ring = self.ring.lock().expect("nobody panics while telling");
        if ring.lost.1.is_some_and(|lost_at| lost_at >= moment) {
            return EventNo::default();
        }
        // Commits are in order, what they tell of only nearly.
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
