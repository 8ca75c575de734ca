//! The owners of a job: each change of owner must fit the one before, and the job's own row must
//! follow from the last one.
//!
//! A fence grows by one at each row of the ledger, at an operator's retry and at a cancel, and at
//! nothing else. So the fences add up, and a missing or forged row is detected whatever it says.

use filch_scheduler::id::{Fence, Seq, WorkerId};
use filch_scheduler::record::{LastReport, LeaseCause, Reason};
use filch_scheduler::state::JobState;

use super::job::{Change, JobHistory, Kind};
use super::report::{IntegrityReport, IntegrityRule};

impl JobHistory {
    /// The job changes owner.
    pub(super) fn change(&mut self, change: &Change, report: &mut IntegrityReport) {
        let Change { hold, worker, cause, row, .. } = *change;
        let job = Some(hold.job);
        report.ensure(row > self.lease_before, IntegrityRule::S7, job, || {
            let before = self.lease_before.0;
            format!("{}, but it was submitted after lease row {before}", show(change))
        });
        let grows = hold.fence > self.fence();
        report.ensure(grows, IntegrityRule::S7, job, || {
            let before = self.last.as_ref().map_or_else(|| "it had fence 0".to_owned(), show);
            format!("the fence does not grow: {before}; then {}", show(change))
        });
        if grows {
            self.check_cause(change, report);
        }
        if let Some(worker) = worker {
            for attempt in self.attempts.iter_mut().filter(|attempt| attempt.fence == hold.fence) {
                attempt.is_owners |= attempt.worker == worker;
            }
            if self.first.is_none() {
                self.first = Some(row);
            }
        }
        let fits = worker.is_some() == matches!(cause, LeaseCause::Claim | LeaseCause::Steal(_));
        report.ensure(fits, IntegrityRule::S2, job, || {
            format!("invalid change of owner: {}", show(change))
        });
        self.changes += 1;
        if grows {
            self.last = Some(*change);
        }
    }

    /// Checks that the job is taken from its present owner.
    fn check_cause(&self, change: &Change, report: &mut IntegrityReport) {
        let owner = self.owner();
        let is_next = change.hold.fence.0 == self.fence().0 + 1;
        let fits = match change.cause {
            LeaseCause::Claim => owner.is_none(),
            LeaseCause::Steal(from) => {
                owner == Some(from) && change.worker != Some(from) && is_next
            }
            LeaseCause::Lost(from) | LeaseCause::Returned(from) => owner == Some(from) && is_next,
        };
        report.ensure(fits, IntegrityRule::S2, Some(change.hold.job), || {
            let before = self.last.as_ref().map_or_else(|| "it had no owner".to_owned(), show);
            let released = match (self.last.and_then(|last| last.worker), owner) {
                (Some(_), Some(_)) => " and has not released it",
                (Some(_), None) => " and has released it",
                _ => "",
            };
            format!("{before}{released}; then {}", show(change))
        });
    }

    /// Checks that the job's row follows from its history.
    pub(super) fn check_end(&self, seq: Seq, report: &mut IntegrityReport) {
        self.check_fences(seq, report);
        self.check_state(seq, report);
        self.check_attempts(seq, report);
    }

    /// The fences add up.
    fn check_fences(&self, seq: Seq, report: &mut IntegrityReport) {
        let fence = self.now.fence.max(self.fence());
        let cancelled = u64::from(self.now.state == JobState::Cancelled);
        let sum = self.changes + self.retries + cancelled;
        report.ensure(fence.0 == sum, IntegrityRule::S7, Some(seq), || {
            let (changes, retries) = (self.changes, self.retries);
            format!(
                "its fence is {}, but it changed owner {changes} times, was retried {retries} times \
                 and cancelled {cancelled} times",
                fence.0
            )
        });
        let outputs = self.outputs.filter(|output| *output > fence);
        report.ensure(outputs.is_none(), IntegrityRule::Index, Some(seq), || {
            let outputs = outputs.unwrap_or_default().0;
            format!("it has output under fence {outputs}, but its highest fence is {}", fence.0)
        });
    }

