//! The text form of events and effects: tests are written in it, the simulator prints it, replays
//! read it, documents quote it.
//!
//! A line of a trace is a moment and an event; its effects follow, one per line:
//!
//! ```text
//! 0s   submit a
//!   -> commit 1: put #1 at 0s: a: queued
//!   -> after 1 reply submitted a #1 new
//! 0s   w1: hello new slots 1 want 1
//!   -> commit 2: lease 1 w1 claimed a.1 at 0s
//!   -> tell w1: renewed 1
//!   -> after 2 tell w1: reconcile lease 10s keep [], assign a.1
//! ```
//!
//! `a.1` is job `a` under fence 1. Facts that follow from earlier lines may be left out: the number
//! of a job's row (`#1`), the session and batch number of a worker (`w1/1#2`), the wall clock while
//! it runs with the other. [`Context`] is what the earlier lines have established. Writing and
//! reading again gives the same value, whatever the context, as long as both use the same one.

mod message;
mod record;
mod server;
mod text;
mod worker;

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

pub use self::text::TraceError;
use self::text::{Reader, Words, Writer};
use crate::agent;
use crate::dispatch;
use crate::id::{JobId, MessageNo, Seq, SessionNo, WorkerId};
use crate::message::{FromWorker, ToWorker};
use crate::record::{Loaded, Mutation};
use crate::time::{Monotonic, Now, Wall};

/// What the earlier lines of a trace have established, so that the next need not repeat it.
#[derive(Clone, Default, Debug)]
pub struct Context {
    ids: BTreeMap<Seq, JobId>,
    seqs: BTreeMap<JobId, Seq>,
    /// The last session and batch number of each worker.
    workers: BTreeMap<WorkerId, (SessionNo, MessageNo)>,
    /// The agent's current incarnation.
    speaker: Option<WorkerId>,
    /// The last batch number from the server in the current session of an agent.
    server: (SessionNo, MessageNo),
    /// How far the wall clock is ahead, in milliseconds.
    wall_ahead: i128,
}

impl Context {
    fn id_of(&self, seq: Seq) -> Option<JobId> {
        self.ids.get(&seq).copied()
    }

    fn seq_of(&self, id: JobId) -> Option<Seq> {
        self.seqs.get(&id).copied()
    }

    fn session_of(&self, worker: WorkerId) -> Option<SessionNo> {
        self.workers.get(&worker).map(|&(session, _)| session)
    }

    /// The numbers that the next batch of this worker has if nothing went wrong.
    fn expected(&self, worker: WorkerId, is_hello: bool) -> (SessionNo, MessageNo) {
        let (session, number) = self.workers.get(&worker).copied().unwrap_or_default();
        if is_hello {
            (SessionNo(session.0.saturating_add(1)), MessageNo(1))
        } else {
            (session, after(number))
        }
    }

    const fn expected_of_server(&self) -> (SessionNo, MessageNo) {
        (self.server.0, after(self.server.1))
    }

    fn meet(&mut self, seq: Seq, id: JobId) {
        // Both directions or neither, so that a name means one number and vice versa.
        if !self.ids.contains_key(&seq) && !self.seqs.contains_key(&id) {
            self.ids.insert(seq, id);
            self.seqs.insert(id, seq);
        }
    }

    fn hear(&mut self, worker: WorkerId, session: SessionNo, number: MessageNo) {
        let known = self.workers.entry(worker).or_insert((session, number));
        *known = (*known).max((session, number));
    }

    fn meet_assigned(&mut self, messages: &[ToWorker]) {
        for message in messages {
            if let ToWorker::Assign(assignments) = message {
                for assignment in assignments {
                    self.meet(assignment.hold.job, assignment.id);
                }
            }
        }
    }
}

/// Numbers in a text can be anything, so they must not panic at the end of 64 bits.
const fn after(number: MessageNo) -> MessageNo {
    MessageNo(number.0.saturating_add(1))
}

/// A type that has a text form in a trace. Cannot be implemented elsewhere.
pub trait Readable: Sized + sealed::Sealed {}

impl<T: Words> Readable for T {}

/// What a trace is made of, line by line.
pub trait Traced: Readable {
    /// Remembers what later lines may leave out.
    fn learn(&self, context: &mut Context);
}

