//! The kinds of events that watchers are notified of.

/// What happened in a pool: see [`PoolEvent`](crate::watch::PoolEvent).
///
/// ```
/// use filch_pool::watch::PoolEventKind;
///
/// let theft = PoolEventKind::Steal { from: 0, to: 1, count: 3 };
/// assert_eq!(format!("{theft:?}"), "Steal { from: 0, to: 1, count: 3 }");
/// ```
#[cfg_attr(
    not(feature = "watch"),
    expect(unreachable_pub, reason = "without the feature, events are not public")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PoolEventKind {
    /// A task was put into the shared queue, from outside the pool or because of its priority.
    Push,
    /// A worker exposed forks and tasks for others to steal.
    Expose {
        /// How many.
        count: usize,
    },
    /// A worker stole forks and tasks from another.
    Steal {
        /// The victim.
        from: usize,
        /// The thief.
        to: usize,
        /// How many.
        count: usize,
    },
    /// A worker's own queue was full, so it moved tasks to the shared queue.
    Overflow {
        /// How many.
        count: usize,
    },
    /// A worker goes to sleep.
    Park,
    /// A worker wakes up.
    Unpark,
}
