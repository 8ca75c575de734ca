//! The longest pause while a shard grows.
//!
//! Most submits take the same time, but now and then a table grows. Meanwhile no message is
//! processed, and the medians of the other figures do not show it.

use filch_scheduler::record::Strategy;

use crate::shard::{Priorities, Shard};

/// The longest submit in milliseconds, while this many jobs are queued.
pub(crate) fn longest_submit(count: usize) -> f64 {
    let mut shard = Shard::new(Strategy::default(), Priorities::Same);
    let longest = shard.fill(count);
    assert_eq!(shard.dispatch().job_count(), count, "all jobs exist");
    longest.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_submit_is_measured() {
        assert!(longest_submit(1_234) > 0.0);
    }
}
