//! A random generator that is good enough to choose a victim: xorshift, one per worker, from a
//! seed.

use std::cell::Cell;

pub(crate) struct Random(Cell<u64>);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        // SplitMix64, so that neighbouring seeds have nothing in common; never zero.
        let mut mixed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Self(Cell::new((mixed ^ (mixed >> 31)) | 1))
    }

    fn next(&self) -> u64 {
        let mut state = self.0.get();
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.0.set(state);
        state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `bound`, which is not zero.
    pub(crate) fn below(&self, bound: usize) -> usize {
        // The upper half times the bound: no division, and almost no bias.
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}
