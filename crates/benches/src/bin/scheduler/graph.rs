//! Dependencies: submitting a large graph, and releasing it edge by edge as its jobs finish.

use std::time::Duration;

use filch_scheduler::id::JobId;
use filch_scheduler::random::SplitMix64;
use filch_scheduler::record::Strategy;
use filch_scheduler::spec::JobSpec;

use crate::shard::{Priorities, Shard};
use crate::worker::Worker;

/// How many jobs the worker reports at once.
const BATCH: usize = 256;

/// The shape of the dependencies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// Each job waits for several earlier ones, chosen at random, so memory accesses are scattered.
    Tangled {
        /// All jobs.
        jobs: usize,
        /// Parents of each job, if there are that many earlier jobs.
        parents: usize,
    },
    /// Each child waits for every parent, so the same children are counted down again and again.
    Wide {
        /// Jobs without parents.
        parents: usize,
        /// Jobs that wait for all parents.
        children: usize,
    },
}

/// The times of one graph.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) edges: usize,
    pub(crate) submit: Duration,
    /// The reports of all jobs and their receipts.
    pub(crate) finish: Duration,
}

pub(crate) struct Graph {
    shard: Shard,
    jobs: Vec<JobSpec>,
    edges: usize,
}

impl Graph {
    pub(crate) fn new(shape: Shape, seed: u64) -> Self {
        let mut shard = Shard::new(Strategy::default(), Priorities::Same);
        shard.step();
        let jobs = match shape {
            Shape::Tangled { jobs, parents } => tangle(shard.make_jobs(jobs), parents, seed),
            Shape::Wide { parents, children } => {
                widen(shard.make_jobs(parents + children), parents)
            }
        };
        let edges = jobs.iter().map(|job| job.parents.len()).sum();
        Self { shard, jobs, edges }
    }

    /// Submits the graph and finishes all of its jobs.
    pub(crate) fn run(&mut self) -> Taken {
        let jobs = core::mem::take(&mut self.jobs);
        let submit = self.shard.submit(jobs);
        let submit = self.shard.handle_timed(submit);
        self.shard.handle(self.shard.receipt());
        let mut worker = Worker::new(0);
        let slots = u32::try_from(BATCH).expect("a batch is small");
        self.shard.handle(worker.say_hello(slots, slots));
        worker.receive_all(self.shard.take_messages());
        let mut finish = Duration::ZERO;
        while worker.held() > 0 {
            self.shard.step();
            let reports = worker.finish(worker.held().min(BATCH));
            finish += self.shard.handle_timed(worker.say(reports));
            finish += self.shard.handle_timed(self.shard.receipt());
            worker.receive_all(self.shard.take_messages());
        }
        let left = self.shard.dispatch().job_count();
        assert_eq!(left, 0, "every job was released and finished");
        Taken { edges: self.edges, submit, finish }
    }
}

fn tangle(mut jobs: Vec<JobSpec>, parents: usize, seed: u64) -> Vec<JobSpec> {
    let mut random = SplitMix64::new(seed);
    for at in 0..jobs.len() {
        let mut chosen: Vec<JobId> = Vec::with_capacity(parents);
        while chosen.len() < parents.min(at) {
            let parent = jobs[random.below(at)].id;
            if !chosen.contains(&parent) {
                chosen.push(parent);
            }
        }
        jobs[at].parents = chosen;
    }
    jobs
}

fn widen(mut jobs: Vec<JobSpec>, parents: usize) -> Vec<JobSpec> {
    let (first, rest) = jobs.split_at_mut(parents);
    let ids: Vec<JobId> = first.iter().map(|job| job.id).collect();
    for child in rest {
        child.parents.clone_from(&ids);
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges(shape: Shape) -> usize {
        let mut graph = Graph::new(shape, 3);
        let taken = graph.run();
        assert_eq!(graph.shard.dispatch().audit(), Ok(()));
        assert!(taken.submit > Duration::ZERO && taken.finish > Duration::ZERO);
        taken.edges
    }

    #[test]
    fn graphs_have_the_edges_they_should_and_end() {
        let tangled = Shape::Tangled { jobs: 600, parents: 10 };
        // The first ten have as many parents as there are earlier jobs.
        assert_eq!(edges(tangled), 590 * 10 + 45);
        let wide = Shape::Wide { parents: 30, children: 20 };
        assert_eq!(edges(wide), 600);
    }
}
