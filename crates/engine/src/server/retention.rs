//! Retention: purging jobs that ended long ago, and trimming the history that is left of them, a
//! slice at a time.
//!
//! While anything is due, a slice follows every few commits; this alone guarantees that retention
//! keeps up. In addition, the shell picks idle moments for slices
//! ([`ServerInput::RetentionMoment`]). One slice runs at a time. It consists of steps: the store is
//! read, the scheduler decides about what was found, and the step ends when the decision is
//! durable. What "long ago" means while the wall clock jumps is decided by `recent`.
//!
//! [`ServerInput::RetentionMoment`]: super::ServerInput::RetentionMoment

use std::time::Duration;

use filch_scheduler::dispatch::DispatchEvent;
use filch_scheduler::id::{CommitNo, JobId, LeaseNo, Seq};
use filch_scheduler::record::Mutation;
use filch_scheduler::time::{Monotonic, Now, Wall};
use filch_store::{Expired, Outdated, PurgeCause};

use super::event::{ServerAction, Ticket};
use super::recent::Recent;
use crate::planted::{EngineBug, planted};

/// The jobs of retention, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetentionJob {
    /// Purges jobs that ended long enough ago.
    Purge,
    /// Trims the ledger and notes about workers: rows that are old and belong to no stored job.
    Trim,
}

impl RetentionJob {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Purge, Self::Trim];
}

/// How a slice of retention ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SliceOutcome {
    /// It removed something.
    Done,
    /// There was nothing to remove, or the slice could not begin.
    NoWork,
    /// The store could not be read.
    Failed,
}

/// What retention has removed since the server started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionTotals {
    /// Purged jobs.
    pub jobs_purged: u64,
    /// Rows of the ledger.
    pub lease_rows_trimmed: u64,
    /// Notes about workers.
    pub notes_trimmed: u64,
}

/// Rows of one step of a slice. Each step is one commit, so other commits wait for at most one
/// step.
const STEP: usize = 100;

/// How long to wait before looking again at jobs that the scheduler keeps because they are still
/// needed, and after a failed read.
const PAUSE: Duration = Duration::from_secs(30);

/// The store is looked at after this time even if nothing seems to be due: the clock may have been
/// wrong.
const LOOKS_EVERY: Duration = Duration::from_secs(3_600);

/// After a slice, the next one that follows commits waits for this many times the length of the
/// slice, however many commits there are.
const RESTS: u32 = 4;

/// While a job of retention is due, an idle moment is wanted this often.
const MOMENTS_EVERY: Duration = Duration::from_millis(10);

/// One slice follows this many commits.
const COMMITS_EACH: u32 = 8;

/// How many rows a slice after commits looks at, at least and at most.
const ROWS_LEAST: usize = 500;
const ROWS_MOST: usize = 4_000;

/// The state of retention.
#[derive(Debug)]
pub struct Retention {
    /// How long ended jobs are kept; `None` for ever.
    period: Option<Duration>,
    /// The clocks of the process. Time that does not count for leases counts here.
    now: Now,
    /// Which times are recent; `None` if everything is kept.
    recent: Option<Recent>,
    turns: Turns,
    walk: Walk,
    due: [Due; RetentionJob::ALL.len()],
    /// When to look next for jobs that ended while the clock was ahead.
    misdated_at: Monotonic,
    rests_until: Monotonic,
    slice: Option<Slice>,
    /// Since when the oldest job that can be purged has been overdue, or when it will be, in
    /// milliseconds of the monotonic clock; as of the last look.
    overdue_since: Option<i64>,
    totals: RetentionTotals,
    /// The newest durable commit.
    durable: CommitNo,
}

/// When a job has something to do.
#[derive(Clone, Copy, Debug, Default)]
struct Due {
    /// From this time on, whatever is stored.
    at: Monotonic,
    /// Earlier, once what ended at this time is old.
    oldest: Option<Wall>,
}

/// Where the next slice continues.
#[derive(Debug, Default)]
struct Walk {
    stage: WalkStage,
    /// The last ended job that was proposed. Jobs before it were purged or are still needed; the
    /// latter do not keep later ones from being proposed.
    ended: Option<(Wall, Seq)>,
    /// How many jobs were purged since the walk began.
    purged: u64,
    /// The last row of the ledger that was looked at.
    lease: LeaseNo,
}

