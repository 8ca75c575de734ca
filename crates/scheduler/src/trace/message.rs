//! The text form of the messages between workers and the server.

use super::text::{Read, Reader, Words, Writer, id_word, read_id, words};
use crate::id::{CommitNo, Fence, Hold, Seq};
use crate::message::{
    Again, Assignment, Ending, FromWorker, Hello, HelloKind, Placement, Report, Serves, StartMode,
    Suspects, ToWorker,
};
use crate::name::Name;

words!(FromWorker {
    Hello { 0: hello } = ["hello" hello],
    Heartbeat {} = ["heartbeat"],
    Want { 0: ceiling } = ["want" ceiling],
    Start { 0: hold } = ["start" hold],
    Started { 0: hold } = ["started" hold],
    Report { 0: report } = ["report" report],
    Given { question: question, jobs: jobs } = ["give" question jobs],
    Stopping { 0: hold } = ["stopping" hold],
    Progress { hold: hold, percent: percent } = ["progress" hold percent],
    Drain {} = ["drain"],
    Goodbye {} = ["goodbye"],
});

words!(ToWorker {
    Reconcile { lease: lease, keep: keep } = ["reconcile" "lease" lease "keep" keep],
    Assign { 0: assignments } = ["assign" assignments],
    AskToGive {
        question: question, most: most, most_bound: most_bound, suspects: suspects, serves: serves
    } = ["ask-to-give" question "most" most "bound" most_bound "suspects" suspects "serves" serves],
    StartGranted { 0: hold } = ["start-granted" hold],
    Cancel { 0: hold } = ["cancel" hold],
    DrainNow {} = ["drain-now"],
    Renewed { 0: number } = ["renewed" number],
    Accepted { 0: holds } = ["accepted" holds],
    Refused { hold: hold, current: current } = ["refused" hold "current" current],
    Gone {} = ["gone"],
});

words!(Ending {
    Finished {} = ["finished"],
    Failed { again: again, error: error } = ["failed" again error],
    Snoozed { 0: wait } = ["snoozed" wait],
    Interrupted {} = ["interrupted"],
    Unstarted { 0: error } = ["unstarted" error],
    Dropped {} = ["dropped"],
    Stopped {} = ["stopped"],
});

words!(Again {
    ByPolicy {} = ["again"],
    Never {} = ["for-good"],
});

words!(Suspects {
    Move {} = ["move"],
    Stay {} = ["stay"],
});

words!(StartMode {
    Freely {} = ["freely"],
    Confirmed {} = ["confirmed"],
});

words!(Placement {
    Anywhere {} = ["anywhere"],
    FreeSlot {} = ["free-slot"],
});

/// `new`, `new replacing w1`, `new reporting-for w1` or `resume`.
impl Words for HelloKind {
    fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Self::New => writer.word("new"),
            Self::Replace(older) => {
                writer.word("new");
                writer.word("replacing");
                older.write(writer);
            }
            Self::ReportFor(older) => {
                writer.word("new");
                writer.word("reporting-for");
                older.write(writer);
            }
            Self::Resume => writer.word("resume"),
        }
    }
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        if reader.take_word("resume") {
            return Ok(Self::Resume);
        }
        reader.expect_word("new")?;
        if reader.take_word("replacing") {
            return Ok(Self::Replace(Words::read(reader)?));
        }
        if reader.take_word("reporting-for") {
            return Ok(Self::ReportFor(Words::read(reader)?));
        }
        Ok(Self::New)
    }
}

/// `all`, or the queues' names in brackets.
impl Words for Serves {
    fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Self::All => writer.word("all"),
            Self::Named(names) => {
                writer.mark('[');
                for name in names {
                    name.write(writer);
                }
                writer.mark(']');
            }
        }
    }
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        if reader.take_word("all") {
            return Ok(Self::All);
        }
        reader.expect_mark('[')?;
        let mut names = alloc::vec::Vec::new();
        while !reader.take_mark(']') {
            names.push(Name::read(reader)?);
        }
        Ok(Self::Named(names))
    }
}

