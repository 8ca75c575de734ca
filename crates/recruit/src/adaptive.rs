//! What a job wants now: always the same, or more when there is work and less when there is none.

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

    /// Parts of a million.
    #[inline]
    pub(crate) fn parts(&self) -> u32 {
        // Relaxed: a draw that sees it late is as good as one made earlier.
        self.parts.load(Relaxed)
    }

    /// A slice has found work, or none. By a quarter up, by a fifth down: as many of each change
    /// nothing.
    pub(crate) fn learn(&self, duty: Duty) {
        let Some((min, max)) = self.bounds else { return };
        let parts = self.parts();
        let wanted = match duty {
            Duty::Done => parts + parts.div_ceil(4),
            Duty::NoWork => parts - parts / 5,
        };
        let within = wanted.clamp(min.parts_per_million(), max.parts_per_million());
        // Of two who learn at once one is forgotten; the next one learns again.
        self.parts.store(within, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_work_within_its_bounds() {
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
    fn without_bounds_it_stays() {
        let rate = Adaptive::new(Rate::per_million(2000), None);
        rate.learn(Duty::Done);
        assert_eq!(rate.parts(), 2000);
    }
}