    fn check_state(&self, seq: Seq, report: &mut IntegrityReport) {
        let (now, owner) = (&self.now, self.owner());
        let mut wrong = |rule, what: &str| {
            let ledger =
                self.last.as_ref().map_or_else(|| "it never had an owner".to_owned(), show);
            let (state, fence) = (now.state, now.fence.0);
            report.add(
                rule,
                Some(seq),
                format!("it is {state} under fence {fence}{what}; {ledger}"),
            );
        };
        if self.newer_row().is_some() {
            if now.state.is_ended() {
                wrong(IntegrityRule::S5, ", but was assigned after that");
            }
            return;
        }
        let is_last = now.fence == self.fence();
        if let Some(LastReport { worker: reporter, kind }) = now.last {
            let is_owners = is_last && self.last.is_some_and(|it| it.worker == Some(reporter));
            if !is_owners || !kind.leads_to(now.state) {
                let reporter = worker(reporter);
                wrong(IntegrityRule::S3, &format!(", last reported as {kind:?} by {reporter}"));
            }
        }
        match now.state {
            JobState::Running if owner.is_none() || owner != now.holder || !is_last => {
                let holder = now.holder.map(worker).unwrap_or_default();
                wrong(IntegrityRule::S2, &format!(" on {holder}, which does not own it"));
            }
            JobState::Succeeded if owner.is_none() || !is_last => {
                wrong(IntegrityRule::S3, ", but had no owner");
            }
            JobState::Dead if !self.died_rightly() => {
                wrong(IntegrityRule::S9, ", but no note explains it");
            }
            JobState::Cancelled if now.holder.is_some() && now.holder != owner => {
                wrong(IntegrityRule::S2, ", held by a worker that does not own it");
            }
            JobState::Cancelled if now.reason == Some(Reason::Request) && self.cancels == 0 => {
                wrong(IntegrityRule::S5, ", but no cancel was requested");
            }
            JobState::Blocked | JobState::Scheduled | JobState::Queued
                if owner.is_some() && is_last =>
            {
                wrong(IntegrityRule::S2, ", but its owner has not released it");
            }
            _ => {}
        }
    }

    fn died_rightly(&self) -> bool {
        let fence = self.now.fence;
        match self.now.reason {
            Some(Reason::Failed) => self.has(fence, &[Kind::Failed]),
            Some(Reason::WorkerLost) => {
                let held = Fence(fence.0.saturating_sub(1));
                let is_lost =
                    self.last.is_some_and(|last| matches!(last.cause, LeaseCause::Lost(_)));
                is_lost && self.has(held, &[Kind::LostAlone])
            }
            Some(Reason::Request | Reason::Condition) | None => false,
        }
    }

    fn check_attempts(&self, seq: Seq, report: &mut IntegrityReport) {
        for attempt in self.attempts.iter().filter(|attempt| !attempt.is_owners) {
            let (fence, worker, kind) = (attempt.fence.0, worker(attempt.worker), attempt.kind);
            report.add(
                IntegrityRule::S9,
                Some(seq),
                format!(
                    "an attempt of {worker} under fence {fence} is noted ({kind:?}), but the \
                         ledger never gave it that fence"
                ),
            );
        }
        let (attempts, charged) = (self.now.attempts, self.charged);
        report.ensure(attempts == charged, IntegrityRule::S9, Some(seq), || {
            format!("{attempts} attempts are charged, but its notes charge {charged}")
        });
        let is_over = self.now.state.is_ended() || attempts < self.attempts_max;
        report.ensure(is_over, IntegrityRule::S9, Some(seq), || {
            let max = self.attempts_max;
            format!("all of its {max} attempts are used, but it is {}", self.now.state)
        });
    }
}

/// A change of owner as text.
pub(super) fn show(change: &Change) -> String {
    let Change { hold, worker, cause, at, row } = change;
    let to = worker.map_or_else(|| "the queue".to_owned(), self::worker);
    let how = match cause {
        LeaseCause::Claim => format!("{to} claimed it"),
        LeaseCause::Steal(from) => format!("{to} stole it from {}", self::worker(*from)),
        LeaseCause::Lost(from) => {
            format!("it returned to {to} because {} was lost", self::worker(*from))
        }
        LeaseCause::Returned(from) => format!("it was returned to {to} by {}", self::worker(*from)),
    };
    format!("lease row {}: {how} under fence {} at {} ms", row.0, hold.fence.0, at.0)
}

fn worker(id: WorkerId) -> String {
    format!("worker {:016x}", id.bits())
}
