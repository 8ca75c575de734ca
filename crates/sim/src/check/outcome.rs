//! Outcomes of jobs: S1 no lost job, S3 one success, S5 ended jobs stay ended, S6 one id is one
//! job, S9 charged attempts.

use std::collections::{BTreeMap, BTreeSet};

use filch_scheduler::agent::{StopReason, Verdict};
use filch_scheduler::dispatch::{Answer, Novelty, Refused, Request};
use filch_scheduler::id::{CommitNo, Hold, JobId, RequestNo, Seq};
use filch_scheduler::message::{Again, Ending, FromWorker};
use filch_scheduler::record::{
    AttemptOutcome, JobRow, JobWrite, LeaseCause, Note, OperatorAct, Reason,
};
use filch_scheduler::spec::JobSpec;
use filch_scheduler::state::JobState;

use super::facts::{Facts, Job};
use super::{Change, Commit, Holds, Rule, ensure};
use crate::log::{ExecutionEnd, Observed};

/// The state of these rules.
#[derive(Default)]
pub(super) struct Outcomes {
    /// The jobs of each submit request.
    submits: BTreeMap<RequestNo, Request>,
    /// Executions that succeeded, and that failed.
    finished: BTreeSet<Hold>,
    failed: BTreeSet<Hold>,
    /// Failures that must not be retried.
    hopeless: BTreeSet<Hold>,
    /// Charged failures.
    charged: BTreeSet<Hold>,
    /// Jobs for which a cancel or a retry was requested.
    unwanted: BTreeSet<JobId>,
    retried: BTreeSet<JobId>,
    /// The charged attempts of a job before the commit in which it was written last.
    charged_before: BTreeMap<Seq, (CommitNo, u16)>,
    /// The accepted success of each job.
    accepted: BTreeMap<Seq, Hold>,
}

impl Outcomes {
    pub(super) fn observe(&mut self, seen: &Observed<'_>, facts: &Facts) -> Holds {
        match *seen {
            Observed::Asked {
                request,
                what: what @ (Request::Submit(_) | Request::SubmitWithin { .. }),
            } => {
                self.submits.insert(request, what.clone());
                Ok(())
            }
            Observed::Asked { what: Request::Cancel(id), .. } => {
                self.unwanted.insert(*id);
                Ok(())
            }
            Observed::Asked { what: Request::Retry(id), .. } => {
                self.retried.insert(*id);
                Ok(())
            }
            Observed::Answered { request, answer } => {
                let Some(submit) = self.submits.remove(&request) else { return Ok(()) };
                answered(submit.submitted(), answer, facts)?;
                within(&submit, answer, facts)
            }
            Observed::Started { assignment, .. } => started(assignment.hold, facts),
            Observed::Ended { hold, how: ExecutionEnd::Finished, .. } => {
                self.finished.insert(hold);
                Ok(())
            }
            Observed::Ended { hold, how: ExecutionEnd::Failed, .. }
            | Observed::Stopping { hold, why: StopReason::TimedOut, .. } => {
                self.failed.insert(hold);
                Ok(())
            }
            Observed::Arrived { messages, .. } => {
                let reports = messages.iter().flat_map(FromWorker::reports);
                let hopeless = reports.filter(|report| {
                    matches!(report.ending, Ending::Failed { again: Again::Never, .. })
                });
                self.hopeless.extend(hopeless.map(|report| report.hold));
                Ok(())
            }
            Observed::Settled { hold, verdict: Verdict::Accepted, .. } => self.settled(hold, facts),
            _ => Ok(()),
        }
    }

    /// S3: one success is accepted, and it is stored.
    fn settled(&mut self, hold: Hold, facts: &Facts) -> Holds {
        let Some(job) = facts.job(hold.job).filter(|_| self.finished.contains(&hold)) else {
            return Ok(());
        };
        let is_stored = job.state == JobState::Succeeded && job.fence == hold.fence;
        // An execution that was told to stop may have succeeded all the same.
        let was_unwanted = job.state == JobState::Cancelled;
        ensure(is_stored || was_unwanted, Rule::S3, || {
            let (name, state) = (job.name(), job.state);
            format!("the success of {name}.{} is accepted, but it is {state}", hold.fence.0)
        })?;
        let before = self.accepted.insert(hold.job, hold);
        ensure(before.is_none_or(|before| before == hold), Rule::S3, || {
            format!("a second success of {} is accepted", job.name())
        })
    }

    /// S6: ids and keys are unique.
    pub(super) fn put(&self, row: &JobRow, facts: &Facts) -> Holds {
        let id = row.spec.id;
        ensure(facts.by_id(id).is_none(), Rule::S6, || format!("{id} is stored twice"))?;
        let state = row.now.state;
        ensure(!state.is_ended(), Rule::S5, || format!("{id} is {state} at its submission"))?;
        let Some(key) = row.spec.queue_key() else {
            return Ok(());
        };
        let same = facts.by_key(&key);
        ensure(same.is_none(), Rule::S6, || {
            let other = same.map(|job| job.name().to_string()).unwrap_or_default();
            format!("{id} and {other} are stored with the same key")
        })
    }

