//! How many of those who enlist a job wants.

use std::fmt;

/// What part of those who enlist a job wants: parts of a million, so that sums are exact.
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

/// A rate that is none: not a number, below 0, above 1, or so small that it would be nobody.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BadRate(f64);

impl fmt::Display for BadRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > 0.0 && self.0 < 1.0 {
            write!(f, "{} is too small a rate: the least is a millionth, or 0 for nobody", self.0)
        } else {
            write!(f, "{} is no rate: it is a part of those who enlist, from 0 to 1", self.0)
        }
    }
}

impl std::error::Error for BadRate {}

impl Rate {
    /// Everybody.
    pub const ALL: Self = Self(Self::WHOLE);
    /// Nobody.
    pub const NONE: Self = Self(0);

    pub(crate) const WHOLE: u32 = 1_000_000;

    /// A part of one, rounded to a millionth.
    ///
    /// # Errors
    /// If it is not a number from 0 to 1, or if it would be rounded to nobody.
    pub fn new(part: f64) -> Result<Self, BadRate> {
        if !(0.0..=1.0).contains(&part) {
            return Err(BadRate(part));
        }
        // Within 0 and a million, so nothing is cut off.
        match (part * f64::from(Self::WHOLE)).round() as u32 {
            0 if part > 0.0 => Err(BadRate(part)),
            parts => Ok(Self(parts)),
        }
    }

    /// So many of a million; more than a million are all.
    pub fn per_million(parts: u32) -> Self {
        Self(parts.min(Self::WHOLE))
    }

    /// So many of a million.
    pub fn parts_per_million(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(self.0) / f64::from(Self::WHOLE))
    }
}