/// What a walk through ended jobs looks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum WalkStage {
    /// Jobs that ended long ago.
    #[default]
    Expired,
    /// Jobs that ended long ago while the clock was ahead: their times are in the future.
    Misdated,
    /// The job that is due next. This ends the walk.
    Oldest,
}

/// A slice that runs.
#[derive(Debug)]
struct Slice {
    job: RetentionJob,
    /// What waits for its end, if it does not follow commits.
    ticket: Option<Ticket>,
    began: Monotonic,
    /// How many more rows it may look at.
    left: usize,
    /// When it begins no further step.
    until: Option<Monotonic>,
    /// How many rows it has removed.
    found: u64,
    stage: SliceStage,
}

/// What a slice waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SliceStage {
    /// The next step begins when the scheduler is not full.
    Begins,
    /// The store's answer.
    Reads,
    /// This commit, which removes so many rows.
    Commits(CommitNo, Removed),
    /// Nothing: it is over.
    Ends(SliceOutcome),
}

/// What one step has removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Removed {
    rows: u64,
    notes: u64,
}

/// Something for the scheduler to decide.
pub(super) struct Proposal {
    pub(super) event: DispatchEvent,
    /// Why jobs should be purged.
    pub(super) cause: Option<PurgeCause>,
    /// How many notes go with it.
    pub(super) notes: u64,
}

impl Retention {
    pub(super) fn new(period: Option<Duration>, now: Now) -> Self {
        Self {
            period,
            now,
            recent: period.map(|period| Recent::new(period, now)),
            turns: Turns::default(),
            walk: Walk::default(),
            // Both are due at first: only a look at the store can tell.
            due: Default::default(),
            misdated_at: Monotonic(0),
            rests_until: Monotonic(0),
            slice: None,
            overdue_since: None,
            totals: RetentionTotals::default(),
            durable: CommitNo(0),
        }
    }

    /// What was removed so far.
    #[must_use]
    pub const fn totals(&self) -> RetentionTotals {
        self.totals
    }

    /// Since when the oldest job that can be purged has been overdue, or when it will be, in
    /// milliseconds of the process's monotonic clock. As of the last look.
    #[must_use]
    pub const fn overdue_since_ms(&self) -> Option<i64> {
        self.overdue_since
    }

    /// Whether a slice could begin now: a job is due and no slice is running. Cheap.
    #[must_use]
    pub fn may_begin(&self) -> bool {
        self.slice.is_none() && self.are_due()
    }

    /// When an idle moment is wanted, if any is.
    #[must_use]
    pub fn next_moment(&self) -> Option<Monotonic> {
        self.are_due().then(|| self.now.monotonic.plus(MOMENTS_EVERY))
    }

    fn are_due(&self) -> bool {
        RetentionJob::ALL.into_iter().any(|job| self.is_due(job))
    }

    fn is_due(&self, job: RetentionJob) -> bool {
        let Due { at, oldest } = self.due[job as usize];
        let is_old = |ended: Wall| self.long_ago().is_some_and(|long_ago| ended < long_ago);
        self.period.is_some() && (at <= self.now.monotonic || oldest.is_some_and(is_old))
    }

    fn put_off(&mut self, job: RetentionJob, span: Duration, oldest: Option<Wall>) {
        self.due[job as usize] = Due { at: self.now.monotonic.plus(span), oldest };
    }

    /// Rows from before this time are old.
    fn long_ago(&self) -> Option<Wall> {
        if planted(EngineBug::WallJumpPurges) {
            let millis = u64::try_from(self.period?.as_millis()).unwrap_or(u64::MAX);
            return Some(Wall(self.now.wall.0.saturating_sub(millis)));
        }
        self.recent.as_ref().map(Recent::first)
    }

    /// Rows from after this time are old, too: they were written while the clock was ahead.
    fn ahead(&self) -> Option<Wall> {
        self.recent.as_ref().and_then(Recent::last)
    }

    pub(super) fn see(&mut self, now: Now) {
        self.now = now;
        if let Some(recent) = &mut self.recent {
            recent.see(now);
        }
    }

