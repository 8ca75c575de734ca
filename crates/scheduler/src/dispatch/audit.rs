//! The audit: walks the whole state and reports violated invariants.
//!
//! It checks the invariants that a state can show (I1, I2, I4, I5, I6, I7; I3 is about messages and
//! is checked where they are applied) and that every index agrees with the jobs. It is far too slow
//! for a server at work; tests and the simulator call it after every event.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use core::fmt;

use super::Dispatch;
use super::graph::counted;
use super::job::Job;
use crate::id::{CommitNo, Fence, LeaseNo, Seq, WorkerId};
use crate::spec::{Condition, Otherwise, Tally, Verdict};
use crate::state::JobState;

/// An invariant is violated: a bug of ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditError(pub String);

impl fmt::Display for AuditError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the audit failed: {}", self.0)
    }
}

impl core::error::Error for AuditError {}

type Audit = Result<(), AuditError>;

fn must(holds: bool, what: impl FnOnce() -> String) -> Audit {
    if holds { Ok(()) } else { Err(AuditError(what())) }
}

/// Counts derived from the jobs, to be compared with the indexes.
#[derive(Default)]
struct Census {
    scheduled: usize,
    /// Jobs, ready jobs, owned jobs and leased jobs of each queue.
    queues: BTreeMap<u32, (u32, usize, u32, u32)>,
    /// Held, leased, solo and limited jobs of each worker.
    workers: BTreeMap<WorkerId, (usize, u32, u32, u32)>,
    kinds: BTreeMap<u32, u32>,
    rows: BTreeMap<LeaseNo, u32>,
    keys: usize,
    unreceipted: BTreeMap<Seq, u16>,
    jobs: usize,
}

impl Dispatch {
    /// Walks the whole state.
    ///
    /// # Errors
    /// Names the first violated invariant.
    pub fn audit(&self) -> Result<(), AuditError> {
        let mut census = Census::default();
        for &(commit, seq) in &self.ended {
            let is_open = commit > self.receipted && commit <= self.issued;
            must(is_open, || format!("I7: {commit:?} waits for its receipt"))?;
            *census.unreceipted.entry(seq).or_default() += 1;
        }
        for (seq, job) in self.jobs.iter() {
            self.audit_job(seq, job, &census)
                .and_then(|()| self.audit_graph(seq, job))
                .map_err(|error| AuditError(format!("job {} ({seq:?}): {}", job.id, error.0)))?;
            census.count(job, self.queues.get(job.queue).room.is_limited());
        }
        self.audit_counts(&census)?;
        self.audit_workers(&census)?;
        self.audit_commits()?;
        self.queues
            .audit()
            .and_then(|()| self.workers.audit())
            .map_err(|what| AuditError(what.into()))
    }

    fn audit_job(&self, seq: Seq, job: &Job, census: &Census) -> Audit {
        let state = job.state();
        must(seq <= self.last_seq, || "I2: its number was given out".into())?;
        must(self.jobs.by_id(job.id) == Some(seq), || "I2: its id leads to it".into())?;
        let by_key = job.key().map(|key| self.jobs.by_key(job.queue, key));
        must(by_key.is_none_or(|found| found == Some(seq)), || "I2: its key leads to it".into())?;

        // I1 and I2: the job is in the index of its state, and in no other.
        let is_scheduled = self.scheduled.contains(&(job.due, seq));
        must(is_scheduled == (state == JobState::Scheduled), || format!("I2: {state}, scheduled"))?;
        let (rank, is_solo) = (self.rank(job), job.is_solo());
        let is_ready = self.queues.contains(job.queue, rank, seq, is_solo);
        must(is_ready == (state == JobState::Queued), || format!("I2: {state}, in its queue"))?;
        let holder = job.phase.holder();
        must(holder.is_some() || !state.is_owned(), || format!("I1: {state} without an owner"))?;
        let held = holder.map(|holder| self.workers.find(holder));
        let is_held = held.map(|worker| worker.is_some_and(|it| it.held.contains_key(&seq)));
        must(is_held != Some(false), || "I1: its holder knows of it".into())?;
        let was_owned = job.fence > Fence(0);
        must(was_owned || !state.is_owned(), || "I1: an owner has a fence".into())?;

        // The reasons to keep an ended job in memory, and which states allow a lease row.
        let unreceipted = census.unreceipted.get(&seq).copied().unwrap_or_default();
        must(unreceipted == job.unreceipted, || "I7: it knows its receipts".into())?;
        let is_needed = !state.is_ended()
            || unreceipted > 0
            || holder.is_some()
            || job.children_live() > 0
            || self.is_reserved(job);
        must(is_needed, || "an ended job that is not needed has left memory".into())?;
        let has_row = job.row != LeaseNo(0);
        must(!state.is_ended() || !has_row, || "I5: no lease row speaks for an ended job".into())?;
        must(state != JobState::Running || !has_row, || "a started job is written".into())?;
        must(state != JobState::Leased || has_row, || "I2: a leased job is in the ledger".into())?;
        let has_progress = self.progress.contains_key(&seq);
        must(!has_progress || state == JobState::Running, || "only running jobs progress".into())
    }

