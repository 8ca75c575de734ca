//! Very many futures that yield once: each is scheduled twice.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;

use async_executor::Executor;
use filch_benches::contest::Contest;
use filch_benches::report::Findings;

use crate::sizes::Sizes;
use crate::{pools, spawns, tally};

async fn tiny() {
    yield_once().await;
    tally::one();
}

/// Ready at the second poll, and wakes itself at once.
fn yield_once() -> impl Future<Output = ()> {
    let mut was_polled = false;
    poll_fn(move |context| {
        if was_polled {
            return Poll::Ready(());
        }
        was_polled = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
}

/// Threads that drive an executor until it is dropped.
struct Driven {
    executor: Arc<Executor<'static>>,
    stop: tokio::sync::watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

impl Driven {
    fn new(threads: usize) -> Self {
        let executor = Arc::new(Executor::new());
        let (stop, _) = tokio::sync::watch::channel(false);
        let thread = |_| {
            let (executor, mut stopped) = (Arc::clone(&executor), stop.subscribe());
            std::thread::spawn(move || {
                let end = async move { drop(stopped.wait_for(|is_over| *is_over).await) };
                filch_pool::block_on(executor.run(end));
            })
        };
        let threads = (0..threads).map(thread).collect();
        Self { executor, stop, threads }
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        for thread in self.threads.drain(..) {
            thread.join().expect("the thread does not panic");
        }
    }
}

pub(crate) fn measure(sizes: &Sizes) -> Findings {
    let count = sizes.spawns / 4;
    let (ours, tokio, driven) = (pools::ours(2), pools::tokio(2), Driven::new(2));
    let outcome = Contest::new()
        .rival("ours", || {
            spawns::each(count, || {
                drop(ours.spawn_future(async move {
                    (0..count).for_each(|_| drop(filch_pool::spawn_future(tiny())));
                }));
            })
        })
        .rival("tokio", || {
            spawns::each(count, || {
                drop(tokio.spawn(async move {
                    (0..count).for_each(|_| drop(tokio::spawn(tiny())));
                }));
            })
        })
        .rival("async-executor", || {
            spawns::each(count, || {
                let executor = Arc::clone(&driven.executor);
                let all = async move { (0..count).for_each(|_| executor.spawn(tiny()).detach()) };
                driven.executor.spawn(all).detach();
            })
        })
        .run(sizes.rounds);
    let title = "futures that yield once, from inside, 2 workers";
    let mut findings = Findings::from(outcome.figures(title, "ns/future"));
    for rival in ["tokio", "async-executor"] {
        findings.extend(outcome.compare(title, "ours", rival, None));
    }
    findings
}
