//! How much is measured, and how often.

use crate::graph::Shape;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Jobs in the background: a normal number, and a very large one.
    pub(crate) queued_few: usize,
    pub(crate) queued_many: usize,
    /// Jobs that are measured together.
    pub(crate) jobs: usize,
    /// Queues, each with a limit or none of them.
    pub(crate) queues: usize,
    pub(crate) tangled: Shape,
    pub(crate) wide: Shape,
    pub(crate) workers: usize,
    /// Workers that connect once.
    pub(crate) strangers: usize,
    /// Thefts that are measured together.
    pub(crate) thefts: usize,
    /// Repeats of quick measurements.
    pub(crate) repeats: usize,
    /// Repeats of measurements that take about a second.
    pub(crate) repeats_long: usize,
}

impl Sizes {
    /// The size for which the aims are set.
    pub(crate) const FULL: Self = Self {
        queued_few: 10_000,
        queued_many: 1_000_000,
        // As many as can be created beforehand without evicting everything else from the cache.
        jobs: 16_384,
        queues: 16_000,
        tangled: Shape::Tangled { jobs: 100_000, parents: 10 },
        wide: Shape::Wide { parents: 1_000, children: 1_000 },
        workers: 10_000,
        strangers: 200_000,
        thefts: 100,
        repeats: 21,
        repeats_long: 5,
    };

    /// To check that the bench runs; the figures mean little.
    pub(crate) const QUICK: Self = Self {
        queued_few: 10_000,
        queued_many: 100_000,
        jobs: 4_096,
        queues: 1_000,
        tangled: Shape::Tangled { jobs: 10_000, parents: 10 },
        wide: Shape::Wide { parents: 300, children: 300 },
        workers: 1_000,
        strangers: 200_000,
        thefts: 20,
        repeats: 3,
        repeats_long: 1,
    };
}
