//! The longest wait while a shard grows.
//!
//! Most submits take the same time, but now and then a table is made larger. Meanwhile nobody is heard,
//! and the medians of the other figures do not show it.

use filch_scheduler::record::Strategy;

use crate::shard::{Priorities, Shard};

/// Milliseconds that the longest submit takes while so many jobs are queued.
pub(crate) fn longest_submit(count: usize) -> f64 {
    let mut shard = Shard::new(Strategy::default(), Priorities::Same);
    let longest = shard.fill(count);
    assert_eq!(shard.dispatch().job_count(), count, "all jobs are there");
    longest.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_submit_is_the_longest() {
        assert!(longest_submit(1_234) > 0.0);
    }
}
