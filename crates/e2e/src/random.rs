//! Random numbers from a given seed. What processes do differs from run to run; what is done to
//! them does not.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct TestRandom {
    seed: u64,
    state: u64,
}

/// The environment variable with another seed than the default.
pub const VARIABLE: &str = "FILCH_E2E_SEED";

impl TestRandom {
    /// Uses the seed in [`VARIABLE`], else always the same one.
    #[must_use]
    pub fn seeded() -> Self {
        let seed = match std::env::var(VARIABLE) {
            Ok(text) => {
                text.parse().unwrap_or_else(|_| panic!("{VARIABLE}={text} is not a number"))
            }
            Err(_) => 1,
        };
        Self::new(seed)
    }

    /// Draws the same numbers for the same seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed, state: seed }
    }

    /// Another generator from the same seed.
    #[must_use]
    pub const fn fork(&mut self) -> Self {
        let state = self.draw();
        Self { seed: self.seed, state }
    }

    /// The next 64 bits.
    pub const fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.state;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.draw() as u128 * bound as u128) >> 64) as u64
    }
}

/// Prints how to repeat a failed test.
impl Drop for TestRandom {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}: repeat it with {VARIABLE}={}", self.seed, self.seed);
        }
    }
}