    /// S3, S5 and S9.
    pub(super) fn written(&mut self, commit: &Commit<'_>, write: &JobWrite, job: &Job) -> Holds {
        let (id, before) = (job.spec.id, job.state);
        let is_success = write.state == JobState::Succeeded;
        let hold = Hold { job: job.seq, fence: write.fence };
        ensure(!is_success || self.finished.contains(&hold), Rule::S3, || {
            format!(
                "{id}.{} is stored as succeeded, but no execution of it succeeded",
                hold.fence.0
            )
        })?;
        if before.is_ended() {
            let is_noted = || {
                commit.notes().any(|note| {
                    matches!(note, Note::Act { act: OperatorAct::Retry(it), .. } if *it == id)
                })
            };
            let is_retried = || self.retried.contains(&id) && is_noted();
            let is_let_go = before == JobState::Cancelled && job.held_by.is_some();
            let fits = match (before, write.state) {
                (JobState::Dead, JobState::Queued) => is_retried(),
                (JobState::Cancelled, JobState::Cancelled) => is_let_go,
                _ => false,
            };
            let rule = if write.state == JobState::Succeeded { Rule::S3 } else { Rule::S5 };
            ensure(fits, rule, || format!("{id} is {before}, but is written as {}", write.state))?;
            if is_retried() {
                return ensure(write.attempts == 0, Rule::S9, || {
                    format!("{id} is retried with {} attempts charged", write.attempts)
                });
            }
        } else if write.state == JobState::Cancelled && write.reason != Some(Reason::Condition) {
            ensure(self.unwanted.contains(&id), Rule::S5, || {
                format!("{id} is cancelled, but no cancel was requested")
            })?;
        }
        let charges: Vec<Option<Hold>> =
            commit.notes().filter_map(|note| charge(note, job.seq)).collect();
        ensure(are_losses_real(commit, job.seq), Rule::S9, || {
            format!(
                "{id} is charged for a worker that was not lost, or whose loss is charged to another job"
            )
        })?;
        let unearned = charges.iter().flatten().find(|hold| !self.failed.contains(hold));
        ensure(unearned.is_none(), Rule::S9, || {
            let fence = unearned.map_or(0, |hold| hold.fence.0);
            format!("{id}.{fence} is charged as a failure, but it did not fail")
        })?;
        let charged_before = match self.charged_before.get(&job.seq) {
            Some(&(number, attempts)) if number == commit.number => attempts,
            _ => {
                let again = charges.iter().flatten().find(|&&hold| !self.charged.insert(hold));
                ensure(again.is_none(), Rule::S9, || {
                    let fence = again.map_or(0, |hold| hold.fence.0);
                    format!("the failure of {id}.{fence} is charged twice")
                })?;
                job.attempts
            }
        };
        self.charged_before.insert(job.seq, (commit.number, charged_before));
        let charged = usize::from(charged_before) + charges.len();
        ensure(usize::from(write.attempts) == charged, Rule::S9, || {
            let failed = charges.len();
            format!(
                "{id} is charged {} attempts after {charged_before}, but {failed} more failed",
                write.attempts
            )
        })?;
        let is_hopeless = charges.iter().flatten().any(|hold| self.hopeless.contains(hold));
        let is_used_up = !charges.is_empty() && write.attempts >= job.spec.retry.max;
        ensure(is_used_up || is_hopeless || write.state != JobState::Dead, Rule::S9, || {
            let (used, max) = (write.attempts, job.spec.retry.max);
            format!("{id} is written as dead after {used} of {max} attempts")
        })?;
        ensure(write.attempts <= job.spec.retry.max, Rule::S9, || {
            format!("{id} is charged {} of {} attempts", write.attempts, job.spec.retry.max)
        })
    }

    /// S5, and S9: an execution that was lost with its worker is recorded.
    pub(super) fn changed(&self, change: &Change, job: &Job) -> Holds {
        let id = job.spec.id;
        let was_ended_before = job.is_ended() && change.hold.fence > job.fence;
        ensure(!was_ended_before, Rule::S5, || {
            format!("{id} is {}, but changes owner by {:?}", job.state, change.cause)
        })?;
        if let (LeaseCause::Lost(_), Some(tenure)) = (change.cause, job.tenures.last()) {
            let is_counted = !tenure.is_started || job.suspicions > tenure.suspicions;
            ensure(is_counted || job.suspicions == u8::MAX, Rule::S9, || {
                format!("{id} was running when its worker was lost, but is not suspected")
            })?;
        }
        Ok(())
    }
}

