//! The text form of the events, effects and explanations of `dispatch`.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::Context;
use super::text::{Read, Reader, Words, Writer, read_worker, words, worker_word};
use crate::dispatch::{
    Ahead, Answer, Bound, DispatchEffect, DispatchEvent, Novelty, Parent, QueueChange, Refused,
    Request, Steal, Submitted, Why,
};
use crate::id::{CommitNo, JobId, MessageNo, RequestNo, Seq, SessionNo, WorkerId};
use crate::message::{FromWorker, ToWorker};
use crate::name::Name;
use crate::record::Mutation;

words!(Request {
    Submit { 0: jobs } = ["submit" jobs],
    SubmitWithin { queues: queues, jobs: jobs } = ["submit-within" queues jobs],
    Cancel { 0: job } = ["cancel" job],
    Retry { 0: job } = ["retry" job],
    SetPriority { job: job, priority: priority } = ["set-priority" job priority],
    SetQueue { queue: queue, change: change } = ["set-queue" queue change],
    SetStrategy { 0: strategy } = ["set-strategy" strategy],
    DrainWorker { 0: worker } = ["drain-worker" worker],
});

words!(Steal {
    Half {} = ["half"],
    One {} = ["one"],
    Never {} = ["never"],
});

words!(QueueChange {
    Pause {} = ["pause"],
    Resume {} = ["resume"],
    Limit { 0: limit } = ["limit" limit],
    Weight { 0: weight } = ["weight" weight],
});

words!(Answer {
    Submitted { 0: jobs } = ["submitted" jobs],
    Done {} = ["done"],
    Refused { 0: refused } = ["refused" refused],
});

words!(Novelty {
    New {} = ["new"],
    Known {} = ["known"],
});

words!(Refused {
    UnknownJob { 0: job } = ["unknown-job" job],
    UnknownWorker { 0: worker } = ["unknown-worker" worker],
    IdConflict { 0: job } = ["id-conflict" job],
    KeyConflict { key: key, holder: holder } = ["key-conflict" key "of" holder],
    Cycle { 0: path } = ["cycle" path],
    OwnParent { 0: job } = ["own-parent" job],
    ParentTwice { child: child, parent: parent } = ["parent-twice" child "after" parent],
    UnknownParent { child: child, parent: parent } = ["unknown-parent" child "after" parent],
    WrongState { job: job, state: state } = ["wrong-state" job "is" state],
    OutOfBounds { what: what, asked: asked, bound: bound } =
        ["out-of-bounds" what asked "bound" bound],
    Busy {} = ["busy"],
});

words!(Bound {
    Jobs {} = ["jobs"],
    Edges {} = ["edges"],
    LiveJobs {} = ["live-jobs"],
    NameBytes {} = ["name-bytes"],
    Attempts {} = ["attempts"],
    Weight {} = ["weight"],
    Queues {} = ["queues"],
});

words!(Why {
    Blocked { condition: condition, waiting_for: waiting_for, pending: pending, held: held } =
        ["blocked" "until" condition "pending" pending "held" held "parents" waiting_for],
    NotBefore { due: due, attempts: attempts } = ["not-before" due "charged" attempts],
    Queued { queue: queue, paused: paused, limit: limit, ahead: ahead, workers: workers } =
        ["queued" "in" queue "paused" paused "limit" limit "ahead" ahead "workers" workers],
    Owned { worker: worker, since: since, started: started, connected: connected } =
        ["owned" "by" worker "since" since "started" started "connected" connected],
    Ended { state: state, held_by: held_by } = ["ended" state "held-by" held_by],
});

words!(Ahead {
    Exactly { 0: count } = ["exactly" count],
    AtLeast { 0: count } = ["at-least" count],
});

impl Words for bool {
    const ONE_WORD: bool = true;
    fn write(&self, writer: &mut Writer<'_>) {
        writer.word(if *self { "yes" } else { "no" });
    }
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let is_yes = reader.take_word("yes");
        if !is_yes {
            reader.expect_word("no")?;
        }
        Ok(is_yes)
    }
}

/// `3 of 4`.
impl Words for (u32, u32) {
    fn write(&self, writer: &mut Writer<'_>) {
        self.0.write(writer);
        writer.word("of");
        self.1.write(writer);
    }
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let used = u32::read(reader)?;
        reader.expect_word("of")?;
        Ok((used, u32::read(reader)?))
    }
}

