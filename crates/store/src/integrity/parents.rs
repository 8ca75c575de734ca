//! What jobs waited for: none was given to a worker before its parents' condition held, none was cancelled
//! for it before it could not hold any more, and none waits for itself.
//!
//! Which of two things came first is told by the ledger: each job's last write knows the newest row before
//! it. Clocks may jump, and are not asked.

use std::collections::BTreeMap;

use filch_scheduler::id::{LeaseNo, Seq};
use filch_scheduler::record::Reason;
use filch_scheduler::spec::{Condition, Otherwise};
use filch_scheduler::state::JobState;

use super::ParentJob;
use super::job::{Family, JobHistory};
use super::report::{IntegrityReport, IntegrityRule};

/// Jobs that wait for others, and for which ones.
#[derive(Default)]
pub(super) struct Blocked {
    waits: BTreeMap<Seq, Vec<Seq>>,
}

/// How a job's parents stood at one moment.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct ParentCounts {
    pending: usize,
    succeeded: usize,
    failed: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Open,
    Holds,
    Never,
}

/// What a retried parent counts as: it died once before, and nobody wrote down when.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Retried {
    AsItIs,
    AsFailed,
}

impl Blocked {
    /// Whether what became of the job follows from what became of its parents.
    pub(super) fn judge(&mut self, seq: Seq, life: &JobHistory, report: &mut IntegrityReport) {
        let Some(family) = life.family.as_deref() else {
            return;
        };
        let is_kept_as_blocked = life.now.state == JobState::Blocked;
        if family.parents.iter().any(Option::is_none) {
            report.ensure(!is_kept_as_blocked, IntegrityRule::S12, Some(seq), || {
                "it is kept as blocked, and a job that it waits for is gone".to_owned()
            });
            report.counts.orphans += 1;
            return;
        }
        report.counts.children += 1;
        let is_released = |verdict| match verdict {
            Verdict::Holds => true,
            Verdict::Never => family.otherwise == Otherwise::Run,
            Verdict::Open => false,
        };
        if let Some(first) = life.first {
            report.ensure(
                family.may(|parent| parent.is_before(first), is_released),
                IntegrityRule::S12,
                Some(seq),
                || {
                    let parents = family.show(|parent| parent.is_before(first));
                    format!(
                        "lease row {} gives it to a worker before {}: {parents}",
                        first.0,
                        family.words()
                    )
                },
            );
        } else if life.now.reason == Some(Reason::Condition) {
            let ended = |parent: &ParentJob| parent.is_ended_by(life.lease_ended);
            let may = family.may(ended, |verdict| verdict == Verdict::Never);
            report.ensure(
                may && family.otherwise == Otherwise::Cancel,
                IntegrityRule::S12,
                Some(seq),
                || {
                    let parents = family.show(ended);
                    format!(
                        "it was cancelled although {} could still come: {parents}",
                        family.words()
                    )
                },
            );
        } else if is_kept_as_blocked {
            let is_never =
                |verdict| verdict == Verdict::Never && family.otherwise == Otherwise::Cancel;
            let verdict = family.verdict(|parent| parent.state.is_ended(), Retried::AsItIs);
            report.ensure(!is_never(verdict), IntegrityRule::S12, Some(seq), || {
                let parents = family.show(|parent| parent.state.is_ended());
                format!(
                    "it still waits although {} cannot come any more: {parents}",
                    family.words()
                )
            });
            let waits = family.parents.iter().flatten().filter(|parent| !parent.state.is_ended());
            self.waits.insert(seq, waits.map(|parent| parent.seq).collect());
        }
    }

    /// Whoever waits for nobody that waits can go; whoever is left over waits for itself.
    pub(super) fn finish(&mut self, report: &mut IntegrityReport) {
        let mut children: BTreeMap<Seq, Vec<Seq>> = BTreeMap::new();
        let mut left: BTreeMap<Seq, usize> = BTreeMap::new();
        for (&child, parents) in &self.waits {
            let waiting = parents.iter().filter(|parent| self.waits.contains_key(parent));
            left.insert(child, waiting.clone().count());
            for &parent in waiting {
                children.entry(parent).or_default().push(child);
            }
        }
        let mut free: Vec<Seq> =
            left.iter().filter(|(_, count)| **count == 0).map(|(seq, _)| *seq).collect();
        while let Some(seq) = free.pop() {
            left.remove(&seq);
            for child in children.get(&seq).into_iter().flatten() {
                if let Some(count) = left.get_mut(child) {
                    *count -= 1;
                    if *count == 0 {
                        free.push(*child);
                    }
                }
            }
        }
        if let Some((first, _)) = left.first_key_value() {
            let seqs: Vec<String> = left.keys().take(10).map(|seq| seq.0.to_string()).collect();
            let what = format!("jobs wait for one another: {}", seqs.join(", "));
            report.add(IntegrityRule::S12, Some(*first), what);
        }
    }
}

impl ParentJob {
    /// Whether it had ended before this row of the ledger was written.
    fn is_before(&self, row: LeaseNo) -> bool {
        self.state.is_ended() && self.lease_ended < row
    }

    /// Whether it had ended when the ledger stood there.
    fn is_ended_by(&self, row: LeaseNo) -> bool {
        self.state.is_ended() && self.lease_ended <= row
    }
}

impl Family {
    /// Whether the condition may have stood so, whenever retried parents died.
    fn may(&self, ended: impl Fn(&ParentJob) -> bool, is: impl Fn(Verdict) -> bool) -> bool {
        [Retried::AsItIs, Retried::AsFailed]
            .into_iter()
            .any(|retried| is(self.verdict(&ended, retried)))
    }

    fn verdict(&self, ended: impl Fn(&ParentJob) -> bool, retried: Retried) -> Verdict {
        let mut counts = ParentCounts::default();
        for parent in self.parents.iter().flatten() {
            match parent.state {
                _ if parent.is_retried && retried == Retried::AsFailed => counts.failed += 1,
                _ if !ended(parent) => counts.pending += 1,
                JobState::Succeeded => counts.succeeded += 1,
                _ => counts.failed += 1,
            }
        }
        judge(self.condition, counts)
    }

    fn words(&self) -> &'static str {
        match self.condition {
            Condition::AllSucceeded => "the success of all its parents",
            Condition::AnySucceeded => "the success of one of its parents",
            Condition::AllDone => "the end of all its parents",
            Condition::AnyFailed => "the failure of one of its parents",
        }
    }

    fn show(&self, ended: impl Fn(&ParentJob) -> bool) -> String {
        let show = |parent: &ParentJob| {
            let when = match (parent.state.is_ended(), ended(parent)) {
                (true, false) => ", but not by then",
                _ => "",
            };
            format!("job number {} is {}{when}", parent.seq.0, parent.state)
        };
        let shown: Vec<String> = self.parents.iter().flatten().take(5).map(show).collect();
        shown.join(", ")
    }
}

/// The four conditions, once more: the scheduler's own word is not taken for it.
fn judge(condition: Condition, counts: ParentCounts) -> Verdict {
    let ParentCounts { pending, succeeded, failed } = counts;
    let (holds, never) = match condition {
        Condition::AllSucceeded => (pending + failed == 0, failed > 0),
        Condition::AnySucceeded => (succeeded > 0, succeeded + pending == 0),
        Condition::AllDone => (pending == 0, false),
        Condition::AnyFailed => (failed > 0, failed + pending == 0),
    };
    match (holds, never) {
        (true, _) => Verdict::Holds,
        (false, true) => Verdict::Never,
        (false, false) => Verdict::Open,
    }
}
