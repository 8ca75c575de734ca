//! The history of one job, while later rows may still name it.

use filch_scheduler::id::{Fence, Hold, LeaseNo, Seq, WorkerId};
use filch_scheduler::record::{AttemptOutcome, JobWrite, LeaseCause, Note, OperatorAct};
use filch_scheduler::spec::{Condition, Otherwise};
use filch_scheduler::state::JobState;
use filch_scheduler::time::Wall;

use super::{ParentJob, StoredJob};

/// One change of owner of one job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) hold: Hold,
    pub(super) worker: Option<WorkerId>,
    pub(super) cause: LeaseCause,
    pub(super) at: Wall,
    pub(super) row: LeaseNo,
}

/// What is known about a job.
pub(super) struct JobHistory {
    /// Its own row.
    pub(super) now: JobWrite,
    pub(super) attempts_max: u16,
    pub(super) lease_before: LeaseNo,
    pub(super) lease_ended: LeaseNo,
    /// Its attempts that did not succeed, in order.
    pub(super) attempts: Vec<AttemptNote>,
    /// How many attempts the notes since the last retry charge.
    pub(super) charged: u16,
    pub(super) retries: u64,
    pub(super) cancels: u64,
    /// The highest fence under which there is output.
    pub(super) outputs: Option<Fence>,
    /// How often it changed owner, the first time, and the last.
    pub(super) changes: u64,
    pub(super) first: Option<LeaseNo>,
    pub(super) last: Option<Change>,
    pub(super) family: Option<Box<Family>>,
}

/// How an attempt ended that did not succeed.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttemptNote {
    pub(super) fence: Fence,
    pub(super) worker: WorkerId,
    pub(super) kind: Kind,
    /// Whether the ledger gave that worker that fence.
    pub(super) is_owners: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Failed,
    Snoozed,
    Interrupted,
    LostAlone,
    LostAmongOthers,
}

/// The jobs that a job waits for, and the condition.
pub(super) struct Family {
    pub(super) condition: Condition,
    pub(super) otherwise: Otherwise,
    pub(super) parents: Vec<Option<ParentJob>>,
}

/// Whether a job was submitted and waits, and nothing else is known about it.
pub(super) fn is_untouched(kept: &StoredJob) -> bool {
    let now = &kept.row.now;
    kept.notes.is_empty()
        && kept.outputs.is_empty()
        && kept.parents.is_empty()
        && (now.fence, now.attempts) == (Fence(0), 0)
        && matches!(now.state, JobState::Scheduled | JobState::Queued)
}

impl JobHistory {
    pub(super) fn new(kept: &StoredJob) -> Self {
        let spec = &kept.row.spec;
        let mut history = Self {
            now: kept.row.now,
            attempts_max: spec.retry.max,
            lease_before: kept.lease_before,
            lease_ended: kept.lease_ended,
            attempts: Vec::new(),
            charged: 0,
            retries: 0,
            cancels: 0,
            outputs: kept.outputs.iter().copied().max(),
            changes: 0,
            first: None,
            last: None,
            family: None,
        };
        for note in &kept.notes {
            history.take(note);
        }
        if !kept.parents.is_empty() {
            let (condition, otherwise) = (spec.condition, spec.otherwise);
            // A job that is newer than the child only has the id of the parent, which was purged.
            let was_there =
                |it: &ParentJob| it.seq < kept.row.seq || it.submitted_at == kept.row.submitted_at;
            let parents = kept.parents.iter().map(|it| it.filter(was_there)).collect();
            history.family = Some(Box::new(Family { condition, otherwise, parents }));
        }
        history
    }

    /// A job that was only known to wait.
    pub(super) fn untouched(seq: Seq) -> Self {
        Self {
            now: JobWrite {
                job: seq,
                state: JobState::Queued,
                fence: Fence(0),
                attempts: 0,
                suspicions: 0,
                priority: 0,
                due: Wall(0),
                holder: None,
                last: None,
                reason: None,
                at: Wall(0),
            },
            attempts_max: u16::MAX,
            lease_before: LeaseNo(0),
            lease_ended: LeaseNo(0),
            attempts: Vec::new(),
            charged: 0,
            retries: 0,
            cancels: 0,
            outputs: None,
            changes: 0,
            first: None,
            last: None,
            family: None,
        }
    }

    fn take(&mut self, note: &Note) {
        match note {
            Note::Attempt { hold, worker, outcome } => {
                let kind = match outcome {
                    AttemptOutcome::Failed(_) => Kind::Failed,
                    AttemptOutcome::Snoozed => Kind::Snoozed,
                    AttemptOutcome::Interrupted | AttemptOutcome::Unstarted(_) => Kind::Interrupted,
                    AttemptOutcome::LostAlone => Kind::LostAlone,
                    AttemptOutcome::LostAmongOthers => Kind::LostAmongOthers,
                };
                if matches!(kind, Kind::Failed | Kind::LostAlone) {
                    self.charged = self.charged.saturating_add(1);
                }
                let (fence, worker) = (hold.fence, *worker);
                self.attempts.push(AttemptNote { fence, worker, kind, is_owners: false });
            }
            Note::Act { act: OperatorAct::Retry(_), .. } => {
                self.retries += 1;
                self.charged = 0;
            }
            Note::Act { act: OperatorAct::Cancel(_), .. } => self.cancels += 1,
            Note::Act { .. } | Note::WorkerLost { .. } => {}
        }
    }

    /// The fence of the last change of owner; 0 if there was none.
    pub(super) fn fence(&self) -> Fence {
        self.last.map_or(Fence(0), |last| last.hold.fence)
    }

    /// Its owner by the ledger, unless the owner has reported a failure or a snooze.
    pub(super) fn owner(&self) -> Option<WorkerId> {
        let owner = self.last?.worker;
        owner.filter(|_| !self.has(self.fence(), &[Kind::Failed, Kind::Snoozed]))
    }

    /// Whether an attempt under this fence ended in one of these ways.
    pub(super) fn has(&self, fence: Fence, kinds: &[Kind]) -> bool {
        self.attempts.iter().any(|attempt| attempt.fence == fence && kinds.contains(&attempt.kind))
    }

    /// The row of the ledger that is newer than the job's own row.
    pub(super) fn newer_row(&self) -> Option<LeaseNo> {
        let last = self.last.filter(|last| last.hold.fence > self.now.fence)?;
        Some(last.row)
    }
}
