//! The text form of submitted and stored data.

use alloc::vec::Vec;

use super::text::{Read, Reader, Words, Writer, words};
use crate::id::{Fence, JobId, Seq, WorkerId};
use crate::name::Name;
use crate::record::{
    AttemptOutcome, AttemptOutput, JobRow, JobWrite, LastReport, LeaseCause, LeaseRow, Loaded,
    Mutation, Note, OperatorAct, QueueSettings, Reason, ReportKind, Strategy,
};
use crate::spec::{Backoff, Condition, JobSpec, Otherwise, QueueKey, Retry};
use crate::state::JobState;
use crate::time::Wall;

words!(Mutation {
    Put { 0: row } = ["put" row],
    Write { 0: write } = ["write" write],
    Priority { job: job, priority: priority } = ["priority" job priority],
    Lease { 0: row } = ["lease" row],
    Close { 0: row } = ["close" row],
    Queue { 0: settings } = ["queue" settings],
    Strategy { 0: strategy } = ["strategy" strategy],
    LeaseLength { 0: lease } = ["lease-length" lease],
    Purge { 0: jobs } = ["purge" jobs],
    Trim { leases: leases, notes_before: moment } = ["trim" leases "notes-before" moment],
    Note { 0: note } = ["note" note],
    Output { 0: output } = ["output" output],
});

words!(Note {
    WorkerLost { worker: worker, jobs: jobs } = ["lost" worker "with" jobs],
    Attempt { hold: hold, worker: worker, outcome: outcome } = ["attempt" hold "by" worker outcome],
    Act { by: by, act: act } = ["act" act "by" by],
});

words!(OperatorAct {
    Cancel { 0: job } = ["cancel" job],
    Retry { 0: job } = ["retry" job],
    SetPriority { job: job, priority: priority } = ["set-priority" job priority],
    SetQueue { queue: queue, change: change } = ["set-queue" queue change],
    SetStrategy { 0: strategy } = ["set-strategy" strategy],
    DrainWorker { 0: worker } = ["drain-worker" worker],
    CreateToken { 0: token } = ["create-token" token],
    RevokeToken { 0: token } = ["revoke-token" token],
});

words!(AttemptOutcome {
    Failed { 0: error } = ["failed" error],
    Snoozed {} = ["snoozed"],
    Interrupted {} = ["interrupted"],
    Unstarted { 0: error } = ["unstarted" error],
    LostAlone {} = ["lost-alone"],
    LostAmongOthers {} = ["lost-among-others"],
});

words!(LeaseCause {
    Claim {} = ["claimed"],
    Steal { 0: victim } = ["stolen-from" victim],
    Lost { 0: worker } = ["lost-by" worker],
    Returned { 0: worker } = ["returned-by" worker],
});

words!(Reason {
    Request {} = ["request"],
    Condition {} = ["condition"],
    Failed {} = ["failed"],
    WorkerLost {} = ["worker-lost"],
});

words!(ReportKind {
    Finished {} = ["finished"],
    Failed {} = ["failed"],
    Snoozed {} = ["snoozed"],
});

words!(Strategy {
    Fifo {} = ["fifo"],
    Priority { aging: aging } = ["priority" aging],
    RoundRobin {} = ["round-robin"],
    Fair {} = ["fair"],
});

words!(Condition {
    AllSucceeded {} = ["all-succeeded"],
    AnySucceeded {} = ["any-succeeded"],
    AllDone {} = ["all-done"],
    AnyFailed {} = ["any-failed"],
});

words!(Otherwise {
    Cancel {} = ["cancel"],
    Hold {} = ["hold"],
    Run {} = ["run"],
});

words!(Backoff {
    None {} = ["none"],
    Fixed { 0: wait } = ["fixed" wait],
    Exponential { base: base, factor_percent: factor, cap: cap } =
        ["exponential" base "percent" factor "cap" cap],
});

