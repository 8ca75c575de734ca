//! Random numbers from a seed. Each purpose has its own stream, so that a run from which something
//! was removed stays otherwise the same.

use filch_scheduler::id::Fence;
use filch_scheduler::random::{SplitMix64, mix};

/// A stream of random numbers, with the ways to choose that a simulation needs.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    numbers: SplitMix64,
}

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { numbers: SplitMix64::new(seed) }
    }

    /// The stream of one purpose.
    pub(crate) const fn keyed(seed: u64, purpose: Purpose, which: u64) -> Self {
        let (kind, part) = purpose.words();
        Self::new(mix(mix(mix(seed ^ mix(kind)) ^ part) ^ which))
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.numbers.draw()
    }

    /// A number below `bound`; 0 if that is 0.
    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        ((self.next() as u128 * bound as u128) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub(crate) const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True with this probability, in millionths.
    pub(crate) const fn happens(&mut self, per_million: u32) -> bool {
        per_million > 0 && self.below(1_000_000) < per_million as u64
    }

    /// True with probability 1 / `times`.
    pub(crate) const fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}

/// What random numbers are used for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// Drawing a plan.
    Plan,
    /// The duration and the result of commits and lookups.
    Server,
    /// The network of one request.
    Client,
    /// The seed of a node's worker.
    Worker(usize),
    /// The messages of a node.
    Link(usize),
    /// How long a job takes to stop.
    Stop(Fence),
    /// Which idle moments of the server are picked for retention.
    IdleMoments,
    /// When jobs cannot be started on a node.
    Broken(usize),
    /// What a client reads after a request.
    Reader,
    /// The messages of a node over plain HTTP.
    HttpLink(usize),
    /// The first worker id of nodes over plain HTTP.
    HttpId,
    /// What a process over plain HTTP draws.
    HttpWorker(usize),
}

impl Purpose {
    const fn words(self) -> (u64, u64) {
        match self {
            Self::Plan => (1, 0),
            Self::Server => (2, 0),
            Self::Client => (3, 0),
            Self::Worker(place) => (4, place as u64),
            Self::Link(place) => (5, place as u64),
            Self::Stop(fence) => (6, fence.0),
            Self::IdleMoments => (7, 0),
            Self::Broken(place) => (8, place as u64),
            Self::Reader => (9, 0),
            Self::HttpLink(place) => (10, place as u64),
            Self::HttpId => (11, 0),
            Self::HttpWorker(place) => (12, place as u64),
        }
    }
}
