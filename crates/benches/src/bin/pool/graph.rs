//! A graph traversal in which the cost of the nodes differs widely.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Barrier, Mutex};

use filch_benches::figure::Aim;
use filch_benches::machine;
use filch_benches::report::Findings;
use filch_pool::Scope;
use filch_scheduler::random::SplitMix64;

use crate::baselines::{Central, dealt};
use crate::comparison::{self, Ways};
use crate::sizes::Sizes;
use crate::{pools, tally, work};

/// How many edges leave a node on average.
const DEGREE: f64 = 8.0;

/// The cost of a node: a few are very expensive.
const COST_US: (f64, f64) = (5.0, 5_000.0);
const EXPONENT: f64 = 1.5;

struct Graph {
    nodes: Vec<Node>,
}

struct Node {
    cost_us: u64,
    edges: Vec<usize>,
}

impl Graph {
    fn new(count: usize) -> Self {
        let mut random = SplitMix64::new(11);
        let nodes = (0..count).map(|_| {
            let edges = poisson(&mut random);
            let cost_us = pareto(&mut random);
            let edges = (0..edges).map(|_| random.below(count)).collect();
            Node { cost_us, edges }
        });
        Self { nodes: nodes.collect() }
    }

    fn unvisited(&self) -> Vec<AtomicBool> {
        self.nodes.iter().map(|_| AtomicBool::new(false)).collect()
    }

    /// Processes a node, and passes its neighbours that were not seen before to `found`.
    fn visit(&self, index: usize, seen: &[AtomicBool], mut found: impl FnMut(usize)) -> u64 {
        let node = &self.nodes[index];
        work::microseconds(node.cost_us);
        for other in node.edges.iter().copied().filter(|other| !seen[*other].swap(true, Relaxed)) {
            found(other);
        }
        // Different for each node, so that the sum shows which were visited, and how often.
        SplitMix64::new(index as u64).draw()
    }

    fn serial(&self) -> u64 {
        let seen = self.unvisited();
        seen[0].store(true, Relaxed);
        let (mut open, mut sum) = (vec![0], 0_u64);
        while let Some(index) = open.pop() {
            sum = sum.wrapping_add(self.visit(index, &seen, |other| open.push(other)));
        }
        sum
    }

    /// Each thread owns a range of nodes, and passes other nodes to their owners, step by step.
    fn split(&self, threads: usize) -> u64 {
        let seen = self.unvisited();
        seen[0].store(true, Relaxed);
        let open: Vec<Mutex<Vec<usize>>> = (0..threads).map(|_| Mutex::default()).collect();
        let lock = |owner: usize| open[owner].lock().expect("work does not panic");
        lock(0).push(0);
        let step = Barrier::new(threads);
        let owner = |index: usize| index * threads / self.nodes.len();
        dealt((0..threads).collect(), |me| {
            let mut sum = 0_u64;
            loop {
                let mine = std::mem::take(&mut *lock(me));
                step.wait();
                let mut found = Vec::new();
                for index in mine {
                    sum = sum.wrapping_add(self.visit(index, &seen, |other| found.push(other)));
                }
                for other in found {
                    lock(owner(other)).push(other);
                }
                step.wait();
                if (0..threads).all(|thread| lock(thread).is_empty()) {
                    return sum;
                }
                step.wait();
            }
        })
    }

    fn queue(&self, threads: usize) -> u64 {
        let seen = self.unvisited();
        seen[0].store(true, Relaxed);
        let queue = Central::new([0]);
        queue.run(threads, |index| self.visit(index, &seen, |other| queue.push(other)))
    }

    fn stealing<'s>(&'s self, scope: &Scope<'s>, visits: &'s Visits, index: usize) {
        let number = self.visit(index, &visits.seen, |other| {
            scope.spawn(move |scope| self.stealing(scope, visits, other));
        });
        visits.sum.add(number);
    }
}

struct Visits {
    seen: Vec<AtomicBool>,
    sum: tally::Sum,
}

fn poisson(random: &mut SplitMix64) -> usize {
    let (least, mut product, mut count) = ((-DEGREE).exp(), unit(random), 0);
    while product > least {
        product *= unit(random);
        count += 1;
    }
    count
}

/// A bounded Pareto distribution: half as many nodes cost 1.6 times as much.
fn pareto(random: &mut SplitMix64) -> u64 {
    let (low, high) = COST_US;
    let share = 1.0 - (low / high).powf(EXPONENT);
    let cost = low / (1.0 - unit(random) * share).powf(1.0 / EXPONENT);
    cost as u64
}

/// At least 0 and less than 1.
fn unit(random: &mut SplitMix64) -> f64 {
    (random.draw() >> 11) as f64 / (1_u64 << 53) as f64
}

pub(crate) fn measure(sizes: &Sizes) -> Findings {
    let cores = machine::cores();
    let pool = pools::ours(cores);
    let graph = Graph::new(sizes.graph);
    let stealing = || {
        let visits = Visits { seen: graph.unvisited(), sum: tally::Sum::default() };
        visits.seen[0].store(true, Relaxed);
        pool.install(|| filch_pool::scope(|scope| graph.stealing(scope, &visits, 0)));
        visits.sum.get()
    };
    let (serial, split) = (|| graph.serial(), || graph.split(cores));
    let queue = || graph.queue(cores);
    let ways = Ways { serial: &serial, stealing: &stealing, split: &split, queue: &queue };
    let outcome = ways.run(sizes.rounds_long);
    let title = format!("graph of {} nodes, {cores} workers", sizes.graph);
    let mut findings = comparison::times(&title, &outcome);
    findings.push(comparison::efficiency(&title, &outcome, cores, Aim::AtLeast(0.8)));
    findings.push(comparison::gain(&title, &outcome, "static split", Some(Aim::AtLeast(1.3))));
    findings.push(comparison::gain(&title, &outcome, "one queue", None));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_and_degrees_have_the_expected_distribution() {
        let graph = Graph::new(20_000);
        let edges: usize = graph.nodes.iter().map(|node| node.edges.len()).sum();
        assert!((155_000..165_000).contains(&edges), "{edges}");
        let costs = || graph.nodes.iter().map(|node| node.cost_us);
        assert!(costs().all(|cost| (5..=5_000).contains(&cost)));
        assert!(costs().max() > Some(1_000));
    }
}
