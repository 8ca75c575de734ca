//! S19: who is charged. S9 compares attempts with what the store says about them; this compares
//! what the store says with what happened.
//!
//! A failure is charged once it is accepted. A lost worker is charged to the only job that can have
//! caused the loss, if there is exactly one. Nothing else is charged: not a job that was handed
//! back, stolen, interrupted, cancelled or could not be started.

use std::collections::{BTreeMap, BTreeSet};

use filch_scheduler::id::{Hold, Seq, WorkerId};
use filch_scheduler::message::{Ending, FromWorker, ToWorker};
use filch_scheduler::record::{AttemptOutcome, Note};
use filch_scheduler::state::JobState;

use super::facts::{End, Facts, Job};
use super::ownership::who;
use super::{Commit, Holds, Rule, ensure};
use crate::log::Observed;

/// The state of this rule.
#[derive(Default)]
pub(super) struct Charges {
    /// Whether the first report of its owner about an execution is that it failed.
    failed: BTreeMap<Hold, bool>,
    /// Failures that are stored as such.
    stored: BTreeSet<Hold>,
}

/// From so many suspicions on, no two such jobs share a worker.
const SUSPICIONS_SOLO: u8 = 2;

/// The jobs that may have run on a lost worker.
#[derive(Default)]
struct Suspects {
    /// Each with whether it was suspected often enough to be alone.
    jobs: BTreeMap<Seq, bool>,
    /// How many cancelled jobs the worker had not released.
    cancelled: usize,
    /// How many jobs the worker is known to have held, and how many it held.
    known: u32,
    held: u32,
}

impl Suspects {
    /// The only job that can have caused the loss.
    fn culprit(&self) -> Option<Seq> {
        match self.jobs.first_key_value() {
            Some((&alone, _)) if self.jobs.len() == 1 && self.cancelled == 0 => Some(alone),
            _ => self.jobs.iter().find(|(_, is_solo)| **is_solo).map(|(&job, _)| job),
        }
    }
}

impl Charges {
    /// After the facts have been updated.
    pub(super) fn observe(&mut self, seen: &Observed<'_>, facts: &Facts) -> Holds {
        match *seen {
            Observed::Arrived { worker, messages, .. } => {
                for report in messages.iter().flat_map(FromWorker::reports) {
                    let job = facts.job(report.hold.job);
                    let tenure = job.and_then(|job| job.tenure(report.hold.fence));
                    if tenure.is_some_and(|tenure| facts.speaks_for(worker, tenure.worker)) {
                        let has_failed = matches!(report.ending, Ending::Failed { .. });
                        self.failed.entry(report.hold).or_insert(has_failed);
                    }
                }
            }
            Observed::Told { messages, .. } => {
                for message in messages {
                    if let ToWorker::Accepted(holds) = message {
                        holds.iter().try_for_each(|&hold| self.accepted(hold, facts))?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn accepted(&self, hold: Hold, facts: &Facts) -> Holds {
        let has_failed = self.failed.get(&hold) == Some(&true);
        let tenure = facts.job(hold.job).and_then(|job| job.tenure(hold.fence));
        let is_ended = tenure.is_some_and(|tenure| tenure.end == Some(End::Word));
        let is_charged = self.stored.contains(&hold);
        ensure(!has_failed || !is_ended || is_charged, Rule::S19, || {
            format!("the failure of #{}.{} is accepted, but not charged", hold.job.0, hold.fence.0)
        })
    }

    /// Before the facts are updated: what a commit says about lost workers is judged by what was
    /// true before.
    pub(super) fn stored(&mut self, commit: &Commit<'_>, facts: &Facts) -> Holds {
        let mut lost: BTreeMap<WorkerId, Suspects> = BTreeMap::new();
        for note in commit.notes() {
            match note {
                Note::WorkerLost { worker, jobs } => {
                    lost.insert(*worker, Suspects { held: *jobs, ..Suspects::default() });
                }
                Note::Attempt { hold, outcome: AttemptOutcome::Failed(_), .. } => {
                    self.stored.insert(*hold);
                }
                _ => {}
            }
        }
        if lost.is_empty() {
            return Ok(());
        }
        for job in facts.jobs() {
            if let Some(suspects) = job.owner.and_then(|owner| lost.get_mut(&owner)) {
                suspects.known += 1;
                if may_have_run(job) {
                    suspects.jobs.insert(job.seq, job.suspicions >= SUSPICIONS_SOLO);
                }
            } else if let Some(suspects) = job.held_by.and_then(|holder| lost.get_mut(&holder)) {
                suspects.known += 1;
                suspects.cancelled += 1;
            }
        }
        for (&worker, suspects) in &lost {
            check_loss(commit, worker, suspects)?;
        }
        Ok(())
    }
}

/// Exactly the suspects are noted, and exactly the culprit is charged. Where none is noted, S9
/// checks that none of them ran.
fn check_loss(commit: &Commit<'_>, worker: WorkerId, suspects: &Suspects) -> Holds {
    let mut noted = BTreeSet::new();
    let mut charged = None;
    for note in commit.notes() {
        if let Note::Attempt { hold, worker: it, outcome } = note
            && *it == worker
        {
            match outcome {
                AttemptOutcome::LostAlone => charged = Some(hold.job),
                AttemptOutcome::LostAmongOthers => {}
                _ => continue,
            }
            noted.insert(hold.job);
        }
    }
    // The history of a single job tells nothing about the others on its worker.
    if noted.is_empty() || suspects.known < suspects.held {
        return Ok(());
    }
    let culprit = suspects.culprit();
    ensure(charged == culprit, Rule::S19, || {
        let show = |job: Option<Seq>| job.map_or("no job".to_owned(), |job| format!("#{}", job.0));
        let (charged, culprit, worker) = (show(charged), show(culprit), who(worker));
        format!("the loss of {worker} is charged to {charged}, but {culprit} can have caused it")
    })?;
    ensure(noted.iter().eq(suspects.jobs.keys()), Rule::S19, || {
        let count = suspects.jobs.len();
        let worker = who(worker);
        format!("{count} jobs may have run on {worker}, but {} are suspected", noted.len())
    })
}

/// Whether the owner of this job has reported its start, or could start it without asking.
fn may_have_run(job: &Job) -> bool {
    match job.state {
        JobState::Running => true,
        JobState::Leased => job.suspicions == 0,
        _ => false,
    }
}
