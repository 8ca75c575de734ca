//! How much is measured, how often.

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// How often each rival is measured.
    pub(crate) rounds: usize,
    /// How many turns of enlisting make one sample.
    pub(crate) turns: usize,
    /// How many clusters of workers are simulated with each lottery.
    pub(crate) clusters: usize,
    pub(crate) workers: usize,
    /// For how long.
    pub(crate) seconds: usize,
}

impl Sizes {
    /// What the aims are about.
    pub(crate) const FULL: Self =
        Self { rounds: 15, turns: 200, clusters: 9, workers: 1_000, seconds: 1_000 };

    /// Whether it runs at all; the figures mean little.
    pub(crate) const QUICK: Self =
        Self { rounds: 5, turns: 50, clusters: 3, workers: 100, seconds: 1_000 };

    /// For tests, which are not optimised.
    #[cfg(test)]
    pub(crate) const TINY: Self =
        Self { rounds: 1, turns: 2, clusters: 1, workers: 3, seconds: 10 };
}
