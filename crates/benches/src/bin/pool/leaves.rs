//! Few long leaves: two of the same length, which must run in parallel every time; and many of very
//! different length.

use std::thread;
use std::time::Duration;

use filch_benches::contest::Contest;
use filch_benches::figure::{Aim, Figure};
use filch_benches::report::Findings;
use filch_scheduler::random::SplitMix64;

use crate::fork::{Call, Fork, Ours, Rayon, Serial};
use crate::sizes::Sizes;
use crate::timing::wall_ms;
use crate::{fork, pools, work};

/// How often two long leaves are tried.
const TRIES: usize = 20;

/// Small forks before the leaves, from which a pool may learn not to wake threads.
const LESSONS: u32 = 200;

pub(crate) fn measure(sizes: &Sizes) -> Findings {
    let mut findings = two(sizes);
    findings.extend(zipf(sizes));
    findings
}

struct Leaf {
    us: u64,
}

impl Call<u64> for Leaf {
    fn call(self, _fork: &mut impl Fork) -> u64 {
        work::microseconds(self.us)
    }
}

/// The aim is set for the worst try. Two plain threads show what the machine allowed meanwhile.
fn two(sizes: &Sizes) -> Findings {
    let us = sizes.leaf_us;
    let both = |fork: &dyn Fn(Leaf, Leaf) -> (u64, u64)| {
        thread::sleep(Duration::from_millis(1));
        wall_ms(|| fork(Leaf { us }, Leaf { us }))
    };
    let (ours, rayon) = (pools::ours(2), pools::rayon(2));
    let outcome = Contest::new()
        .rival("serial", || both(&|a, b| Serial.join(a, b)))
        .rival("two threads", || {
            both(&|a, b| {
                thread::scope(|scope| {
                    let other = scope.spawn(|| b.call(&mut Serial));
                    (a.call(&mut Serial), other.join().expect("work does not panic"))
                })
            })
        })
        .rival("ours", || both(&|a, b| ours.install(|| Ours.join(a, b))))
        .rival("ours, after small forks", || {
            ours.install(|| {
                for _ in 0..LESSONS {
                    Ours.join(Leaf { us: 1 }, Leaf { us: 1 });
                }
                wall_ms(|| Ours.join(Leaf { us }, Leaf { us }))
            })
        })
        .rival("rayon", || both(&|a, b| rayon.install(|| Rayon.join(a, b))))
        .run(TRIES.min(sizes.rounds * 4));
    let title = format!("two leaves of {} ms", us as f64 / 1e3);
    let [serial] = outcome.lowest(["serial"]);
    let mut findings = Findings::from(outcome.figures(&title, "ms"));
    for name in ["two threads", "ours", "ours, after small forks", "rayon"] {
        let worst = outcome.of(name).map(|time| time / serial).worst();
        let figure = Figure::new(format!("{title}: {name} against serial, worst"), worst, "times");
        let is_aimed = name.starts_with("ours");
        findings.push(if is_aimed { figure.aiming(Aim::AtMost(0.6)) } else { figure });
        let samples = outcome.of(name).map(|time| time / serial);
        findings.push(Figure::new(
            format!("{title}: {name} against serial, median"),
            samples,
            "times",
        ));
    }
    findings
}

/// The longest leaf takes a thousand times as long as the thousandth; the order is random.
struct Leaves<'a>(&'a [u64]);

impl Call<u64> for Leaves<'_> {
    fn call(self, fork: &mut impl Fork) -> u64 {
        if let [ns] = self.0 {
            return work::nanoseconds(*ns);
        }
        let (some, others) = self.0.split_at(self.0.len() / 2);
        let (some, others) = fork.join(Leaves(some), Leaves(others));
        some.wrapping_add(others)
    }
}

fn zipf(sizes: &Sizes) -> Findings {
    const LONGEST_NS: u64 = 4_000_000;
    let mut leaves: Vec<u64> = (1..=sizes.zipf as u64).map(|rank| LONGEST_NS / rank).collect();
    let mut random = SplitMix64::new(3);
    for end in (1..leaves.len()).rev() {
        leaves.swap(end, random.below(end + 1));
    }
    let expected = Leaves(&leaves).call(&mut Serial);
    let checked = |sum| assert_eq!(sum, expected, "no leaf is left out");
    let (ours, rayon, chili) = (pools::ours(2), pools::rayon(2), pools::chili(2));
    let outcome = Contest::new()
        .rival("serial", || wall_ms(|| checked(Leaves(&leaves).call(&mut Serial))))
        .rival("ours", || wall_ms(|| checked(ours.install(|| Leaves(&leaves).call(&mut Ours)))))
        .rival("rayon", || wall_ms(|| checked(rayon.install(|| Leaves(&leaves).call(&mut Rayon)))))
        .rival("chili", || wall_ms(|| checked(Leaves(&leaves).call(&mut chili.scope()))))
        .run(sizes.rounds);
    let title = format!("{} leaves by Zipf's law, 2 workers", leaves.len());
    let mut findings = Findings::from(outcome.figures(&title, "ms"));
    for rival in fork::RIVALS {
        findings.extend(outcome.compare(&title, "ours", rival, None));
    }
    findings
}
