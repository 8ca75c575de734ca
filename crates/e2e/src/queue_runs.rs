//! All runs of one queue, replayed to the simulator's rule about limits: no more at once than the
//! queue allows, none while it is paused, and none on a worker that does not serve it.
//!
//! A job history has one job, and limits concern many. Here each run is replayed as if it were a
//! separate job that is claimed when it starts and has succeeded when it ends: only the times
//! matter. Of a run that was killed it is only known when it started, so it is replayed as if it
//! had ended at that moment.

use std::collections::BTreeMap;

use filch_scheduler::id::{
    CommitNo, Fence, Hold, JobId, LeaseNo, MessageNo, QuestionNo, Seq, SessionNo, WorkerId,
};
use filch_scheduler::message::{Assignment, FromWorker, Placement, Serves, StartMode};
use filch_scheduler::name::Name;
use filch_scheduler::record::{JobRow, JobWrite, LeaseCause, LeaseRow, Mutation, QueueSettings};
use filch_scheduler::spec::JobSpec;
use filch_scheduler::state::JobState;
use filch_scheduler::time::{Monotonic, Now, Wall};
use filch_sim::check::{Checkers, Violation};
use filch_sim::log::{ExecutionEnd, Observed, Observer as _};

use crate::runs::JobRun;

/// The runs of one queue, and its constraints.
#[derive(Clone, Debug)]
pub struct QueueRuns<'a> {
    /// The queue.
    pub queue: &'a str,
    /// Its concurrency limit: 0 if it is paused, `None` if there is no limit.
    pub limit: Option<u32>,
    /// The queues that workers serve, by process id.
    pub serves: &'a BTreeMap<i32, Vec<String>>,
    /// The runs, in any order.
    pub runs: Vec<&'a JobRun>,
}

/// What happens to a run. At the same time an end comes before a start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    Ended,
    Started,
    /// It started, and was killed later.
    StartedAndKilled,
}

impl QueueRuns<'_> {
    /// The first violation of its constraints, if any.
    #[must_use]
    pub fn violation(&self) -> Option<Violation> {
        let mut replay = Replay { checkers: Checkers::new(None), at: Monotonic(0), commits: 0 };
        replay.begin(self);
        let mut moments = Vec::new();
        for (index, run) in self.runs.iter().enumerate() {
            match run.end {
                Some(end) => {
                    moments.push((run.start, Moment::Started, index));
                    // A run may be shorter than the resolution of the clock.
                    moments.push((end.at.max(run.start + 1), Moment::Ended, index));
                }
                None => moments.push((run.start, Moment::StartedAndKilled, index)),
            }
        }
        moments.sort_unstable();
        for (at, moment, index) in moments {
            replay.at = Monotonic(at);
            let (run, seq) = (self.runs[index], Seq(index as u64 + 1));
            if moment != Moment::Ended {
                replay.started(self.queue, run, seq);
            }
            if moment != Moment::Started {
                replay.ended(run, seq);
            }
        }
        replay.checkers.violation().cloned()
    }
}

struct Replay {
    checkers: Checkers,
    at: Monotonic,
    commits: u64,
}

impl Replay {
    fn observe(&mut self, seen: Observed<'_>) {
        self.checkers.observe(self.at, seen);
    }

    fn commit(&mut self, mutations: &[Mutation]) {
        self.commits += 1;
        let decided = (self.at, Now { monotonic: self.at, ..Now::default() });
        self.observe(Observed::Stored { number: CommitNo(self.commits), decided, mutations });
    }

    /// The queue, and the workers with known queues.
    fn begin(&mut self, queue: &QueueRuns<'_>) {
        let mut settings = QueueSettings::new(Name::from(queue.queue));
        settings.paused = queue.limit == Some(0);
        settings.limit = queue.limit.filter(|&limit| limit > 0);
        self.commit(&[Mutation::Queue(settings)]);
        for (&pid, queues) in queue.serves {
            let names = queues.iter().map(|name| Name::from(name.as_str()));
            let (place, serves) = (place(pid), Serves::Named(names.collect()));
            self.observe(Observed::Began { place, slots: 1, serves: &serves, is_embedded: false });
            self.observe(Observed::Sent { place, worker: worker(pid), messages: &[] });
        }
    }

    fn started(&mut self, queue: &str, run: &JobRun, seq: Seq) {
        let id = JobId(u128::from(seq.0));
        let spec = JobSpec { queue: Name::from(queue), ..JobSpec::new(id) };
        let (hold, now) =
            (Hold { job: seq, fence: Fence(1) }, write(seq, JobState::Queued, Fence(0)));
        let assignment = Assignment {
            hold,
            id,
            queue: spec.queue.clone(),
            kind: spec.kind.clone(),
            era: CommitNo(0),
            rank: 0,
            attempt: run.attempt,
            start: StartMode::Freely,
            place: Placement::Anywhere,
            timeout: None,
        };
        self.commit(&[Mutation::Put(JobRow { seq, spec, submitted_at: Wall(0), now })]);
        self.commit(&[Mutation::Lease(LeaseRow {
            number: LeaseNo(self.commits),
            worker: Some(worker(run.worker)),
            cause: LeaseCause::Claim,
            jobs: vec![hold],
            at: Wall(0),
        })]);
        let (place, worker) = (place(run.worker), worker(run.worker));
        self.observe(Observed::Started { place, worker, assignment: &assignment });
    }

