//! The queue of future events, by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::RangeInclusive;
use std::time::Duration;

use filch_engine::server::{LinkNo, LinkScope};
use filch_scheduler::id::{FetchNo, Hold, JobId, LeaseNo, Seq};
use filch_scheduler::message::{Delivery, Ending, WorkerBatch};
use filch_scheduler::spec::QueueKey;
use filch_scheduler::time::{Monotonic, Wall};

use super::http_place::{HttpLetter, InHttpProcess};
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
    Reads { server: u64, read: Box<Read>, fails: Option<FailedRead> },
    ServerResumes { server: u64 },
    LinkOpens { place: usize, link: LinkNo, scope: Box<LinkScope>, server: u64 },
    LinkFills { link: LinkNo },
    ServerHasSent { server: u64, link: LinkNo },
    StoreSpeedsUp { turn: u64 },
    StoreIsTrusted { turn: u64 },
    RetentionRecovers { turn: u64 },
    ReachesServer(Box<Letter>),
    ServerHearsClose { connection: u64, server: u64 },
    CutEnds { place: usize, turn: u64 },
    NetworkEnds { place: usize, turn: u64 },
    ProcessStarts { place: usize },
    Resumes { place: usize, life: u64 },
    GuardianKills { place: usize, life: u64 },
    Process { place: usize, life: u64, happening: InProcess },
    HttpStarts { place: usize },
    HttpResumes { place: usize, life: u64 },
    HttpProcess { place: usize, life: u64, happening: InHttpProcess },
    AskReachesServer(Box<HttpLetter>),
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
                | Self::LinkOpens { .. }
                | Self::LinkFills { .. }
                | Self::ServerHasSent { .. }
                | Self::ReachesServer(_)
                | Self::ServerHearsClose { .. }
                | Self::AskReachesServer(_)
                | Self::RequestArrives { .. }
        )
    }
}

/// A read that fails ends the server: how long it is away, and whether workers notice.
#[derive(Clone, Copy, Debug)]
pub(super) struct FailedRead {
    pub(super) away: Duration,
    pub(super) noticed: bool,
}

/// What is read from the store.
#[derive(Clone, Debug)]
pub(super) enum Read {
    Jobs { fetch: FetchNo, ids: Vec<JobId>, keys: Vec<QueueKey>, seqs: Vec<Seq> },
    Payloads { link: LinkNo, jobs: Vec<Seq> },
    Expired { after: Option<(Wall, Seq)>, before: Wall, limit: usize },
    Outdated { after: LeaseNo, recent: RangeInclusive<Wall>, limit: usize },
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

/// Events are large, and a heap moves its entries often: so it has their places only.
#[derive(Default)]
pub(super) struct Schedule {
    /// By time, and then in the order in which they were put.
    heap: BinaryHeap<Reverse<(Monotonic, u64, usize)>>,
    count: u64,
    happenings: Vec<Option<Happening>>,
    free: Vec<usize>,
}

impl Schedule {
    pub(super) fn put(&mut self, at: Monotonic, happening: Happening) {
        self.count += 1;
        let place = self.free.pop().unwrap_or_else(|| {
            self.happenings.push(None);
            self.happenings.len() - 1
        });
        self.happenings[place] = Some(happening);
        self.heap.push(Reverse((at, self.count, place)));
    }

    pub(super) fn take(&mut self) -> Option<(Monotonic, Happening)> {
        let Reverse((at, _, place)) = self.heap.pop()?;
        self.free.push(place);
        Some((at, self.happenings[place].take().expect("it was put there")))
    }
}