    /// A commit was handed over.
    pub(super) fn count(&mut self, mutations: &[Mutation]) {
        self.turns.count(mutations);
    }

    /// Every commit up to this one is durable.
    pub(super) const fn receipt(&mut self, number: CommitNo) {
        self.durable = number;
    }

    /// An idle moment was picked. If no slice can begin, this returns what to do instead.
    pub(super) fn begin_in_moment(
        &mut self,
        ticket: Ticket,
        job: RetentionJob,
        rows: usize,
        until: Option<Monotonic>,
    ) -> Option<ServerAction> {
        if self.slice.is_some() || !self.is_due(job) {
            let (ticket, outcome) = (Some(ticket), SliceOutcome::NoWork);
            return Some(ServerAction::SliceDone { ticket, job, outcome, took: Duration::ZERO });
        }
        self.begin(job, Some(ticket), rows, until);
        None
    }

    fn begin(
        &mut self,
        job: RetentionJob,
        ticket: Option<Ticket>,
        rows: usize,
        until: Option<Monotonic>,
    ) {
        let (began, stage) = (self.now.monotonic, SliceStage::Begins);
        self.slice = Some(Slice { job, ticket, began, left: rows, until, found: 0, stage });
    }

    /// The next action, until there is none.
    pub(super) fn next(&mut self, is_full: bool) -> Option<ServerAction> {
        loop {
            let Some(slice) = &mut self.slice else {
                self.take_turn()?;
                continue;
            };
            match slice.stage {
                SliceStage::Begins if !is_full => {
                    slice.stage = SliceStage::Reads;
                    return self.read();
                }
                SliceStage::Commits(number, removed) if number <= self.durable => {
                    self.end_step(removed);
                }
                SliceStage::Ends(outcome) => return self.end(outcome),
                SliceStage::Begins | SliceStage::Reads | SliceStage::Commits(..) => return None,
            }
        }
    }

    /// Begins a slice if enough commits were made since the last one. There is no time limit:
    /// retention must keep up with new jobs. A pause follows the slice.
    fn take_turn(&mut self) -> Option<()> {
        let is_resting = self.now.monotonic < self.rests_until;
        if !self.turns.has_come() || is_resting {
            return None;
        }
        let job = RetentionJob::ALL.into_iter().find(|&job| self.is_due(job))?;
        let rows = self.turns.take();
        self.begin(job, None, rows, None);
        Some(())
    }

    /// What the next step reads.
    fn read(&self) -> Option<ServerAction> {
        let (slice, before) = (self.slice.as_ref()?, self.long_ago()?);
        let limit = slice.left.min(STEP);
        let everything = Wall(u64::MAX);
        Some(match (slice.job, self.walk.stage) {
            (RetentionJob::Purge, WalkStage::Expired) => {
                ServerAction::ReadExpired { after: self.walk.ended, before, limit }
            }
            (RetentionJob::Purge, WalkStage::Misdated) => {
                let first = (self.ahead()?, Seq(u64::MAX));
                let after = Some(self.walk.ended.unwrap_or(first));
                ServerAction::ReadExpired { after, before: everything, limit }
            }
            (RetentionJob::Purge, WalkStage::Oldest) => {
                ServerAction::ReadExpired { after: None, before: everything, limit: 1 }
            }
            (RetentionJob::Trim, _) => {
                let recent = before..=self.ahead().unwrap_or(everything);
                ServerAction::ReadOutdated { after: self.walk.lease, recent, limit }
            }
        })
    }

    /// The slice that waits for the store. While the scheduler is full, nothing is proposed: the
    /// step begins anew.
    fn answered(&mut self, is_full: bool) -> Option<&mut Slice> {
        let slice = self.slice.as_mut().filter(|slice| slice.stage == SliceStage::Reads)?;
        slice.stage = SliceStage::Begins;
        (!is_full).then_some(slice)
    }

