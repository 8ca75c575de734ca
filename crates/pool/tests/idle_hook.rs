//! The idle hook: called before a worker sleeps, and never while there is work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use filch_pool::{Pool, task::spawn_detached, watch::PoolEventKind};

fn wait_until(pool: &Pool, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", pool.trace_line());
        thread::yield_now();
    }
}

#[test]
fn the_hook_is_called_before_every_sleep() {
    let calls = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&calls);
    let hook = move || {
        count.fetch_add(1, SeqCst);
        false
    };
    let pool = Pool::builder().threads(1).idle_hook(hook).build().unwrap();
    for _ in 0..100 {
        pool.install(|| ());
        wait_until(&pool, || pool.stats().sleeping == 1);
        let stats = pool.stats();
        assert!(calls.load(SeqCst) >= stats.parks(), "{} calls: {stats:?}", calls.load(SeqCst));
    }
}

#[test]
fn spawned_work_runs_without_a_sleep() {
    let (brought, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (bring, finish) = (Arc::clone(&brought), Arc::clone(&done));
    let (start, gate) = mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let hook = move || {
        // The hook waits until the test is ready. (It may, because this is a test.)
        let _ = gate.lock().unwrap().recv();
        if bring.load(SeqCst) == 100 {
            return false;
        }
        bring.fetch_add(1, SeqCst);
        let finish = Arc::clone(&finish);
        spawn_detached(move || _ = finish.fetch_add(1, SeqCst));
        true
    };
    let pool = Pool::builder().threads(1).idle_hook(hook).build().unwrap();
    let mut watch = pool.watch();
    drop(start);
    let first = watch.next().unwrap();
    assert_eq!((first.worker, first.kind), (Some(0), PoolEventKind::Park));
    assert_eq!((brought.load(SeqCst), done.load(SeqCst)), (100, 100));
}

#[test]
fn the_hook_is_not_called_while_there_is_work() {
    let calls = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&calls);
    let hook = move || {
        count.fetch_add(1, SeqCst);
        false
    };
    let pool = Pool::builder().threads(1).idle_hook(hook).build().unwrap();
    let (sender, receiver) = mpsc::channel();
    let calls_now = Arc::clone(&calls);
    pool.spawn_detached(move || {
        let before = calls_now.load(SeqCst);
        let calls = Arc::clone(&calls_now);
        (0..1000).for_each(|_| spawn_detached(|| ()));
        fn last(left: u32, end: impl FnOnce() + Send + 'static) {
            match left {
                0 => end(),
                _ => spawn_detached(move || last(left - 1, end)),
            }
        }
        last(1000, move || sender.send((before, calls.load(SeqCst))).unwrap());
    });
    let (before, after) = receiver.recv().unwrap();
    assert_eq!(before, after);
}

#[test]
fn a_hook_that_lies_does_no_harm() {
    // It claims to have spawned work.
    let pool = Pool::builder().threads(2).idle_hook(|| true).build().unwrap();
    assert_eq!(pool.install(|| filch_pool::join(|| 1, || 2)), (1, 2));
    wait_until(&pool, || pool.stats().sleeping == 2);
}

#[test]
fn a_hook_that_panics_ends_no_worker() {
    let calls = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&calls);
    let hook = move || {
        count.fetch_add(1, SeqCst);
        std::panic::resume_unwind(Box::new("planned"))
    };
    let pool = Pool::builder().threads(1).idle_hook(hook).build().unwrap();
    wait_until(&pool, || calls.load(SeqCst) > 0);
    assert_eq!(pool.install(|| 1), 1);
}

#[test]
fn other_workers_are_woken_while_one_is_in_the_hook() {
    let (begun, has_begun) = mpsc::channel();
    let (go_on, gate) = mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(Some(gate));
    let hook = move || {
        // Only the first call takes long. (It may wait, because this is a test.)
        let gate = gate.lock().unwrap().take();
        if let Some(gate) = gate {
            begun.send(()).unwrap();
            let _ = gate.recv();
        }
        false
    };
    let pool = Pool::builder().threads(2).idle_hook(hook).build().unwrap();
    has_begun.recv().unwrap();
    wait_until(&pool, || pool.stats().sleeping == 1);
    let (sender, receiver) = mpsc::channel();
    pool.spawn_detached(move || sender.send(()).unwrap());
    let done = receiver.recv_timeout(Duration::from_secs(60));
    drop(go_on);
    assert_eq!(done, Ok(()), "{}", pool.trace_line());
}
