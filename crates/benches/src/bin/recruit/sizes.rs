//! How much is measured, and how often.

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// How often each rival is measured.
    pub(crate) rounds: usize,
    /// The number of turns in one sample.
    pub(crate) turns: usize,
    /// How many clusters of workers are simulated with each lottery.
    pub(crate) clusters: usize,
    pub(crate) workers: usize,
    /// The simulated time.
    pub(crate) seconds: usize,
}

impl Sizes {
    /// The size for which the aims are set.
    pub(crate) const FULL: Self =
        Self { rounds: 15, turns: 200, clusters: 9, workers: 1_000, seconds: 1_000 };

    /// To check that the bench runs; the figures mean little.
    pub(crate) const QUICK: Self =
        Self { rounds: 5, turns: 50, clusters: 3, workers: 100, seconds: 1_000 };

    /// For tests, which are not optimised.
    #[cfg(test)]
    pub(crate) const TINY: Self =
        Self { rounds: 1, turns: 2, clusters: 1, workers: 3, seconds: 10 };
}
