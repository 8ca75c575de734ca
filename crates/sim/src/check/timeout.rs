//! S15: an execution is stopped at its timeout, and not before.

use std::collections::BTreeMap;
use std::time::Duration;

use filch_scheduler::agent::StopReason;
use filch_scheduler::id::Hold;
use filch_scheduler::time::Monotonic;

use super::{Holds, Rule, ensure};
use crate::log::Observed;

/// The state of this rule: executions with a timeout that were not told to stop.
#[derive(Default)]
pub(super) struct Timeouts {
    runs: BTreeMap<(usize, Hold), Limited>,
    /// No run must be stopped before this moment.
    next: Option<Monotonic>,
}

struct Limited {
    since: Monotonic,
    limit: Duration,
    /// When it must have been told to stop; `None` while its worker is suspended.
    until: Option<Monotonic>,
}

/// The rates of the slowest and the fastest clock of a worker, in tenths.
const SLOWEST: u32 = 7;
const FASTEST: u32 = 14;

/// What a tick may add, and what rounding may take away.
const SLACK: Duration = Duration::from_millis(20);

impl Timeouts {
    pub(super) fn time_passes(&mut self, at: Monotonic) -> Holds {
        if self.next.is_none_or(|next| next >= at) {
            return Ok(());
        }
        self.next = self.runs.values().filter_map(|run| run.until).min();
        let late = self.runs.iter().find(|(_, run)| run.until.is_some_and(|until| until < at));
        ensure(late.is_none(), Rule::S15, || {
            let (place, hold) = late.map(|(&key, _)| key).expect("it is not none");
            let (job, place) = (hold.job.0, place + 1);
            format!("#{job} runs on node {place} for longer than its timeout")
        })
    }

    pub(super) fn observe(&mut self, at: Monotonic, seen: &Observed<'_>) -> Holds {
        match *seen {
            Observed::Started { place, assignment, .. } => {
                if let Some(timeout) = assignment.timeout {
                    let limit = timeout.duration();
                    let until = Some(latest(at, limit));
                    let run = Limited { since: at, limit, until };
                    self.runs.insert((place, assignment.hold), run);
                    self.expect(until);
                }
            }
            Observed::Stopping { place, hold, why } => {
                let run = self.runs.remove(&(place, hold));
                if let Some(run) = run.filter(|_| why == StopReason::TimedOut) {
                    let ran = at.since(run.since) + SLACK;
                    ensure(ran >= run.limit * 10 / FASTEST, Rule::S15, || {
                        let (job, ran) = (hold.job.0, at.since(run.since));
                        format!(
                            "#{job} is stopped after {ran:?}, but its timeout is {:?}",
                            run.limit
                        )
                    })?;
                }
            }
            Observed::Ended { place, hold, .. } => {
                self.runs.remove(&(place, hold));
            }
            Observed::Paused { place, .. } => self.of(place).for_each(|run| run.until = None),
            Observed::Resumed { place } => {
                // Its clock has gone on.
                self.of(place).for_each(|run| run.until = Some(latest(at, run.limit)));
                self.next = self.runs.values().filter_map(|run| run.until).min();
            }
            _ => {}
        }
        Ok(())
    }

    fn expect(&mut self, until: Option<Monotonic>) {
        self.next = self.next.into_iter().chain(until).min();
    }

    fn of(&mut self, place: usize) -> impl Iterator<Item = &mut Limited> {
        self.runs.iter_mut().filter(move |((it, _), _)| *it == place).map(|(_, run)| run)
    }
}

fn latest(since: Monotonic, limit: Duration) -> Monotonic {
    since.plus(limit * 10 / SLOWEST + SLACK)
}

#[cfg(test)]
mod tests {
    use filch_scheduler::id::{CommitNo, Fence, JobId, Seq, WorkerId};
    use filch_scheduler::message::{Assignment, Placement, StartMode};
    use filch_scheduler::time::Millis;

    use super::*;
    use crate::plan::Paused;

    const HOLD: Hold = Hold { job: Seq(1), fence: Fence(1) };

    fn started() -> Timeouts {
        let assignment = Assignment {
            hold: HOLD,
            id: JobId(1),
            queue: "default".into(),
            kind: "hang".into(),
            era: CommitNo(0),
            rank: 0,
            attempt: 1,
            start: StartMode::Freely,
            place: Placement::Anywhere,
            timeout: Some(Millis(7_000)),
        };
        let mut timeouts = Timeouts::default();
        let worker = WorkerId::apart(1);
        let seen = Observed::Started { place: 0, worker, assignment: &assignment };
        timeouts.observe(at(0), &seen).expect("it may start");
        timeouts
    }

    const fn at(millis: u64) -> Monotonic {
        Monotonic(millis * 1_000)
    }

    fn stops(why: StopReason) -> Observed<'static> {
        Observed::Stopping { place: 0, hold: HOLD, why }
    }

    #[test]
    fn a_run_is_stopped_at_its_timeout_by_the_slowest_clock() {
        let mut timeouts = started();
        timeouts.time_passes(at(10_020)).expect("a slow clock shows seven seconds now");
        let (rule, what) = timeouts.time_passes(at(10_021)).expect_err("it was not stopped");
        assert_eq!((rule, what.contains("node 1")), (Rule::S15, true));
        let mut timeouts = started();
        timeouts.observe(at(10_000), &stops(StopReason::TimedOut)).expect("late enough");
        timeouts.time_passes(at(99_000)).expect("it was told");
    }

    #[test]
    fn a_run_is_not_stopped_before_its_timeout_by_the_fastest_clock() {
        started().observe(at(4_980), &stops(StopReason::TimedOut)).expect("a fast clock");
        let early = started().observe(at(4_979), &stops(StopReason::TimedOut));
        assert_eq!(early.map_err(|(rule, _)| rule), Err(Rule::S15));
        started().observe(at(10), &stops(StopReason::Cancelled)).expect("for another reason");
    }

    #[test]
    fn a_suspended_worker_need_not_stop_its_runs() {
        let mut timeouts = started();
        let jobs = Paused::Frozen;
        timeouts.observe(at(5_000), &Observed::Paused { place: 0, jobs }).expect("it may");
        timeouts.time_passes(at(60_000)).expect("it is suspended");
        timeouts.observe(at(60_000), &Observed::Resumed { place: 0 }).expect("it may");
        timeouts.time_passes(at(80_000)).expect_err("now it should have");
    }
}
