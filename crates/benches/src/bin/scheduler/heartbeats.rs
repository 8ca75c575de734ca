//! Many workers that only send heartbeats: what these cost the server.

use std::time::{Duration, Instant};

use filch_scheduler::dispatch::DispatchEvent;
use filch_scheduler::message::FromWorker;
use filch_scheduler::record::Strategy;

use crate::shard::{Priorities, Shard};
use crate::worker::Worker;

/// Each worker sends one heartbeat per second.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// The default lease in seconds, so that each worker's lease is checked about once.
const ROUNDS: usize = 10;

/// What each worker can run, and how many jobs it owns.
const SLOTS: u32 = 2;
const WANT: u32 = 4;

pub(crate) struct Heartbeats {
    shard: Shard,
    workers: Vec<Worker>,
}

impl Heartbeats {
    pub(crate) fn new(workers: usize) -> Self {
        let mut shard = Shard::new(Strategy::default(), Priorities::Same);
        shard.fill(workers * WANT as usize);
        let mut workers: Vec<Worker> = (0..workers as u64).map(Worker::new).collect();
        for worker in &mut workers {
            shard.handle(worker.say_hello(SLOTS, WANT));
            worker.receive_all(shard.take_messages());
        }
        shard.handle(shard.receipt());
        Self { shard, workers }
    }

    /// Nanoseconds per heartbeat, including its answer.
    pub(crate) fn sample(&mut self) -> f64 {
        let mut taken = Duration::ZERO;
        for _ in 0..ROUNDS {
            let heartbeat = |worker: &mut Worker| worker.say(vec![FromWorker::Heartbeat]);
            let heartbeats: Vec<DispatchEvent> = self.workers.iter_mut().map(heartbeat).collect();
            let apart = HEARTBEAT
                / u32::try_from(heartbeats.len()).expect("the number of workers is small");
            let start = Instant::now();
            for heartbeat in heartbeats {
                self.shard.advance(apart);
                self.shard.handle(heartbeat);
            }
            taken += start.elapsed();
            drop(self.shard.take_messages());
        }
        taken.as_nanos() as f64 / (ROUNDS * self.workers.len()) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_worker_is_lost_and_every_job_keeps_its_owner() {
        let mut heartbeats = Heartbeats::new(20);
        assert!(heartbeats.workers.iter().all(|it| it.held() == WANT as usize));
        assert!(heartbeats.sample() > 0.0);
        assert!(heartbeats.sample() > 0.0);
        let dispatch = heartbeats.shard.dispatch();
        let counters = dispatch.counters();
        assert_eq!((counters.lost, counters.gone, counters.repeated), (0, 0, 0));
        assert_eq!(counters.claimed, 20 * u64::from(WANT));
        assert_eq!(dispatch.worker_views().count(), 20);
        assert_eq!(dispatch.audit(), Ok(()));
    }
}