impl Words for Parent {
    fn write(&self, writer: &mut Writer<'_>) {
        self.id.write(writer);
        self.state.write(writer);
    }
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        Ok(Self { id: Words::read(reader)?, state: Words::read(reader)? })
    }
}

/// `a #1 new`.
impl Words for Submitted {
    fn write(&self, writer: &mut Writer<'_>) {
        self.id.write(writer);
        writer.word(&format!("#{}", self.seq.0));
        self.novelty.write(writer);
    }
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        Ok(Self {
            id: Words::read(reader)?,
            seq: Words::read(reader)?,
            novelty: Words::read(reader)?,
        })
    }
}

/// `#1 a`: a number and an id that need not belong together for the trace.
impl Words for (Seq, JobId) {
    fn write(&self, writer: &mut Writer<'_>) {
        writer.word(&format!("#{}", self.0.0));
        self.1.write(writer);
    }
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        Ok((Words::read(reader)?, Words::read(reader)?))
    }
}

/// `w1`, `w1/2` or `w1/2#7`: a worker, its session if it is not the expected one, and the number of
/// a batch likewise.
fn speaker_word(
    worker: WorkerId,
    session: SessionNo,
    number: MessageNo,
    expected: (SessionNo, MessageNo),
) -> String {
    let worker = worker_word(worker);
    if (session, number) == expected {
        worker
    } else {
        format!("{worker}/{}#{}", session.0, number.0)
    }
}

/// A worker, with session and number if the word has them.
fn read_speaker(word: &str) -> Option<(WorkerId, Option<(SessionNo, MessageNo)>)> {
    let Some((worker, rest)) = word.split_once('/') else {
        return Some((read_worker(word)?, None));
    };
    Some((read_worker(worker)?, Some(read_numbers(rest)?)))
}

/// `2#7`: session 2, batch 7.
pub(super) fn read_numbers(word: &str) -> Option<(SessionNo, MessageNo)> {
    let (session, number) = word.split_once('#')?;
    Some((SessionNo(session.parse().ok()?), MessageNo(number.parse().ok()?)))
}

/// `w1`, or `w1/2` if that is not the worker's current session.
fn listener_word(worker: WorkerId, session: SessionNo, context: &Context) -> String {
    let word = worker_word(worker);
    if context.session_of(worker) == Some(session) { word } else { format!("{word}/{}", session.0) }
}

fn read_listener(reader: &mut Reader<'_>) -> Read<(WorkerId, SessionNo)> {
    let wanted = reader.wanted("a worker such as `w1` or `w1/2`");
    let word = reader.word("a worker")?;
    let listener = match word.split_once('/') {
        Some((worker, session)) => read_worker(worker).zip(session.parse().ok().map(SessionNo)),
        None => read_worker(&word)
            .and_then(|worker| Some((worker, reader.known.before.session_of(worker)?))),
    };
    listener.ok_or(wanted)
}

impl Words for DispatchEvent {
    fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Request { from, by, request } => {
                write_asker(*from, writer);
                if let Some(by) = by {
                    writer.word("by");
                    by.write(writer);
                }
                request.write(writer);
            }
            Self::Worker { worker, session, number, messages } => {
                let is_hello = matches!(messages.first(), Some(FromWorker::Hello(_)));
                let expected = writer.known.before.expected(*worker, is_hello);
                writer.word(&speaker_word(*worker, *session, *number, expected));
                writer.mark(':');
                writer.list(messages, ',');
            }
            Self::Closed { worker, session } => {
                writer.word("closed");
                let word = listener_word(*worker, *session, writer.known.before);
                writer.word(&word);
            }
            Self::Fetched { fetch, found } => {
                writer.word("fetched");
                fetch.write(writer);
                found.write(writer);
            }
            Self::Expired(jobs) => {
                writer.word("expired");
                jobs.write(writer);
            }
            Self::Outdated { leases, notes_before } => {
                writer.word("outdated");
                leases.write(writer);
                writer.word("notes-before");
                notes_before.write(writer);
            }
            Self::Committed(number) => {
                writer.word("committed");
                number.write(writer);
            }
            Self::Tick => writer.word("tick"),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        if reader.take_word("tick") {
            return Ok(Self::Tick);
        }
        if reader.take_word("committed") {
            return Ok(Self::Committed(Words::read(reader)?));
        }
        if reader.take_word("expired") {
            return Ok(Self::Expired(Words::read(reader)?));
        }
        if reader.take_word("outdated") {
            let leases = Words::read(reader)?;
            reader.expect_word("notes-before")?;
            return Ok(Self::Outdated { leases, notes_before: Words::read(reader)? });
        }
        if reader.take_word("fetched") {
            return Ok(Self::Fetched { fetch: Words::read(reader)?, found: Words::read(reader)? });
        }
        if reader.take_word("closed") {
            let (worker, session) = read_listener(reader)?;
            return Ok(Self::Closed { worker, session });
        }
        let speaker = reader.peek_word().and_then(read_speaker);
        if let Some((worker, numbers)) = speaker {
            reader.word("a worker")?;
            reader.expect_mark(':')?;
            let messages: Vec<FromWorker> = reader.list(',')?;
            let is_hello = matches!(messages.first(), Some(FromWorker::Hello(_)));
            let (session, number) =
                numbers.unwrap_or_else(|| reader.known.before.expected(worker, is_hello));
            return Ok(Self::Worker { worker, session, number, messages });
        }
        let from = read_asker(reader)?;
        let by = reader.take_word("by").then(|| Name::read(reader)).transpose()?;
        Ok(Self::Request { from, by, request: Request::read(reader)? })
    }
}