mod sealed {
    /// Only types that have a text form are readable.
    pub trait Sealed: Sized {
        fn print(&self, context: &super::Context) -> alloc::string::String;
        fn parse(line: &str, context: &super::Context) -> Result<Self, super::TraceError>;
    }
}

impl<T: Words> sealed::Sealed for T {
    fn print(&self, context: &Context) -> String {
        let mut writer = Writer::new(context);
        self.write(&mut writer);
        writer.finish()
    }

    fn parse(line: &str, context: &Context) -> Result<Self, TraceError> {
        let mut reader = Reader::new(line, context)?;
        let value = Self::read(&mut reader)?;
        reader.expect_end()?;
        Ok(value)
    }
}

/// The text form of `value` in a trace.
pub fn print<T: Readable>(value: &T, context: &Context) -> String {
    value.print(context)
}

/// Reads what [`print`] has written.
///
/// # Errors
/// Names what was expected and what was found.
pub fn parse<T: Readable>(line: &str, context: &Context) -> Result<T, TraceError> {
    T::parse(line, context)
}

impl Traced for dispatch::DispatchEvent {
    fn learn(&self, context: &mut Context) {
        match self {
            Self::Worker { worker, session, number, .. } => {
                context.hear(*worker, *session, *number);
            }
            Self::Fetched { found, .. } => {
                for row in found {
                    context.meet(row.seq, row.spec.id);
                }
            }
            _ => {}
        }
    }
}

impl Traced for dispatch::DispatchEffect {
    fn learn(&self, context: &mut Context) {
        if let Self::Commit { mutations, .. } = self {
            for mutation in mutations {
                if let Mutation::Put(row) = mutation {
                    context.meet(row.seq, row.spec.id);
                }
            }
        }
    }
}

impl Traced for Loaded {
    fn learn(&self, context: &mut Context) {
        if let Self::Job(row) = self {
            context.meet(row.seq, row.spec.id);
        }
    }
}

impl Traced for agent::AgentEvent {
    fn learn(&self, context: &mut Context) {
        if let Self::Received { session, number, messages } = self {
            context.server = context.server.max((*session, *number));
            context.meet_assigned(messages);
        }
    }
}

impl Traced for agent::AgentEffect {
    fn learn(&self, context: &mut Context) {
        if let Self::Send { worker, session, number, messages } = self {
            context.hear(*worker, *session, *number);
            context.speaker = Some(*worker);
            if matches!(messages.first(), Some(FromWorker::Hello(_))) {
                context.server = (*session, MessageNo(0));
            }
        }
    }
}

/// The moment of a line, and the rest of it. The wall clock is written only when it has moved
/// against the other: `5s/20s tick`.
#[must_use]
pub fn print_line(now: Now, rest: &str, context: &mut Context) -> String {
    let ahead = wall_ahead(now);
    let moment = print(&now.monotonic, context);
    let moment = if ahead == context.wall_ahead {
        moment
    } else {
        format!("{moment}/{}", print(&now.wall, context))
    };
    context.wall_ahead = ahead;
    format!("{moment:<5} {rest}")
}

/// Takes apart what [`print_line`] has written.
///
/// # Errors
/// If the line does not begin with a moment; the error shows an example.
pub fn parse_line<'a>(line: &'a str, context: &mut Context) -> Result<(Now, &'a str), TraceError> {
    let line = line.trim();
    let (moment, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let (monotonic, wall) = match moment.split_once('/') {
        Some((monotonic, wall)) => (monotonic, Some(parse::<Wall>(wall, context)?)),
        None => (moment, None),
    };
    let monotonic: Monotonic = parse(monotonic, context)?;
    let wall = wall.unwrap_or_else(|| {
        let wall = i128::from(monotonic.0 / 1_000) + context.wall_ahead;
        Wall(u64::try_from(wall.max(0)).unwrap_or(u64::MAX))
    });
    let now = Now { monotonic, wall };
    context.wall_ahead = wall_ahead(now);
    Ok((now, rest.trim()))
}

fn wall_ahead(now: Now) -> i128 {
    i128::from(now.wall.0) - i128::from(now.monotonic.0 / 1_000)
}
