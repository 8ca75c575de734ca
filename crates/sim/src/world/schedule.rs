//! The queue of future events, by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use filch_engine::server::{LinkNo, LinkScope};
use filch_scheduler::id::{FetchNo, Hold, JobId, Seq};
use filch_scheduler::message::{Delivery, Ending, WorkerBatch};
use filch_scheduler::name::Name;
use filch_scheduler::time::Monotonic;

use crate::work::Deed;

/// A future event. An event of one life of a process or a server carries the number of that life,
/// and is ignored when that life is over.
#[derive(Clone, Debug)]
pub(super) enum Happening {
    Planned(usize),
    Heals,
    Clears,
    ServerStarts,
    ServerTicks,
    ServerCrashes { server: u64, away: Duration, noticed: bool },
    CommitReturns { server: u64 },
    Reads { server: u64, read: Box<Read> },
    ServerResumes { server: u64 },
    LinkOpens { place: usize, link: LinkNo, scope: Box<LinkScope>, server: u64 },
    LinkFills { link: LinkNo },
    ServerHasSent { server: u64, link: LinkNo },
    Sweeps { server: u64 },
    StoreSpeedsUp { turn: u64 },
    StoreIsTrusted { turn: u64 },
    ReachesServer(Box<Letter>),
    ServerHearsClose { connection: u64, server: u64 },
    CutEnds { place: usize, turn: u64 },
    NetworkEnds { place: usize, turn: u64 },
    ProcessStarts { place: usize },
    Resumes { place: usize, life: u64 },
    GuardianKills { place: usize, life: u64 },
    Process { place: usize, life: u64, happening: InProcess },
    RequestArrives { ask: usize },
    AnswerArrives { ask: usize },
    AsksAgain { ask: usize },
}

impl Happening {
    /// Whether the server's process handles this, and cannot while it is suspended.
    pub(super) const fn is_in_server(&self) -> bool {
        matches!(
            self,
            Self::ServerTicks
                | Self::CommitReturns { .. }
                | Self::Reads { .. }
                | Self::Sweeps { .. }
                | Self::LinkOpens { .. }
                | Self::LinkFills { .. }
                | Self::ServerHasSent { .. }
                | Self::ReachesServer(_)
                | Self::ServerHearsClose { .. }
                | Self::RequestArrives { .. }
        )
    }
}

/// What is read from the store.
#[derive(Clone, Debug)]
pub(super) enum Read {
    Jobs { fetch: FetchNo, ids: Vec<JobId>, keys: Vec<Name>, seqs: Vec<Seq> },
    Payloads { link: LinkNo, jobs: Vec<Seq> },
}

/// A batch on its way to the server.
#[derive(Clone, Debug)]
pub(super) struct Letter {
    pub(super) place: usize,
    pub(super) connection: u64,
    /// The server that accepted the connection.
    pub(super) server: u64,
    pub(super) batch: WorkerBatch,
}

/// An event in a worker's process, which waits while the process is suspended.
#[derive(Clone, Debug)]
pub(super) enum InProcess {
    Ticks,
    Connects,
    LosesConnection {
        connection: u64,
    },
    Hears {
        connection: u64,
        delivery: Delivery,
    },
    JobEnds {
        hold: Hold,
        deed: Deed,
    },
    JobStops {
        hold: Hold,
    },
    /// It was told to stop while it was suspended.
    Drains {
        grace: Duration,
    },
    /// The job has ended, and the worker has yet to notice.
    HearsOfEnd {
        hold: Hold,
        outcome: Ending,
    },
}

#[derive(Default)]
pub(super) struct Schedule {
    heap: BinaryHeap<Reverse<Entry>>,
    count: u64,
}

struct Entry {
    at: Monotonic,
    number: u64,
    happening: Happening,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl Schedule {
    pub(super) fn put(&mut self, at: Monotonic, happening: Happening) {
        self.count += 1;
        self.heap.push(Reverse(Entry { at, number: self.count, happening }));
    }

    pub(super) fn take(&mut self) -> Option<(Monotonic, Happening)> {
        let Reverse(Entry { at, happening, .. }) = self.heap.pop()?;
        Some((at, happening))
    }
}