/// The request: `r7`, or nothing for request 0 in a trace that has only one at a time.
fn write_asker(asker: RequestNo, writer: &mut Writer<'_>) {
    if asker != RequestNo(0) {
        asker.write(writer);
    }
}

fn read_asker(reader: &mut Reader<'_>) -> Read<RequestNo> {
    let is_asker = |word: &str| word.strip_prefix('r').is_some_and(|n| n.parse::<u64>().is_ok());
    match reader.peek_word().is_some_and(is_asker) {
        true => RequestNo::read(reader),
        false => Ok(RequestNo(0)),
    }
}

fn write_after(after: Option<CommitNo>, writer: &mut Writer<'_>) {
    if let Some(after) = after {
        writer.word("after");
        after.write(writer);
    }
}

impl Words for DispatchEffect {
    fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Self::Commit { number, mutations } => {
                writer.word("commit");
                number.write(writer);
                writer.mark(':');
                writer.list(mutations, ',');
            }
            Self::Fetch { fetch, ids, keys, seqs } => {
                writer.word("fetch");
                fetch.write(writer);
                writer.field("ids", ids, &Vec::new());
                writer.field("keys", keys, &Vec::new());
                writer.field("seqs", seqs, &Vec::new());
            }
            Self::Send { after, worker, session, messages } => {
                write_after(*after, writer);
                writer.word("tell");
                let word = listener_word(*worker, *session, writer.known.before);
                writer.word(&word);
                writer.mark(':');
                writer.list(messages, ',');
            }
            Self::Reply { after, to, answer } => {
                write_after(*after, writer);
                writer.word("reply");
                write_asker(*to, writer);
                answer.write(writer);
            }
            Self::HangUp { worker, session } => {
                writer.word("hang-up");
                let word = listener_word(*worker, *session, writer.known.before);
                writer.word(&word);
            }
        }
    }

    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        if reader.take_word("commit") {
            let number = Words::read(reader)?;
            reader.expect_mark(':')?;
            let mutations: Vec<Mutation> = reader.list(',')?;
            return Ok(Self::Commit { number, mutations });
        }
        if reader.take_word("fetch") {
            let fetch = Words::read(reader)?;
            let (mut ids, mut keys, mut seqs) = (Vec::new(), Vec::new(), Vec::new());
            reader.field("ids", &mut ids)?;
            reader.field("keys", &mut keys)?;
            reader.field("seqs", &mut seqs)?;
            return Ok(Self::Fetch { fetch, ids, keys, seqs });
        }
        if reader.take_word("hang-up") {
            let (worker, session) = read_listener(reader)?;
            return Ok(Self::HangUp { worker, session });
        }
        let after = match reader.take_word("after") {
            true => Some(CommitNo::read(reader)?),
            false => None,
        };
        if reader.take_word("tell") {
            let (worker, session) = read_listener(reader)?;
            reader.expect_mark(':')?;
            let messages: Vec<ToWorker> = reader.list(',')?;
            return Ok(Self::Send { after, worker, session, messages });
        }
        reader.expect_word("reply")?;
        let to = read_asker(reader)?;
        Ok(Self::Reply { after, to, answer: Words::read(reader)? })
    }
}
