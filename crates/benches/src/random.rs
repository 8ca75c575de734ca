//! Seeded random numbers: every run of a bench does the same work.

/// SplitMix64: small, and so cheap that it does not affect measurements.
#[derive(Clone, Debug)]
pub struct BenchRandom {
    state: u64,
}

impl BenchRandom {
    /// The same seed draws the same numbers.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub const fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `bound`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub const fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "nothing to choose from");
        ((self.draw() as u128 * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_draws_the_same_numbers_below_the_bound() {
        let (mut one, mut other) = (BenchRandom::new(7), BenchRandom::new(7));
        for bound in 1..1_000 {
            let drawn = one.below(bound);
            assert_eq!(drawn, other.below(bound));
            assert!(drawn < bound);
        }
    }
}
