//! An idle pool: the share of a processor that it uses.

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use filch_benches::contest::Contest;
use filch_benches::figure::{Aim, Figure};
use filch_benches::report::Findings;
use filch_pool::net::Async;
use filch_pool::time::sleep;

use crate::pools;
use crate::sizes::Sizes;
use crate::timing::{processor_ms, wall_ms};

/// After this time without work all threads should sleep.
const SETTLED: Duration = Duration::from_millis(100);

pub(crate) fn measure(sizes: &Sizes) -> Findings {
    let time = Duration::from_millis(sizes.idle_ms);
    let share = || {
        thread::sleep(SETTLED);
        let mut wall = 0.0;
        let processor = processor_ms(|| wall = wall_ms(|| thread::sleep(time)));
        processor / wall * 100.0
    };
    // Each pool is alone in the process while it is measured, and has run a task before.
    let outcome = Contest::new()
        .rival("ours", || {
            let pool = pools::ours(2);
            pool.install(|| filch_pool::join(|| (), || ()));
            share()
        })
        .rival("ours, with a socket and a timer", || {
            let pool = pools::ours(2);
            let listener = pool.install(|| Async::<TcpListener>::bind(([127, 0, 0, 1], 0).into()));
            let listener = listener.expect("loopback works");
            let server = pool.spawn_future(async move { listener.accept().await.map(drop) });
            let timer = pool.spawn_future(sleep(Duration::from_secs(3600)));
            let share = share();
            server.abort();
            timer.abort();
            share
        })
        .rival("rayon", || {
            let pool = pools::rayon(2);
            pool.install(|| rayon::join(|| (), || ()));
            share()
        })
        .run(sizes.rounds.min(3));
    let figures = ["ours", "ours, with a socket and a timer", "rayon"].map(|name| {
        let figure =
            Figure::new(format!("idle pool: {name}"), outcome.of(name), "% of a processor");
        if name.starts_with("ours") { figure.aiming(Aim::AtMost(0.1)) } else { figure }
    });
    figures.into()
}