    /// I6: the tally agrees with the parents, and the job's state with the tally.
    fn audit_graph(&self, seq: Seq, job: &Job) -> Audit {
        let Some(extra) = &job.extra else {
            return Ok(());
        };
        let live = extra.children.iter().filter(|&&child| {
            self.jobs.find(child).is_some_and(|child| child.parents().contains(&seq))
        });
        let live = u32::try_from(live.count()).unwrap_or(u32::MAX);
        must(live == extra.children_live, || "I6: it knows how many children wait".into())?;
        if extra.parents.is_empty() {
            return Ok(());
        }
        must(!job.state().is_ended(), || "I6: an ended job has left its parents".into())?;
        let mut tally = Tally::default();
        for &parent in &extra.parents {
            let Some(parent) = self.jobs.find(parent) else {
                return Err(AuditError("I6: its parents are in memory".into()));
            };
            let one = counted(parent.state());
            tally.pending += one.pending;
            tally.succeeded += one.succeeded;
            tally.failed += one.failed;
        }
        must(tally == extra.tally, || format!("I6: {tally:?} is not {:?}", extra.tally))?;
        let verdict = extra.condition.judge(tally);
        let (waits, runs) = match verdict {
            Verdict::Open => (true, false),
            Verdict::Holds => (false, true),
            Verdict::Never => {
                (extra.otherwise == Otherwise::Hold, extra.otherwise == Otherwise::Run)
            }
        };
        // An operator's retry takes a failure back; children that it released stay released.
        let by_failure = matches!(extra.condition, Condition::AllDone | Condition::AnyFailed)
            || extra.otherwise == Otherwise::Run;
        let fits = if job.state() == JobState::Blocked { waits } else { runs || by_failure };
        must(fits, || format!("I6: {} with a condition that is {verdict:?}", job.state()))
    }

    fn audit_counts(&self, census: &Census) -> Audit {
        must(census.scheduled == self.scheduled.len(), || {
            "I2: all scheduled jobs are jobs".into()
        })?;
        must(census.jobs == self.jobs.count(), || "I2: the jobs are counted".into())?;
        let indexed = (census.jobs, census.keys);
        must(indexed == self.jobs.indexed(), || "I2: all ids and keys are of jobs".into())?;
        for (number, queue) in self.queues.iter() {
            let name = &queue.settings.queue;
            let counted = (queue.jobs, queue.ready_count(), queue.room.owned, queue.room.leased);
            let found = census.queues.get(&number).copied().unwrap_or_default();
            must(counted == found, || format!("I4: queue {name} has {found:?}, not {counted:?}"))?;
            let waits =
                |id: WorkerId| self.workers.find(id).is_some_and(|it| it.served.includes(number));
            must(queue.waiters.iter().all(|it| waits(it.worker)), || {
                format!("the jobs that wait at {name}")
            })?;
        }
        let kinds: BTreeMap<u32, u32> = self.kinds.users().collect();
        must(kinds == census.kinds, || "all kinds are of jobs".into())?;
        let rows = self.ledger.open();
        must(*rows == census.rows, || format!("I2: open rows {rows:?}, not {:?}", census.rows))?;
        let cancels: BTreeSet<_> = self.cancels.keys().copied().collect();
        let held = |seq: &Seq| self.jobs.find(*seq).is_some_and(|job| job.phase.holder().is_some());
        must(cancels.iter().all(held), || {
            "a cancel waits only for a worker that holds the job".into()
        })
    }

