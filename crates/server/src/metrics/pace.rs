//! Throughput: how many jobs ended within the last minute.

use std::collections::BTreeMap;

use filch_scheduler::time::Wall;

/// How many jobs ended in each of the last sixty seconds.
#[derive(Clone, Default)]
pub(super) struct Pace {
    seconds: BTreeMap<u64, Ends>,
}

#[derive(Clone, Copy, Default)]
struct Ends {
    all: u32,
    /// Those that were not cancelled: they show how fast jobs are processed.
    ran: u32,
}

/// The length of the window.
pub(super) const LATELY_SECONDS: u64 = 60;

impl Pace {
    pub(super) fn add(&mut self, at: Wall, has_run: bool) {
        let ends = self.seconds.entry(at.0 / 1_000).or_default();
        ends.all += 1;
        ends.ran += u32::from(has_run);
        while self.seconds.len() as u64 > LATELY_SECONDS {
            self.seconds.pop_first();
        }
    }

    pub(super) fn since(&self, second: u64) -> u64 {
        self.seconds.range(second..).map(|(_, ends)| u64::from(ends.all)).sum()
    }
}

/// Jobs per second. It is measured from the first end within the last minute, so that a queue which
/// has just begun to move does not look slow; that end itself only starts the measurement and is
/// not counted. A single end counts as one per minute.
pub(super) fn rate(paces: &[&Pace], now: u64) -> Option<f64> {
    let from = now.saturating_sub(LATELY_SECONDS - 1);
    let lately =
        paces.iter().flat_map(|pace| pace.seconds.range(from..)).filter(|(_, ends)| ends.ran > 0);
    let first_and_count = lately.fold(None, |sum: Option<(u64, u64)>, (&second, ends)| {
        let (first, count) = sum.unwrap_or((second, 0));
        Some((first.min(second), count + u64::from(ends.ran)))
    });
    match first_and_count? {
        (_, 1) => Some(1.0 / LATELY_SECONDS as f64),
        (first, count) => Some((count - 1) as f64 / now.saturating_sub(first).max(1) as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_minute() {
        let pace = |ends: &[(u64, u32)]| {
            let mut pace = Pace::default();
            for (second, count) in ends {
                (0..*count).for_each(|_| pace.add(Wall(second * 1_000), true));
            }
            pace
        };
        let rate = |paces: &[Pace]| rate(&paces.iter().collect::<Vec<_>>(), 1_000);
        assert_eq!(rate(&[]), None);
        assert_eq!(rate(&[pace(&[(900, 7)])]), None, "that was long ago");
        assert_eq!(rate(&[pace(&[(999, 1)])]), Some(1.0 / 60.0));
        assert_eq!(rate(&[pace(&[(980, 1), (990, 10)])]), Some(0.5));
        assert_eq!(rate(&[pace(&[(1_000, 11)])]), Some(10.0), "all in this second");
        assert_eq!(rate(&[pace(&[(990, 10)]), pace(&[(980, 1)])]), Some(0.5), "two kinds");
        let mut purged = pace(&[(990, 1)]);
        (0..1_000).for_each(|_| purged.add(Wall(990_000), false));
        assert_eq!(rate(&[purged]), Some(1.0 / 60.0), "cancelled jobs do not count");
    }
}
