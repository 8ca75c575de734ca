//! The states of a job and every transition between them, in one table.
//!
//! This is the only file in which a job's state changes: other files can create and read a phase,
//! but only `Phase::apply` changes it. `dispatch` keeps queues, leases and counters consistent with
//! it.

use core::fmt;

use crate::id::WorkerId;
use crate::record::{LastReport, ReportKind};

/// The state of a job. The word is the same in the store, the API and the documentation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum JobState {
    /// Waits for its parents.
    Blocked,
    /// Waits for its time: not due yet, or between two attempts.
    Scheduled,
    /// Ready, in its queue.
    Queued,
    /// In a worker's deque, not known to have started.
    Leased,
    /// Known to have started.
    Running,
    /// Succeeded; final.
    Succeeded,
    /// Failed, with no attempts left. Only an operator's retry revives it.
    Dead,
    /// Cancelled; final.
    Cancelled,
}

/// A transition of a job.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Verb {
    /// Its parents' condition is met, and it is due.
    Release,
    /// Its parents' condition is met, but it is not due yet.
    Defer,
    /// Its time has come.
    Due,
    /// A worker becomes its owner.
    Claim,
    /// It goes from one worker's deque to another's.
    Steal,
    /// Its owner reports that it runs.
    Start,
    /// Its owner was lost, dropped it, gave it back, or was interrupted.
    Requeue,
    /// Its owner finished it.
    Finish,
    /// Its attempt failed; another one follows later.
    Backoff,
    /// Its handler asks to be called again later.
    Snooze,
    /// Its attempts are used up.
    Bury,
    /// It is cancelled, or its parents' condition can no longer be met.
    Cancel,
    /// An operator gives a dead job new attempts.
    Retry,
}

impl JobState {
    /// All states, in the order of a job's life.
    pub const ALL: [Self; 8] = [
        Self::Blocked,
        Self::Scheduled,
        Self::Queued,
        Self::Leased,
        Self::Running,
        Self::Succeeded,
        Self::Dead,
        Self::Cancelled,
    ];

    /// The state that `verb` leads to from here, or `None` if it is not allowed here.
    #[must_use]
    pub const fn after(self, verb: Verb) -> Option<Self> {
        Some(match (self, verb) {
            (Self::Blocked, Verb::Release) => Self::Queued,
            (Self::Blocked, Verb::Defer) => Self::Scheduled,

            (Self::Scheduled, Verb::Due) => Self::Queued,

            (Self::Queued, Verb::Claim) => Self::Leased,
            // A lost job is queued first; this follows if the loss used up its last attempt.
            (Self::Queued, Verb::Bury) => Self::Dead,

            (Self::Leased, Verb::Steal) => Self::Leased,
            (Self::Leased, Verb::Start) => Self::Running,

            // A short job ends without ever having been reported as started.
            (Self::Leased | Self::Running, Verb::Requeue) => Self::Queued,
            (Self::Leased | Self::Running, Verb::Finish) => Self::Succeeded,
            (Self::Leased | Self::Running, Verb::Backoff | Verb::Snooze) => Self::Scheduled,
            (Self::Leased | Self::Running, Verb::Bury) => Self::Dead,

            (
                Self::Blocked | Self::Scheduled | Self::Queued | Self::Leased | Self::Running,
                Verb::Cancel,
            ) => Self::Cancelled,

            (Self::Dead, Verb::Retry) => Self::Queued,

            _ => return None,
        })
    }

    /// Whether nothing more happens to the job by itself.
    #[must_use]
    pub const fn is_ended(self) -> bool {
        matches!(self, Self::Succeeded | Self::Dead | Self::Cancelled)
    }

    /// Whether a worker owns the job.
    #[must_use]
    pub const fn is_owned(self) -> bool {
        matches!(self, Self::Leased | Self::Running)
    }

    /// The state's name.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Blocked => "blocked",
            Self::Scheduled => "scheduled",
            Self::Queued => "queued",
            Self::Leased => "leased",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }

    /// The state of that name.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.word() == word)
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.word())
    }
}

