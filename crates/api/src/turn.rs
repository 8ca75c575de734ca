//! When a queued job will start: how many jobs are ahead of it, and the current throughput of its
//! queue.

use filch_scheduler::dispatch::Ahead;
use serde::{Deserialize, Serialize};

/// A queued job's position in its queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Turn {
    /// How many ready jobs of the queue come before it; counted up to 10,000.
    pub ahead: u32,
    /// How many jobs of the queue end in a minute, at the rate of the last one; missing if none
    /// did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_minute: Option<u64>,
    /// About how long it takes until its turn at this rate, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_ms: Option<u64>,
}

/// The throughput of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Jobs that workers hold and have not reported as started: they are ahead, too.
    pub leased: u32,
    /// How many jobs end per second; unknown if none ended lately.
    pub per_second: Option<f64>,
}

impl Turn {
    /// Without an estimate if the queue does not move, or if more jobs are ahead than are counted.
    #[must_use]
    pub fn new(ahead: Ahead, traffic: Traffic) -> Self {
        let rate = traffic.per_second.filter(|rate| *rate > 0.0);
        let per_minute = rate.map(|rate| (rate * 60.0).round().max(1.0) as u64);
        match ahead {
            // All jobs ahead have to end before it starts, and one more, which frees a slot for it.
            Ahead::Exactly(ahead) => {
                let before = f64::from(ahead) + f64::from(traffic.leased) + 1.0;
                let in_ms = rate.map(|rate| (before / rate * 1_000.0).round() as u64);
                Self { ahead, per_minute, in_ms }
            }
            Ahead::AtLeast(ahead) => Self { ahead, per_minute, in_ms: None },
        }
    }

    /// `17 jobs ahead; about 40 s at the current rate`, with `place` after "ahead".
    pub(crate) fn text(&self, ahead: Ahead, place: &str) -> String {
        let ahead = match ahead {
            Ahead::Exactly(0) => "it is next".to_owned(),
            Ahead::Exactly(1) => "1 job ahead".to_owned(),
            Ahead::Exactly(count) => format!("{count} jobs ahead"),
            Ahead::AtLeast(count) => format!("more than {count} jobs ahead"),
        };
        let rate = self.in_ms.map(|ms| format!("; {} at the current rate", about(ms)));
        format!("{ahead}{place}{}", rate.unwrap_or_default())
    }
}

/// Rounds a duration: estimates are not more exact than this.
fn about(ms: u64) -> String {
    match ms.div_ceil(1_000) {
        0 | 1 => "about a second".to_owned(),
        seconds @ ..120 => format!("about {seconds} s"),
        seconds @ ..7_200 => format!("about {} min", seconds.div_ceil(60)),
        seconds => format!("about {} h", seconds.div_ceil(3_600)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_turn_comes_when_all_ahead_have_ended_and_one_more() {
        let moving = Traffic { leased: 2, per_second: Some(0.5) };
        let turn = Turn::new(Ahead::Exactly(17), moving);
        assert_eq!(turn, Turn { ahead: 17, per_minute: Some(30), in_ms: Some(40_000) });
        let said = turn.text(Ahead::Exactly(17), " in img");
        assert_eq!(said, "17 jobs ahead in img; about 40 s at the current rate");
    }

    #[test]
    fn where_nothing_moves_nothing_is_promised() {
        let text =
            |ahead, per_second| Turn::new(ahead, Traffic { leased: 0, per_second }).text(ahead, "");
        assert_eq!(text(Ahead::Exactly(0), None), "it is next");
        assert_eq!(text(Ahead::Exactly(1), Some(0.0)), "1 job ahead");
        assert_eq!(text(Ahead::AtLeast(10_000), Some(5.0)), "more than 10000 jobs ahead");
    }

    #[test]
    fn spans_are_as_coarse_as_they_are_known() {
        for (ms, text) in [
            (0, "about a second"),
            (900, "about a second"),
            (40_000, "about 40 s"),
            (119_001, "about 2 min"),
            (7_200_000, "about 2 h"),
            (u64::MAX, "about 5124095576031 h"),
        ] {
            assert_eq!(about(ms), text, "{ms}");
        }
    }
}
