//! An unbalanced tree that is unknown before the traversal: the number of a node determines how
//! many children it has, mostly none, and the sizes of subtrees differ widely.

use std::hint::black_box;

use filch_benches::contest::Contest;
use filch_benches::figure::{Aim, Figure};
use filch_benches::report::Findings;
use filch_benches::samples::Samples;
use filch_scheduler::random::SplitMix64;

use crate::fork::{Call, Fork, Ours, Rayon, Serial};
use crate::sizes::Sizes;
use crate::timing::wall_ms;
use crate::{fork, pools};

/// How many children a node has that has any; 99 in 400 have, so that a subtree has a hundred nodes
/// on average, and some have a hundred thousand.
const CHILDREN: u32 = 4;
const PARENTS: u64 = u64::MAX / 400 * 99;

/// Draws per node: the cost of a visit.
const DRAWS: u32 = 16;

/// Some of the children of one node.
#[derive(Clone, Copy)]
struct Siblings {
    parent: u64,
    first: u32,
    count: u32,
}

impl Call<u64> for Siblings {
    /// Counts these nodes and their descendants.
    fn call(self, fork: &mut impl Fork) -> u64 {
        let Self { parent, first, count } = self;
        match count {
            0 => 0,
            1 => {
                let number = number(parent, first);
                if number > PARENTS {
                    return 1;
                }
                1 + Self { parent: number, first: 0, count: CHILDREN }.call(fork)
            }
            _ => {
                let half = count / 2;
                let rest = Self { parent, first: first + half, count: count - half };
                let (some, others) = fork.join(Self { parent, first, count: half }, rest);
                some + others
            }
        }
    }
}

fn number(parent: u64, child: u32) -> u64 {
    let mut random = SplitMix64::new(parent ^ (u64::from(child) << 17));
    (0..DRAWS).fold(0, |before, _| before.rotate_left(5) ^ random.draw())
}

pub(crate) fn measure(sizes: &Sizes) -> Findings {
    let root = || black_box(Siblings { parent: 7, first: 0, count: sizes.uts_children });
    let nodes = root().call(&mut Serial);
    let (ours, rayon, chili) = (pools::ours(2), pools::rayon(2), pools::chili(2));
    let checked = |count| assert_eq!(count, nodes, "all rivals find the same tree");
    let outcome = Contest::new()
        .rival("serial", || wall_ms(|| checked(root().call(&mut Serial))))
        .rival("ours", || wall_ms(|| checked(ours.install(|| root().call(&mut Ours)))))
        .rival("rayon", || wall_ms(|| checked(rayon.install(|| root().call(&mut Rayon)))))
        .rival("chili", || wall_ms(|| checked(root().call(&mut chili.scope()))))
        .run(sizes.rounds);
    let title = format!("unbalanced tree of {nodes} nodes, 2 workers");
    let mut findings = Findings::from(outcome.figures(&title, "ms"));
    let [serial] = outcome.lowest(["serial"]);
    let node = Samples::new(vec![serial * 1e6 / nodes as f64]);
    findings.push(Figure::new("unbalanced tree: one node", node, "ns"));
    for rival in fork::RIVALS {
        let aim = (rival == "serial").then_some(Aim::AtMost(0.6));
        findings.extend(outcome.compare("unbalanced tree", "ours", rival, aim));
    }
    findings.extend(outcome.compare("unbalanced tree", "rayon", "serial", None));
    findings
}
