//! How much of its time this process spends on side-work at all.
//!
//! A bucket: time fills it, slices empty it, and the busier the host, the slower it fills. Who begins a slice
//! takes out the most that it may last, and puts back what was left when it ends; what it took beyond that is a
//! debt, which time has to pay before anybody begins another. So whoever asks how often, and from however many
//! threads: together they never have more than their part of the time that has passed, and one full bucket.

use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::builder::Load;

pub(crate) struct Budget {
    part: f64,
    /// What is taken out for a slice before it begins.
    slice_max: i64,
    /// The most that can be saved up: what a second brings, but at least two slices.
    most: i64,
    load: Option<Load>,
    bucket: Mutex<Bucket>,
}

struct Bucket {
    /// Nanoseconds; a debt if it is below zero.
    saved: i64,
    filled_at: Instant,
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("part", &self.part).finish_non_exhaustive()
    }
}

impl Budget {
    pub(crate) fn new(part: f64, slice_max: Duration, load: Option<Load>) -> Self {
        let slice_max = nanos(slice_max);
        let second = nanos(Duration::from_secs(1).mul_f64(part));
        let most = if part == 0.0 { 0 } else { second.max(slice_max.saturating_mul(2)) };
        let bucket = Mutex::new(Bucket { saved: most, filled_at: Instant::now() });
        Self { part, slice_max, most, load, bucket }
    }

    /// Takes out the time for one slice, if it is there. Who would have to wait for the answer gets a no.
    pub(crate) fn reserve(&self, now: Instant) -> Option<Reserved<'_>> {
        // Asked without the lock: it is the host's.
        let load = self.load.as_ref().map_or(0.0, |load| load().clamp(0.0, 1.0));
        // A load that is not a number is none that leaves anything to spare.
        let idle = if load.is_nan() { 0.0 } else { 1.0 - load };
        let mut bucket = self.bucket.try_lock().ok()?;
        let passed = now.saturating_duration_since(bucket.filled_at);
        let earned = nanos(passed.mul_f64(self.part * idle));
        // Less than a nanosecond is earned later, together with more; but a full host earns nothing.
        if earned > 0 || idle == 0.0 {
            bucket.filled_at = bucket.filled_at.max(now);
            bucket.saved = bucket.saved.saturating_add(earned).min(self.most);
        }
        if bucket.saved < self.slice_max || idle == 0.0 {
            return None;
        }
        bucket.saved -= self.slice_max;
        Some(Reserved { budget: Some(self), begun: now })
    }

    /// A slice for which time was taken out lasted so long.
    fn settle(&self, used: Duration) {
        // Held for a few instructions, and never while anything else is done.
        let mut bucket = self.bucket.lock().expect("nobody panics with it");
        let left = self.slice_max.saturating_sub(nanos(used));
        bucket.saved = bucket.saved.saturating_add(left);
    }
}

/// The time of one slice. Who forgets to say how long it lasted, because it was given up halfway, pays for as
/// long as this was kept.
#[derive(Debug)]
pub(crate) struct Reserved<'b> {
    budget: Option<&'b Budget>,
    begun: Instant,
}

impl Reserved<'_> {
    /// Time of somebody who does not count it.
    pub(crate) fn unbounded() -> Self {
        Self { budget: None, begun: Instant::now() }
    }

    /// The slice took so long.
    pub(crate) fn spend(mut self, used: Duration) {
        if let Some(budget) = self.budget.take() {
            budget.settle(used);
        }
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if let Some(budget) = self.budget {
            budget.settle(self.begun.elapsed());
        }
    }
}

fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE_MAX: Duration = Duration::from_millis(50);

    /// A bucket that has nothing left.
    fn empty(part: f64, load: Option<Load>, now: Instant) -> Budget {
        let budget = Budget::new(part, SLICE_MAX, load);
        budget.bucket.lock().expect("nobody panics with it").saved = 0;
        budget.bucket.lock().expect("nobody panics with it").filled_at = now;
        budget
    }

    fn saved(budget: &Budget) -> i64 {
        budget.bucket.lock().expect("nobody panics with it").saved
    }

    /// Somebody who asks all the time, and whose slices last for so long.
    struct Asker<'b> {
        acts_at: Duration,
        slice: Option<Reserved<'b>>,
    }

    /// How much goes into side-work within a minute of invented time.
    fn spent_in_a_minute(budget: &Budget, askers: usize, slice: Duration) -> Duration {
        let start = Instant::now();
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
    fn however_long_slices_are_and_however_many_ask_the_budget_holds_and_is_used() {
        for part in [0.02, 0.2] {
            for slice in [5, 20, 200].map(Duration::from_millis) {
                for askers in [1, 8] {
                    let slice_max = slice.max(SLICE_MAX);
                    let budget = Budget::new(part, slice_max, None);
                    let burst = Duration::from_nanos(budget.most.unsigned_abs());
                    let spent = spent_in_a_minute(&budget, askers, slice);
                    let share = MINUTE.mul_f64(part);
                    let told = format!("{part} of a minute, {askers} with {slice:?}: {spent:?}");
                    assert!(spent <= share + burst, "{told}");
                    assert!(spent + slice_max >= share, "{told}");
                }
            }
        }
    }

    /// Nobody can end them; but who comes after them waits until they are paid for.
    #[test]
    fn slices_that_take_far_too_long_are_paid_for() {
        let slice = Duration::from_millis(200);
        for (part, askers) in [(0.02, 1), (0.02, 8), (0.2, 1), (0.2, 8)] {
            let budget = Budget::new(part, SLICE_MAX, None);
            let burst = Duration::from_nanos(budget.most.unsigned_abs());
            let spent = spent_in_a_minute(&budget, askers, slice);
            // No more than these were let in before the first of them was known to be too long.
            let at_once = u32::try_from(budget.most / budget.slice_max).expect("few");
            let most = MINUTE.mul_f64(part) + burst + (slice - SLICE_MAX) * at_once;
            assert!(spent <= most, "{part} of a minute, {askers}: {spent:?}");
        }
    }

    #[test]
    fn what_is_spent_comes_back_with_time() {
        let start = Instant::now();
        let budget = empty(0.1, None, start);
        assert!(budget.reserve(start).is_none());
        assert!(budget.reserve(start + Duration::from_millis(499)).is_none());
        let slice = budget.reserve(start + Duration::from_millis(500)).expect("it is there");
        slice.spend(Duration::from_millis(250));
        assert!(budget.reserve(start + Duration::from_millis(2_999)).is_none());
        assert!(budget.reserve(start + Duration::from_millis(3_000)).is_some());
    }

    #[test]
    fn who_gives_up_halfway_pays_for_no_more_than_that() {
        let budget = Budget::new(0.01, SLICE_MAX, None);
        let full = saved(&budget);
        let slice = budget.reserve(Instant::now()).expect("it is there");
        assert_eq!(saved(&budget), full - nanos(SLICE_MAX));
        let begun = slice.begun;
        drop(slice);
        let used = nanos(begun.elapsed());
        assert!((full - used..=full).contains(&saved(&budget)), "{full} {}", saved(&budget));
    }

    #[test]
    fn a_busy_host_spares_less_and_a_full_one_nothing() {
        let busy = Budget::new(0.1, SLICE_MAX, Some(Box::new(|| 1.0)));
        assert!(busy.reserve(Instant::now()).is_none());
        let nonsense = Budget::new(0.1, SLICE_MAX, Some(Box::new(|| f64::NAN)));
        assert!(nonsense.reserve(Instant::now()).is_none());
    }

    #[test]
    fn half_the_load_is_half_the_time() {
        for (load, earned) in [(0.0, 10), (0.5, 5), (0.9, 1), (1.0, 0)] {
            let start = Instant::now();
            let budget = empty(0.1, Some(Box::new(move || load)), start);
            assert!(budget.reserve(start + Duration::from_millis(100)).is_none());
            assert_eq!(saved(&budget) / 1_000, earned * 1_000);
        }
    }

    #[test]
    fn who_asks_all_the_time_loses_nothing() {
        let mut now = Instant::now();
        let budget = empty(0.01, None, now);
        // A hundredth of each is less than what a clock can tell.
        for _ in 0..1_000 {
            now += Duration::from_nanos(40);
            assert!(budget.reserve(now).is_none());
        }
        assert!(saved(&budget) >= 390, "{}", saved(&budget));
    }

    #[test]
    fn nothing_to_spare_is_nothing() {
        let budget = Budget::new(0.0, SLICE_MAX, None);
        assert!(budget.reserve(Instant::now() + Duration::from_secs(100)).is_none());
    }
}
