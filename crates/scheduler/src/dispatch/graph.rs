//! Dependencies: when a parent ends, its children's counters are updated; nothing is searched.
//!
//! A released child is not written to the store: its parents' outcomes are there, and a load
//! reaches the same verdict. A cancelled child is written.

use alloc::vec::Vec;

use super::Dispatch;
use super::job::{Extra, Job};
use crate::id::Seq;
use crate::planted::{Bug, planted};
use crate::record::{LeaseCause, Reason};
use crate::spec::{Otherwise, Tally, Verdict};
use crate::state::{JobState, Verb};

/// How a job in this state counts in its children's tallies.
pub(super) const fn counted(state: JobState) -> Tally {
    match state {
        JobState::Succeeded => Tally { pending: 0, succeeded: 1, failed: 0 },
        JobState::Dead | JobState::Cancelled => Tally { pending: 0, succeeded: 0, failed: 1 },
        _ => Tally { pending: 1, succeeded: 0, failed: 0 },
    }
}

impl Dispatch {
    /// `seq` becomes a parent of `child`. Both are in memory; the child has not been judged yet.
    pub(super) fn link(&mut self, seq: Seq, child: Seq) {
        let parent = self.jobs.get_mut(seq);
        let is_missed = planted(Bug::ChildOfFinishedParentNeverReleased);
        let one = counted(if is_missed { JobState::Blocked } else { parent.state() });
        let extra = parent.extra.get_or_insert_default();
        extra.children.push(child);
        extra.children_live += 1;
        let extra = self.jobs.get_mut(child).extra.get_or_insert_default();
        extra.parents.push(seq);
        extra.tally.pending += one.pending;
        extra.tally.succeeded += one.succeeded;
        extra.tally.failed += one.failed;
    }

    /// A job has ended: updates its children, and in turn the children of those that this cancels.
    pub(super) fn tell_children(&mut self, ended: Seq) {
        let mut parents = Vec::from([ended]);
        while let Some(parent) = parents.pop() {
            let one = counted(self.jobs.get(parent).state());
            // Nothing else reads the list meanwhile: the parent has ended, and stays in memory
            // until its receipt.
            let Some(extra) = &mut self.jobs.get_mut(parent).extra else {
                continue;
            };
            let children = core::mem::take(&mut extra.children);
            for &child in &children {
                let Some(extra) = self.listening(child) else {
                    continue;
                };
                extra.tally.pending -= 1;
                extra.tally.succeeded += one.succeeded;
                extra.tally.failed += one.failed;
                if self.judge(child) == Judged::Cancelled && !planted(Bug::ChildrenNotUpdated) {
                    parents.push(child);
                }
            }
            let extra = self.jobs.get_mut(parent).extra.as_mut();
            extra.expect("it was there just now").children = children;
        }
    }

    /// Releases or cancels a blocked job if its parents' tally requires it. If it is cancelled, its
    /// own children are not updated yet.
    pub(super) fn judge(&mut self, seq: Seq) -> Judged {
        let job = self.jobs.get(seq);
        if job.state() != JobState::Blocked {
            if let Some(owner) = job.phase.owner()
                && planted(Bug::ChildReleasedTwice)
            {
                self.requeue(seq, LeaseCause::Returned(owner));
            }
            return Judged::AsBefore;
        }
        let (verdict, otherwise) = match &job.extra {
            Some(extra) if !extra.parents.is_empty() => {
                (extra.condition.judge(extra.tally), extra.otherwise)
            }
            _ => (Verdict::Holds, Otherwise::Hold),
        };
        match (verdict, otherwise) {
            (Verdict::Holds, _) | (Verdict::Never, Otherwise::Run) => {
                self.release(seq);
                Judged::Released
            }
            (Verdict::Never, Otherwise::Cancel) => {
                self.end_alone(seq, Verb::Cancel, Some(Reason::Condition));
                Judged::Cancelled
            }
            (Verdict::Open, _) | (Verdict::Never, Otherwise::Hold) => Judged::AsBefore,
        }
    }

    /// An ended job no longer keeps its parents in memory, and no longer listens to them.
    pub(super) fn leave_parents(&mut self, seq: Seq) {
        let Some(extra) = &mut self.jobs.get_mut(seq).extra else {
            return;
        };
        for parent in core::mem::take(&mut extra.parents) {
            let job = self.jobs.get_mut(parent);
            let extra = job.extra.as_mut().expect("a parent knows its children");
            extra.children_live -= 1;
            let is_mostly_ended = extra.children.len() > 2 * extra.children_live as usize + 32;
            if extra.children_live == 0 && job.state().is_ended() {
                self.evict_if_unneeded(parent);
            } else if is_mostly_ended {
                self.forget_ended_children(parent);
            }
        }
    }

    /// A parent that lives long, or for ever, must not remember every child it ever had.
    fn forget_ended_children(&mut self, parent: Seq) {
        let extra = self.jobs.get_mut(parent).extra.as_mut().expect("it was there just now");
        let mut children = core::mem::take(&mut extra.children);
        // A child that ended has left all its parents at once, and never comes back to them.
        let listens = |job: &Job| !job.parents().is_empty();
        children.retain(|&child| self.jobs.find(child).is_some_and(listens));
        let extra = self.jobs.get_mut(parent).extra.as_mut().expect("it was there just now");
        extra.children = children;
    }

    /// A dead job is retried: its children that have not ended wait for it again. Children that its
    /// death released stay released, and the store must record that now.
    pub(super) fn revive_for_children(&mut self, seq: Seq) {
        for child in Vec::from(self.jobs.get(seq).children()) {
            let Some(extra) = self.listening(child) else {
                continue;
            };
            extra.tally.failed -= 1;
            extra.tally.pending += 1;
            if matches!(self.jobs.get(child).state(), JobState::Scheduled | JobState::Queued) {
                self.write(child, None);
            }
        }
    }

    /// What a child knows of its parents, if it still listens to them. A child that ended does not,
    /// even if it was retried since, and it may not even be in memory.
    fn listening(&mut self, child: Seq) -> Option<&mut Extra> {
        let extra = self.jobs.find_mut(child)?.extra.as_mut()?;
        (!extra.parents.is_empty()).then_some(extra)
    }
}

/// The result of judging a blocked job.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Judged {
    AsBefore,
    Released,
    Cancelled,
}
