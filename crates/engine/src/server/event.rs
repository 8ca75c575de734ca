//! The inputs and actions of a server's engine.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use filch_scheduler::dispatch::{Answer, DispatchEffect, DispatchEvent, Request};
use filch_scheduler::id::{CommitNo, FetchNo, JobId, LeaseNo, Seq, SessionNo, WorkerId};
use filch_scheduler::message::{Delivery, ToWorker, WorkerBatch};
use filch_scheduler::name::Name;
use filch_scheduler::record::{JobRow, StoredText};
use filch_scheduler::spec::QueueKey;
use filch_scheduler::time::{Monotonic, Now, Wall};
use filch_store::{Commit, Expired, Outdated, PurgeCause};

use super::http_event::{HttpAsk, HttpRefusal, HttpReply, HttpWorker};
use super::link::{LinkNo, LinkScope};
use super::retention::{RetentionJob, SliceOutcome};

/// Stands for somebody that waits outside of the engine. The shell chooses it; each is used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// An input of a server's engine.
#[derive(Clone, Debug)]
pub enum ServerInput {
    /// A request of a client. Answered with [`ServerAction::Answer`]. Only while the engine
    /// [takes requests](super::ServerEngine::takes_requests).
    Request {
        /// Where the answer goes.
        ticket: Ticket,
        /// Who asks: the name of a token, for the record.
        by: Option<Name>,
        /// The request.
        request: Request,
    },
    /// Something has read the live state. Answered with [`ServerAction::Release`] once everything
    /// that it saw is durable.
    Barrier {
        /// What waits.
        ticket: Ticket,
    },
    /// Something waits for the end of a job. Answered with [`ServerAction::Watching`], or with
    /// [`ServerAction::Release`] if the job is not in memory.
    AwaitEnd {
        /// What waits.
        ticket: Ticket,
        /// The job.
        job: JobId,
    },
    /// The grace period for running jobs when this worker drains.
    Grace {
        /// The worker.
        worker: WorkerId,
        /// The grace period.
        grace: Duration,
    },
    /// An operator wants ended jobs to be removed. Only while the engine
    /// [takes requests](super::ServerEngine::takes_requests).
    Purge {
        /// The jobs.
        jobs: Vec<(Seq, JobId)>,
        /// Why.
        cause: PurgeCause,
    },
    /// A request of a worker over plain HTTP. Answered with [`ServerAction::Respond`], exactly
    /// once.
    Ask {
        /// Where the response goes.
        ticket: Ticket,
        /// The sender.
        from: HttpWorker,
        /// The request.
        ask: HttpAsk,
    },
    /// An idle moment was picked for a slice of retention. Answered with
    /// [`ServerAction::SliceDone`].
    RetentionMoment {
        /// What waits for the end of the slice.
        ticket: Ticket,
        /// What the slice does.
        job: RetentionJob,
        /// How many rows it may look at.
        rows: usize,
        /// When it begins no further step, by the process's monotonic clock.
        until: Option<Monotonic>,
    },
    /// The store's answer to [`ServerAction::ReadExpired`].
    Expired(Vec<Expired>),
    /// The store's answer to [`ServerAction::ReadOutdated`].
    Outdated(Outdated),
    /// The store could not answer [`ServerAction::ReadExpired`] or [`ServerAction::ReadOutdated`].
    RetentionFailed,
    /// A worker, or something that claims to be one, has connected.
    LinkOpened {
        /// The connection.
        link: LinkNo,
        /// What it may do.
        scope: LinkScope,
    },
    /// A batch came over a connection.
    Batch {
        /// The connection.
        link: LinkNo,
        /// The batch.
        batch: WorkerBatch,
    },
    /// The batch with `tell` has been sent.
    Sent(LinkNo),
    /// The other end reads too slowly: a batch could not be sent.
    LinkFull(LinkNo),
    /// A connection has broken.
    LinkClosed(LinkNo),
    /// The store's answer to [`ServerAction::ReadPayloads`]: of the first of the jobs, or of all.
    PayloadsRead {
        /// The connection that they are for.
        link: LinkNo,
        /// The jobs that were asked for.
        jobs: Vec<Seq>,
        /// The payloads, in the same order; `None` for a job that is not stored.
        texts: Vec<Option<StoredText>>,
    },
    /// The store's answer to [`ServerAction::Fetch`].
    Fetched {
        /// Which fetch.
        fetch: FetchNo,
        /// The jobs it found.
        found: Vec<JobRow>,
    },
    /// Every commit up to this one is durable.
    Committed(CommitNo),
    /// The store has confirmed that this server owns it.
    Owned {
        /// When it was asked, by the clock of the process.
        asked: Monotonic,
    },
    /// This token is no longer valid: the workers that it introduced may use another one.
    TokenEnded(Arc<str>),
    /// Time has passed.
    Tick,
}

