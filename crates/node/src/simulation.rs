//! Runs the cluster in virtual time: it takes no real time, and the same cluster always runs the
//! same way.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::cluster::{Cluster, Running};
use crate::ranks::Ranks;

/// The results of one simulation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) duration_ms: u64,
    /// When the last job ended, or the whole duration if one is still in flight.
    pub(crate) elapsed_ms: u64,
    pub(crate) completed: u64,
    pub(crate) in_flight: u64,
    pub(crate) queued: u64,
    pub(crate) steals: u64,
    /// In worker order.
    pub(crate) workers: Vec<Effort>,
}

/// The results of one worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effort {
    /// Jobs it completed.
    pub(crate) executed: u64,
    /// Jobs it stole from others.
    pub(crate) stolen: u64,
    /// Time spent on jobs, completed or not.
    pub(crate) busy_ms: u64,
}

impl Cluster {
    /// At each instant, first the jobs that are due end, in worker order. Then, unless the duration
    /// is over, each free worker in order pops its own deque, or else steals one job from a random
    /// other worker. Jobs that are running at the end stay in flight with their remaining time.
    ///
    /// No job is added during a simulation, so a worker that found no job never looks again, and
    /// each job costs the logarithm of the number of workers.
    pub(crate) fn simulate(&mut self, duration_ms: u64) -> Report {
        let mut efforts = vec![Effort::default(); self.workers.len()];
        let mut loaded = Ranks::new(self.workers.iter().map(|worker| !worker.deque.is_empty()));
        let mut free = Vec::new();
        // When each job in flight ends, and its worker: earliest first, then in worker order.
        let mut ends = BinaryHeap::new();
        for (index, worker) in self.workers.iter().enumerate() {
            match &worker.running {
                Some(running) => ends.push(Reverse((running.remaining_ms, index))),
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
                let done = self.workers[index].running.take().expect("a job that ends was running");
                efforts[index].executed += 1;
                efforts[index].busy_ms += done.remaining_ms;
                self.jobs.remove(&done.job);
                free.push(index);
            }
        }

        for &Reverse((end, index)) in &ends {
            let running =
                self.workers[index].running.as_mut().expect("a job that would end is running");
            let remaining_ms = end - duration_ms;
            efforts[index].busy_ms += running.remaining_ms - remaining_ms;
            running.remaining_ms = remaining_ms;
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

    /// Starts the next job on a free worker, if any worker has one.
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
        self.workers[index].running = Some(Running { job, remaining_ms: self.job_duration_ms });
        true
    }
}
