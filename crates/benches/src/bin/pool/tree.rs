//! The sum of a binary tree, with a fork for every node, each of which reads memory.

use std::hint::black_box;

use filch_benches::contest::Contest;
use filch_benches::report::Findings;

use crate::fork::{Call, Fork, Ours, Rayon, Serial};
use crate::sizes::Sizes;
use crate::timing::wall_ms;
use crate::{fork, pools};

struct Node {
    value: u64,
    children: Option<Box<[Node; 2]>>,
}

impl Node {
    fn new(depth: u32) -> Self {
        let children = (depth > 0).then(|| Box::new([Self::new(depth - 1), Self::new(depth - 1)]));
        Self { value: u64::from(depth) + 1, children }
    }
}

struct Sum<'a>(&'a Node);

impl Call<u64> for Sum<'_> {
    fn call(self, fork: &mut impl Fork) -> u64 {
        let Node { value, children } = self.0;
        let Some(children) = children else { return *value };
        let [left, right] = &**children;
        let (left, right) = fork.join(Sum(left), Sum(right));
        value + left + right
    }
}

pub(crate) fn measure(sizes: &Sizes) -> Findings {
    let tree = Node::new(sizes.tree_depth);
    let expected = Sum(&tree).call(&mut Serial);
    let (ours, rayon, chili) = (pools::ours(2), pools::rayon(2), pools::chili(2));
    let checked = |sum| assert_eq!(sum, expected, "all rivals compute the same");
    let tree = || Sum(black_box(&tree));
    let outcome = Contest::new()
        .rival("serial", || wall_ms(|| checked(tree().call(&mut Serial))))
        .rival("ours", || wall_ms(|| checked(ours.install(|| tree().call(&mut Ours)))))
        .rival("rayon", || wall_ms(|| checked(rayon.install(|| tree().call(&mut Rayon)))))
        .rival("chili", || wall_ms(|| checked(tree().call(&mut chili.scope()))))
        .run(sizes.rounds);
    let title = format!("sum of a tree of 2^{} nodes, 2 workers", sizes.tree_depth + 1);
    let mut findings = Findings::from(outcome.figures(&title, "ms"));
    for rival in fork::RIVALS {
        findings.extend(outcome.compare(&title, "ours", rival, None));
    }
    findings
}