impl Verb {
    /// All verbs.
    pub const ALL: [Self; 13] = [
        Self::Release,
        Self::Defer,
        Self::Due,
        Self::Claim,
        Self::Steal,
        Self::Start,
        Self::Requeue,
        Self::Finish,
        Self::Backoff,
        Self::Snooze,
        Self::Bury,
        Self::Cancel,
        Self::Retry,
    ];

    /// Whether the job's fence grows: it has another owner now, or reports of the old owner must be
    /// refused. After the owner's own final report (finish, fail, snooze) the fence stays, and that
    /// report is recorded with the job, so that a repetition is recognised.
    #[must_use]
    pub const fn changes_hands(self) -> bool {
        matches!(self, Self::Claim | Self::Steal | Self::Requeue | Self::Cancel | Self::Retry)
    }
}

/// A job's state, and its holder or the last report about it. A job never has both, so they share
/// one field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Phase {
    state: JobState,
    /// If set, `worker` sent this report and holds the job no more.
    reported: Option<ReportKind>,
    worker: Option<WorkerId>,
}

/// `verb` is not allowed for a job in `state`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Illegal {
    pub(crate) state: JobState,
    pub(crate) verb: Verb,
}

impl Phase {
    /// The phase of a newly submitted job.
    pub(crate) const BLOCKED: Self =
        Self { state: JobState::Blocked, reported: None, worker: None };

    /// A job as the store has it. `None` if this state, holder and report are inconsistent.
    pub(crate) const fn loaded(
        state: JobState,
        holder: Option<WorkerId>,
        last: Option<LastReport>,
    ) -> Option<Self> {
        let fits = match state {
            JobState::Leased | JobState::Running => holder.is_some(),
            JobState::Cancelled => true,
            _ => holder.is_none(),
        };
        match last {
            _ if !fits => None,
            None => Some(Self { state, reported: None, worker: holder }),
            Some(LastReport { worker, kind }) if kind.leads_to(state) => {
                Some(Self { state, reported: Some(kind), worker: Some(worker) })
            }
            Some(_) => None,
        }
    }

    pub(crate) const fn state(self) -> JobState {
        self.state
    }

    /// The worker that owns the job, or that still has to stop a cancelled one.
    pub(crate) const fn holder(self) -> Option<WorkerId> {
        if self.reported.is_none() { self.worker } else { None }
    }

    /// The report that ended the last attempt, if the job's fence has not changed since.
    pub(crate) const fn last(self) -> Option<LastReport> {
        match (self.worker, self.reported) {
            (Some(worker), Some(kind)) => Some(LastReport { worker, kind }),
            _ => None,
        }
    }

    /// The owner of a leased or running job.
    pub(crate) const fn owner(self) -> Option<WorkerId> {
        if self.state.is_owned() { self.holder() } else { None }
    }

    /// Applies a transition; `owner` is the new owner, for transitions that assign the job.
    #[must_use = "an illegal move changes nothing"]
    pub(crate) const fn apply(
        &mut self,
        verb: Verb,
        owner: Option<WorkerId>,
    ) -> Result<(), Illegal> {
        let Some(state) = self.state.after(verb) else {
            return Err(Illegal { state: self.state, verb });
        };
        (self.worker, self.reported) = match verb {
            Verb::Claim | Verb::Steal => {
                assert!(owner.is_some(), "a claimed or stolen job has a new owner");
                (owner, None)
            }
            // A cancelled job stays with its worker until that worker has stopped it.
            Verb::Start | Verb::Cancel => (self.holder(), None),
            Verb::Due => (self.worker, self.reported),
            Verb::Finish => (self.worker, Some(ReportKind::Finished)),
            Verb::Backoff => (self.worker, Some(ReportKind::Failed)),
            Verb::Snooze => (self.worker, Some(ReportKind::Snoozed)),
            Verb::Bury if self.holder().is_some() => (self.worker, Some(ReportKind::Failed)),
            Verb::Bury | Verb::Release | Verb::Defer | Verb::Requeue | Verb::Retry => (None, None),
        };
        self.state = state;
        Ok(())
    }

