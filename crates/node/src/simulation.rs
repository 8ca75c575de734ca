//! The cluster at work, in virtual time: nobody waits, and the same cluster works the same way twice.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::cluster::{Cluster, Running};
use crate::ranks::Ranks;

/// What happened during one simulation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) duration_ms: u64,
    /// When the last job ended; the whole duration if one is still in flight.
    pub(crate) elapsed_ms: u64,
    pub(crate) completed: u64,
    pub(crate) in_flight: u64,
    pub(crate) queued: u64,
    pub(crate) steals: u64,
    /// In worker order.
    pub(crate) workers: Vec<Effort>,
}

/// One worker's part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effort {
    /// Jobs it completed.
    pub(crate) executed: u64,
    /// Jobs it took from others.
    pub(crate) stolen: u64,
    /// Time spent on jobs, completed or not.
    pub(crate) busy_ms: u64,
}

impl Cluster {
    /// At each instant the jobs that are due end, in worker order; then, before the end, each free worker
    /// in order pops its own deque or else steals one job from a random other. What is not done at the
    /// end stays in flight with its rest.
    ///
    /// No job comes during a simulation, so a worker that found nothing once has nothing to look for
    /// again, and each job costs the logarithm of the number of workers.
    pub(crate) fn simulate(&mut self, duration_ms: u64) -> Report {
        let mut efforts = vec![Effort::default(); self.workers.len()];
        let mut loaded = Ranks::new(self.workers.iter().map(|worker| !worker.deque.is_empty()));
        let mut free = Vec::new();
        // When each job in flight ends, and on which worker: the earliest first, then in worker order.
        let mut ends = BinaryHeap::new();
        for (index, worker) in self.workers.iter().enumerate() {
            match &worker.running {
                Some(running) => ends.push(Reverse((running.rest_ms, index))),
                None => free.push(index),
            }
        }

        let mut now = 0;
        let mut last_end = 0;
        loop {
            for index in free.drain(..) {
                if now < duration_ms && self.start(index, &mut loaded, &mut efforts[index]) {
                    ends.push(Reverse((now + self.job_duration_ms, index)));
                }
            }
            match ends.peek() {
                Some(&Reverse((end, _))) if end <= duration_ms => now = end,
                _ => break,
            }
            last_end = now;
            while let Some(&Reverse((end, index))) = ends.peek()
                && end == now
            {
                ends.pop();
                let done = self.workers[index].running.take().expect("what ends was running");
                efforts[index].executed += 1;
                efforts[index].busy_ms += done.rest_ms;
                self.jobs.remove(&done.job);
                free.push(index);
            }
        }

        for &Reverse((end, index)) in &ends {
            let running = self.workers[index].running.as_mut().expect("what would end is running");
            let rest_ms = end - duration_ms;
            efforts[index].busy_ms += running.rest_ms - rest_ms;
            running.rest_ms = rest_ms;
        }
        Report {
            duration_ms,
            elapsed_ms: if ends.is_empty() { last_end } else { duration_ms },
            completed: efforts.iter().map(|effort| effort.executed).sum(),
            in_flight: ends.len() as u64,
            queued: self.workers.iter().map(|worker| worker.deque.len() as u64).sum(),
            steals: efforts.iter().map(|effort| effort.stolen).sum(),
            workers: efforts,
        }
    }

    /// Gives a free worker its next job, if there is one anywhere.
    fn start(&mut self, index: usize, loaded: &mut Ranks, effort: &mut Effort) -> bool {
        let from = if !self.workers[index].deque.is_empty() {
            index
        } else if loaded.count() > 0 {
            loaded.at(self.random.choose(loaded.count()))
        } else {
            return false;
        };
        let deque = &mut self.workers[from].deque;
        let job = if from == index { deque.pop_front() } else { deque.pop_back() };
        if deque.is_empty() {
            loaded.remove(from);
        }
        effort.stolen += u64::from(from != index);
        let job = job.expect("a loaded deque has a job");
        self.workers[index].running = Some(Running { job, rest_ms: self.job_duration_ms });
        true
    }
}
