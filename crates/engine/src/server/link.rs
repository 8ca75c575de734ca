//! The server's end of a worker's connection: which worker uses it, what it may do, and the
//! messages on their way to it.
//!
//! Messages go out in numbered batches, in order; only a renewal of the lease goes ahead, because
//! the worker's jobs depend on it. The payloads of assigned jobs are added here. Those that are not
//! cached are read from the store first, and no batch has more than a few MiB of them: what is left
//! waits until the batch before has been sent.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use filch_scheduler::id::{Hold, MessageNo, Seq, SessionNo, WorkerId};
use filch_scheduler::message::{Delivery, ToWorker};
use filch_scheduler::name::Name;
use filch_scheduler::record::StoredText;

use super::payloads::Payloads;
use crate::planted::{EngineBug, planted};

/// Identifies a connection within one process of the server. The shell chooses the numbers, less
/// than 2^63; the engine uses the others for sessions over plain HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkNo(pub u64);

impl LinkNo {
    /// The number of a session over plain HTTP.
    pub(super) const fn http(number: u64) -> Self {
        Self(number | 1 << 63)
    }

    /// Whether this is the session of a worker over plain HTTP, inside the engine.
    #[must_use]
    pub const fn is_http(self) -> bool {
        self.0 >> 63 != 0
    }
}

/// What the other end of a connection may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkScope {
    /// The id of its token; `None` if no token was required.
    pub token: Option<Arc<str>>,
    /// The queues that it is limited to; all if `None`.
    pub queues: Option<Arc<[Name]>>,
    /// Whether it is a worker inside the server's process.
    pub is_embedded: bool,
}

impl LinkScope {
    /// Whether it may use this queue.
    #[must_use]
    pub fn may_use(&self, queue: &Name) -> bool {
        self.queues.as_ref().is_none_or(|queues| queues.contains(queue))
    }
}

/// Payload bytes in one batch. A single larger payload is a batch of its own.
pub(super) const BATCH_BYTES: usize = 4 << 20;

/// How many messages may wait for one link. A worker that does not read them is disconnected, and
/// reconnects.
const OUTBOX_MAX: usize = 16_384;

/// How many payloads are asked for in one go, at most.
const READ_JOBS: usize = 4_096;

pub(super) struct Link {
    pub(super) scope: LinkScope,
    /// The worker whose HTTP session is the other end, inside the engine.
    pub(super) http: Option<WorkerId>,
    /// The worker that uses it, and its session.
    pub(super) user: Option<(WorkerId, SessionNo)>,
    /// Whether the session only delivers a part of an older incarnation's reports.
    pub(super) is_partial: bool,
    /// The last batch of the session.
    number: MessageNo,
    outbox: VecDeque<ToWorker>,
    /// Payloads that were read for messages in the outbox.
    read: BTreeMap<Hold, StoredText>,
    waits_for: Option<Awaited>,
}

/// What the outbox waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    Payloads,
    Sent,
}

/// What a link does next.
#[derive(Debug)]
pub(super) enum Step {
    /// Sends this; with `tell`, it has to learn when it was sent.
    Send { delivery: Delivery, tell: bool },
    /// Reads the payloads of these jobs.
    Read(Vec<Seq>),
    /// There is nothing to do for now.
    Wait,
}

impl Link {
    pub(super) const fn new(scope: LinkScope) -> Self {
        Self {
            scope,
            http: None,
            user: None,
            is_partial: false,
            number: MessageNo(0),
            outbox: VecDeque::new(),
            read: BTreeMap::new(),
            waits_for: None,
        }
    }

    /// A link to the HTTP session of this worker.
    pub(super) fn http(scope: LinkScope, worker: WorkerId) -> Self {
        Self { http: Some(worker), ..Self::new(scope) }
    }

    /// Another session begins; messages of the one before are void.
    pub(super) fn begin(&mut self, worker: WorkerId, session: SessionNo, is_partial: bool) {
        self.user = Some((worker, session));
        self.is_partial = is_partial;
        self.number = MessageNo(0);
        self.outbox.clear();
        self.read.clear();
        self.waits_for = None;
    }

