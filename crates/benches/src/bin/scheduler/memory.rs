//! How many bytes a queued job takes, without its payload, which `dispatch` never has.
//!
//! The requested bytes are counted, without the overhead of the allocator.

use filch_scheduler::record::Strategy;

use crate::shard::{Priorities, Shard};

/// Queues this many jobs, with all commits confirmed; mutations and messages are dropped.
pub(crate) fn queue_up(count: usize) -> Shard {
    let mut shard = Shard::new(Strategy::default(), Priorities::Same);
    shard.fill(count);
    shard
}

/// Bytes per queued job. `allocated` returns the number of bytes in use.
pub(crate) fn bytes_a_job(count: usize, allocated: impl Fn() -> usize) -> f64 {
    let before = allocated();
    let shard = queue_up(count);
    let after = allocated();
    assert_eq!(shard.dispatch().job_count(), count, "all jobs exist");
    (after as f64 - before as f64) / count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn memory_in_use_before_does_not_count() {
        let shard = queue_up(1_234);
        assert_eq!(shard.dispatch().job_count(), 1_234);
        assert_eq!(shard.dispatch().audit(), Ok(()));
        let readings = Cell::new(1_000);
        let bytes = bytes_a_job(100, || readings.replace(21_000));
        assert_eq!(bytes, 200.0);
    }
}
