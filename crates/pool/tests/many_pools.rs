//! Pools that are created and dropped leave nothing behind: no thread, no memory, no task.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::{fs, thread};

use filch_pool::{Pool, join};

/// Creates a pool, uses some of its features, and drops it with tasks left to run.
fn use_one(dropped: &Arc<AtomicUsize>, number: usize) {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let pool = Pool::builder().threads(1 + number % 3).build().expect("threads can be started");
    for _ in 0..3 {
        let counted = Counted(Arc::clone(dropped));
        pool.spawn_detached(move || drop(counted));
    }
    if number.is_multiple_of(2) {
        assert_eq!(pool.install(|| join(|| number, || number)), (number, number));
    }
    if number.is_multiple_of(16) {
        assert!(pool.spawn(|| filch_pool::blocking(|| true)).wait().expect("it runs"));
    }
}

/// A value from the kernel's status of this process.
fn account(key: &str) -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().nth(1).or_else(|| line.split_whitespace().next())?.parse().ok()
}

fn threads() -> Option<usize> {
    Some(fs::read_dir("/proc/self/task").ok()?.count())
}

#[test]
fn three_thousand_pools_leave_nothing_behind() {
    const SIDES: usize = 4;
    let dropped = Arc::new(AtomicUsize::new(0));
    let many = |from: usize, to: usize| {
        thread::scope(|threads| {
            for side in 0..SIDES {
                let dropped = &dropped;
                threads.spawn(move || {
                    (from..to).filter(|n| n % SIDES == side).for_each(|n| use_one(dropped, n));
                });
            }
        });
    };
    // So that everything that is created once exists.
    many(0, 300);
    let before = (threads(), account("VmRSS:"));
    many(300, 3000);
    let after = (threads(), account("VmRSS:"));
    assert_eq!(dropped.load(SeqCst), 9000, "each task is dropped once");
    // A joined thread may be listed a moment longer.
    while threads() > before.0 {
        thread::yield_now();
    }
    if let (Some(before), Some(after)) = (before.1, after.1) {
        // A pool takes at least 50 kB: 2,700 of them would take 135 MB.
        assert!(after < before + 50_000, "from {before} kB to {after} kB");
    }
}
