//! The scheduling order, as pure functions.
//!
//! A job's rank orders it within its queue; a queue's standing orders the queues. Both are fixed
//! keys: nothing is ever scanned or aged by a timer. To add a strategy, add it to the enum, and to
//! `rank` and `standing`. `join` and `charge` count the turns of queues, for every strategy alike.

use crate::id::Seq;
use crate::planted::{Bug, planted};
use crate::record::{DEFAULT_AGING, Strategy};
use crate::time::{Duration, Wall};

/// A queue's place among the queues; lower is served sooner.
pub(crate) type Standing = (i64, u64);

/// What one job costs a queue of weight 1 under `fair`. Divisible by every weight up to 16, and
/// large enough that the rounding of others does not matter.
const STRIDE: u64 = 720_720 << 16;

/// A queue's progress under the strategies that take turns.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Turns {
    /// When it was last served: the number of that service.
    pub(crate) last: u64,
    /// What it has been charged so far, under `fair`.
    pub(crate) charged: u64,
}

/// A job's place in its queue; lower is sooner, ties go by submission.
pub(crate) fn rank(strategy: Strategy, submitted_at: Wall, priority: i16) -> i64 {
    let aged = |aging: Duration| {
        let aging = i64::try_from(aging.as_millis()).unwrap_or(i64::MAX);
        let submitted_at = if planted(Bug::PriorityNeverAges) { Wall(0) } else { submitted_at };
        let submitted_at = i64::try_from(submitted_at.0).unwrap_or(i64::MAX);
        submitted_at.saturating_sub(i64::from(priority).saturating_mul(aging))
    };
    match strategy {
        Strategy::Fifo => 0,
        Strategy::Priority { aging } => aged(aging),
        Strategy::RoundRobin | Strategy::Fair => aged(DEFAULT_AGING),
    }
}

/// A queue's place among the queues, from the rank of its first job and its turns so far.
pub(crate) const fn standing(strategy: Strategy, first: (i64, Seq), turns: Turns) -> Standing {
    match strategy {
        Strategy::Fifo | Strategy::Priority { .. } => (first.0, first.1.0),
        Strategy::RoundRobin => (0, turns.last),
        Strategy::Fair => (0, turns.charged),
    }
}

/// A queue's turns when it has work again: it goes behind the others, and at their level. So a
/// queue gains nothing by having been empty, and a client gains nothing by inventing new names.
pub(crate) fn join(turns: Turns, service: u64, level: u64) -> Turns {
    Turns { last: turns.last.max(service), charged: turns.charged.max(level) }
}

/// A queue's turns after one of its jobs was taken. `service` numbers the services of all queues;
/// `level` is what the least charged queue with work has been charged: a queue that was empty for
/// long has no credit.
pub(crate) fn charge(turns: Turns, weight: u32, service: u64, level: u64) -> Turns {
    let from = turns.charged.max(level);
    let weight = if planted(Bug::WeightIgnored) { 1 } else { u64::from(weight.max(1)) };
    let last = if planted(Bug::TurnNotTaken) { turns.last } else { service };
    Turns { last, charged: from.saturating_add(STRIDE / weight) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_improves_the_rank_under_priority_but_not_under_fifo() {
        let aging = Strategy::Priority { aging: Duration::from_secs(1) };
        assert!(rank(aging, Wall(5_000), 3) < rank(aging, Wall(3_000), 0));
        assert!(rank(aging, Wall(5_000), 3) > rank(aging, Wall(1_000), 0));
        assert_eq!(rank(Strategy::Fifo, Wall(5_000), 3), rank(Strategy::Fifo, Wall(1), 0));
    }

    #[test]
    fn a_queue_that_was_empty_joins_behind_the_others() {
        assert_eq!(join(Turns::default(), 7, 9), Turns { last: 7, charged: 9 });
        let ahead = Turns { last: 8, charged: 10 };
        assert_eq!(join(ahead, 7, 9), ahead);
    }

    #[test]
    fn extreme_times_and_priorities_do_not_overflow() {
        let aging = Strategy::Priority { aging: Duration::MAX };
        assert!(rank(aging, Wall(u64::MAX), i16::MAX) < rank(aging, Wall(0), i16::MIN));
    }

    #[test]
    fn a_heavier_queue_is_charged_less_and_an_idle_one_saves_nothing_up() {
        let (light, heavy) = (Turns::default(), Turns::default());
        assert!(charge(heavy, 4, 1, 0).charged * 4 == charge(light, 1, 1, 0).charged);
        let back = charge(light, 1, 9, 1_000 * STRIDE);
        assert_eq!(back, Turns { last: 9, charged: 1_001 * STRIDE });
    }
}
