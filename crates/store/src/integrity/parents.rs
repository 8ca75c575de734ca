//! What jobs waited for: no job was given to a worker before its parents' condition held, none was
//! cancelled for it while it could still hold, and none waits for itself.
//!
//! The order of events comes from the ledger: each job's last write has the newest lease row before
//! it. Times are not used, because clocks may jump.

use std::collections::BTreeMap;

use filch_scheduler::id::{LeaseNo, Seq};
use filch_scheduler::record::Reason;
use filch_scheduler::spec::{Condition, Otherwise};
use filch_scheduler::state::JobState;

use super::ParentJob;
use super::job::{Family, JobHistory};
use super::report::{IntegrityReport, IntegrityRule};

/// Blocked jobs, and the jobs that they wait for.
#[derive(Default)]
pub(super) struct Blocked {
    waits: BTreeMap<Seq, Vec<Seq>>,
}

/// The states of a job's parents at one point in time.
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

/// How a retried parent counts: it was dead once before, at an unknown time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Retried {
    AsItIs,
    AsFailed,
}

impl Blocked {
    /// Checks the state of a job against the states of its parents.
    pub(super) fn check(&mut self, seq: Seq, job: &JobHistory, report: &mut IntegrityReport) {
        let Some(family) = job.family.as_deref() else {
            return;
        };
        let is_kept_as_blocked = job.now.state == JobState::Blocked;
        if family.parents.iter().any(Option::is_none) {
            report.ensure(!is_kept_as_blocked, IntegrityRule::S12, Some(seq), || {
                "it is blocked, but a job that it waits for does not exist".to_owned()
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
        if let Some(first) = job.first {
            report.ensure(
                family.may(|parent| parent.is_before(first), is_released),
                IntegrityRule::S12,
                Some(seq),
                || {
                    let parents = family.show(|parent| parent.is_before(first));
                    format!("lease row {} assigns it before {}: {parents}", first.0, family.words())
                },
            );
        } else if job.now.reason == Some(Reason::Condition) {
            let ended = |parent: &ParentJob| parent.is_ended_by(job.lease_ended);
            let may = family.may(ended, |verdict| verdict == Verdict::Never);
            report.ensure(
                may && family.otherwise == Otherwise::Cancel,
                IntegrityRule::S12,
                Some(seq),
                || {
                    let parents = family.show(ended);
                    format!(
                        "it was cancelled although {} was still possible: {parents}",
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
                format!("it is blocked although {} is impossible: {parents}", family.words())
            });
            let waits = family.parents.iter().flatten().filter(|parent| !parent.state.is_ended());
            self.waits.insert(seq, waits.map(|parent| parent.seq).collect());
        }
    }

    /// Removes jobs that wait for no blocked job, again and again; the remaining ones form cycles.
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
            let what = format!("cycle: these jobs wait for one another: {}", seqs.join(", "));
            report.add(IntegrityRule::S12, Some(*first), what);
        }
    }
}

impl ParentJob {
    /// Whether it had ended before this row of the ledger was written.
    fn is_before(&self, row: LeaseNo) -> bool {
        self.state.is_ended() && self.lease_ended < row
    }

    /// Whether it had ended when this was the newest row of the ledger.
    fn is_ended_by(&self, row: LeaseNo) -> bool {
        self.state.is_ended() && self.lease_ended <= row
    }
}

impl Family {
    /// Whether the condition may have had such a state, whenever retried parents were dead.
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
                (true, false) => ", but was not yet then",
                _ => "",
            };
            format!("job number {} is {}{when}", parent.seq.0, parent.state)
        };
        let shown: Vec<String> = self.parents.iter().flatten().take(5).map(show).collect();
        shown.join(", ")
    }
}

/// The four conditions, implemented again: the check does not rely on the scheduler's code.
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
