//! Futures on a pool: their results, how they stop, and that each is dropped once.

use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::task::{Poll, Waker};
use std::thread;

use filch_pool::{
    Pool, block_on, join, spawn_future,
    task::{FutureHandle, TaskError},
};

fn pool(threads: usize) -> Pool {
    Pool::builder().threads(threads).build().expect("threads can be started")
}

fn fib(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (a, b) = join(|| fib(n - 1), || fib(n - 2));
    a + b
}

/// Counts how often it is dropped.
struct Drops(Arc<AtomicUsize>);

impl Drop for Drops {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A future that signals once that it was polled, and then waits for ever.
fn waits(drops: &Arc<AtomicUsize>, begun: mpsc::Sender<()>) -> impl Future<Output = ()> + 'static {
    let held = Drops(Arc::clone(drops));
    async move {
        let _held = held;
        begun.send(()).expect("the test waits for it");
        pending::<()>().await;
    }
}

#[test]
fn a_future_returns_its_result() {
    let pool = pool(2);
    let handles: Vec<_> = (0..1000_u64).map(|n| pool.spawn_future(async move { n })).collect();
    let sum: u64 = handles.into_iter().map(|handle| block_on(handle).expect("it ends")).sum();
    assert_eq!(sum, 499_500);
}

#[test]
fn a_future_may_fork() {
    let pool = pool(2);
    let handles: Vec<_> = (0..8).map(|_| pool.spawn_future(async { fib(20) })).collect();
    for handle in handles {
        assert_eq!(block_on(handle).expect("it ends"), 6765);
    }
}

#[test]
fn a_future_may_spawn_others_into_its_pool_and_await_them() {
    let pool = Arc::new(pool(1));
    let inner = Arc::downgrade(&pool);
    let handle = pool.spawn_future(async move {
        let handles: Vec<FutureHandle<bool>> = (0..100)
            .map(|_| {
                let pool = inner.clone();
                spawn_future(async move { pool.upgrade().is_some_and(|pool| pool.is_current()) })
            })
            .collect();
        let mut here = 0;
        for handle in handles {
            here += usize::from(handle.await.expect("it ends"));
        }
        here
    });
    assert_eq!(block_on(handle).expect("it ends"), 100);
}

#[test]
fn a_panic_reaches_only_the_handle() {
    let pool = pool(1);
    let drops = Arc::new(AtomicUsize::new(0));
    let held = Drops(Arc::clone(&drops));
    let broken = pool.spawn_future(async move {
        let _held = held;
        if true {
            std::panic::resume_unwind(Box::new("planned"));
        }
    });
    let lost = block_on(broken).expect_err("it panicked");
    assert!(matches!(lost, TaskError::Panicked(_)));
    assert_eq!(lost.message(), Some("planned"));
    assert_eq!(drops.load(SeqCst), 1);
    assert_eq!(block_on(pool.spawn_future(async { 5 })).expect("the pool goes on"), 5);
}

#[test]
fn another_thread_wakes_a_future() {
    let pool = pool(2);
    let (wakers, woken) = mpsc::channel::<Waker>();
    let handle = pool.spawn_future(async move {
        let mut looks = 0;
        poll_fn(|context| {
            looks += 1;
            if looks > 100 {
                return Poll::Ready(());
            }
            wakers.send(context.waker().clone()).expect("the thread takes it");
            Poll::Pending
        })
        .await;
        looks
    });
    let waker = thread::spawn(move || woken.into_iter().for_each(Waker::wake));
    assert_eq!(block_on(handle).expect("it ends"), 101);
    waker.join().expect("it ends with the future");
}

#[test]
fn a_cancelled_future_is_dropped_once_before_cancel_returns() {
    let pool = pool(1);
    let drops = Arc::new(AtomicUsize::new(0));
    let (begun, has_begun) = mpsc::channel();
    let handle = pool.spawn_future(waits(&drops, begun));
    has_begun.recv().expect("it begins");
    assert!(matches!(block_on(handle.cancel()), Err(TaskError::Cancelled)));
    assert_eq!(drops.load(SeqCst), 1);
}

#[test]
fn a_finished_future_is_not_cancelled() {
    let pool = pool(1);
    let handle = pool.spawn_future(async { 3 });
    while !handle.is_finished() {
        thread::yield_now();
    }
    assert_eq!(block_on(handle.cancel()).expect("it had ended"), 3);
}

#[test]
fn an_aborted_future_is_dropped_once() {
    let pool = pool(1);
    let drops = Arc::new(AtomicUsize::new(0));
    let (begun, has_begun) = mpsc::channel();
    let handle = pool.spawn_future(waits(&drops, begun));
    has_begun.recv().expect("it begins");
    handle.abort();
    while drops.load(SeqCst) == 0 {
        thread::yield_now();
    }
    drop(pool);
    assert_eq!(drops.load(SeqCst), 1);
}

#[test]
fn a_future_runs_without_its_handle() {
    let pool = pool(1);
    let (done, is_done) = mpsc::channel();
    drop(pool.spawn_future(async move { done.send(()) }));
    is_done.recv().expect("it is driven");
}

#[test]
fn dropping_a_pool_drops_every_future_once_and_wakes_its_handle() {
    let pool = pool(2);
    let drops = Arc::new(AtomicUsize::new(0));
    let (begun, has_begun) = mpsc::channel();
    let handles: Vec<_> =
        (0..100).map(|_| pool.spawn_future(waits(&drops, begun.clone()))).collect();
    for _ in 0..50 {
        has_begun.recv().expect("they begin");
    }
    let awaiter = thread::spawn(move || {
        handles.into_iter().map(block_on).all(|lost| matches!(lost, Err(TaskError::Closed)))
    });
    drop(pool);
    assert_eq!(drops.load(SeqCst), 100);
    assert!(awaiter.join().expect("it ends"));
}

#[test]
fn a_closed_pool_rejects_futures() {
    let pool = pool(1);
    pool.close();
    let drops = Arc::new(AtomicUsize::new(0));
    let (begun, _) = mpsc::channel();
    let handle = pool.spawn_future(waits(&drops, begun));
    assert!(handle.is_finished());
    assert!(matches!(block_on(handle), Err(TaskError::Closed)));
    assert_eq!(drops.load(SeqCst), 1);
}

#[test]
fn a_waker_may_outlive_its_pool() {
    let pool = pool(1);
    let drops = Arc::new(AtomicUsize::new(0));
    let held = Drops(Arc::clone(&drops));
    let (wakers, woken) = mpsc::channel::<Waker>();
    let handle = pool.spawn_future(poll_fn(move |context| {
        let _held = &held;
        wakers.send(context.waker().clone()).expect("the test takes it");
        Poll::<()>::Pending
    }));
    let waker = woken.recv().expect("it begins");
    drop(pool);
    assert_eq!(drops.load(SeqCst), 1);
    waker.wake();
    assert!(matches!(block_on(handle), Err(TaskError::Closed)));
}

#[test]
fn block_on_panics_on_a_worker() {
    let pool = pool(1);
    let waits = || pool.install(|| block_on(async {}));
    let panic = catch_unwind(AssertUnwindSafe(waits)).expect_err("it is refused");
    let text = panic.downcast_ref::<String>().expect("it has a message");
    assert!(text.contains("spawn_future") && text.contains("blocking"), "{text}");
}
