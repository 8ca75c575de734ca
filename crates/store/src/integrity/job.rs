//! What is known of one job while later rows may still be about it.

use filch_scheduler::id::{Fence, Hold, LeaseNo, Seq, WorkerId};
use filch_scheduler::record::{AttemptOutcome, JobWrite, LeaseCause, Note};
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

/// What is known of a job.
pub(super) struct JobHistory {
    /// What its own row says.
    pub(super) now: JobWrite,
    pub(super) attempts_max: u16,
    pub(super) lease_before: LeaseNo,
    pub(super) lease_ended: LeaseNo,
    /// What its attempts came to that did not succeed, in order.
    pub(super) words: Vec<AttemptNote>,
    /// How many attempts are charged by what is noted since the last retry.
    pub(super) charged: u16,
    pub(super) retries: u64,
    pub(super) cancels: u64,
    /// The highest fence under which there is output.
    pub(super) outputs: Option<Fence>,
    /// How often it changed hands, the first time, and the last.
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

/// What a job waits for.
pub(super) struct Family {
    pub(super) condition: Condition,
    pub(super) otherwise: Otherwise,
    pub(super) parents: Vec<Option<ParentJob>>,
}

/// Whether nothing is known of a job but that it was submitted and waits.
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
        let mut life = Self {
            now: kept.row.now,
            attempts_max: spec.retry.max,
            lease_before: kept.lease_before,
            lease_ended: kept.lease_ended,
            words: Vec::new(),
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
            life.take(note);
        }
        if !kept.parents.is_empty() {
            let (condition, otherwise) = (spec.condition, spec.otherwise);
            // One that came after its child has the id of the parent, which was forgotten before.
            let was_there =
                |it: &ParentJob| it.seq < kept.row.seq || it.submitted_at == kept.row.submitted_at;
            let parents = kept.parents.iter().map(|it| it.filter(was_there)).collect();
            life.family = Some(Box::new(Family { condition, otherwise, parents }));
        }
        life
    }

    /// A job of which nothing was known but that it waits.
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
                reason: None,
                at: Wall(0),
            },
            attempts_max: u16::MAX,
            lease_before: LeaseNo(0),
            lease_ended: LeaseNo(0),
            words: Vec::new(),
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
                    AttemptOutcome::Interrupted => Kind::Interrupted,
                    AttemptOutcome::LostAlone => Kind::LostAlone,
                    AttemptOutcome::LostAmongOthers => Kind::LostAmongOthers,
                };
                if matches!(kind, Kind::Failed | Kind::LostAlone) {
                    self.charged = self.charged.saturating_add(1);
                }
                let (fence, worker) = (hold.fence, *worker);
                self.words.push(AttemptNote { fence, worker, kind, is_owners: false });
            }
            Note::Retried(_) => {
                self.retries += 1;
                self.charged = 0;
            }
            Note::Cancelled(_) => self.cancels += 1,
            Note::Prioritised(_) | Note::WorkerLost { .. } | Note::Drained(_) => {}
        }
    }

    /// The fence of the last change of owner; 0 if there was none.
    pub(super) fn fence(&self) -> Fence {
        self.last.map_or(Fence(0), |last| last.hold.fence)
    }

    /// Who owns it by the ledger, unless its owner has said a last word.
    pub(super) fn owner(&self) -> Option<WorkerId> {
        let owner = self.last?.worker;
        owner.filter(|_| !self.has(self.fence(), &[Kind::Failed, Kind::Snoozed]))
    }

    /// Whether an attempt under this fence came to one of these.
    pub(super) fn has(&self, fence: Fence, kinds: &[Kind]) -> bool {
        self.words.iter().any(|word| word.fence == fence && kinds.contains(&word.kind))
    }

    /// The row of the ledger that says more than the job's own.
    pub(super) fn speaking_row(&self) -> Option<LeaseNo> {
        let last = self.last.filter(|last| last.hold.fence > self.now.fence)?;
        Some(last.row)
    }
}
