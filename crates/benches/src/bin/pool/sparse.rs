//! Small forks with other work between them: none is worth waking a thread for, so anything a pool
//! does about them is wasted. Processor time is measured here.

use filch_benches::contest::Contest;
use filch_benches::figure::Aim;
use filch_benches::report::Findings;

use crate::fork::{Call, Fork, Ours, Rayon, Serial};
use crate::sizes::Sizes;
use crate::timing::processor_ms;
use crate::{pools, work};

/// The work between two forks.
const BETWEEN_US: u64 = 20;

/// The work of each half of a fork.
const HALF_NS: u64 = 500;

struct Half;

impl Call<u64> for Half {
    fn call(self, _fork: &mut impl Fork) -> u64 {
        work::nanoseconds(HALF_NS)
    }
}

fn forks(count: u32, fork: &mut impl Fork) {
    for _ in 0..count {
        work::microseconds(BETWEEN_US);
        fork.join(Half, Half);
    }
}

pub(crate) fn measure(sizes: &Sizes) -> Findings {
    let count = sizes.sparse;
    let (ours, rayon) = (pools::ours(2), pools::rayon(2));
    let outcome = Contest::new()
        .rival("serial", || processor_ms(|| forks(count, &mut Serial)))
        .rival("ours", || processor_ms(|| ours.install(|| forks(count, &mut Ours))))
        .rival("rayon", || processor_ms(|| rayon.install(|| forks(count, &mut Rayon))))
        .run(sizes.rounds);
    let title = format!("{count} small forks, {BETWEEN_US} us apart, processor time");
    let mut findings = Findings::from(outcome.figures(&title, "ms"));
    findings.extend(outcome.compare(&title, "ours", "serial", Some(Aim::AtMost(1.2))));
    findings.extend(outcome.compare(&title, "rayon", "serial", None));
    findings
}
