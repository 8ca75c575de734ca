//! Who owned a job: each takes it from whom the ledger says had it, and what its own row says follows from
//! that.
//!
//! A fence grows by one at each row of the ledger, at an operator's retry and at a cancel, and at nothing
//! else. So the fences add up, and a row that is missing or was made up is noticed whatever it says.

use filch_scheduler::id::{Fence, Seq, WorkerId};
use filch_scheduler::record::{LeaseCause, Reason};
use filch_scheduler::state::JobState;

use super::job::{Change, JobHistory, Kind};
use super::report::{IntegrityReport, IntegrityRule};

impl JobHistory {
    /// The job changes hands.
    pub(super) fn change(&mut self, change: &Change, report: &mut IntegrityReport) {
        let Change { hold, worker, cause, row, .. } = *change;
        let job = Some(hold.job);
        report.ensure(row > self.lease_before, IntegrityRule::S7, job, || {
            let before = self.lease_before.0;
            format!("{}; it was submitted when the ledger stood at row {before}", show(change))
        });
        let grows = hold.fence > self.fence();
        report.ensure(grows, IntegrityRule::S7, job, || {
            let before = self.last.as_ref().map_or_else(|| "it had fence 0".to_owned(), show);
            format!("the fence does not grow: {before}; {}", show(change))
        });
        if grows {
            self.check_cause(change, report);
        }
        if let Some(worker) = worker {
            for word in self.words.iter_mut().filter(|word| word.fence == hold.fence) {
                word.is_owners |= word.worker == worker;
            }
            if self.first.is_none() {
                self.first = Some(row);
            }
        }
        let fits = worker.is_some() == matches!(cause, LeaseCause::Claim | LeaseCause::Steal(_));
        report.ensure(fits, IntegrityRule::S2, job, || format!("{} makes no sense", show(change)));
        self.changes += 1;
        if grows {
            self.last = Some(*change);
        }
    }

    /// Whether it is taken from whom it is said to be taken from.
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
            let before = self.last.as_ref().map_or_else(|| "nobody had it".to_owned(), show);
            let word = match (self.last.and_then(|last| last.worker), owner) {
                (Some(_), Some(_)) => ", who has not let go of it",
                (Some(_), None) => ", who has let go of it",
                _ => "",
            };
            format!("{before}{word}; then {}", show(change))
        });
    }

    /// Whether the job is what its history makes it.
    pub(super) fn judge_end(&self, seq: Seq, report: &mut IntegrityReport) {
        self.judge_sum(seq, report);
        self.judge_state(seq, report);
        self.judge_attempts(seq, report);
    }

    /// The fences add up.
    fn judge_sum(&self, seq: Seq, report: &mut IntegrityReport) {
        let fence = self.now.fence.max(self.fence());
        let cancelled = u64::from(self.now.state == JobState::Cancelled);
        let sum = self.changes + self.retries + cancelled;
        report.ensure(fence.0 == sum, IntegrityRule::S7, Some(seq), || {
            let (changes, retries) = (self.changes, self.retries);
            format!(
                "its fence is {}, but it changed hands {changes} times, was retried {retries} times \
                 and cancelled {cancelled} times",
                fence.0
            )
        });
        let outputs = self.outputs.filter(|output| *output > fence);
        report.ensure(outputs.is_none(), IntegrityRule::Index, Some(seq), || {
            let outputs = outputs.unwrap_or_default().0;
            format!("there is output of fence {outputs}, and its highest fence is {}", fence.0)
        });
    }

    fn judge_state(&self, seq: Seq, report: &mut IntegrityReport) {
        let (now, owner) = (&self.now, self.owner());
        let mut wrong = |rule, what: &str| {
            let ledger = self.last.as_ref().map_or_else(|| "nobody ever had it".to_owned(), show);
            let (state, fence) = (now.state, now.fence.0);
            report.add(
                rule,
                Some(seq),
                format!("it is {state} under fence {fence}{what}; {ledger}"),
            );
        };
        if self.speaking_row().is_some() {
            if now.state.is_ended() {
                wrong(IntegrityRule::S5, ", and was given to somebody after that");
            }
            return;
        }
        let is_last = now.fence == self.fence();
        match now.state {
            JobState::Running if owner.is_none() || owner != now.holder || !is_last => {
                let holder = now.holder.map(who).unwrap_or_default();
                wrong(IntegrityRule::S2, &format!(" on {holder}, who does not own it"));
            }
            JobState::Succeeded if owner.is_none() || !is_last => {
                wrong(IntegrityRule::S3, ", and nobody owned it");
            }
            JobState::Dead if !self.died_rightly() => {
                wrong(IntegrityRule::S9, ", and nothing that is noted explains it");
            }
            JobState::Cancelled if now.holder.is_some() && now.holder != owner => {
                wrong(IntegrityRule::S2, ", held by a worker that did not own it");
            }
            JobState::Cancelled if now.reason == Some(Reason::Request) && self.cancels == 0 => {
                wrong(IntegrityRule::S5, ", and nobody asked for that");
            }
            JobState::Blocked | JobState::Scheduled | JobState::Queued
                if owner.is_some() && is_last =>
            {
                wrong(IntegrityRule::S2, ", and its owner has not let go of it");
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

    fn judge_attempts(&self, seq: Seq, report: &mut IntegrityReport) {
        for word in self.words.iter().filter(|word| !word.is_owners) {
            let (fence, worker, kind) = (word.fence.0, who(word.worker), word.kind);
            report.add(
                IntegrityRule::S9,
                Some(seq),
                format!(
                    "an attempt of {worker} under fence {fence} is noted ({kind:?}), but the \
                         ledger did not give it that fence"
                ),
            );
        }
        let (attempts, charged) = (self.now.attempts, self.charged);
        report.ensure(attempts == charged, IntegrityRule::S9, Some(seq), || {
            format!("{attempts} attempts are charged to it, and what is noted charges {charged}")
        });
        let is_over = self.now.state.is_ended() || attempts < self.attempts_max;
        report.ensure(is_over, IntegrityRule::S9, Some(seq), || {
            let max = self.attempts_max;
            format!("all of its {max} attempts are used up, and it is {}", self.now.state)
        });
    }
}

/// A change of owner, in words.
pub(super) fn show(change: &Change) -> String {
    let Change { hold, worker, cause, at, row } = change;
    let to = worker.map_or_else(|| "the queue".to_owned(), who);
    let how = match cause {
        LeaseCause::Claim => format!("{to} claimed it"),
        LeaseCause::Steal(from) => format!("{to} stole it from {}", who(*from)),
        LeaseCause::Lost(from) => format!("it went back to {to} because {} was lost", who(*from)),
        LeaseCause::Returned(from) => format!("it went back to {to} from {}", who(*from)),
    };
    format!("lease row {}: {how} under fence {} at {} ms", row.0, hold.fence.0, at.0)
}

fn who(worker: WorkerId) -> String {
    format!("worker {:016x}", worker.bits())
}
