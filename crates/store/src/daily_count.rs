//! How purged jobs had ended, counted by day and queue when they are purged. The number of days and
//! the number of queues per day are bounded.

use std::collections::BTreeMap;

use filch_scheduler::name::Name;
use filch_scheduler::record::JobRow;
use filch_scheduler::state::JobState;
use filch_scheduler::time::Wall;

/// How many days are stored, counted back from the newest.
pub(crate) const DAYS_MAX: u64 = 400;

/// How many queues of one day are counted separately. The others are counted together.
pub(crate) const QUEUES_MAX: usize = 1_000;

/// The name of the others.
pub(crate) const OTHERS: &str = "(others)";

pub(crate) const DAY_MS: u64 = 24 * 3_600 * 1_000;

/// Purged jobs of one queue that ended on one day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DailyCount {
    /// The day on which they ended: days since 1970-01-01.
    pub day: u64,
    /// Their queue.
    pub queue: Name,
    /// How many succeeded.
    pub succeeded: u64,
    /// How many died.
    pub dead: u64,
    /// How many were cancelled.
    pub cancelled: u64,
    /// The sum of their times from submission to end, in milliseconds.
    pub spent_ms: u64,
}

/// The day of a point in time, as days since 1970-01-01.
#[must_use]
pub const fn day_of(at: Wall) -> u64 {
    at.0 / DAY_MS
}

impl DailyCount {
    /// The count of one job.
    pub(crate) fn of(row: &JobRow) -> Self {
        let count = |state| u64::from(row.now.state == state);
        Self {
            day: day_of(row.now.at),
            queue: row.spec.queue.clone(),
            succeeded: count(JobState::Succeeded),
            dead: count(JobState::Dead),
            cancelled: count(JobState::Cancelled),
            spent_ms: row.now.at.0.saturating_sub(row.submitted_at.0),
        }
    }

    fn add(&mut self, other: &Self) {
        self.succeeded += other.succeeded;
        self.dead += other.dead;
        self.cancelled += other.cancelled;
        self.spent_ms = self.spent_ms.saturating_add(other.spent_ms);
    }
}

/// The daily counts of a store in memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct DailyCounts(BTreeMap<(u64, Name), DailyCount>);

impl DailyCounts {
    pub(crate) fn add(&mut self, mut count: DailyCount) {
        let day = count.day;
        let has = |queue: &Name| self.0.contains_key(&(day, queue.clone()));
        let of_day = self.0.keys().filter(|(other, _)| *other == day).count();
        if !has(&count.queue) && of_day >= QUEUES_MAX {
            count.queue = Name::from(OTHERS);
        }
        match self.0.get_mut(&(day, count.queue.clone())) {
            Some(known) => known.add(&count),
            None => _ = self.0.insert((day, count.queue.clone()), count),
        }
        let newest = self.0.last_key_value().map_or(0, |((day, _), _)| *day);
        self.0.retain(|(day, _), _| *day + DAYS_MAX > newest);
    }

    /// The newest day first; within a day by queue.
    pub(crate) fn newest(&self, limit: usize) -> Vec<DailyCount> {
        let mut daily_counts: Vec<DailyCount> = self.0.values().cloned().collect();
        daily_counts.sort_by(|one, other| (other.day, &one.queue).cmp(&(one.day, &other.queue)));
        daily_counts.truncate(limit);
        daily_counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(day: u64, queue: &str) -> DailyCount {
        let queue = Name::from(queue);
        DailyCount { day, queue, succeeded: 1, dead: 0, cancelled: 0, spent_ms: 5 }
    }

    #[test]
    fn days_and_queues_are_bounded() {
        let mut daily_counts = DailyCounts::default();
        for queue in 0..QUEUES_MAX + 50 {
            daily_counts.add(count(1_000, &format!("q{queue}")));
        }
        let kept = daily_counts.newest(usize::MAX);
        assert_eq!(kept.len(), QUEUES_MAX + 1);
        let others = kept.iter().find(|count| count.queue.as_str() == OTHERS).unwrap();
        assert_eq!((others.succeeded, others.spent_ms), (50, 250));
        for day in 1_001..=1_000 + DAYS_MAX {
            daily_counts.add(count(day, "q"));
        }
        let kept = daily_counts.newest(usize::MAX);
        assert_eq!(kept.len() as u64, DAYS_MAX);
        assert_eq!((kept[0].day, kept[kept.len() - 1].day), (1_000 + DAYS_MAX, 1_001));
    }
}
