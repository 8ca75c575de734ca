//! Which times of the wall clock are recent: within the retention, by the monotonic clock.
//!
//! The wall clock may jump. Rows have its times, but how old a row is follows from the monotonic
//! clock: every reading of the wall clock within the retention is remembered, as ranges. A row with
//! a time before all of them is old. So is a row with a time after all of them: it was written
//! while the clock was ahead, and longer ago than the retention.
//!
//! What the clock showed before this process started is unknown. Then it is taken for granted that
//! times which lie far enough in the past are right; times in the future are only known to be old
//! when this process has run for as long as the retention.

use std::collections::VecDeque;
use std::time::Duration;

use filch_scheduler::time::{Now, Wall};

/// If the wall clock moves by more than this against the monotonic clock, it has jumped. Smaller
/// differences make retention at most this much longer.
const TOLERANCE_MS: i64 = 5_000;

/// The retention is divided into at most about this many spans. Jumps within the same span are not
/// told apart, which keeps rows for longer by at most that part of the retention.
const SPANS: i64 = 64;

/// The readings of the wall clock within the retention.
#[derive(Debug)]
pub(super) struct Recent {
    retention_ms: i64,
    started_ms: i64,
    now_ms: i64,
    /// How far the wall clock is ahead of the monotonic one.
    ahead_ms: i64,
    /// Each lasts until the next one begins. Never empty.
    spans: VecDeque<Span>,
}

/// A span of time in which the wall clock was ahead by no less and no more than this.
#[derive(Clone, Copy, Debug)]
struct Span {
    since_ms: i64,
    least_ms: i64,
    most_ms: i64,
}

impl Recent {
    pub(super) fn new(retention: Duration, now: Now) -> Self {
        let (now_ms, ahead_ms) = read(now);
        // As if the clock had never been set before.
        let first = Span { since_ms: i64::MIN, least_ms: ahead_ms, most_ms: ahead_ms };
        Self {
            retention_ms: i64::try_from(retention.as_millis()).unwrap_or(i64::MAX),
            started_ms: now_ms,
            now_ms,
            ahead_ms,
            spans: VecDeque::from([first]),
        }
    }

    pub(super) fn see(&mut self, now: Now) {
        (self.now_ms, self.ahead_ms) = read(now);
        let ahead = self.ahead_ms;
        let span_least = self.retention_ms / SPANS;
        let last = self.spans.back_mut().expect("there is always one");
        let (least, most) = (last.least_ms.min(ahead), last.most_ms.max(ahead));
        let has_jumped = most - least > TOLERANCE_MS;
        if has_jumped && self.now_ms.saturating_sub(last.since_ms) > span_least {
            let since_ms = self.now_ms;
            self.spans.push_back(Span { since_ms, least_ms: ahead, most_ms: ahead });
        } else {
            (last.least_ms, last.most_ms) = (least, most);
        }
        let begins = self.begins_ms();
        while self.spans.get(1).is_some_and(|next| next.since_ms < begins) {
            self.spans.pop_front();
        }
    }

    /// When the retention of what is written now began, by the monotonic clock.
    const fn begins_ms(&self) -> i64 {
        self.now_ms.saturating_sub(self.retention_ms)
    }

    /// Rows with a time before this are old, and the wall clock agrees.
    pub(super) fn first(&self) -> Wall {
        let begins = self.begins_ms();
        let firsts =
            self.spans.iter().map(|span| span.since_ms.max(begins).saturating_add(span.least_ms));
        let first = firsts.fold(begins.saturating_add(self.ahead_ms), i64::min);
        Wall(u64::try_from(first).unwrap_or(0))
    }

    /// Rows with a time after this are old, if that is known.
    pub(super) fn last(&self) -> Option<Wall> {
        if self.begins_ms() <= self.started_ms {
            return None;
        }
        let ends = self.spans.iter().skip(1).map(|next| next.since_ms).chain([self.now_ms]);
        let lasts = self.spans.iter().zip(ends).map(|(span, end)| end + span.most_ms);
        lasts.max().map(|last| Wall(u64::try_from(last).unwrap_or(0)))
    }
}

/// The monotonic clock, and how far the wall clock is ahead of it.
fn read(now: Now) -> (i64, i64) {
    let monotonic = (now.monotonic.0 / 1_000).cast_signed();
    let wall = i64::try_from(now.wall.0).unwrap_or(i64::MAX);
    (monotonic, wall.saturating_sub(monotonic))
}

#[cfg(test)]
mod tests {
    use filch_scheduler::time::Monotonic;

    use super::*;

    const DAY_MS: i64 = 24 * 3_600 * 1_000;
    const RETENTION: Duration = Duration::from_secs(7 * 24 * 3_600);