    fn ended(&mut self, run: &JobRun, seq: Seq) {
        let (hold, worker) = (Hold { job: seq, fence: Fence(1) }, worker(run.worker));
        self.observe(Observed::Ended {
            place: place(run.worker),
            hold,
            how: ExecutionEnd::Finished,
        });
        let messages = [FromWorker::Given { question: QuestionNo(1), jobs: vec![hold] }];
        let (session, number) = (SessionNo(1), MessageNo(1));
        self.observe(Observed::Arrived { worker, session, number, messages: &messages });
        self.commit(&[Mutation::Write(write(seq, JobState::Succeeded, Fence(1)))]);
    }
}

fn write(job: Seq, state: JobState, fence: Fence) -> JobWrite {
    JobWrite {
        job,
        state,
        fence,
        attempts: 0,
        suspicions: 0,
        priority: 0,
        due: Wall(0),
        holder: None,
        last: None,
        reason: None,
        at: Wall(0),
    }
}

/// Workers are distinguished by their process ids.
fn worker(pid: i32) -> WorkerId {
    WorkerId::apart(u64::from(pid.unsigned_abs()))
}

fn place(pid: i32) -> usize {
    usize::try_from(pid).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use filch_sim::check::Rule;

    use super::*;
    use crate::process::ProcessIdentity;
    use crate::runs::{RunEnd, RunOutcome};

    const WORKER: i32 = 7;

    /// A run that was killed has no end.
    fn run(start: u64, end: Option<u64>) -> JobRun {
        JobRun {
            fence: 1,
            attempt: 1,
            process: ProcessIdentity { pid: 1, born: 0 },
            worker: WORKER,
            start,
            wall: Wall(0),
            end: end.map(|at| RunEnd { outcome: RunOutcome::Failed, at, wall: Wall(0) }),
            beside: None,
        }
    }

    fn rule(limit: Option<u32>, serves: &[(i32, &str)], runs: &[JobRun]) -> Option<Rule> {
        let serves = serves.iter().map(|&(pid, queue)| (pid, vec![queue.to_owned()])).collect();
        let queue_runs =
            QueueRuns { queue: "q", limit, serves: &serves, runs: runs.iter().collect() };
        queue_runs.violation().map(|violation| violation.rule)
    }

    #[test]
    fn more_runs_at_once_than_the_limit_break_s13() {
        let two = [run(100, Some(200)), run(150, Some(250))];
        assert_eq!(rule(Some(2), &[], &two), None);
        assert_eq!(rule(Some(1), &[], &two), Some(Rule::S13));
        assert_eq!(rule(None, &[], &two), None, "there is no limit");
        let [first, second] = two;
        let third = |start, end| vec![first.clone(), run(start, end), second.clone()];
        assert_eq!(rule(Some(2), &[], &third(160, Some(170))), Some(Rule::S13));
        assert_eq!(rule(Some(2), &[], &third(199, None)), Some(Rule::S13), "killed in between");
        assert_eq!(rule(Some(2), &[], &third(200, Some(300))), None, "one starts as another ends");
        assert_eq!(rule(Some(2), &[], &third(90, None)), None, "when it was killed is unknown");
    }

    #[test]
    fn a_run_that_takes_no_time_still_counts() {
        assert_eq!(rule(Some(1), &[], &[run(100, Some(100)), run(101, Some(101))]), None);
        let inside = [run(90, Some(110)), run(100, Some(100))];
        assert_eq!(rule(Some(1), &[], &inside), Some(Rule::S13));
    }

    #[test]
    fn a_run_from_a_paused_queue_breaks_s13() {
        assert_eq!(rule(Some(0), &[], &[]), None);
        assert_eq!(rule(Some(0), &[], &[run(100, Some(200))]), Some(Rule::S13));
        assert_eq!(rule(Some(0), &[], &[run(100, None)]), Some(Rule::S13));
    }

    #[test]
    fn a_run_by_a_worker_that_does_not_serve_the_queue_breaks_s13() {
        let one = [run(100, Some(200))];
        assert_eq!(rule(None, &[(WORKER, "q")], &one), None);
        assert_eq!(rule(None, &[(WORKER, "r")], &one), Some(Rule::S13));
        assert_eq!(rule(None, &[(WORKER + 1, "r")], &one), None, "it is another worker");
    }
}
