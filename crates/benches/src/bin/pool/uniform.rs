//! A batch of tasks of the same length: stealing cannot gain anything here, and must not cost much.

use filch_benches::figure::Aim;
use filch_benches::machine;
use filch_benches::report::Findings;

use crate::baselines::{Central, dealt};
use crate::comparison::{self, Ways};
use crate::sizes::Sizes;
use crate::{pools, work};

/// The number of threads from which a single queue is expected to be a bottleneck.
const CROWD: usize = 8;

pub(crate) fn measure(sizes: &Sizes) -> Findings {
    let cores = machine::cores();
    let pool = pools::ours(cores);
    let title = format!("{} tasks of 10 us, {cores} workers", sizes.uniform);
    let (batch, task) = (sizes.uniform, || work::microseconds(10));
    let outcome = ways(batch, task, cores, &pool, sizes.rounds_long);
    let mut findings = comparison::times(&title, &outcome);
    let gain = comparison::gain(&title, &outcome, "static split", Some(Aim::AtLeast(0.95)));
    findings.push(gain);
    let work = || map(&pool, batch, task);
    findings.push(comparison::thefts(&title, &pool, batch as f64, work, Aim::AtMost(1.0)));

    let (batch, task) = (batch * 10, || work::nanoseconds(100));
    let title = format!("{batch} tasks of 100 ns, {cores} workers");
    let outcome = ways(batch, task, cores, &pool, sizes.rounds_long);
    findings.extend(comparison::times(&title, &outcome));
    let aim = (cores >= CROWD).then_some(Aim::AtLeast(3.0));
    findings.push(comparison::gain(&title, &outcome, "one queue", aim));
    if aim.is_none() {
        findings.skip(format!("{title}: gain over one queue, aim >= 3"), format!("{cores} cores"));
    }
    findings
}

fn ways(
    batch: u64,
    task: impl Fn() -> u64 + Sync + Copy,
    cores: usize,
    pool: &filch_pool::Pool,
    rounds: usize,
) -> filch_benches::contest::ContestResult {
    let some = |count: u64| (0..count).map(|_| task()).fold(0, u64::wrapping_add);
    let split = || {
        let first = |index: usize| batch * index as u64 / cores as u64;
        dealt((0..cores).map(|index| first(index + 1) - first(index)).collect(), some)
    };
    let queue = || Central::new(0..batch).run(cores, |_| task());
    let (serial, stealing) = (|| some(batch), || map(pool, batch, task));
    let ways = Ways { serial: &serial, stealing: &stealing, split: &split, queue: &queue };
    ways.run(rounds)
}

fn map(pool: &filch_pool::Pool, batch: u64, task: impl Fn() -> u64 + Sync) -> u64 {
    pool.install(|| filch_pool::map_reduce(0..batch, || 0, |_| task(), u64::wrapping_add))
}
