//! The whole life of a job, submit to claim to finish, while many others wait.
//!
//! One round is one submit, one batch of reports for which the worker gets as many new jobs, and
//! one confirmation of both commits. All of it is measured: deciding, and reading and dropping the
//! effects. Only creating the submitted jobs is not, because that is done by clients.

use std::time::Instant;

use filch_scheduler::dispatch::QueueChange;
use filch_scheduler::record::Strategy;
use filch_scheduler::spec::JobSpec;

use crate::shard::{Priorities, Shard};
use crate::worker::Worker;

/// The conditions of the measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    /// Jobs in one submit, and in one batch of reports.
    pub(crate) batch: usize,
    /// Jobs that wait in the queue all the time.
    pub(crate) queued: usize,
    pub(crate) strategy: Strategy,
    pub(crate) priorities: Priorities,
    /// How many queues the jobs are in, by turns.
    pub(crate) queues: usize,
    /// The concurrency limit of each of them.
    pub(crate) limit: Option<u32>,
}

pub(crate) struct Churn {
    batch: usize,
    shard: Shard,
    worker: Worker,
}

impl Churn {
    pub(crate) fn new(setting: Setting) -> Self {
        let Setting { batch, queued, strategy, priorities, queues, limit } = setting;
        let mut shard = Shard::new(strategy, priorities);
        shard.use_queues(queues);
        if limit.is_some() {
            shard.change_queues(QueueChange::Limit(limit));
        }
        let mut worker = Worker::new(0);
        shard.fill(queued + 2 * batch);
        // One batch in its slots and one in reserve: it has the next batch when it reports the
        // first.
        let slots = u32::try_from(batch).expect("a batch is small");
        shard.handle(worker.say_hello(slots, 2 * slots));
        worker.receive_all(shard.take_messages());
        shard.handle(shard.receipt());
        Self { batch, shard, worker }
    }

    /// Nanoseconds per job.
    pub(crate) fn sample(&mut self, rounds: usize) -> f64 {
        let submits = self.shard.make_submits(rounds, self.batch);
        let before = self.worker.accepted();
        let start = Instant::now();
        for jobs in submits {
            self.round(jobs);
        }
        let taken = start.elapsed();
        let finished = self.worker.accepted() - before;
        assert_eq!(finished, rounds * self.batch, "every round finishes a batch");
        taken.as_nanos() as f64 / finished as f64
    }

    fn round(&mut self, jobs: Vec<JobSpec>) {
        self.shard.step();
        let submit = self.shard.submit(jobs);
        self.shard.handle(submit);
        let reports = self.worker.finish(self.batch);
        self.shard.handle(self.worker.say(reports));
        self.worker.receive_all(self.shard.take_messages());
        self.shard.handle(self.shard.receipt());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_finishes_a_batch_and_leaves_as_many_queued() {
        for strategy in [Strategy::default(), Strategy::Fifo] {
            for priorities in [Priorities::Same, Priorities::Mixed] {
                for batch in [1, 16] {
                    let queued = 50;
                    let (queues, limit) = (1, None);
                    let setting = Setting { batch, queued, strategy, priorities, queues, limit };
                    let mut churn = Churn::new(setting);
                    assert!(churn.sample(7) > 0.0);
                    assert_eq!(churn.worker.accepted(), 7 * batch);
                    assert_eq!(churn.worker.held(), 2 * batch);
                    let dispatch = churn.shard.dispatch();
                    assert_eq!(dispatch.job_count(), queued + 2 * batch);
                    assert_eq!(dispatch.counters().claimed as usize, 9 * batch);
                    assert_eq!(dispatch.audit(), Ok(()));
                }
            }
        }
    }

    #[test]
    fn jobs_of_limited_queues_fill_the_slots_and_no_reserve() {
        let (strategy, priorities) = (Strategy::default(), Priorities::Same);
        let (batch, queued, queues, limit) = (4, 40, 20, Some(3));
        let setting = Setting { batch, queued, strategy, priorities, queues, limit };
        let mut churn = Churn::new(setting);
        assert!(churn.sample(9) > 0.0);
        assert_eq!((churn.worker.accepted(), churn.worker.held()), (36, 4));
        let dispatch = churn.shard.dispatch();
        assert_eq!(dispatch.queue_views().count(), queues);
        assert!(
            dispatch.queue_views().all(|queue| queue.settings.limit == limit && queue.ready > 0)
        );
        assert_eq!(dispatch.audit(), Ok(()));
    }
}
