//! The cost of observation: the same work with and without the schedule trace, and with a watcher.

use std::hint::black_box;
use std::io;
use std::time::Duration;

use filch_benches::contest::Contest;
use filch_benches::figure::Aim;
use filch_benches::report::Findings;
use filch_pool::Pool;

use crate::fib::Fib;
use crate::fork::{Call, Ours};
use crate::pools;
use crate::sizes::Sizes;
use crate::spawns;
use crate::timing::wall_ms;

/// Returns the time that a pool takes.
type Workload<'a> = &'a dyn Fn(&Pool) -> f64;

pub(crate) fn measure(sizes: &Sizes) -> Findings {
    let plain = pools::ours(2);
    let traced = Pool::builder()
        .threads(2)
        .trace(Duration::from_millis(10))
        .trace_to(io::sink())
        .build()
        .expect("threads can be started");
    let watched = pools::ours(2);
    let watch = watched.watch();
    let fib = |pool: &Pool| wall_ms(|| pool.install(|| Fib(black_box(sizes.fib)).call(&mut Ours)));
    let spawn =
        |pool: &Pool| spawns::each(sizes.spawns, || spawns::from_inside(pool, sizes.spawns));
    let mut findings = Findings::default();
    let workloads: [(String, Workload<'_>); 2] = [
        (format!("fib({}), 2 workers", sizes.fib), &fib),
        ("spawn from inside, 2 workers".to_owned(), &spawn),
    ];
    for (title, workload) in workloads {
        let outcome = Contest::new()
            .rival("plain", || workload(&plain))
            .rival("traced", || workload(&traced))
            .rival("watched", || {
                let time = workload(&watched);
                while watch.try_next().is_some() {}
                time
            })
            .run(sizes.rounds);
        findings.extend(outcome.compare(&title, "traced", "plain", Some(Aim::AtMost(1.02))));
        findings.extend(outcome.compare(&title, "watched", "plain", None));
    }
    findings
}
