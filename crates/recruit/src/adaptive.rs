//! The current rate of a job: fixed, or rising when there is work and falling when there is none.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::job::Duty;
use crate::rate::Rate;

#[derive(Debug)]
pub(crate) struct Adaptive {
    parts: AtomicU32,
    bounds: Option<(Rate, Rate)>,
}

impl Adaptive {
    pub(crate) fn new(rate: Rate, bounds: Option<(Rate, Rate)>) -> Self {
        Self { parts: AtomicU32::new(rate.parts_per_million()), bounds }
    }

    /// The rate in parts per million.
    #[inline]
    pub(crate) fn parts(&self) -> u32 {
        // Relaxed: a draw that sees an old value is as good as one made earlier.
        self.parts.load(Relaxed)
    }

    /// Adapts the rate after a slice. It rises by a quarter and falls by a fifth, so one of each
    /// cancel out.
    pub(crate) fn learn(&self, duty: Duty) {
        let Some((min, max)) = self.bounds else { return };
        let parts = self.parts();
        let wanted = match duty {
            Duty::Done => parts + parts.div_ceil(4),
            Duty::NoWork => parts - parts / 5,
        };
        let within = wanted.clamp(min.parts_per_million(), max.parts_per_million());
        // If two threads write at once, one update is lost; the next slice adapts the rate again.
        self.parts.store(within, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_follows_the_work_within_its_bounds() {
        let (min, max) = (Rate::per_million(1000), Rate::per_million(8000));
        let rate = Adaptive::new(Rate::per_million(2000), Some((min, max)));
        rate.learn(Duty::Done);
        assert_eq!(rate.parts(), 2500);
        rate.learn(Duty::NoWork);
        assert_eq!(rate.parts(), 2000);
        (0..100).for_each(|_| rate.learn(Duty::Done));
        assert_eq!(rate.parts(), 8000);
        (0..100).for_each(|_| rate.learn(Duty::NoWork));
        assert_eq!(rate.parts(), 1000);
    }

    #[test]
    fn without_bounds_the_rate_is_fixed() {
        let rate = Adaptive::new(Rate::per_million(2000), None);
        rate.learn(Duty::Done);
        assert_eq!(rate.parts(), 2000);
    }
}
