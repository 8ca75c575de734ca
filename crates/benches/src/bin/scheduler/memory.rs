//! How many bytes a queued job holds, its payload apart: `dispatch` never sees that.
//!
//! Bytes are counted as they are asked for; what the allocator adds for itself is not ours to save.

use filch_scheduler::record::Strategy;

use crate::shard::{Priorities, Shard};

/// So many jobs are queued, with all receipts; what was to be stored or told is dropped.
pub(crate) fn queue_up(count: usize) -> Shard {
    let mut shard = Shard::new(Strategy::default(), Priorities::Same);
    shard.fill(count);
    shard
}

/// Bytes a queued job. `allocated` says how many bytes are in use.
pub(crate) fn bytes_a_job(count: usize, allocated: impl Fn() -> usize) -> f64 {
    let before = allocated();
    let shard = queue_up(count);
    let after = allocated();
    assert_eq!(shard.dispatch().job_count(), count, "all jobs are there");
    (after as f64 - before as f64) / count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn what_is_in_use_before_does_not_count() {
        let shard = queue_up(1_234);
        assert_eq!(shard.dispatch().job_count(), 1_234);
        assert_eq!(shard.dispatch().audit(), Ok(()));
        let readings = Cell::new(1_000);
        let bytes = bytes_a_job(100, || readings.replace(21_000));
        assert_eq!(bytes, 200.0);
    }
}