    /// The store has found these jobs.
    pub(super) fn expired(&mut self, mut jobs: Vec<Expired>, is_full: bool) -> Option<Proposal> {
        let limit = self.answered(is_full)?.left.min(STEP);
        let (retention, before) = (self.period?, self.long_ago()?);
        let stage = self.walk.stage;
        if stage == WalkStage::Oldest {
            self.end_walk(jobs.first(), retention, before);
            return None;
        }
        let last = jobs.last().filter(|_| jobs.len() == limit);
        self.walk.ended = last.map(|last| (last.at, last.seq));
        if self.walk.ended.is_none() {
            self.walk.stage = self.stage_after(stage, retention);
        }
        // The clock may have been set meanwhile.
        let ahead = self.ahead();
        jobs.retain(|job| match stage {
            WalkStage::Misdated => ahead.is_some_and(|ahead| job.at > ahead),
            WalkStage::Expired | WalkStage::Oldest => job.at < before,
        });
        let Some(first) = jobs.first() else {
            self.end_step(Removed::default());
            return None;
        };
        let cause = match stage {
            WalkStage::Misdated => PurgeCause::Misdated,
            WalkStage::Expired | WalkStage::Oldest => {
                self.overdue_since = Some(self.due_at(first.at, before));
                PurgeCause::Expired { retention }
            }
        };
        let jobs: Vec<(Seq, JobId)> = jobs.iter().map(|job| (job.seq, job.id)).collect();
        Some(Proposal { event: DispatchEvent::Expired(jobs), cause: Some(cause), notes: 0 })
    }

    /// What a walk looks for when it has found everything of this kind. Times in the future are
    /// rare, so the walk looks for them less often.
    fn stage_after(&mut self, stage: WalkStage, retention: Duration) -> WalkStage {
        let is_due = self.ahead().is_some() && self.misdated_at <= self.now.monotonic;
        match stage {
            WalkStage::Expired if is_due => WalkStage::Misdated,
            WalkStage::Misdated => {
                self.misdated_at = self.now.monotonic.plus(retention.min(LOOKS_EVERY));
                WalkStage::Oldest
            }
            WalkStage::Expired | WalkStage::Oldest => WalkStage::Oldest,
        }
    }

    /// When what ended at this time is due, or was, in milliseconds of the monotonic clock.
    const fn due_at(&self, ended: Wall, before: Wall) -> i64 {
        (self.now.monotonic.0 / 1_000).cast_signed() + ended.0.cast_signed()
            - before.0.cast_signed()
    }

    /// The walk has reached its end; this is the oldest job that is left.
    fn end_walk(&mut self, oldest: Option<&Expired>, retention: Duration, before: Wall) {
        let looks_within = retention.min(LOOKS_EVERY);
        let (span, due) = match oldest.map(|oldest| oldest.at) {
            Some(ended) if ended >= before => (looks_within, Some(ended)),
            // It is still needed, for instance by a job that waits for it.
            Some(_) => (PAUSE, None),
            None => (looks_within, None),
        };
        self.put_off(RetentionJob::Purge, span, due);
        self.overdue_since = due.map(|ended| self.due_at(ended, before));
        // Purged jobs leave rows of the ledger behind.
        if std::mem::take(&mut self.walk.purged) > 0 {
            self.put_off(RetentionJob::Trim, Duration::ZERO, None);
        }
        self.walk.stage = WalkStage::Expired;
        self.end_step(Removed::default());
    }

    /// The store has found these rows.
    pub(super) fn outdated(&mut self, outdated: Outdated, is_full: bool) -> Option<Proposal> {
        self.answered(is_full)?;
        self.walk.lease = outdated.last.unwrap_or_default();
        // One slice has only so many notes, so there may be more of them.
        if outdated.last.is_none() && outdated.notes == 0 {
            self.put_off(RetentionJob::Trim, LOOKS_EVERY, None);
        }
        let (leases, notes) = (outdated.leases, outdated.notes);
        if leases.is_empty() && notes == 0 {
            self.end_step(Removed::default());
            return None;
        }
        let event = DispatchEvent::Outdated { leases, notes_before: self.long_ago()? };
        Some(Proposal { event, cause: None, notes })
    }

    /// The scheduler has decided about a proposal: so many rows go with this commit, and so many
    /// notes.
    pub(super) fn decided(&mut self, commit: Option<CommitNo>, rows: u64, notes: u64) {
        let removed = Removed { rows, notes };
        match (commit, &mut self.slice) {
            (Some(commit), Some(slice)) => slice.stage = SliceStage::Commits(commit, removed),
            _ => self.end_step(removed),
        }
    }

