//! One long task: there is nothing to steal, and idle threads must not slow it down.

use filch_benches::contest::Contest;
use filch_benches::figure::Aim;
use filch_benches::report::Findings;

use crate::comparison::once;
use crate::sizes::Sizes;
use crate::timing::{processor_ms, wall_ms};
use crate::{pools, work};

pub(crate) fn measure(sizes: &Sizes) -> Findings {
    let mut findings = Findings::default();
    for workers in [1, 2, 4, 8] {
        let pool = pools::ours(workers);
        let task = || work::microseconds(sizes.single_us);
        let outcome = Contest::new()
            .rival("serial", || wall_ms(task))
            .rival("pool", || wall_ms(|| pool.install(task)))
            .run(sizes.rounds_long.min(3));
        let title = format!("one task of {} ms, {workers} workers", sizes.single_us / 1_000);
        let [serial, time] = outcome.lowest(["serial", "pool"]);
        let longer = once(format!("{title}: against a plain call"), time / serial, "times");
        findings.push(longer.aiming(Aim::AtMost(1.05)));
        let before = pool.stats().steals();
        let processor = processor_ms(|| pool.install(task));
        let thefts = (pool.stats().steals() - before) as f64;
        findings.push(once(format!("{title}: thefts"), thefts, "").aiming(Aim::AtMost(1.0)));
        let alone = processor_ms(task);
        let heat = once(format!("{title}: processor time"), processor / alone, "times");
        findings.push(heat.aiming(Aim::AtMost(1.2)));
    }
    findings
}
