//! Reports of workers about their jobs. Every report carries (job, fence) and is checked against
//! the current owner in the same step that would apply it.
//!
//! Unknown jobs, old fences and repeats are normal on any network; they are counted and answered,
//! never asserted on.

use super::Dispatch;
use crate::id::{Fence, Hold, Seq, SessionNo, WorkerId};
use crate::message::{Again, Ending, ErrorText, Report, ToWorker};
use crate::planted::{Bug, planted};
use crate::random::mix;
use crate::record::{
    AttemptOutcome, AttemptOutput, LastReport, LeaseCause, Mutation, Note, Reason, ReportKind,
};
use crate::state::{JobState, Verb};

/// How a reported hold compares with the job's current owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// It owns the job.
    Owned,
    /// The job is cancelled, and this is the worker that has to let go of it.
    Cancelled,
    /// It does not own the job, which has this fence now.
    Stale(Fence),
    /// The job has ended and left memory.
    Gone,
    /// There never was such a job.
    Unknown,
}

/// A report that may repeat the last one about its job.
#[derive(Clone, Copy)]
pub(super) struct Word {
    pub(super) hold: Hold,
    kind: ReportKind,
    /// The worker that owned the job, according to the report.
    owner: WorkerId,
    /// The incarnation that the speaker replaces. After a broken connection it repeats reports of
    /// that incarnation under its own name.
    replaced: Option<WorkerId>,
}

impl Word {
    /// Whether this repeats the report that brought the job into this state under this fence.
    pub(super) fn repeats(
        &self,
        state: JobState,
        current: Fence,
        last: Option<LastReport>,
    ) -> bool {
        if planted(Bug::RepeatByFenceAlone) {
            let is_over = [ReportKind::Finished, ReportKind::Failed, ReportKind::Snoozed]
                .into_iter()
                .any(|kind| kind.leads_to(state));
            return is_over && current == self.hold.fence && current.0 > 0;
        }
        let is_same = |last: LastReport| {
            last.kind == self.kind
                && (last.worker == self.owner || Some(last.worker) == self.replaced)
        };
        current == self.hold.fence && last.is_some_and(is_same)
    }
}

/// The answer to a worker's report.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is stored now, or was stored before.
    Accepted,
    /// It came too late; the job has this fence now, if it exists.
    Refused(Option<Fence>),
}

impl Verdict {
    /// Accepted if so, else refused with the job's current fence.
    pub(super) fn accepted_if(is_accepted: bool, current: Option<Fence>) -> Self {
        if is_accepted { Self::Accepted } else { Self::Refused(current) }
    }
}

impl Dispatch {
    pub(super) fn standing(&self, worker: WorkerId, hold: Hold) -> Standing {
        if hold.job > self.last_seq {
            return Standing::Unknown;
        }
        let Some(job) = self.jobs.find(hold.job) else {
            return Standing::Gone;
        };
        let is_holder = job.phase.holder() == Some(worker) && job.held_under() == hold.fence;
        match job.state() {
            JobState::Leased | JobState::Running if is_holder => Standing::Owned,
            JobState::Cancelled if is_holder => Standing::Cancelled,
            _ => Standing::Stale(job.fence),
        }
    }

    /// A job has left `owner`; `speaker`, which may be its successor, reports that.
    pub(super) fn report(
        &mut self,
        owner: WorkerId,
        speaker: WorkerId,
        session: SessionNo,
        report: Report,
    ) {
        let Report { hold, ending, result, log } = report;
        let replaced = self.workers.find(speaker).and_then(|worker| worker.replaces);
        let word = ending.kind().map(|kind| Word { hold, kind, owner, replaced });
        let mut standing = self.standing(owner, hold);
        let is_finish = ending == Ending::Finished && planted(Bug::FinishWithoutFence);
        let is_return = ending == Ending::Dropped && planted(Bug::ReclaimById);
        if (is_finish || is_return)
            && self.jobs.find(hold.job).is_some_and(|job| job.state().is_owned())
        {
            standing = Standing::Owned;
        }
        match standing {
            Standing::Owned => {
                self.apply(owner, hold, ending);
                if result.is_some() || log.is_some() {
                    self.mutate(Mutation::Output(AttemptOutput { hold, result, log }));
                }
                self.answer_report(speaker, session, hold, Verdict::Accepted);
            }
            Standing::Gone if let Some(word) = word.filter(|it| it.kind != ReportKind::Snoozed) => {
                self.outcome.reports_on_gone.push(word);
            }
            Standing::Stale(current) => {
                let job = self.jobs.get(hold.job);
                let repeats = |word: Word| word.repeats(job.state(), job.fence, job.phase.last());
                let verdict = Verdict::accepted_if(word.is_some_and(repeats), Some(current));
                self.answer_report(speaker, session, hold, verdict);
            }
            // However the attempt ended, it is over; but only a drop or a stop is accepted.
            Standing::Cancelled => {
                self.let_go(hold.job);
                let current = Some(self.jobs.get(hold.job).fence);
                let is_accepted = matches!(ending, Ending::Dropped | Ending::Stopped);
                let verdict = Verdict::accepted_if(is_accepted, current);
                self.answer_report(speaker, session, hold, verdict);
            }
            standing => self.answer_absent(speaker, session, hold, standing),
        }
    }

