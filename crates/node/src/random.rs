//! Seeded random numbers: the same seed and the same messages give the same thefts.

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A uniform index below `count`. If `count` is below 2, no number is drawn.
    pub(crate) const fn choose(&mut self, count: usize) -> usize {
        if count < 2 {
            return 0;
        }
        ((self.next() as u128 * count as u128) >> 64) as usize
    }

    const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_numbers_are_those_of_splitmix64() {
        let mut random = Random::new(1_234_567);
        let drawn: Vec<u64> = (0..3).map(|_| random.next()).collect();
        assert_eq!(
            drawn,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn no_number_is_drawn_if_there_is_no_choice() {
        let mut random = Random::new(7);
        let before = random.clone();
        assert_eq!((random.choose(0), random.choose(1)), (0, 0));
        assert_eq!(random.next(), before.clone().next());
    }
}