    /// The store could not be read.
    pub(super) fn failed(&mut self) {
        if let Some(slice) = &mut self.slice
            && slice.stage == SliceStage::Reads
            && !planted(EngineBug::RetentionStallsAfterFailedRead)
        {
            slice.stage = SliceStage::Ends(SliceOutcome::Failed);
            let job = slice.job;
            self.put_off(job, PAUSE, None);
            if job == RetentionJob::Purge {
                // From the beginning: jobs that are overdue by then are not taken for ones that are
                // still needed.
                (self.walk.stage, self.walk.ended) = (WalkStage::Expired, None);
            }
        }
    }

    fn end_step(&mut self, removed: Removed) {
        let Some(slice) = &mut self.slice else { return };
        slice.left -= slice.left.min(STEP);
        slice.found += removed.rows + removed.notes;
        let is_late = slice.until.is_some_and(|until| until <= self.now.monotonic);
        let (job, is_over, found) = (slice.job, slice.left == 0 || is_late, slice.found);
        match job {
            RetentionJob::Purge => {
                self.totals.jobs_purged += removed.rows;
                self.walk.purged += removed.rows;
            }
            RetentionJob::Trim => {
                self.totals.lease_rows_trimmed += removed.rows;
                self.totals.notes_trimmed += removed.notes;
            }
        }
        // Without this look nobody would know when the next job is due.
        let ends_walk = job == RetentionJob::Purge && self.walk.stage == WalkStage::Oldest;
        let stage = match ends_walk || (!is_over && self.is_due(job)) {
            true => SliceStage::Begins,
            false if found > 0 => SliceStage::Ends(SliceOutcome::Done),
            false => SliceStage::Ends(SliceOutcome::NoWork),
        };
        if let Some(slice) = &mut self.slice {
            slice.stage = stage;
        }
    }

    fn end(&mut self, outcome: SliceOutcome) -> Option<ServerAction> {
        let Slice { job, ticket, began, .. } = self.slice.take()?;
        let took = self.now.monotonic.since(began);
        self.rests_until = self.now.monotonic.plus(took * RESTS);
        Some(ServerAction::SliceDone { ticket, job, outcome, took })
    }
}

/// Counts the commits between slices: the more jobs are submitted, the more rows the slices look
/// at, so that retention keeps up.
#[derive(Debug, Default)]
struct Turns {
    commits: u32,
    /// Jobs that were submitted since the last slice.
    jobs: usize,
}

impl Turns {
    /// Counts a commit. Commits of retention itself do not count: otherwise slices would cause
    /// slices.
    fn count(&mut self, mutations: &[Mutation]) {
        let mut is_other = false;
        for mutation in mutations {
            match mutation {
                Mutation::Purge(_) | Mutation::Trim { .. } => {}
                Mutation::Put(_) => {
                    self.jobs += 1;
                    is_other = true;
                }
                _ => is_other = true,
            }
        }
        self.commits = self.commits.saturating_add(u32::from(is_other));
    }

    /// Whether enough commits have been made since the last slice.
    const fn has_come(&self) -> bool {
        self.commits >= COMMITS_EACH
    }

    /// Begins a slice; returns how many rows it may look at: twice as many as jobs were submitted
    /// since the last one, so that retention keeps up.
    fn take(&mut self) -> usize {
        self.commits = 0;
        std::mem::take(&mut self.jobs).saturating_mul(2).clamp(ROWS_LEAST, ROWS_MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_follows_every_few_commits_that_are_not_retention() {
        let mut turns = Turns::default();
        for _ in 0..100 {
            turns.count(&[Mutation::Purge(vec![Seq(1), Seq(2)])]);
            let (leases, notes_before) = (vec![LeaseNo(1)], Wall(0));
            turns.count(&[Mutation::Trim { leases, notes_before }]);
        }
        assert!(!turns.has_come());
        for _ in 0..COMMITS_EACH {
            assert!(!turns.has_come());
            turns.count(&[Mutation::Close(LeaseNo(1))]);
        }
        assert!(turns.has_come());
        assert_eq!(turns.take(), ROWS_LEAST);
        assert!(!turns.has_come());
    }
}
