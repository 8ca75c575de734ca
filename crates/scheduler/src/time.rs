//! Time as `scheduler` is given it: two clocks, never read here.
//!
//! Leases and questions use the monotonic clock, which only runs forward; start times, backoff and
//! history use the wall clock, which may jump.

pub use core::time::Duration;

/// A reading of a clock that only runs forward, in microseconds since an arbitrary start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Monotonic(pub u64);

impl Monotonic {
    /// This moment plus `span`, saturating.
    #[must_use]
    pub const fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(micros(span)))
    }

    /// How long after `earlier` this moment is; zero if it is not after it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// A reading of the wall clock, in milliseconds since 1970 (UTC).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Wall(pub u64);

impl Wall {
    /// This moment plus `span`, saturating.
    #[must_use]
    pub const fn plus(self, span: Millis) -> Self {
        Self(self.0.saturating_add(span.0 as u64))
    }
}

/// Both clocks, read at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Now {
    /// For leases and questions.
    pub monotonic: Monotonic,
    /// For start times, backoff and history.
    pub wall: Wall,
}

/// A span in a job's own settings, at most 49 days; 32 bits because every queued job holds several.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Millis(pub u32);

impl Millis {
    /// A span of whole seconds.
    #[must_use]
    pub const fn seconds(seconds: u32) -> Self {
        Self(seconds.saturating_mul(1_000))
    }

    /// The same span, for arithmetic on the monotonic clock.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_millis(self.0 as u64)
    }
}

/// `span` in whole microseconds, at most what 64 bits hold.
#[must_use]
pub(crate) const fn micros(span: Duration) -> u64 {
    let micros = span.as_micros();
    if micros > u64::MAX as u128 { u64::MAX } else { micros as u64 }
}