words!(Loaded {
    Numbers { commit: commit, seq: seq, lease: lease, newest_id: newest } =
        ["numbers" "commit" commit "job" seq "lease" lease "newest" newest],
    FormerOwner { renews_for: span } = ["former-owner" "renews-for" span],
    Strategy { 0: strategy } = ["strategy" strategy],
    LeaseLength { 0: lease } = ["lease-length" lease],
    Queue { 0: settings } = ["queue" settings],
    Job { 0: row } = ["job" row],
    Lease { 0: row } = ["lease" row],
});

impl Words for JobState {
    const ONE_WORD: bool = true;
    fn write(&self, writer: &mut Writer<'_>) {
        writer.word(Self::word(*self));
    }
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let wanted = reader.wanted("a state");
        Self::of_word(&reader.word("a state")?).ok_or(wanted)
    }
}

/// `a`, and the fields that differ from the default.
impl Words for QueueKey {
    fn write(&self, writer: &mut Writer<'_>) {
        self.queue.write(writer);
        self.key.write(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        Ok(Self { queue: Words::read(reader)?, key: Words::read(reader)? })
    }
}

impl Words for JobSpec {
    fn write(&self, writer: &mut Writer<'_>) {
        let usual = Self::new(self.id);
        self.id.write(writer);
        writer.field("body", &self.body, &usual.body);
        writer.field("key", &self.key, &usual.key);
        writer.field("queue", &self.queue, &usual.queue);
        writer.field("kind", &self.kind, &usual.kind);
        writer.field("priority", &self.priority, &usual.priority);
        writer.field("after", &self.parents, &usual.parents);
        writer.field("when", &self.condition, &usual.condition);
        writer.field("else", &self.otherwise, &usual.otherwise);
        writer.field("not-before", &self.not_before, &usual.not_before);
        writer.field("attempts", &self.retry.max, &usual.retry.max);
        writer.field("backoff", &self.retry.backoff, &usual.retry.backoff);
        writer.field("jitter", &self.retry.jitter_percent, &usual.retry.jitter_percent);
        writer.field("timeout", &self.timeout, &usual.timeout);
        writer.field("payload", &self.payload, &usual.payload);
    }
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let mut spec = Self::new(JobId::read(reader)?);
        let Retry { max, backoff, jitter_percent } = &mut spec.retry;
        reader.field("body", &mut spec.body)?;
        reader.field("key", &mut spec.key)?;
        reader.field("queue", &mut spec.queue)?;
        reader.field("kind", &mut spec.kind)?;
        reader.field("priority", &mut spec.priority)?;
        reader.field("after", &mut spec.parents)?;
        reader.field("when", &mut spec.condition)?;
        reader.field("else", &mut spec.otherwise)?;
        reader.field("not-before", &mut spec.not_before)?;
        reader.field("attempts", max)?;
        reader.field("backoff", backoff)?;
        reader.field("jitter", jitter_percent)?;
        reader.field("timeout", &mut spec.timeout)?;
        reader.field("payload", &mut spec.payload)?;
        Ok(spec)
    }
}

/// `#1 at 5s: a queue mail: queued`: number and time, what was submitted, and its current state.
impl Words for JobRow {
    fn write(&self, writer: &mut Writer<'_>) {
        writer.word(&alloc::format!("#{}", self.seq.0));
        writer.word("at");
        self.submitted_at.write(writer);
        writer.mark(':');
        self.spec.write(writer);
        writer.mark(':');
        write_changes(&self.now, &self.unchanged(), writer);
        writer.known.meet(self.seq, self.spec.id);
    }
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let seq = Seq::read(reader)?;
        reader.expect_word("at")?;
        let submitted_at = Wall::read(reader)?;
        reader.expect_mark(':')?;
        let spec = JobSpec::read(reader)?;
        reader.expect_mark(':')?;
        let mut row = Self { seq, now: blank(seq), spec, submitted_at };
        row.now = read_changes(row.unchanged(), reader)?;
        reader.known.meet(seq, row.spec.id);
        Ok(row)
    }
}

impl JobRow {
    /// The changing part of the job, as it was when submitted.
    fn unchanged(&self) -> JobWrite {
        JobWrite {
            priority: self.spec.priority,
            due: self.spec.not_before.unwrap_or_default(),
            at: self.submitted_at,
            ..blank(self.seq)
        }
    }
}

