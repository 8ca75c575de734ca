//! An idle pool gets one task: the time until it runs, and until its result is back.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use filch_benches::contest::Contest;
use filch_benches::figure::Aim;
use filch_benches::report::Findings;
use filch_benches::samples::Samples;

use crate::pools;
use crate::sizes::Sizes;

/// After this time without work all threads sleep.
const PAUSE: Duration = Duration::from_micros(500);

pub(crate) fn measure(sizes: &Sizes) -> Findings {
    let mut findings = wake(sizes);
    findings.extend(install(sizes));
    findings
}

/// The median of all tries in microseconds.
fn typical(tries: usize, mut once: impl FnMut() -> Duration) -> f64 {
    Samples::take(tries, || {
        thread::sleep(PAUSE);
        once().as_secs_f64() * 1e6
    })
    .median()
}

/// A closure that sends the time from now until it is called.
fn sender(elapsed: &mpsc::Sender<Duration>) -> impl FnOnce() + Send + 'static {
    let (start, elapsed) = (Instant::now(), elapsed.clone());
    move || elapsed.send(start.elapsed()).expect("the receiver waits")
}

fn wake(sizes: &Sizes) -> Findings {
    let tries = sizes.wakes;
    let (ours, rayon, tokio) = (pools::ours(2), pools::rayon(2), pools::tokio(2));
    let (started, starts) = mpsc::channel();
    let (orders, ordered) = mpsc::channel::<Instant>();
    // The lower bound: a thread that is blocked on a channel.
    let elapsed = started.clone();
    let blocked = thread::spawn(move || {
        for start in ordered {
            elapsed.send(start.elapsed()).expect("the receiver waits");
        }
    });
    let started = &started;
    let starts = &starts;
    let received = || starts.recv().expect("it was sent");
    let outcome = Contest::new()
        .rival("mpsc", || {
            typical(tries, || {
                orders.send(Instant::now()).expect("the thread is there");
                received()
            })
        })
        .rival("ours", || {
            typical(tries, || {
                ours.spawn_detached(sender(started));
                received()
            })
        })
        .rival("rayon", || {
            typical(tries, || {
                rayon.spawn(sender(started));
                received()
            })
        })
        .rival("tokio", || {
            typical(tries, || {
                let tell = sender(started);
                drop(tokio.spawn(async move { tell() }));
                received()
            })
        })
        .run(sizes.rounds);
    drop(orders);
    blocked.join().expect("it ends with its channel");
    let title = "wake of an idle pool, typical";
    let mut findings = Findings::from(outcome.figures(title, "us"));
    findings.extend(outcome.compare(title, "ours", "mpsc", Some(Aim::AtMost(1.2))));
    findings.extend(outcome.compare(title, "ours", "rayon", None));
    findings.extend(outcome.compare(title, "rayon", "mpsc", None));
    findings
}

fn install(sizes: &Sizes) -> Findings {
    let tries = sizes.wakes;
    let (ours, rayon) = (pools::ours(2), pools::rayon(2));
    let timed = |f: &dyn Fn()| {
        let start = Instant::now();
        f();
        start.elapsed()
    };
    let outcome = Contest::new()
        .rival("ours", || typical(tries, || timed(&|| ours.install(|| ()))))
        .rival("rayon", || typical(tries, || timed(&|| rayon.install(|| ()))))
        .run(sizes.rounds);
    let title = "install into an idle pool and back, typical";
    let mut findings = Findings::from(outcome.figures(title, "us"));
    findings.extend(outcome.compare(title, "ours", "rayon", None));
    findings
}
