//! Rebuilding a shard from the rows of its queued jobs, as after a restart, without the time to
//! read them from a store.

use std::time::{Duration, Instant};

use filch_scheduler::dispatch::{Dispatch, DispatchConfig, Loader};
use filch_scheduler::id::{CommitNo, Fence, LeaseNo, Seq};
use filch_scheduler::record::{JobRow, JobWrite, Loaded};
use filch_scheduler::spec::JobSpec;
use filch_scheduler::state::JobState;
use filch_scheduler::time::{Monotonic, Now, Wall};

use crate::shard::{JobMaker, Priorities};

/// Rows are created in chunks, outside the measured time, so that not all are in memory at once.
const CHUNK: usize = 4_096;

const SUBMITTED_AT: Wall = Wall(1_700_000_000_000);

/// Loads this many queued jobs. Returns the nanoseconds per job, and the shard.
pub(crate) fn load(count: usize) -> (f64, Dispatch) {
    let mut jobs = JobMaker::new(Priorities::Same);
    let now = Now { monotonic: Monotonic(0), wall: SUBMITTED_AT };
    let mut loader = Loader::new(DispatchConfig::default(), now);
    let numbers = Loaded::Numbers {
        commit: CommitNo(1),
        seq: Seq(count as u64),
        lease: LeaseNo(0),
        newest_id: None,
    };
    let mut taken = add_all(&mut loader, vec![numbers]);
    let mut loaded = 0;
    while loaded < count {
        let chunk = CHUNK.min(count - loaded);
        let seqs = (loaded as u64 + 1..).map(Seq);
        let specs = jobs.make(chunk, SUBMITTED_AT);
        let rows = specs.into_iter().zip(seqs).map(|(spec, seq)| row(spec, seq));
        taken += add_all(&mut loader, rows.collect());
        loaded += chunk;
    }
    let start = Instant::now();
    let dispatch = loader.finish(&mut Vec::new()).expect("jobs without parents fit together");
    taken += start.elapsed();
    (taken.as_nanos() as f64 / count as f64, dispatch)
}

fn add_all(loader: &mut Loader, loaded: Vec<Loaded>) -> Duration {
    let start = Instant::now();
    for piece in loaded {
        loader.add(piece).expect("jobs are numbered one by one");
    }
    start.elapsed()
}

fn row(spec: JobSpec, seq: Seq) -> Loaded {
    let now = JobWrite {
        job: seq,
        state: JobState::Queued,
        fence: Fence(0),
        attempts: 0,
        suspicions: 0,
        priority: spec.priority,
        due: Wall(0),
        holder: None,
        last: None,
        reason: None,
        at: SUBMITTED_AT,
    };
    Loaded::Job(JobRow { seq, spec, submitted_at: SUBMITTED_AT, now })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_becomes_a_queued_job() {
        let (nanoseconds, dispatch) = load(CHUNK + 3);
        assert!(nanoseconds > 0.0);
        assert_eq!(dispatch.job_count(), CHUNK + 3);
        let queues: Vec<_> = dispatch.queue_views().collect();
        assert_eq!((queues.len(), queues[0].ready), (1, CHUNK + 3));
        assert_eq!(dispatch.audit(), Ok(()));
    }
}