    /// The worker has stopped or dropped the cancelled job.
    pub(crate) const fn let_go(&mut self) {
        assert!(matches!(self.state, JobState::Cancelled), "only a cancelled job is let go of");
        (self.worker, self.reported) = (None, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole table once more, as text: one row per state, one column per verb, `.` for
    /// transitions that are not allowed.
    const TABLE: &str = "
               release   defer     due    claim  steal  start   requeue finish    backoff   snooze    bury cancel    retry
    blocked    queued    scheduled .      .      .      .       .       .         .         .         .    cancelled .
    scheduled  .         .         queued .      .      .       .       .         .         .         .    cancelled .
    queued     .         .         .      leased .      .       .       .         .         .         dead cancelled .
    leased     .         .         .      .      leased running queued  succeeded scheduled scheduled dead cancelled .
    running    .         .         .      .      .      .       queued  succeeded scheduled scheduled dead cancelled .
    succeeded  .         .         .      .      .      .       .       .         .         .         .    .         .
    dead       .         .         .      .      .      .       .       .         .         .         .    .         queued
    cancelled  .         .         .      .      .      .       .       .         .         .         .    .         .
    ";

    #[test]
    fn all_transitions_match_the_table() {
        let mut lines = TABLE.lines().map(str::trim).filter(|line| !line.is_empty());
        assert_eq!(lines.next().expect("a header").split_whitespace().count(), Verb::ALL.len());
        let mut cells = 0;
        for (line, state) in lines.zip(JobState::ALL) {
            let mut words = line.split_whitespace();
            assert_eq!(words.next(), Some(state.word()));
            for verb in Verb::ALL {
                let drawn = JobState::of_word(words.next().expect("a cell for every verb"));
                assert_eq!(state.after(verb), drawn, "{state} {verb:?}");
                cells += 1;
            }
        }
        assert_eq!(cells, JobState::ALL.len() * Verb::ALL.len());
    }

    #[test]
    fn an_illegal_move_changes_nothing() {
        let worker = WorkerId::apart(1);
        for state in JobState::ALL {
            for verb in Verb::ALL {
                let holder = state.is_owned().then_some(worker);
                let before = Phase::loaded(state, holder, None).expect("holder and state fit");
                let mut phase = before;
                match phase.apply(verb, Some(worker)) {
                    Ok(()) => assert_eq!(Some(phase.state()), state.after(verb)),
                    Err(illegal) => {
                        assert_eq!(illegal, Illegal { state, verb });
                        assert_eq!(phase, before);
                    }
                }
            }
        }
    }

    #[test]
    fn a_job_has_a_holder_exactly_while_it_is_owned_or_being_cancelled() {
        let worker = WorkerId::apart(1);
        let mut phase = Phase::BLOCKED;
        for (verb, held) in [(Verb::Release, false), (Verb::Claim, true), (Verb::Start, true)] {
            phase.apply(verb, Some(worker)).expect("legal");
            assert_eq!(phase.holder().is_some(), held, "{verb:?}");
        }
        phase.apply(Verb::Cancel, None).expect("legal");
        assert_eq!((phase.holder(), phase.owner()), (Some(worker), None));
        phase.let_go();
        assert_eq!(phase.holder(), None);
    }

    #[test]
    fn the_last_report_is_kept_until_the_fence_grows() {
        let worker = WorkerId::apart(1);
        for verb in Verb::ALL {
            for before in [JobState::Leased, JobState::Running] {
                let mut phase = Phase::loaded(before, Some(worker), None).expect("held");
                if phase.apply(verb, Some(worker)).is_err() {
                    continue;
                }
                let kind = phase.last().map(|last| last.kind);
                assert_eq!(kind.is_some(), phase.holder().is_none() && !verb.changes_hands());
                assert!(kind.is_none_or(|kind| kind.leads_to(phase.state())), "{verb:?}");
                let loaded = Phase::loaded(phase.state(), phase.holder(), phase.last());
                assert_eq!(loaded, Some(phase), "{verb:?}");
                for next in Verb::ALL {
                    let mut after = phase;
                    if kind.is_some() && after.apply(next, Some(worker)).is_ok() {
                        let kept = (!next.changes_hands()).then_some(phase.last()).flatten();
                        assert_eq!(after.last(), kept, "{verb:?} {next:?}");
                    }
                }
            }
        }
    }
}
