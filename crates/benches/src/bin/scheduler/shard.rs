//! A shard with an empty shell around it: no store, no network, no clock.
//!
//! Time is virtual, and the bench decides when a commit is durable. Mutations are dropped at once,
//! as if another thread had taken them; messages to workers are kept for the bench to read.

use std::time::{Duration, Instant};

use filch_scheduler::dispatch::{
    Answer, Dispatch, DispatchConfig, DispatchEffect, DispatchEvent, QueueChange, Request,
};
use filch_scheduler::id::{CommitNo, JobId, RequestNo, WorkerId};
use filch_scheduler::message::ToWorker;
use filch_scheduler::name::Name;
use filch_scheduler::random::SplitMix64;
use filch_scheduler::record::Strategy;
use filch_scheduler::spec::JobSpec;
use filch_scheduler::time::{Millis, Monotonic, Now, Wall};

/// Some day in 2023. Only that it is far from 0 matters.
const START: Wall = Wall(1_700_000_000_000);

/// Jobs that fill the background are submitted this many at a time.
pub(crate) const FILL_BATCH: usize = 1_000;

/// The time between two submits: the time in the ids advances, so that no id can belong to a purged
/// job, and nothing has to be fetched.
pub(crate) const STEP: Millis = Millis(1);

/// Which priorities new jobs get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Priorities {
    /// All the same: jobs are taken in the order of submission.
    Same,
    /// Random: a new job goes anywhere in its queue, so memory accesses are scattered.
    Mixed,
}

pub(crate) struct Shard {
    dispatch: Dispatch,
    now: Now,
    jobs: JobMaker,
    effects: Vec<DispatchEffect>,
    messages: Vec<(WorkerId, ToWorker)>,
    newest_commit: CommitNo,
    last_request: RequestNo,
}

impl Shard {
    pub(crate) fn new(strategy: Strategy, priorities: Priorities) -> Self {
        let now = Now { monotonic: Monotonic(0), wall: START };
        let config = DispatchConfig { strategy, ..DispatchConfig::default() };
        Self {
            dispatch: Dispatch::new(config, now),
            now,
            jobs: JobMaker::new(priorities),
            effects: Vec::new(),
            messages: Vec::new(),
            newest_commit: CommitNo(0),
            last_request: RequestNo(0),
        }
    }

    pub(crate) const fn dispatch(&self) -> &Dispatch {
        &self.dispatch
    }

    pub(crate) const fn advance(&mut self, span: Duration) {
        self.now.monotonic = self.now.monotonic.plus(span);
        let micros = self.now.monotonic.0;
        self.now.wall = Wall(START.0 + micros / 1_000);
    }

    pub(crate) const fn step(&mut self) {
        self.advance(STEP.duration());
    }

    /// Creates jobs whose ids have the current time.
    pub(crate) fn make_jobs(&mut self, count: usize) -> Vec<JobSpec> {
        self.jobs.make(count, self.now.wall)
    }

    /// Creates the jobs of several submits, each one time step after the one before.
    pub(crate) fn make_submits(&mut self, submits: usize, batch: usize) -> Vec<Vec<JobSpec>> {
        let mut at = self.now.wall;
        let mut make = || {
            at = at.plus(STEP);
            self.jobs.make(batch, at)
        };
        (0..submits).map(|_| make()).collect()
    }

    pub(crate) const fn submit(&mut self, jobs: Vec<JobSpec>) -> DispatchEvent {
        self.last_request = self.last_request.next();
        DispatchEvent::Request { from: self.last_request, by: None, request: Request::Submit(jobs) }
    }

    /// New jobs are in this many queues, by turns.
    pub(crate) fn use_queues(&mut self, count: usize) {
        let name = |number| Name::from(format!("queue-{number}").as_str());
        self.jobs.queues = (0..count).map(name).collect();
    }

    /// Changes every queue that new jobs are in.
    pub(crate) fn change_queues(&mut self, change: QueueChange) {
        for queue in self.jobs.queues.clone() {
            self.last_request = self.last_request.next();
            let request = Request::SetQueue { queue, change };
            let (from, by) = (self.last_request, None);
            self.handle(DispatchEvent::Request { from, by, request });
            self.handle(self.receipt());
        }
    }

    /// The confirmation of all commits so far, as a group commit would send it.
    pub(crate) const fn receipt(&self) -> DispatchEvent {
        DispatchEvent::Committed(self.newest_commit)
    }