    /// The clocks of a machine, in milliseconds.
    struct Machine {
        recent: Recent,
        monotonic: i64,
        ahead: i64,
    }

    impl Machine {
        fn new() -> Self {
            let (monotonic, ahead) = (0, 100 * DAY_MS);
            Self { recent: Recent::new(RETENTION, now(monotonic, ahead)), monotonic, ahead }
        }

        fn wait(&mut self, span: i64) {
            self.monotonic += span;
            self.recent.see(now(self.monotonic, self.ahead));
        }

        fn jump(&mut self, by: i64) {
            self.ahead += by;
            self.wait(0);
        }

        /// What is recent, in days relative to the wall clock at the start.
        fn shows(&self) -> (f64, Option<f64>) {
            let days = |at: Wall| (at.0 as i64 - 100 * DAY_MS) as f64 / DAY_MS as f64;
            let days = |at: Wall| (days(at) * 1_000.0).round() / 1_000.0;
            (days(self.recent.first()), self.recent.last().map(days))
        }
    }

    fn now(monotonic: i64, ahead: i64) -> Now {
        let wall = Wall((monotonic + ahead) as u64);
        Now { monotonic: Monotonic(monotonic as u64 * 1_000), wall }
    }

    #[test]
    fn without_jumps_the_last_days_are_recent() {
        let mut machine = Machine::new();
        assert_eq!(machine.shows(), (-7.0, None));
        machine.wait(6 * DAY_MS);
        assert_eq!(machine.shows(), (-1.0, None));
        machine.wait(DAY_MS + 1);
        assert_eq!(machine.shows(), (0.0, Some(7.0)));
        machine.wait(100 * DAY_MS);
        assert_eq!(machine.shows(), (100.0, Some(107.0)));
    }

    #[test]
    fn after_a_jump_forward_old_means_old_by_the_monotonic_clock() {
        let mut machine = Machine::new();
        machine.wait(10 * DAY_MS);
        machine.jump(30 * DAY_MS);
        assert_eq!(machine.shows(), (3.0, Some(40.0)));
        machine.wait(6 * DAY_MS);
        assert_eq!(machine.shows(), (9.0, Some(46.0)));
        // Everything from before the jump is old; what came after it is not.
        machine.wait(DAY_MS + 1);
        assert_eq!(machine.shows(), (40.0, Some(47.0)));
    }

    #[test]
    fn after_a_jump_back_times_in_the_future_are_old_one_retention_later() {
        let mut machine = Machine::new();
        machine.wait(10 * DAY_MS);
        machine.jump(3_650 * DAY_MS);
        machine.wait(DAY_MS);
        machine.jump(-3_650 * DAY_MS);
        assert_eq!(machine.shows(), (4.0, Some(3_661.0)));
        machine.wait(7 * DAY_MS);
        assert_eq!(machine.shows().1, Some(3_661.0));
        machine.wait(1);
        assert_eq!(machine.shows(), (11.0, Some(18.0)));
    }

    /// The integrity check compares the times of rows with the clock at which they are purged.
    #[test]
    fn after_a_jump_back_rows_are_kept_until_the_wall_clock_agrees() {
        let mut machine = Machine::new();
        machine.wait(10 * DAY_MS);
        machine.jump(-DAY_MS);
        assert_eq!(machine.shows(), (2.0, Some(10.0)));
    }

    #[test]
    fn small_differences_make_the_retention_only_a_little_longer() {
        let mut machine = Machine::new();
        for _ in 0..1_000 {
            machine.jump(4_000);
            machine.wait(60_000);
            machine.jump(-4_000);
            machine.wait(DAY_MS);
        }
        let (first, last) = machine.shows();
        let age = (machine.monotonic as f64 / DAY_MS as f64) - first;
        assert!((7.0..7.001).contains(&age), "{age}");
        assert!(last.is_some());
        assert_eq!(machine.recent.spans.len(), 1);
    }

    /// A laptop that sleeps often: its monotonic clock stands still meanwhile.
    #[test]
    fn many_jumps_are_remembered_in_a_bounded_number_of_spans() {
        let mut machine = Machine::new();
        for _ in 0..20_000 {
            machine.wait(60_000);
            machine.jump(600_000);
        }
        assert!(machine.recent.spans.len() as i64 <= SPANS + 2, "{}", machine.recent.spans.len());
        // Seven days without the sleep, and at most a 64th more.
        let begins = machine.monotonic - 7 * DAY_MS;
        let (first, _) = machine.shows();
        let then = (begins + begins / 60_000 * 600_000) as f64 / DAY_MS as f64;
        assert!(then - first < 11.0 * 7.0 / 64.0 + 0.1, "{then} {first}");
        assert!(first <= then, "{then} {first}");
    }
}