/// `a.1 finished`.
impl Words for Report {
    fn write(&self, writer: &mut Writer<'_>) {
        self.hold.write(writer);
        self.ending.write(writer);
        writer.field("result", &self.result, &None);
        writer.field("log", &self.log, &None);
    }
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let mut report = Self::plain(Hold::read(reader)?, Ending::read(reader)?);
        reader.field("result", &mut report.result)?;
        reader.field("log", &mut report.log)?;
        Ok(report)
    }
}

/// `new slots 2 want 4`, and the optional fields.
impl Words for Hello {
    fn write(&self, writer: &mut Writer<'_>) {
        self.kind.write(writer);
        writer.word("slots");
        self.slots.write(writer);
        writer.word("want");
        self.want.write(writer);
        writer.field("serves", &self.serves, &Serves::All);
        writer.field("reports", &self.reports, &alloc::vec::Vec::new());
        writer.field("started", &self.started, &alloc::vec::Vec::new());
        writer.field("holds", &self.holds, &alloc::vec::Vec::new());
    }
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let kind = HelloKind::read(reader)?;
        reader.expect_word("slots")?;
        let slots = u32::read(reader)?;
        reader.expect_word("want")?;
        let want = u32::read(reader)?;
        let mut hello = Self {
            kind,
            slots,
            want,
            serves: Serves::All,
            reports: alloc::vec::Vec::new(),
            started: alloc::vec::Vec::new(),
            holds: alloc::vec::Vec::new(),
        };
        reader.field("serves", &mut hello.serves)?;
        reader.field("reports", &mut hello.reports)?;
        reader.field("started", &mut hello.started)?;
        reader.field("holds", &mut hello.holds)?;
        Ok(hello)
    }
}

/// `a.1`, and the fields that differ from the default. A job that is new to the trace is `a=#1.1`.
impl Words for Assignment {
    fn write(&self, writer: &mut Writer<'_>) {
        if writer.known.id_of(self.hold.job) == Some(self.id) {
            self.hold.write(writer);
        } else {
            let Hold { job, fence } = self.hold;
            writer.word(&alloc::format!("{}=#{}.{}", id_word(self.id), job.0, fence.0));
        }
        writer.field("queue", &self.queue, &"default".into());
        writer.field("kind", &self.kind, &"default".into());
        writer.field("era", &self.era, &CommitNo(0));
        writer.field("rank", &self.rank, &0);
        writer.field("attempt", &self.attempt, &1);
        writer.field("start", &self.start, &StartMode::Freely);
        writer.field("into", &self.place, &Placement::Anywhere);
        writer.field("timeout", &self.timeout, &None);
    }
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let error = reader.wanted("a job such as `a.1` or `a=#1.1`");
        let word = reader.word("a job")?;
        let (hold, id) = match word.split_once('=') {
            Some((id, hold)) => read_new(id, hold).ok_or(error)?,
            None => {
                let (name, fence) = word.rsplit_once('.').ok_or_else(|| error.clone())?;
                let id = read_id(name).ok_or_else(|| error.clone())?;
                let fence = fence.parse().map_err(|_| error.clone())?;
                let job = reader.known.seq_of(id).ok_or(error)?;
                (Hold { job, fence: Fence(fence) }, id)
            }
        };
        let mut assignment = Self {
            hold,
            id,
            queue: "default".into(),
            kind: "default".into(),
            era: CommitNo(0),
            rank: 0,
            attempt: 1,
            start: StartMode::Freely,
            place: Placement::Anywhere,
            timeout: None,
        };
        reader.field("queue", &mut assignment.queue)?;
        reader.field("kind", &mut assignment.kind)?;
        reader.field("era", &mut assignment.era)?;
        reader.field("rank", &mut assignment.rank)?;
        reader.field("attempt", &mut assignment.attempt)?;
        reader.field("start", &mut assignment.start)?;
        reader.field("into", &mut assignment.place)?;
        reader.field("timeout", &mut assignment.timeout)?;
        Ok(assignment)
    }
}

fn read_new(id: &str, hold: &str) -> Option<(Hold, crate::id::JobId)> {
    let (job, fence) = hold.strip_prefix('#')?.split_once('.')?;
    let hold = Hold { job: Seq(job.parse().ok()?), fence: Fence(fence.parse().ok()?) };
    Some((hold, read_id(id)?))
}
