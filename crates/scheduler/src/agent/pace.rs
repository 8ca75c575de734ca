//! How many jobs to want: the slots plus a shallow reserve that covers one round trip.
//!
//! While a report and its answer are in flight, a slot works from the reserve. The jobs needed for
//! that are (round trip / mean job time) x slots: many for short jobs, none for long ones, which
//! are therefore hardly ever taken before they can be started.

use super::Reserve;
use crate::time::{Duration, micros};

/// The measured means, in microseconds; newer samples count more.
#[derive(Default)]
pub(crate) struct Pace {
    round_trip: Option<u64>,
    mean_run: Option<u64>,
}

/// The newest sample makes up one part in this many of the mean.
const MEMORY: u64 = 8;

impl Pace {
    pub(crate) fn round_trip(&mut self, sample: Duration) {
        self.round_trip = Some(mean(self.round_trip, micros(sample)));
    }

    pub(crate) fn run(&mut self, sample: Duration) {
        self.mean_run = Some(mean(self.mean_run, micros(sample)));
    }

    /// How many jobs to want beyond the slots.
    pub(crate) fn reserve(&self, reserve: Reserve, slots: u32) -> u32 {
        let most = match reserve {
            Reserve::Fixed(jobs) => return jobs,
            Reserve::Auto { most } => most,
        };
        let (Some(round_trip), Some(mean_run)) = (self.round_trip, self.mean_run) else {
            return 0;
        };
        let mean_run = u128::from(mean_run.max(1));
        let jobs = u128::from(round_trip) * u128::from(slots);
        let nearest = (jobs + mean_run / 2) / mean_run;
        u32::try_from(nearest).unwrap_or(u32::MAX).min(most)
    }
}

fn mean(before: Option<u64>, sample: u64) -> u64 {
    before.map_or(sample, |before| (before * (MEMORY - 1) + sample) / MEMORY)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AUTO: Reserve = Reserve::Auto { most: 100 };

    fn pace(round_trip: Duration, run: Duration) -> Pace {
        let mut pace = Pace::default();
        pace.round_trip(round_trip);
        pace.run(run);
        pace
    }

    #[test]
    fn short_jobs_get_a_reserve_and_long_ones_none() {
        let trip = Duration::from_millis(2);
        assert_eq!(pace(trip, Duration::from_millis(1)).reserve(AUTO, 4), 8);
        assert_eq!(pace(trip, Duration::from_secs(1)).reserve(AUTO, 4), 0);
        assert_eq!(pace(trip, Duration::ZERO).reserve(AUTO, 4), 100, "the cap");
    }

    #[test]
    fn there_is_no_reserve_before_the_first_measurement() {
        assert_eq!(Pace::default().reserve(AUTO, 4), 0);
        assert_eq!(Pace::default().reserve(Reserve::Fixed(7), 4), 7);
    }

    #[test]
    fn newer_samples_move_the_mean() {
        let mut pace = pace(Duration::from_millis(2), Duration::from_secs(1));
        for _ in 0..100 {
            pace.run(Duration::from_millis(1));
        }
        assert!(pace.reserve(AUTO, 4) >= 7);
    }
}
