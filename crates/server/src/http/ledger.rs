//! A job's ledger: its owners under each fencing token, and how their ownership ended.

use filch_api::job::{Failure, Ownership};
use filch_api::time::Moment;
use filch_scheduler::record::LeaseCause;
use filch_scheduler::state::JobState;
use filch_scheduler::time::Wall;
use filch_store::{History, OwnerChange};

/// Each change of owner, with how that ownership ended.
pub(super) fn ledger(history: &History, failures: &[Failure]) -> Vec<Ownership> {
    let mut nexts = history.owners.iter().skip(1);
    let ownership = |owner: &OwnerChange| {
        let mut shown = Ownership::new(owner.hold.fence.0, owner.worker, owner.cause, owner.at);
        let next = nexts.next();
        if owner.worker.is_none() {
            return shown;
        }
        // A note with this fence is the most specific source; after that the next owner.
        let noted = failures.iter().find(|failure| failure.fence == shown.fence);
        let (outcome, at) = match (noted, next) {
            (Some(failure), _) => {
                shown.error.clone_from(&failure.error);
                (Some(failure.outcome.as_str()), failure.at)
            }
            (None, Some(next)) => (Some(taken(next.cause)), Moment(next.at)),
            (None, None) => last(history, owner),
        };
        shown.outcome = outcome.map(str::to_owned);
        shown.ended_at = shown.outcome.as_ref().map(|_| at);
        shown
    };
    history.owners.iter().map(ownership).collect()
}

const fn taken(cause: LeaseCause) -> &'static str {
    match cause {
        LeaseCause::Steal(_) => "stolen",
        LeaseCause::Lost(_) => "lost",
        LeaseCause::Returned(_) | LeaseCause::Claim => "returned",
    }
}

/// How the last ownership ended, from the state of the job.
fn last(history: &History, owner: &OwnerChange) -> (Option<&'static str>, Moment) {
    let now = &history.row.now;
    let outcome = match now.state {
        JobState::Succeeded if now.fence == owner.hold.fence => Some("succeeded"),
        JobState::Cancelled => Some("cancelled"),
        _ => None,
    };
    let at: Wall = now.at;
    (outcome, Moment(at))
}

#[cfg(test)]
mod tests {
    use filch_api::job::Failure;
    use filch_scheduler::id::{Fence, Hold, JobId, Seq, WorkerId};
    use filch_scheduler::record::{AttemptOutcome, JobRow, JobWrite, Note};
    use filch_scheduler::spec::JobSpec;

    use super::*;

    const ONE: WorkerId = WorkerId::apart(1);
    const TWO: WorkerId = WorkerId::apart(2);

    fn owner(fence: u64, worker: Option<WorkerId>, cause: LeaseCause) -> OwnerChange {
        let hold = Hold { job: Seq(1), fence: Fence(fence) };
        OwnerChange { hold, worker, cause, at: Wall(10 * fence) }
    }

    fn history(state: JobState, fence: u64, owners: Vec<OwnerChange>) -> History {
        let now = JobWrite {
            job: Seq(1),
            state,
            fence: Fence(fence),
            attempts: 0,
            suspicions: 0,
            priority: 0,
            due: Wall(0),
            holder: None,
            last: None,
            reason: None,
            at: Wall(99),
        };
        let (spec, submitted_at) = (JobSpec::new(JobId(7)), Wall(0));
        let row = JobRow { seq: Seq(1), spec, submitted_at, now };
        History {
            row,
            payload: "{}".into(),
            owners,
            notes: Vec::new(),
            outputs: Vec::new(),
            may_be_more: false,
        }
    }

    /// The outcome of each row of the ledger, and its time.
    fn outcomes(history: &History) -> Vec<(String, Option<u64>)> {
        let noted = |(at, note): &(Wall, Note)| Failure::noted(*at, note);
        let failures: Vec<Failure> = history.notes.iter().filter_map(noted).collect();
        let shown = ledger(history, &failures);
        let outcome = |owned: &Ownership| {
            let words = [owned.outcome.clone(), owned.error.clone()].into_iter().flatten();
            (words.collect::<Vec<_>>().join(": "), owned.ended_at.map(|at| at.0.0))
        };
        shown.iter().map(outcome).collect()
    }

    #[test]
    fn every_row_of_the_ledger_has_an_end() {
        let owners = vec![
            owner(1, Some(ONE), LeaseCause::Claim),
            owner(2, Some(TWO), LeaseCause::Steal(ONE)),
            owner(3, None, LeaseCause::Returned(TWO)),
            owner(4, Some(ONE), LeaseCause::Claim),
            owner(5, Some(TWO), LeaseCause::Claim),
            owner(6, None, LeaseCause::Lost(TWO)),
            owner(7, Some(ONE), LeaseCause::Claim),
        ];
        let mut history = history(JobState::Succeeded, 7, owners);
        let note = |fence, worker, outcome| Note::Attempt {
            hold: Hold { job: Seq(1), fence: Fence(fence) },
            worker,
            outcome,
        };
        let failed = AttemptOutcome::Failed("no room".into());
        history.notes = vec![
            (Wall(45), note(4, ONE, failed)),
            (Wall(60), note(5, TWO, AttemptOutcome::LostAlone)),
        ];
        let came = |words: &str, at| (words.to_owned(), at);
        let expected = [
            came("stolen", Some(20)),
            came("returned", Some(30)),
            came("", None),
            came("failed: no room", Some(45)),
            came("lost", Some(60)),
            came("", None),
            came("succeeded", Some(99)),
        ];
        assert_eq!(outcomes(&history), expected);
    }

    #[test]
    fn a_current_owner_has_no_end_yet() {
        let owners = || vec![owner(1, Some(ONE), LeaseCause::Claim)];
        assert_eq!(outcomes(&history(JobState::Running, 1, owners())), [(String::new(), None)]);
        let cancelled = outcomes(&history(JobState::Cancelled, 2, owners()));
        assert_eq!(cancelled, [("cancelled".to_owned(), Some(99))]);
    }
}
