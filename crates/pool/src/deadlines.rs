//! The timers of a pool, ordered by when they are due.
//!
//! Sorted, so that the first is found at once, and so that a cancelled timer is removed at once: a
//! million cancelled timers leave nothing behind.

use std::collections::BTreeMap;
use std::task::Waker;
use std::time::Instant;

/// The most timers that one poll takes; the rest, which are due later, follow with the next poll.
const BATCH: usize = 128;

/// A timer that waits. Of two timers for the same time, the older one comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deadline {
    at: Instant,
    number: u64,
}

#[derive(Default)]
pub(crate) struct Deadlines {
    waiting: BTreeMap<Deadline, Waker>,
    made: u64,
}

impl Deadlines {
    pub(crate) fn insert(&mut self, at: Instant, waker: Waker) -> Deadline {
        self.made += 1;
        let deadline = Deadline { at, number: self.made };
        self.waiting.insert(deadline, waker);
        deadline
    }

    pub(crate) fn get_mut(&mut self, deadline: Deadline) -> Option<&mut Waker> {
        self.waiting.get_mut(&deadline)
    }

    pub(crate) fn remove(&mut self, deadline: Deadline) -> Option<Waker> {
        self.waiting.remove(&deadline)
    }

    /// When the first timer is due.
    pub(crate) fn first(&self) -> Option<Instant> {
        self.waiting.first_key_value().map(|(deadline, _)| deadline.at)
    }

    /// Moves the timers that are due into `into`, in order, and returns how many.
    pub(crate) fn take_due(&mut self, now: Instant, into: &mut Vec<Waker>) -> usize {
        let before = into.len();
        while into.len() - before < BATCH
            && let Some(first) = self.waiting.first_entry().filter(|first| first.key().at <= now)
        {
            into.push(first.remove());
        }
        into.len() - before
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Waker> + use<> {
        std::mem::take(&mut self.waiting).into_values()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn due_timers_come_in_order_and_in_batches() {
        let mut deadlines = Deadlines::default();
        let begun = Instant::now();
        for late in (0..200).rev() {
            deadlines.insert(begun + Duration::from_millis(late), Waker::noop().clone());
        }
        let gone = deadlines.insert(begun, Waker::noop().clone());
        assert!(deadlines.remove(gone).is_some());
        assert_eq!(deadlines.first(), Some(begun));
        let mut due = Vec::new();
        let now = begun + Duration::from_millis(149);
        assert_eq!(deadlines.take_due(now, &mut due), BATCH);
        assert_eq!(deadlines.take_due(now, &mut due), 150 - BATCH);
        assert_eq!(deadlines.first(), Some(begun + Duration::from_millis(150)));
        assert_eq!(deadlines.take_all().count(), 50);
    }
}
