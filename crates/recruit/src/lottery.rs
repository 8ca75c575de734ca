//! The draw that decides whether a caller is recruited. Each thread draws from its own sequence.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

use crate::rate::Rate;

/// How the lottery draws.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lottery {
    /// Each draw is independent of all others. Shares are right in the long run, but now and then
    /// there is a long gap between two recruits.
    Random,
    /// A Weyl sequence: steps of the golden ratio from a random offset per thread. The draws of a
    /// thread are spread as evenly as possible, so its shares are exact and gaps are short.
    #[default]
    Weyl,
}

/// The golden ratio's fraction of 2^64.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The sequence of draws of one thread.
#[derive(Debug)]
pub(crate) struct Sequence(Cell<u64>);

impl Sequence {
    /// Starts at a random offset, so that threads and processes draw independently.
    pub(crate) fn new() -> Self {
        // Each new state has its own random keys.
        Self::from_offset(RandomState::new().build_hasher().finish())
    }

    /// The sequence of the n-th thread of a recruiter with this seed.
    pub(crate) fn from_seed(seed: u64, thread: u64) -> Self {
        Self::from_offset(scramble(scramble(seed) ^ thread))
    }

    pub(crate) fn from_offset(offset: u64) -> Self {
        Self(Cell::new(offset))
    }

    /// Draws a number below a million.
    #[inline]
    pub(crate) fn draw(&self, lottery: Lottery) -> u32 {
        let position = self.0.get().wrapping_add(GOLDEN);
        self.0.set(position);
        let drawn = match lottery {
            Lottery::Weyl => position,
            Lottery::Random => scramble(position),
        };
        // The upper half of the fraction, times a million: never a million itself.
        ((u64::from((drawn >> 32) as u32) * u64::from(Rate::WHOLE)) >> 32) as u32
    }
}

/// SplitMix64's output function: turns evenly spaced positions into pseudo-random numbers.
fn scramble(position: u64) -> u64 {
    let mut mixed = position;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_is_always_below_a_million() {
        for position in [u64::MAX, 0, 1, GOLDEN, u64::MAX - GOLDEN] {
            let sequence = Sequence::from_offset(position.wrapping_sub(GOLDEN));
            assert!(sequence.draw(Lottery::Weyl) < Rate::WHOLE);
        }
    }

    /// How far the number of draws below `rate` is from the expected number, and the longest gap
    /// between two of them, in multiples of the even gap.
    fn error_and_gap(lottery: Lottery, rate: u32, draws: u32) -> (f64, f64) {
        let sequence = Sequence::from_offset(12345);
        let (mut count, mut last, mut gap) = (0_u32, 0_u32, 0_u32);
        for draw in 1..=draws {
            if sequence.draw(lottery) < rate {
                count += 1;
                gap = gap.max(draw - last);
                last = draw;
            }
        }
        let share = f64::from(rate) / f64::from(Rate::WHOLE);
        ((f64::from(count) - f64::from(draws) * share).abs(), f64::from(gap) * share)
    }

    #[test]
    fn weyl_shares_are_exact_and_gaps_are_short() {
        for rate in [3_000, 10_000, 50_000, 300_000] {
            let (error, gap) = error_and_gap(Lottery::Weyl, rate, 300_000);
            assert!(error <= 3.0, "rate {rate}: error {error}");
            assert!(gap <= 3.0, "rate {rate}: gap {gap}");
        }
    }

    #[test]
    fn random_shares_are_right_in_the_long_run() {
        for rate in [3_000, 10_000, 50_000, 300_000] {
            let draws = 300_000;
            let share = f64::from(rate) / f64::from(Rate::WHOLE);
            let sigma = (f64::from(draws) * share * (1.0 - share)).sqrt();
            let (error, _) = error_and_gap(Lottery::Random, rate, draws);
            assert!(error <= 3.0 * sigma, "rate {rate}: error {error}, sigma {sigma}");
        }
    }
}
