//! The fraction of enlist calls that a job needs.

use std::fmt;

/// The fraction of enlist calls that a job needs, in parts per million so that sums are exact.
///
/// ```
/// use filch_recruit::Rate;
///
/// assert_eq!(Rate::new(0.003)?.parts_per_million(), 3000);
/// assert!(Rate::new(1.5).is_err());
/// # Ok::<(), filch_recruit::BadRate>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u32);

/// An invalid rate: not a number, below 0, above 1, or more than 0 but rounded to 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BadRate(f64);

impl fmt::Display for BadRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > 0.0 && self.0 < 1.0 {
            write!(f, "rate {} is too small: the minimum is 0.000001, or 0 for never", self.0)
        } else {
            write!(f, "invalid rate {}: use a fraction from 0 to 1", self.0)
        }
    }
}

impl std::error::Error for BadRate {}

impl Rate {
    /// Every enlist call.
    pub const ALL: Self = Self(Self::WHOLE);
    /// No enlist call.
    pub const NONE: Self = Self(0);

    pub(crate) const WHOLE: u32 = 1_000_000;

    /// A fraction from 0 to 1, rounded to a millionth.
    ///
    /// # Errors
    /// If it is not a number from 0 to 1, or is more than 0 but would be rounded to 0.
    pub fn new(part: f64) -> Result<Self, BadRate> {
        if !(0.0..=1.0).contains(&part) {
            return Err(BadRate(part));
        }
        // Between 0 and a million, so the cast loses nothing.
        match (part * f64::from(Self::WHOLE)).round() as u32 {
            0 if part > 0.0 => Err(BadRate(part)),
            parts => Ok(Self(parts)),
        }
    }

    /// A rate in parts per million; values above a million mean all.
    pub fn per_million(parts: u32) -> Self {
        Self(parts.min(Self::WHOLE))
    }

    /// The rate in parts per million.
    pub fn parts_per_million(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(self.0) / f64::from(Self::WHOLE))
    }
}
