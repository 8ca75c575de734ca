//! Whether it matters at which end thieves steal: the owner and one thief at the same end of a
//! queue, and at opposite ends. Counted is how often an exchange fails because the other thread was
//! faster.
//!
//! Both queues are as simple as possible while correct: numbers in a ring, one word for each end.

use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, AtomicUsize, fence};
use std::{hint, thread};

use filch_benches::figure::Figure;
use filch_benches::report::Findings;
use filch_benches::samples::Samples;

use crate::sizes::Sizes;

const PLACES: usize = 256;

/// How many items the owner adds before it takes them again.
const BURST: u64 = 32;

/// Oldest at `top`, newest before `bottom`; both only grow but for the owner's claim.
struct Ring {
    top: Padded,
    bottom: Padded,
    places: Vec<AtomicU64>,
}

#[repr(align(128))]
struct Padded(AtomicUsize);

enum Taken {
    Some(u64),
    None,
    /// The other thread was faster.
    Failed,
}

impl Ring {
    fn new() -> Self {
        let places = (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        Self { top: Padded(AtomicUsize::new(1)), bottom: Padded(AtomicUsize::new(1)), places }
    }

    /// For the owner.
    fn push(&self, number: u64) -> bool {
        let bottom = self.bottom.0.load(Relaxed);
        if bottom - self.top.0.load(Acquire) >= PLACES {
            return false;
        }
        self.places[bottom % PLACES].store(number, Relaxed);
        self.bottom.0.store(bottom + 1, Release);
        true
    }

    /// The oldest: for the thief, and for an owner that takes at the same end.
    fn take_oldest(&self) -> Taken {
        let top = self.top.0.load(Acquire);
        fence(SeqCst);
        if top >= self.bottom.0.load(Acquire) {
            return Taken::None;
        }
        let number = self.places[top % PLACES].load(Relaxed);
        match self.top.0.compare_exchange(top, top + 1, SeqCst, Relaxed) {
            Ok(_) => Taken::Some(number),
            Err(_) => Taken::Failed,
        }
    }

    /// The newest: for an owner that takes at the other end. Only the last item needs an exchange.
    fn take_newest(&self) -> Taken {
        let last = self.bottom.0.load(Relaxed) - 1;
        self.bottom.0.store(last, Relaxed);
        fence(SeqCst);
        let top = self.top.0.load(Relaxed);
        if top < last {
            return Taken::Some(self.places[last % PLACES].load(Relaxed));
        }
        let taken = if top > last {
            Taken::None
        } else {
            let number = self.places[last % PLACES].load(Relaxed);
            match self.top.0.compare_exchange(top, top + 1, SeqCst, Relaxed) {
                Ok(_) => Taken::Some(number),
                Err(_) => Taken::Failed,
            }
        };
        self.bottom.0.store(last + 1, Relaxed);
        taken
    }
}

#[derive(Default)]
struct Count {
    sum: u64,
    taken: u64,
    failed: u64,
}

impl Count {
    fn add(&mut self, taken: Taken) -> bool {
        match taken {
            Taken::Some(number) => {
                self.sum += number;
                self.taken += 1;
            }
            Taken::None => return false,
            Taken::Failed => self.failed += 1,
        }
        true
    }
}

/// Failed exchanges per thousand items taken, and the percentage taken by the thief.
fn run(total: u64, own: impl Fn(&Ring) -> Taken) -> (f64, f64) {
    let ring = Ring::new();
    let (is_over, begin) = (AtomicBool::new(false), Barrier::new(2));
    let (owner, thief) = thread::scope(|scope| {
        let thief = scope.spawn(|| {
            let mut count = Count::default();
            begin.wait();
            while !is_over.load(Acquire) {
                if !count.add(ring.take_oldest()) {
                    hint::spin_loop();
                }
            }
            count
        });
        let mut count = Count::default();
        let mut pushed = 0;
        begin.wait();
        while pushed < total {
            let burst = pushed + BURST.min(total - pushed);
            while pushed < burst && ring.push(pushed) {
                pushed += 1;
            }
            while count.add(own(&ring)) {}
        }
        while count.add(own(&ring)) {}
        is_over.store(true, Release);
        (count, thief.join().expect("the thread does not panic"))
    });
    assert_eq!(owner.taken + thief.taken, total, "each number is taken once");
    assert_eq!(owner.sum + thief.sum, total * (total - 1) / 2, "and none is made up");
    let failed = (owner.failed + thief.failed) as f64 * 1e3 / total as f64;
    (failed, thief.taken as f64 * 100.0 / total as f64)
}

pub(crate) fn measure(sizes: &Sizes) -> Findings {
    let (mut same, mut opposite) = (Vec::new(), Vec::new());
    for _ in 0..sizes.rounds {
        same.push(run(sizes.ends, Ring::take_oldest));
        opposite.push(run(sizes.ends, Ring::take_newest));
    }
    let failed = |runs: &[(f64, f64)]| Samples::new(runs.iter().map(|run| run.0).collect());
    let share = |runs: &[(f64, f64)]| Samples::new(runs.iter().map(|run| run.1).collect());
    let mut findings = Findings::default();
    for (name, runs) in [("same end", &same), ("opposite ends", &opposite)] {
        let title = format!("owner and thief at {name}");
        let what = format!("{title}: failed exchanges per 1,000 items");
        findings.push(Figure::new(what, failed(runs), ""));
        findings.push(Figure::new(format!("{title}: taken by the thief"), share(runs), "%"));
    }
    let ratio = failed(&same).median() / failed(&opposite).median().max(1e-3);
    let what =
        "failed exchanges: same end against opposite ends (claimed elsewhere: about 9 times)";
    findings.push(Figure::new(what, Samples::new(vec![ratio]), "times"));
    findings
}
