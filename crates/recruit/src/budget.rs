//! How much of its time this process spends on side-work.
//!
//! A token bucket: time fills it, slices empty it, and the busier the host is, the slower it fills.
//! Before a slice begins, its maximum duration is taken out; the part it did not use is put back
//! when it ends. A slice that lasts longer leaves a debt, which must be refilled before another
//! slice begins. So no matter how often and from how many threads callers enlist, all slices
//! together never use more than their share of the elapsed time plus one full bucket.

use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::builder::Load;
use crate::job::Clock;

pub(crate) struct Budget {
    part: f64,
    /// What is taken out for a slice before it begins.
    slice_max: i64,
    /// The capacity: what a second brings, but at least two slices.
    most: i64,
    load: Option<Load>,
    clock: Clock,
    bucket: Mutex<Bucket>,
}

struct Bucket {
    /// Nanoseconds; below zero it is a debt.
    saved: i64,
    filled_at: Instant,
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("part", &self.part).finish_non_exhaustive()
    }
}

impl Budget {
    pub(crate) fn new(part: f64, slice_max: Duration, load: Option<Load>, clock: Clock) -> Self {
        let slice_max = nanos(slice_max);
        let second = nanos(Duration::from_secs(1).mul_f64(part));
        let most = if part == 0.0 { 0 } else { second.max(slice_max.saturating_mul(2)) };
        let bucket = Mutex::new(Bucket { saved: most, filled_at: clock() });
        Self { part, slice_max, most, load, clock, bucket }
    }

    /// Takes out the time for one slice, if there is enough. It never blocks: if another thread
    /// holds the lock, the answer is no.
    pub(crate) fn reserve(&self, now: Instant) -> Option<Reserved<'_>> {
        // Called without the lock, because the function belongs to the host.
        let load = self.load.as_ref().map_or(0.0, |load| load().clamp(0.0, 1.0));
        // A load that is not a number counts as fully busy.
        let idle = if load.is_nan() { 0.0 } else { 1.0 - load };
        let mut bucket = self.bucket.try_lock().ok()?;
        let passed = now.saturating_duration_since(bucket.filled_at);
        let earned = nanos(passed.mul_f64(self.part * idle));
        // Less than a nanosecond is earned later, together with more; but a full host earns
        // nothing.
        if earned > 0 || idle == 0.0 {
            bucket.filled_at = bucket.filled_at.max(now);
            bucket.saved = bucket.saved.saturating_add(earned).min(self.most);
        }
        if bucket.saved < self.slice_max || idle == 0.0 {
            return None;
        }
        bucket.saved -= self.slice_max;
        Some(Reserved { from: Some((self, now)) })
    }

    /// Settles a slice for which time was taken out: it lasted this long.
    fn settle(&self, used: Duration) {
        // Held for a few instructions only, during which nothing can panic.
        let mut bucket = self.bucket.lock().expect("no code panics with the lock");
        let left = self.slice_max.saturating_sub(nanos(used));
        bucket.saved = bucket.saved.saturating_add(left);
    }
}

/// The time reserved for one slice. If the slice is abandoned (its future is dropped), the time
/// from the reservation to the drop is charged.
#[derive(Debug)]
pub(crate) struct Reserved<'b> {
    from: Option<(&'b Budget, Instant)>,
}

impl Reserved<'_> {
    /// Used if the time is unbounded.
    pub(crate) fn unbounded() -> Self {
        Self { from: None }
    }

    /// Charges the time that the slice took.
    pub(crate) fn spend(mut self, used: Duration) {
        if let Some((budget, _)) = self.from.take() {
            budget.settle(used);
        }
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if let Some((budget, begun)) = self.from {
            budget.settle((budget.clock)().saturating_duration_since(begun));
        }
    }
}

fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::LazyLock;

    use super::*;

    const SLICE_MAX: Duration = Duration::from_millis(50);

    thread_local! {
        /// How far the virtual clock of this test has advanced.
        static PASSED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    fn now() -> Instant {
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        *START + PASSED.get()
    }

    fn budget(part: f64, slice_max: Duration, load: Option<Load>) -> Budget {
        Budget::new(part, slice_max, load, now)
    }

    /// An empty bucket.
    fn empty(part: f64, load: Option<Load>) -> Budget {
        let budget = budget(part, SLICE_MAX, load);
        budget.bucket.lock().expect("no code panics with the lock").saved = 0;
        budget
    }

    fn saved(budget: &Budget) -> i64 {
        budget.bucket.lock().expect("no code panics with the lock").saved
    }

    /// A thread that always either runs a slice or tries to reserve one.
    struct Asker<'b> {
        acts_at: Duration,
        slice: Option<Reserved<'b>>,
    }

    /// How much time goes into side-work within a minute of virtual time.
    fn spent_in_a_minute(budget: &Budget, askers: usize, slice: Duration) -> Duration {
        let start = now();
        let asker = |_| Asker { acts_at: Duration::ZERO, slice: None };
        let mut askers: Vec<Asker<'_>> = (0..askers).map(asker).collect();
        let mut spent = Duration::ZERO;
        while let Some(next) = askers.iter_mut().min_by_key(|asker| asker.acts_at)
            && next.acts_at < MINUTE
        {
            if let Some(reserved) = next.slice.take() {
                reserved.spend(slice);
            }
            next.slice = budget.reserve(start + next.acts_at);
            if next.slice.is_some() {
                spent += slice;
                next.acts_at += slice;
            } else {
                next.acts_at += Duration::from_millis(1);
            }
        }
        for slice_under_way in askers.into_iter().filter_map(|asker| asker.slice) {
            slice_under_way.spend(slice);
        }
        spent
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn the_budget_is_kept_and_used_for_any_slice_length_and_number_of_threads() {
        for part in [0.02, 0.2] {
            for slice in [5, 20, 200].map(Duration::from_millis) {
                for askers in [1, 8] {
                    let slice_max = slice.max(SLICE_MAX);
                    let budget = budget(part, slice_max, None);
                    let burst = Duration::from_nanos(budget.most.unsigned_abs());
                    let spent = spent_in_a_minute(&budget, askers, slice);
                    let share = MINUTE.mul_f64(part);
                    let run = format!("{part} of a minute, {askers} with {slice:?}: {spent:?}");
                    assert!(spent <= share + burst, "{run}");
                    assert!(spent + slice_max >= share, "{run}");
                }
            }
        }
    }

    /// A slice cannot be interrupted, but the slices after it wait until its debt is refilled.
    #[test]
    fn slices_that_take_far_too_long_are_paid_for() {
        let slice = Duration::from_millis(200);
        for (part, askers) in [(0.02, 1), (0.02, 8), (0.2, 1), (0.2, 8)] {
            let budget = budget(part, SLICE_MAX, None);
            let burst = Duration::from_nanos(budget.most.unsigned_abs());
            let spent = spent_in_a_minute(&budget, askers, slice);
            // At most these began before the first of them was known to be too long.
            let at_once = u32::try_from(budget.most / budget.slice_max).expect("few");
            let most = MINUTE.mul_f64(part) + burst + (slice - SLICE_MAX) * at_once;
            assert!(spent <= most, "{part} of a minute, {askers}: {spent:?}");
        }
    }

    #[test]
    fn spent_time_is_refilled_by_elapsed_time() {
        let start = now();
        let budget = empty(0.1, None);
        assert!(budget.reserve(start).is_none());
        assert!(budget.reserve(start + Duration::from_millis(499)).is_none());
        let slice =
            budget.reserve(start + Duration::from_millis(500)).expect("the time is available");
        slice.spend(Duration::from_millis(250));
        assert!(budget.reserve(start + Duration::from_millis(2_999)).is_none());
        assert!(budget.reserve(start + Duration::from_millis(3_000)).is_some());
    }

    #[test]
    fn an_abandoned_slice_is_charged_for_the_time_until_it_was_dropped() {
        let budget = budget(0.01, SLICE_MAX, None);
        let full = saved(&budget);
        let slice = budget.reserve(now()).expect("the time is available");
        assert_eq!(saved(&budget), full - nanos(SLICE_MAX));
        let used = Duration::from_millis(7);
        PASSED.set(used);
        drop(slice);
        assert_eq!(saved(&budget), full - nanos(used));
    }

    #[test]
    fn a_fully_busy_host_has_no_time_for_side_work() {
        let busy = budget(0.1, SLICE_MAX, Some(Box::new(|| 1.0)));
        assert!(busy.reserve(now()).is_none());
        let not_a_number = budget(0.1, SLICE_MAX, Some(Box::new(|| f64::NAN)));
        assert!(not_a_number.reserve(now()).is_none());
    }

    #[test]
    fn at_half_load_the_budget_refills_half_as_fast() {
        for (load, earned) in [(0.0, 10), (0.5, 5), (0.9, 1), (1.0, 0)] {
            let start = now();
            let budget = empty(0.1, Some(Box::new(move || load)));
            assert!(budget.reserve(start + Duration::from_millis(100)).is_none());
            assert_eq!(saved(&budget) / 1_000, earned * 1_000);
        }
    }

    #[test]
    fn frequent_calls_do_not_lose_fractions_of_a_nanosecond() {
        let mut now = now();
        let budget = empty(0.01, None);
        // A hundredth of each step is less than a nanosecond.
        for _ in 0..1_000 {
            now += Duration::from_nanos(40);
            assert!(budget.reserve(now).is_none());
        }
        assert!(saved(&budget) >= 390, "{}", saved(&budget));
    }

    #[test]
    fn a_share_of_zero_never_allows_a_slice() {
        let budget = budget(0.0, SLICE_MAX, None);
        assert!(budget.reserve(now() + Duration::from_secs(100)).is_none());
    }
}