/// S1 and S6, for the answer to a submit.
fn answered(specs: &[JobSpec], answer: &Answer, facts: &Facts) -> Holds {
    let jobs = match answer {
        Answer::Submitted(jobs) => jobs,
        Answer::Refused(Refused::IdConflict(id)) => {
            let mut same = specs.iter().filter(|spec| spec.id == *id);
            let stored = facts.by_id(*id).map(|job| job.spec.body);
            let is_same = same.all(|spec| stored == Some(spec.body));
            return ensure(!is_same, Rule::S6, || {
                format!("the submit of {id} is refused, but it is the same job")
            });
        }
        Answer::Refused(Refused::KeyConflict { key, holder }) => {
            // A key is refused only for another job with it in the same queue, stored or submitted.
            let with_key: Vec<&JobSpec> =
                specs.iter().filter(|spec| spec.key.as_ref() == Some(key)).collect();
            let is_conflict = with_key.iter().any(|spec| {
                let stored = spec.queue_key().and_then(|key| facts.by_key(&key));
                let beside = with_key.iter().filter(|other| other.queue == spec.queue);
                let mut bodies = beside.map(|other| other.body);
                bodies.any(|body| body != spec.body)
                    || stored.is_some_and(|stored| stored.spec.body != spec.body)
            });
            return ensure(is_conflict, Rule::S6, || {
                format!("a submit with the key of {holder} is refused, but it is no conflict")
            });
        }
        Answer::Done | Answer::Refused(_) => return Ok(()),
    };
    ensure(jobs.len() == specs.len(), Rule::S1, || {
        format!("{} jobs were submitted, but {} are acknowledged", specs.len(), jobs.len())
    })?;
    for (job, spec) in jobs.iter().zip(specs) {
        let stored = facts.job(job.seq);
        ensure(stored.is_some(), Rule::S1, || {
            format!("the submit of {} is acknowledged but not stored", spec.id)
        })?;
        let is_same = stored.is_some_and(|stored| {
            let is_by_id = stored.spec.id == spec.id;
            let is_by_key = spec.key.is_some() && stored.spec.queue_key() == spec.queue_key();
            stored.spec.id == job.id
                && stored.spec.body == spec.body
                && (is_by_key || (is_by_id && stored.spec.key == spec.key))
        });
        ensure(is_same, Rule::S6, || {
            format!("the submit of {} is answered with {}, another job", spec.id, job.id)
        })?;
    }
    Ok(())
}

/// S6: for a client that sees some queues, the jobs of others do not exist.
fn within(submit: &Request, answer: &Answer, facts: &Facts) -> Holds {
    let (Request::SubmitWithin { queues, jobs }, Answer::Submitted(taken)) = (submit, answer)
    else {
        return Ok(());
    };
    // Jobs that existed may have been submitted by a client that sees more.
    let new = jobs.iter().zip(taken).filter(|(_, taken)| taken.novelty == Novelty::New);
    let new = new.map(|(spec, _)| spec);
    for (spec, parent) in new.flat_map(|spec| spec.parents.iter().map(move |it| (spec, it))) {
        let parent = facts.by_id(*parent);
        let foreign = parent.filter(|parent| !queues.contains(&parent.spec.queue));
        ensure(foreign.is_none(), Rule::S6, || {
            format!("{} has a parent in a queue that its client does not see", spec.id)
        })?;
    }
    Ok(())
}

/// S5 and S9: ended jobs do not start, and no fence starts twice.
fn started(hold: Hold, facts: &Facts) -> Holds {
    let Some(job) = facts.job(hold.job) else {
        return Ok(());
    };
    let has_ended = job.is_ended() && job.held_by.is_none();
    ensure(!has_ended || job.state == JobState::Cancelled, Rule::S5, || {
        format!("{}.{} starts, but it is {}", job.name(), hold.fence.0, job.state)
    })?;
    let is_repeated = job.tenure(hold.fence).is_some_and(|tenure| tenure.is_started);
    ensure(!is_repeated, Rule::S9, || format!("{}.{} starts twice", job.name(), hold.fence.0))
}

/// Whether each worker whose loss is charged to this job was lost, and its loss is charged to no
/// other job.
fn are_losses_real(commit: &Commit<'_>, job: Seq) -> bool {
    let charged = |note: &Note| match note {
        Note::Attempt { hold, worker, outcome: AttemptOutcome::LostAlone } => {
            Some((hold.job, *worker))
        }
        _ => None,
    };
    let losses: Vec<_> = commit.notes().filter_map(charged).collect();
    let is_lost = |worker| {
        let of_it =
            |note: &Note| matches!(note, Note::WorkerLost { worker: it, .. } if *it == worker);
        commit.notes().any(of_it)
    };
    let is_alone = |worker| losses.iter().filter(|&&(_, it)| it == worker).count() == 1;
    let mut own = losses.iter().filter(|&&(it, _)| it == job);
    own.all(|&(_, worker)| is_lost(worker) && is_alone(worker))
}

/// Whether this note charges an attempt to the job, and which execution must have failed for that.
fn charge(note: &Note, job: Seq) -> Option<Option<Hold>> {
    let Note::Attempt { hold, outcome, .. } = note else {
        return None;
    };
    match outcome {
        _ if hold.job != job => None,
        AttemptOutcome::Failed(_) => Some(Some(*hold)),
        AttemptOutcome::LostAlone => Some(None),
        AttemptOutcome::Snoozed
        | AttemptOutcome::Interrupted
        | AttemptOutcome::Unstarted(_)
        | AttemptOutcome::LostAmongOthers => None,
    }
}
