//! A tree with nine tenths of the work on one side, at every level: recursion for which stealing is
//! a good fit.

use filch_benches::figure::Aim;
use filch_benches::machine;
use filch_benches::report::Findings;

use crate::baselines::{Central, dealt};
use crate::comparison::{self, Ways};
use crate::fork::{Call, Fork, Ours, Serial};
use crate::sizes::Sizes;
use crate::{pools, work};

/// Work that is not split any further, in microseconds.
const LEAF: u64 = 64;

/// The depth at which the tree is cut for the static split.
const DEALT_DEPTH: u32 = 3;

#[derive(Clone, Copy)]
struct Part(u64);

impl Part {
    /// Its two parts, or `None` for a leaf.
    fn split(self) -> Option<[Self; 2]> {
        let large = self.0 * 9 / 10;
        (self.0 > LEAF).then(|| [Self(large), Self(self.0 - large)])
    }

    fn leaves(self) -> u64 {
        self.split().map_or(1, |parts| parts.map(Self::leaves).iter().sum())
    }

    fn at_depth(self, depth: u32) -> Vec<Self> {
        match self.split().filter(|_| depth > 0) {
            Some(parts) => parts.into_iter().flat_map(|part| part.at_depth(depth - 1)).collect(),
            None => vec![self],
        }
    }
}

impl Call<u64> for Part {
    fn call(self, fork: &mut impl Fork) -> u64 {
        let Some([large, small]) = self.split() else { return work::microseconds(self.0) };
        let (large, small) = fork.join(large, small);
        large.wrapping_add(small)
    }
}

pub(crate) fn measure(sizes: &Sizes) -> Findings {
    let cores = machine::cores();
    let pool = pools::ours(cores);
    let root = Part(sizes.lopsided_us);
    let stealing = || pool.install(|| root.call(&mut Ours));
    let split = || {
        // Round-robin: the first part to the first thread, the second to the second, and so on.
        let mut hands = vec![Vec::new(); cores];
        for (index, part) in root.at_depth(DEALT_DEPTH).into_iter().enumerate() {
            hands[index % cores].push(part);
        }
        dealt(hands, |hand| {
            hand.into_iter().map(|part| part.call(&mut Serial)).fold(0, u64::wrapping_add)
        })
    };
    let queue = || {
        let queue = Central::new([root]);
        queue.run(cores, |part| match part.split() {
            Some(parts) => {
                parts.into_iter().for_each(|part| queue.push(part));
                0
            }
            None => work::microseconds(part.0),
        })
    };
    let serial = || root.call(&mut Serial);
    let ways = Ways { serial: &serial, stealing: &stealing, split: &split, queue: &queue };
    let outcome = ways.run(sizes.rounds_long);
    let title = format!("lopsided tree, {cores} workers");
    let mut findings = comparison::times(&title, &outcome);
    findings.push(comparison::efficiency(&title, &outcome, cores, Aim::AtLeast(0.85)));
    let least = Aim::AtLeast(0.6 * cores as f64);
    findings.push(comparison::gain(&title, &outcome, "static split", Some(least)));
    findings.push(comparison::gain(&title, &outcome, "one queue", None));
    let tasks = root.leaves() as f64;
    findings.push(comparison::thefts(&title, &pool, tasks, stealing, Aim::AtMost(1.0)));
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splitting_keeps_the_total_work() {
        let root = Part(1 << 20);
        let parts = root.at_depth(DEALT_DEPTH);
        assert_eq!(parts.len(), 8);
        assert_eq!(parts.iter().map(|part| part.0).sum::<u64>(), root.0);
        assert_eq!(parts.iter().map(|part| part.leaves()).sum::<u64>(), root.leaves());
    }
}