/// A job to which nothing has happened.
const fn blank(seq: Seq) -> JobWrite {
    JobWrite {
        job: seq,
        state: JobState::Queued,
        fence: Fence(0),
        attempts: 0,
        suspicions: 0,
        priority: 0,
        due: Wall(0),
        holder: None::<WorkerId>,
        last: None::<LastReport>,
        reason: None::<Reason>,
        at: Wall(0),
    }
}

fn write_changes(now: &JobWrite, before: &JobWrite, writer: &mut Writer<'_>) {
    now.state.write(writer);
    writer.field("fence", &now.fence, &before.fence);
    writer.field("charged", &now.attempts, &before.attempts);
    writer.field("suspicions", &now.suspicions, &before.suspicions);
    writer.field("priority", &now.priority, &before.priority);
    writer.field("due", &now.due, &before.due);
    writer.field("held-by", &now.holder, &before.holder);
    writer.field("reported", &now.last, &before.last);
    writer.field("because", &now.reason, &before.reason);
    writer.field("written", &now.at, &before.at);
}

fn read_changes(before: JobWrite, reader: &mut Reader<'_>) -> Read<JobWrite> {
    let mut now = JobWrite { state: JobState::read(reader)?, ..before };
    reader.field("fence", &mut now.fence)?;
    reader.field("charged", &mut now.attempts)?;
    reader.field("suspicions", &mut now.suspicions)?;
    reader.field("priority", &mut now.priority)?;
    reader.field("due", &mut now.due)?;
    reader.field("held-by", &mut now.holder)?;
    reader.field("reported", &mut now.last)?;
    reader.field("because", &mut now.reason)?;
    reader.field("written", &mut now.at)?;
    Ok(now)
}

/// `a succeeded fence 1 written 5s`.
impl Words for JobWrite {
    fn write(&self, writer: &mut Writer<'_>) {
        self.job.write(writer);
        write_changes(self, &blank(self.job), writer);
    }
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let job = Seq::read(reader)?;
        read_changes(blank(job), reader)
    }
}

/// `finished w1`.
impl Words for LastReport {
    fn write(&self, writer: &mut Writer<'_>) {
        self.kind.write(writer);
        self.worker.write(writer);
    }
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let kind = ReportKind::read(reader)?;
        Ok(Self { worker: WorkerId::read(reader)?, kind })
    }
}

/// `a.1 result "7"`.
impl Words for AttemptOutput {
    fn write(&self, writer: &mut Writer<'_>) {
        self.hold.write(writer);
        writer.field("result", &self.result, &None);
        writer.field("log", &self.log, &None);
    }
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let mut output = Self { hold: Words::read(reader)?, result: None, log: None };
        reader.field("result", &mut output.result)?;
        reader.field("log", &mut output.log)?;
        Ok(output)
    }
}

/// `3 w1 claimed [a.1 b.1] at 5s`.
impl Words for LeaseRow {
    fn write(&self, writer: &mut Writer<'_>) {
        self.number.write(writer);
        match self.worker {
            Some(worker) => worker.write(writer),
            None => writer.word("nobody"),
        }
        self.cause.write(writer);
        self.jobs.write(writer);
        writer.word("at");
        self.at.write(writer);
    }
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let number = Words::read(reader)?;
        let worker = match reader.take_word("nobody") {
            true => None,
            false => Some(WorkerId::read(reader)?),
        };
        let (cause, jobs) = (LeaseCause::read(reader)?, Vec::read(reader)?);
        reader.expect_word("at")?;
        Ok(Self { number, worker, cause, jobs, at: Wall::read(reader)? })
    }
}

/// `mail paused limit 4 weight 2`.
impl Words for QueueSettings {
    fn write(&self, writer: &mut Writer<'_>) {
        self.queue.write(writer);
        if self.paused {
            writer.word("paused");
        }
        writer.field("limit", &self.limit, &None);
        writer.field("weight", &self.weight, &1);
    }
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let mut settings = Self::new(Name::read(reader)?);
        settings.paused = reader.take_word("paused");
        reader.field("limit", &mut settings.limit)?;
        reader.field("weight", &mut settings.weight)?;
        Ok(settings)
    }
}