    fn audit_workers(&self, census: &Census) -> Audit {
        for (id, worker) in self.workers.iter() {
            let counted = (worker.held.len(), worker.leased, worker.solo, worker.limited);
            let found = census.workers.get(&id).copied().unwrap_or_default();
            must(counted == found, || format!("I1: {id:?} holds {found:?}, not {counted:?}"))?;
            must(worker.solo <= 1, || format!("{id:?} holds one suspect of that kind"))?;
            must(worker.lease_end > self.lease_clock(), || format!("{id:?} is lost by now"))?;
            // Between events, no worker waits while there is work for it.
            if worker.room() > 0 && !self.is_full() {
                let next = self.next_for(id);
                must(next.is_none(), || format!("{id:?} waits, and {next:?} is ready"))?;
            }
        }
        let mut asked = BTreeSet::new();
        for (number, thief, victim, waits) in self.questions.iter() {
            let is_asked = self.workers.find(victim).is_some_and(|it| it.asked == Some(number));
            must(is_asked, || format!("{victim:?} knows of {number:?}"))?;
            let asking = self.workers.find(thief).and_then(|it| it.asking);
            must(!waits || asking.is_none_or(|it| it == number), || {
                format!("{thief:?} asks once")
            })?;
            asked.insert(number);
        }
        for (id, worker) in self.workers.iter() {
            let questions = [worker.asked, worker.asking];
            let open = questions.into_iter().flatten().all(|it| asked.contains(&it));
            must(open, || format!("{id:?} has open questions only"))?;
        }
        Ok(())
    }

    /// I7: everything decided has been numbered and handed over.
    fn audit_commits(&self) -> Audit {
        must(self.receipted <= self.issued, || "I7: receipts are for what was issued".into())?;
        let outcome = &self.outcome;
        let is_empty = outcome.mutations.is_empty()
            && outcome.sends.is_empty()
            && outcome.gone.is_empty()
            && outcome.replies.is_empty()
            && outcome.renewals.is_empty()
            && outcome.others.is_empty();
        must(is_empty, || "I7: what was decided has been handed over".into())?;
        let open: BTreeSet<CommitNo> = self.unreceipted.iter().map(|&(number, _)| number).collect();
        let fits = open.iter().all(|&number| number > self.receipted && number <= self.issued);
        must(fits, || "I7: commits wait for their receipts".into())?;
        let mutations: usize = self.unreceipted.iter().map(|&(_, mutations)| mutations).sum();
        must(mutations == self.unreceipted_mutations, || "mutations are counted".into())
    }
}

impl Census {
    fn count(&mut self, job: &Job, is_limited: bool) {
        let state = job.state();
        self.jobs += 1;
        self.keys += usize::from(job.key().is_some());
        self.scheduled += usize::from(state == JobState::Scheduled);
        *self.kinds.entry(job.kind).or_default() += 1;
        let queue = self.queues.entry(job.queue).or_default();
        queue.0 += 1;
        queue.1 += usize::from(state == JobState::Queued);
        if job.row != LeaseNo(0) {
            *self.rows.entry(job.row).or_default() += 1;
        }
        if let Some(holder) = job.phase.holder() {
            queue.2 += u32::from(job.is_counted());
            queue.3 += u32::from(job.is_counted() && state == JobState::Leased);
            let worker = self.workers.entry(holder).or_default();
            worker.0 += 1;
            worker.1 += u32::from(state == JobState::Leased);
            worker.2 += u32::from(job.is_solo());
            worker.3 += u32::from(is_limited);
        }
    }
}
