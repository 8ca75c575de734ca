//! The draw that decides whether one who enlists is recruited. Each thread draws for itself.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

use crate::rate::Rate;

/// How it is decided who is recruited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lottery {
    /// Each draw is independent of all others. Shares are right in the long run, and now and then
    /// there is a drought.
    Random,
    /// Steps of the golden ratio, from an offset of the thread's own: the draws of a thread lie as
    /// far apart as they can, so that its shares are exact and droughts short.
    #[default]
    Weyl,
}

/// The golden ratio's fraction of 2^64.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The sequence of one thread.
#[derive(Debug)]
pub(crate) struct Sequence(Cell<u64>);

impl Sequence {
    /// From an offset that no other thread of any process has, but by chance.
    pub(crate) fn new() -> Self {
        // A new state has keys of its own; the thread's name adds nothing that chance lacks.
        Self::from_offset(RandomState::new().build_hasher().finish())
    }

    pub(crate) fn from_offset(offset: u64) -> Self {
        Self(Cell::new(offset))
    }

    /// A number below a million.
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

/// SplitMix64's output function: of steps that are all alike it makes numbers that look like chance.
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
    fn a_draw_is_never_one() {
        for position in [u64::MAX, 0, 1, GOLDEN, u64::MAX - GOLDEN] {
            let sequence = Sequence::from_offset(position.wrapping_sub(GOLDEN));
            assert!(sequence.draw(Lottery::Weyl) < Rate::WHOLE);
        }
    }

    /// How far the count of those below `rate` is from what it should be, and the longest time between
    /// two of them, in multiples of what would be even.
    fn judge(lottery: Lottery, rate: u32, draws: u32) -> (f64, f64) {
        let sequence = Sequence::from_offset(12345);
        let (mut count, mut last, mut drought) = (0_u32, 0_u32, 0_u32);
        for draw in 1..=draws {
            if sequence.draw(lottery) < rate {
                count += 1;
                drought = drought.max(draw - last);
                last = draw;
            }
        }
        let share = f64::from(rate) / f64::from(Rate::WHOLE);
        ((f64::from(count) - f64::from(draws) * share).abs(), f64::from(drought) * share)
    }

    #[test]
    fn shares_are_exact_and_droughts_short() {
        for rate in [3_000, 10_000, 50_000, 300_000] {
            let (error, drought) = judge(Lottery::Weyl, rate, 300_000);
            assert!(error <= 3.0, "rate {rate}: off by {error}");
            assert!(drought <= 3.0, "rate {rate}: a drought of {drought}");
        }
    }

    #[test]
    fn chance_is_right_in_the_long_run() {
        for rate in [3_000, 10_000, 50_000, 300_000] {
            let draws = 300_000;
            let share = f64::from(rate) / f64::from(Rate::WHOLE);
            let sigma = (f64::from(draws) * share * (1.0 - share)).sqrt();
            let (error, _) = judge(Lottery::Random, rate, draws);
            assert!(error <= 3.0 * sigma, "rate {rate}: off by {error}, sigma {sigma}");
        }
    }
}