    /// Submits this many jobs. Returns the time of the longest submit.
    pub(crate) fn fill(&mut self, count: usize) -> Duration {
        let mut longest = Duration::ZERO;
        let mut left = count;
        while left > 0 {
            let batch = left.min(FILL_BATCH);
            self.step();
            let jobs = self.make_jobs(batch);
            let submit = self.submit(jobs);
            longest = longest.max(self.handle_timed(submit));
            self.handle(self.receipt());
            left -= batch;
        }
        longest
    }

    pub(crate) fn handle(&mut self, event: DispatchEvent) {
        self.dispatch.handle(self.now, event, &mut self.effects);
        self.perform();
    }

    /// Handles an event and returns the time of the decision alone. Reading the clock costs about
    /// 40 ns, which is negligible for a large event, but not for a small one.
    pub(crate) fn handle_timed(&mut self, event: DispatchEvent) -> Duration {
        let start = Instant::now();
        self.dispatch.handle(self.now, event, &mut self.effects);
        let taken = start.elapsed();
        self.perform();
        taken
    }

    /// The messages to workers since the last call.
    pub(crate) fn take_messages(&mut self) -> impl Iterator<Item = (WorkerId, ToWorker)> {
        self.messages.drain(..)
    }

    fn perform(&mut self) {
        for effect in self.effects.drain(..) {
            match effect {
                DispatchEffect::Commit { number, mutations } => {
                    self.newest_commit = number;
                    drop(mutations);
                }
                DispatchEffect::Send { worker, messages, .. } => {
                    let messages = messages.into_iter();
                    self.messages.extend(messages.map(|message| (worker, message)));
                }
                DispatchEffect::Reply { answer: Answer::Submitted(_) | Answer::Done, .. } => {}
                DispatchEffect::Reply { .. }
                | DispatchEffect::Fetch { .. }
                | DispatchEffect::HangUp { .. } => {
                    panic!("unexpected effect in a bench: {effect:?}");
                }
            }
        }
    }
}

/// Creates jobs as clients do: ids with the time and random bits, everything else by default.
pub(crate) struct JobMaker {
    random: SplitMix64,
    kind: Name,
    queues: Vec<Name>,
    next_queue: usize,
    priorities: Priorities,
}

impl JobMaker {
    pub(crate) fn new(priorities: Priorities) -> Self {
        let name = Name::from("default");
        let (kind, queues) = (name.clone(), vec![name]);
        Self { random: SplitMix64::new(1), kind, queues, next_queue: 0, priorities }
    }

    pub(crate) fn make(&mut self, count: usize, at: Wall) -> Vec<JobSpec> {
        (0..count).map(|_| self.make_one(at)).collect()
    }

    fn make_one(&mut self, at: Wall) -> JobSpec {
        let priority = match self.priorities {
            Priorities::Same => 0,
            Priorities::Mixed => self.random.draw() as i16,
        };
        self.next_queue = (self.next_queue + 1) % self.queues.len();
        JobSpec {
            // Names are shared, as in the server, which interns the few names in use.
            queue: self.queues[self.next_queue].clone(),
            kind: self.kind.clone(),
            priority,
            ..JobSpec::new(self.id(at))
        }
    }

    /// A UUIDv7: 48 bits of time, the version, and 74 random bits around the variant.
    fn id(&mut self, at: Wall) -> JobId {
        let (high, low) = (self.random.draw() & 0xfff, self.random.draw() >> 2);
        let time = u128::from(at.0) << 80;
        JobId(time | 7 << 76 | u128::from(high) << 64 | 0b10 << 62 | u128::from(low))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_their_time_and_are_unique() {
        let jobs = JobMaker::new(Priorities::Same).make(100, START);
        assert!(jobs.iter().all(|job| job.id.made_at() == Some(START)));
        let mut ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 100);
    }

    #[test]
    fn a_filled_shard_has_its_jobs_and_no_open_commit() {
        let mut shard = Shard::new(Strategy::default(), Priorities::Mixed);
        assert!(shard.fill(FILL_BATCH + 5) > Duration::ZERO);
        assert_eq!(shard.dispatch().job_count(), FILL_BATCH + 5);
        assert_eq!(shard.dispatch().newest_commit(), None);
        assert_eq!(shard.dispatch().audit(), Ok(()));
    }
}
