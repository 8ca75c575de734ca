//! What was seen of all runs of one queue, told to the simulator's rule about limits: no more at once than the
//! queue may have, none while it is paused, and none by a worker that does not serve it.
//!
//! A story has one job, and limits are about many. Here each run is told as if it were a job of its own, which
//! is claimed when it begins and has succeeded when it ends: who ran when is all that matters. Of a run that
//! was killed it is certain only that it was there when it began, so it is told to end at that same moment.

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

use crate::runs::Run;

/// All that ran of one queue, and the terms under which it did.
#[derive(Clone, Debug)]
pub struct Line<'a> {
    /// Which queue.
    pub queue: &'a str,
    /// How many jobs of it may run at once: none if it is paused, any number if nobody has said so.
    pub limit: Option<u32>,
    /// Which queues workers serve, by the numbers of their processes.
    pub serves: &'a BTreeMap<i32, Vec<String>>,
    /// The runs, in any order.
    pub runs: Vec<&'a Run>,
}

/// What happens to a run. At the same moment an end comes before a beginning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Moment {
    Ended,
    Started,
    /// It was killed after this.
    WasThere,
}

impl Line<'_> {
    /// The first breach of its terms, if any.
    #[must_use]
    pub fn violation(&self) -> Option<Violation> {
        let mut teller = Teller { checkers: Checkers::new(None), at: Monotonic(0), commits: 0 };
        teller.furnish(self);
        let mut moments = Vec::new();
        for (index, run) in self.runs.iter().enumerate() {
            match run.end {
                Some(end) => {
                    moments.push((run.start, Moment::Started, index));
                    // A run may take less time than the clock can tell.
                    moments.push((end.at.max(run.start + 1), Moment::Ended, index));
                }
                None => moments.push((run.start, Moment::WasThere, index)),
            }
        }
        moments.sort_unstable();
        for (at, moment, index) in moments {
            teller.at = Monotonic(at);
            let (run, seq) = (self.runs[index], Seq(index as u64 + 1));
            if moment != Moment::Ended {
                teller.started(self.queue, run, seq);
            }
            if moment != Moment::Started {
                teller.ended(run, seq);
            }
        }
        teller.checkers.violation().cloned()
    }
}

struct Teller {
    checkers: Checkers,
    at: Monotonic,
    commits: u64,
}

impl Teller {
    fn observe(&mut self, seen: Observed<'_>) {
        self.checkers.observe(self.at, seen);
    }

    fn commit(&mut self, mutations: &[Mutation]) {
        self.commits += 1;
        let decided = (self.at, Now { monotonic: self.at, ..Now::default() });
        self.observe(Observed::Stored { number: CommitNo(self.commits), decided, mutations });
    }

    /// The queue, and the workers of whom it is known whom they serve.
    fn furnish(&mut self, line: &Line<'_>) {
        let mut settings = QueueSettings::new(Name::from(line.queue));
        settings.paused = line.limit == Some(0);
        settings.limit = line.limit.filter(|&limit| limit > 0);
        self.commit(&[Mutation::Queue(settings)]);
        for (&pid, queues) in line.serves {
            let names = queues.iter().map(|queue| Name::from(queue.as_str()));
            let (place, serves) = (place(pid), Serves::Named(names.collect()));
            self.observe(Observed::Began { place, slots: 1, serves: &serves, is_embedded: false });
            self.observe(Observed::Sent { place, worker: worker(pid), messages: &[] });
        }
    }

    fn started(&mut self, queue: &str, run: &Run, seq: Seq) {
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

    fn ended(&mut self, run: &Run, seq: Seq) {
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
        reason: None,
        at: Wall(0),
    }
}

/// Workers are told apart by the numbers of their processes.
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
    use crate::process::Known;
    use crate::runs::{End, Outcome};

    const WORKER: i32 = 7;

    /// From one moment to another; who has no end was killed.
    fn run(start: u64, end: Option<u64>) -> Run {
        Run {
            fence: 1,
            attempt: 1,
            process: Known { pid: 1, born: 0 },
            worker: WORKER,
            start,
            wall: Wall(0),
            end: end.map(|at| End { outcome: Outcome::Failed, at, wall: Wall(0) }),
            beside: None,
        }
    }

    fn rule(limit: Option<u32>, serves: &[(i32, &str)], runs: &[Run]) -> Option<Rule> {
        let serves = serves.iter().map(|&(pid, queue)| (pid, vec![queue.to_owned()])).collect();
        let line = Line { queue: "q", limit, serves: &serves, runs: runs.iter().collect() };
        line.violation().map(|violation| violation.rule)
    }

    #[test]
    fn more_at_once_than_the_limit_break_s13() {
        let two = [run(100, Some(200)), run(150, Some(250))];
        assert_eq!(rule(Some(2), &[], &two), None);
        assert_eq!(rule(Some(1), &[], &two), Some(Rule::S13));
        assert_eq!(rule(None, &[], &two), None, "nobody has set a limit");
        let [first, second] = two;
        let third = |start, end| vec![first.clone(), run(start, end), second.clone()];
        assert_eq!(rule(Some(2), &[], &third(160, Some(170))), Some(Rule::S13));
        assert_eq!(rule(Some(2), &[], &third(199, None)), Some(Rule::S13), "killed in between");
        assert_eq!(rule(Some(2), &[], &third(200, Some(300))), None, "as one ends, one begins");
        assert_eq!(rule(Some(2), &[], &third(90, None)), None, "nobody knows when it was killed");
    }

    #[test]
    fn what_takes_no_time_takes_its_place_all_the_same() {
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
        assert_eq!(rule(None, &[(WORKER + 1, "r")], &one), None, "it is somebody else");
    }
}