    /// Adds messages. Returns a batch to send at once, ahead of what waits, if there is one.
    pub(super) fn push(&mut self, messages: Vec<ToWorker>) -> Option<Delivery> {
        let is_renewal = |message: &ToWorker| matches!(message, ToWorker::Renewed(_));
        let goes_ahead = !planted(EngineBug::RenewalWaitsForPayloads);
        if goes_ahead && self.waits_for.is_some() && messages.iter().all(is_renewal) {
            return Some(self.batch(messages, Vec::new(), None));
        }
        self.outbox.extend(messages);
        None
    }

    /// Whether messages wait to be sent.
    pub(super) fn has_messages(&self) -> bool {
        !self.outbox.is_empty()
    }

    pub(super) fn is_overfull(&self) -> bool {
        self.outbox.len() > OUTBOX_MAX
    }

    /// What to do next. Called until it has to wait.
    pub(super) fn step(
        &mut self,
        payloads: &Payloads,
        batch_bytes: usize,
        grace: Option<Duration>,
    ) -> Step {
        if self.waits_for.is_some() || self.outbox.is_empty() {
            return Step::Wait;
        }
        let (mut messages, mut works, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut is_large = false;
        while let Some(message) = self.outbox.front_mut() {
            let ToWorker::Assign(jobs) = message else {
                messages.extend(self.outbox.pop_front());
                continue;
            };
            let mut count = 0;
            for job in &*jobs {
                let cached = || payloads.cached(job.hold.job);
                let Some(text) = self.read.remove(&job.hold).or_else(cached) else { break };
                is_large = bytes > 0 && bytes + text.len() > batch_bytes;
                is_large &= !planted(EngineBug::BatchWithoutBound);
                if is_large {
                    self.read.insert(job.hold, text);
                    break;
                }
                bytes += text.len();
                works.push((job.hold, text));
                count += 1;
            }
            if count == jobs.len() {
                messages.extend(self.outbox.pop_front());
                continue;
            }
            if count > 0 {
                let rest = jobs.split_off(count);
                messages.push(ToWorker::Assign(std::mem::replace(jobs, rest)));
            }
            break;
        }
        if messages.is_empty() {
            return self.ask(payloads);
        }
        let is_drain = messages.contains(&ToWorker::DrainNow);
        let tell = is_large && !self.outbox.is_empty();
        self.waits_for = tell.then_some(Awaited::Sent);
        let delivery = self.batch(messages, works, grace.filter(|_| is_drain));
        Step::Send { delivery, tell }
    }

    /// Asks for the payloads that the first message lacks.
    fn ask(&mut self, payloads: &Payloads) -> Step {
        let Some(ToWorker::Assign(jobs)) = self.outbox.front() else { return Step::Wait };
        let is_missing = |job: &Seq| payloads.cached(*job).is_none();
        let jobs = jobs.iter().map(|job| job.hold.job).take(READ_JOBS).take_while(is_missing);
        self.waits_for = Some(Awaited::Payloads);
        Step::Read(jobs.collect())
    }

    /// The payloads that were asked for have been read, the first of them or all. A job that was
    /// purged meanwhile does not belong to this worker any more, so any payload will do.
    pub(super) fn payloads_read(&mut self, jobs: &[Seq], mut texts: Vec<Option<StoredText>>) {
        if self.waits_for != Some(Awaited::Payloads) {
            return;
        }
        self.waits_for = None;
        let Some(ToWorker::Assign(assigned)) = self.outbox.front() else { return };
        if planted(EngineBug::PayloadOfAnotherJob) {
            texts.rotate_left(1);
        }
        for ((job, seq), text) in assigned.iter().zip(jobs).zip(texts) {
            if job.hold.job == *seq {
                self.read.insert(job.hold, text.unwrap_or_else(|| StoredText::from("{}")));
            }
        }
    }

    pub(super) fn sent(&mut self) {
        if self.waits_for == Some(Awaited::Sent) && !planted(EngineBug::SentForgotten) {
            self.waits_for = None;
        }
    }

    fn batch(
        &mut self,
        messages: Vec<ToWorker>,
        works: Vec<(Hold, StoredText)>,
        grace: Option<Duration>,
    ) -> Delivery {
        self.number = self.number.next();
        let session = self.user.map_or(SessionNo(0), |(_, session)| session);
        Delivery { session, number: self.number, messages, works, grace }
    }
}
