//! How much is measured, and how often.

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// How often each rival is measured.
    pub(crate) rounds: usize,
    /// How often, if one round takes seconds.
    pub(crate) rounds_long: usize,
    /// Which Fibonacci number is computed, with a fork for every addition.
    pub(crate) fib: u32,
    /// The depth of the binary tree.
    pub(crate) tree_depth: u32,
    /// How many subtrees the root of the unbalanced tree has.
    pub(crate) uts_children: u32,
    /// How many tasks are spawned at once, or one by another.
    pub(crate) spawns: u64,
    /// How often an idle pool is woken for one sample.
    pub(crate) wakes: usize,
    /// The number of small forks with other work between them.
    pub(crate) sparse: u32,
    /// How long each of two leaves takes.
    pub(crate) leaf_us: u64,
    /// How many leaves of very different length.
    pub(crate) zipf: usize,
    /// How long an idle pool is measured.
    pub(crate) idle_ms: u64,
    /// The total work of the lopsided tree.
    pub(crate) lopsided_us: u64,
    /// How many nodes the graph has.
    pub(crate) graph: usize,
    /// How many tasks of the same length.
    pub(crate) uniform: u64,
    /// How long the one task takes.
    pub(crate) single_us: u64,
    /// The number of tasks that start at one worker, and the additions per task.
    pub(crate) demo: (usize, u64),
    /// How many runs of simulated thefts.
    pub(crate) theft_runs: u64,
    /// How many items go through one queue.
    pub(crate) ends: u64,
}

impl Sizes {
    /// The size for which the aims are set.
    pub(crate) const FULL: Self = Self {
        rounds: 15,
        rounds_long: 10,
        fib: 35,
        tree_depth: 20,
        uts_children: 20_000,
        spawns: 1_000_000,
        wakes: 200,
        sparse: 5_000,
        leaf_us: 8_000,
        zipf: 4_096,
        idle_ms: 1_000,
        lopsided_us: 1 << 20,
        graph: 100_000,
        uniform: 100_000,
        single_us: 500_000,
        demo: (1_000, 1_000_000),
        theft_runs: 101,
        ends: 1_000_000,
    };

    /// To check that the bench runs; the figures mean little.
    pub(crate) const QUICK: Self = Self {
        rounds: 5,
        rounds_long: 3,
        fib: 30,
        tree_depth: 16,
        uts_children: 2_000,
        spawns: 100_000,
        wakes: 30,
        sparse: 500,
        leaf_us: 8_000,
        zipf: 512,
        idle_ms: 200,
        lopsided_us: 1 << 16,
        graph: 5_000,
        uniform: 5_000,
        single_us: 50_000,
        demo: (100, 1_000_000),
        theft_runs: 11,
        ends: 100_000,
    };

    /// For tests, which are not optimised.
    #[cfg(test)]
    pub(crate) const TINY: Self = Self {
        rounds: 1,
        rounds_long: 1,
        fib: 10,
        tree_depth: 5,
        uts_children: 5,
        spawns: 50,
        wakes: 2,
        sparse: 2,
        leaf_us: 100,
        zipf: 8,
        idle_ms: 1,
        lopsided_us: 256,
        graph: 50,
        uniform: 50,
        single_us: 100,
        demo: (10, 100),
        theft_runs: 1,
        ends: 100,
    };
}
