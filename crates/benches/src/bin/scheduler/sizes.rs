//! How much is measured, how often.

use crate::graph::Shape;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Jobs in the background: a usual day, and a bad one.
    pub(crate) queued_few: usize,
    pub(crate) queued_many: usize,
    /// Jobs whose lives are measured together.
    pub(crate) jobs: usize,
    pub(crate) tangled: Shape,
    pub(crate) wide: Shape,
    pub(crate) workers: usize,
    /// Thefts that are measured together.
    pub(crate) thefts: usize,
    /// How often what is quick is measured.
    pub(crate) repeats: usize,
    /// How often what takes a second each time is measured.
    pub(crate) repeats_long: usize,
}

impl Sizes {
    /// What the aims are about.
    pub(crate) const FULL: Self = Self {
        queued_few: 10_000,
        queued_many: 1_000_000,
        // As many as are made beforehand without driving everything else out of the cache.
        jobs: 16_384,
        tangled: Shape::Tangled { jobs: 100_000, parents: 10 },
        wide: Shape::Wide { parents: 1_000, children: 1_000 },
        workers: 10_000,
        thefts: 100,
        repeats: 21,
        repeats_long: 5,
    };

    /// Whether it runs at all; the figures mean little.
    pub(crate) const QUICK: Self = Self {
        queued_few: 10_000,
        queued_many: 100_000,
        jobs: 4_096,
        tangled: Shape::Tangled { jobs: 10_000, parents: 10 },
        wide: Shape::Wide { parents: 300, children: 300 },
        workers: 1_000,
        thefts: 20,
        repeats: 3,
        repeats_long: 1,
    };
}