/// An action of a server's engine. The shell performs actions in order. What comes of them are
/// further inputs, fed after the last action.
#[derive(Clone, Debug)]
pub enum ServerAction {
    /// Make this durable, in the order of the numbers; then [`ServerInput::Committed`].
    Commit(Commit),
    /// Everything up to this commit is durable: publish what happened in it.
    Durable(CommitNo),
    /// Look these up in the store; then [`ServerInput::Fetched`].
    Fetch {
        /// Repeated in the answer.
        fetch: FetchNo,
        /// By the client's id.
        ids: Vec<JobId>,
        /// By idempotency key.
        keys: Vec<QueueKey>,
        /// By number.
        seqs: Vec<Seq>,
    },
    /// Read these payloads from the store, as far as they are not too large together; then
    /// [`ServerInput::PayloadsRead`].
    ReadPayloads {
        /// The connection that they are for.
        link: LinkNo,
        /// The jobs.
        jobs: Vec<Seq>,
    },
    /// Send a batch. If that is not possible at once, [`ServerInput::LinkFull`] or
    /// [`ServerInput::LinkClosed`] follows.
    Send {
        /// Over this connection.
        link: LinkNo,
        /// The batch.
        delivery: Delivery,
        /// Whether [`ServerInput::Sent`] must follow once it is sent.
        tell: bool,
    },
    /// Close a connection. No [`ServerInput::LinkClosed`] is needed for it.
    HangUp {
        /// Which one.
        link: LinkNo,
        /// Why.
        why: HangUp,
    },
    /// The answer to a request.
    Answer {
        /// The request.
        ticket: Ticket,
        /// The answer.
        answer: Answer,
    },
    /// The response to a request over plain HTTP.
    Respond {
        /// The request.
        ticket: Ticket,
        /// The response.
        response: Result<HttpReply, HttpRefusal>,
    },
    /// What waited may go on.
    Release(Ticket),
    /// What waits for the end of a job gets [`ServerAction::JobEnded`].
    Watching {
        /// What waits.
        ticket: Ticket,
        /// The job's number.
        job: Seq,
    },
    /// The end of this job is durable.
    JobEnded(Seq),
    /// Look for jobs whose retention is over; then [`ServerInput::Expired`] or
    /// [`ServerInput::RetentionFailed`].
    ReadExpired {
        /// Only jobs after this one, in the order of their ends.
        after: Option<(Wall, Seq)>,
        /// Only jobs that ended before this time.
        before: Wall,
        /// At most this many.
        limit: usize,
    },
    /// Look for history that is not needed any more; then [`ServerInput::Outdated`] or
    /// [`ServerInput::RetentionFailed`].
    ReadOutdated {
        /// Only rows of the ledger after this one.
        after: LeaseNo,
        /// Only rows before the first one from these times.
        recent: RangeInclusive<Wall>,
        /// Examine at most this many.
        limit: usize,
    },
    /// A slice of retention has ended, or could not begin.
    SliceDone {
        /// What waits; `None` if the slice followed commits.
        ticket: Option<Ticket>,
        /// What the slice did.
        job: RetentionJob,
        /// How it ended.
        outcome: SliceOutcome,
        /// How long it took.
        took: Duration,
    },
    /// A worker has begun a session.
    Connected {
        /// The worker.
        worker: WorkerId,
        /// Its session.
        session: SessionNo,
        /// Over this connection.
        link: LinkNo,
        /// Whether it only delivers a part of an older incarnation's reports. Then its end is not
        /// announced with [`ServerAction::Disconnected`].
        is_partial: bool,
    },
    /// The connection of a worker's current session is over.
    Disconnected {
        /// The worker.
        worker: WorkerId,
    },
    /// The process was suspended for this long, which does not count for leases.
    Suspended(Duration),
}

/// Why the server closes a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HangUp {
    /// The session is over, or the worker has connected anew.
    Over,
    /// The other end reads too slowly.
    Slow,
    /// Its token does not allow this.
    NotPermitted(String),
    /// What it sent is invalid.
    Invalid(&'static str),
}

/// A step of the scheduler inside an engine, for traces and checkers.
#[derive(Clone, Debug)]
pub enum ServerStep {
    /// The scheduler handled an event.
    Heard {
        /// At this time, which leaves out time that does not count.
        now: Now,
        /// The event.
        event: DispatchEvent,
    },
    /// The effects of that event, if they are wanted.
    Decided(Vec<DispatchEffect>),
    /// Messages for a worker may be sent: everything that they depend on is durable.
    Told {
        /// The commit that they waited for, if they did.
        after: Option<CommitNo>,
        /// The worker.
        worker: WorkerId,
        /// Its session.
        session: SessionNo,
        /// The messages, in order.
        messages: Vec<ToWorker>,
    },
    /// A request is answered.
    Answered {
        /// The commit that the answer waited for, if it did.
        after: Option<CommitNo>,
        /// The request.
        ticket: Ticket,
        /// The answer.
        answer: Answer,
    },
}