    /// Applies a report of the owner, with the current fence.
    fn apply(&mut self, worker: WorkerId, hold: Hold, ending: Ending) {
        let seq = hold.job;
        match ending {
            Ending::Finished => self.end(seq, Verb::Finish, None),
            Ending::Failed { again, error } => self.fail(worker, hold, again, error),
            Ending::Snoozed(wait) => {
                self.note(worker, hold, AttemptOutcome::Snoozed);
                self.jobs.get_mut(seq).due = self.now.wall.plus(wait);
                self.shift(seq, Verb::Snooze, None);
                self.clear_suspicion(seq);
                self.write(seq, None);
            }
            Ending::Interrupted | Ending::Stopped => {
                self.note(worker, hold, AttemptOutcome::Interrupted);
                if planted(Bug::InterruptedCharged) {
                    self.jobs.get_mut(seq).attempts += 1;
                }
                self.requeue(seq, LeaseCause::Returned(worker));
            }
            Ending::Unstarted(error) => {
                self.note(worker, hold, AttemptOutcome::Unstarted(error));
                if planted(Bug::UnstartedCharged) {
                    self.jobs.get_mut(seq).attempts += 1;
                }
                self.requeue(seq, LeaseCause::Returned(worker));
            }
            Ending::Dropped => self.requeue(seq, LeaseCause::Returned(worker)),
        }
    }

    fn fail(&mut self, worker: WorkerId, hold: Hold, again: Again, error: ErrorText) {
        let seq = hold.job;
        self.note(worker, hold, AttemptOutcome::Failed(error));
        let seed = self.config.seed;
        let job = self.jobs.get_mut(seq);
        job.attempts = job.attempts.saturating_add(1);
        if again == Again::Never || job.attempts >= job.retry.max {
            self.end(seq, Verb::Bury, Some(Reason::Failed));
            return;
        }
        // The wait depends only on job and attempt, whatever else happened in between.
        let chance = mix(seed ^ mix(seq.0)).wrapping_add(u64::from(job.attempts));
        job.due = self.now.wall.plus(job.retry.delay(job.attempts, chance));
        self.shift(seq, Verb::Backoff, None);
        self.clear_suspicion(seq);
        self.write(seq, None);
    }

    pub(super) fn note(&mut self, worker: WorkerId, hold: Hold, outcome: AttemptOutcome) {
        self.mutate(Mutation::Note(Note::Attempt { hold, worker, outcome }));
    }

    /// An attempt that its worker survived clears the job of suspicion. The job must be in no index
    /// that depends on suspicions.
    fn clear_suspicion(&mut self, seq: Seq) {
        let job = self.jobs.get_mut(seq);
        assert!(job.state() == JobState::Scheduled, "a scheduled job is in no queue");
        job.suspicions = 0;
    }

    /// Answers a report that a job has left this worker, which does not hold it.
    pub(super) fn answer_absent(
        &mut self,
        worker: WorkerId,
        session: SessionNo,
        hold: Hold,
        standing: Standing,
    ) {
        let verdict = match standing {
            Standing::Owned | Standing::Cancelled => unreachable!("the holder's word is applied"),
            Standing::Stale(current) => Verdict::Refused(Some(current)),
            Standing::Gone | Standing::Unknown => Verdict::Refused(None),
        };
        self.answer_report(worker, session, hold, verdict);
    }

    pub(super) fn answer_report(
        &mut self,
        worker: WorkerId,
        session: SessionNo,
        hold: Hold,
        verdict: Verdict,
    ) {
        self.counters.stale += u64::from(verdict != Verdict::Accepted);
        if let Some(told) = self.told(worker)
            && told.session == session
        {
            match verdict {
                Verdict::Accepted => told.accepted.push(hold),
                Verdict::Refused(current) => {
                    told.messages.push(ToWorker::Refused { hold, current });
                }
            }
        }
    }

    /// The job has been running for a while. If it has ended meanwhile, its final report decides.
    pub(super) fn started(&mut self, worker: WorkerId, hold: Hold) {
        let is_owned = self.standing(worker, hold) == Standing::Owned;
        if is_owned && self.jobs.get(hold.job).state() == JobState::Leased {
            self.shift(hold.job, Verb::Start, None);
            self.write(hold.job, None);
        }
    }

    /// Permits the start of a suspected job; the answer is sent once the start is durable.
    pub(super) fn start(&mut self, worker: WorkerId, session: SessionNo, hold: Hold) {
        match self.standing(worker, hold) {
            Standing::Owned => {
                self.started(worker, hold);
                self.tell(worker, ToWorker::StartGranted(hold));
            }
            // Its owner was sent a cancel and will report that it has let go.
            Standing::Cancelled => {}
            Standing::Stale(current) => {
                self.answer_report(worker, session, hold, Verdict::Refused(Some(current)));
            }
            Standing::Gone | Standing::Unknown => {
                self.answer_report(worker, session, hold, Verdict::Refused(None));
            }
        }
    }

    /// The cancelled job will not start any more. It may run a little longer, and counts against
    /// its limit until then.
    pub(super) fn stopping(&mut self, worker: WorkerId, hold: Hold) {
        if self.standing(worker, hold) == Standing::Cancelled {
            self.confirm_cancel(hold.job);
        }
    }

    pub(super) fn progressed(&mut self, worker: WorkerId, hold: Hold, percent: u8) {
        let is_owned = self.standing(worker, hold) == Standing::Owned;
        if is_owned && self.jobs.get(hold.job).state() == JobState::Running {
            self.progress.insert(hold.job, percent.min(100));
        }
    }
}
