//! Random numbers from a given seed. What processes do differs from run to run; what is done to
//! them does not.

use filch_scheduler::random::SplitMix64;

/// Random numbers that remember their seed.
#[derive(Clone, Debug)]
pub struct TestRandom {
    seed: u64,
    numbers: SplitMix64,
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
        Self { seed, numbers: SplitMix64::new(seed) }
    }

    /// Another generator from the same seed.
    #[must_use]
    pub const fn fork(&mut self) -> Self {
        let numbers = SplitMix64::new(self.draw());
        Self { seed: self.seed, numbers }
    }

    /// The next 64 bits.
    pub const fn draw(&mut self) -> u64 {
        self.numbers.draw()
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
