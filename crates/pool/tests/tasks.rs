//! Tasks: results, cancellation, priorities, names, blocking.

mod busy;

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::sync::{Arc, Barrier, Mutex};

use filch_pool::{
    BuildError, Pool, blocking, join,
    task::{CancelToken, Priority, TaskError, current_name},
};

use busy::occupy;

fn pool(threads: usize) -> Pool {
    Pool::builder().threads(threads).build().expect("threads can be started")
}

#[test]
fn a_handle_returns_the_result() {
    let pool = pool(2);
    let handles: Vec<_> = (0..1000_u64).map(|n| pool.spawn(move || n * n)).collect();
    for (n, handle) in handles.into_iter().enumerate() {
        assert_eq!(handle.wait().expect("it does not panic"), (n * n) as u64);
    }
}

#[test]
fn a_panic_reaches_only_the_handle() {
    let pool = pool(1);
    let lost = pool.spawn(|| panic!("planned {}", 1)).wait().expect_err("it panics");
    assert_eq!(lost.message(), Some("planned 1"));
    assert_eq!(lost.to_string(), "the task panicked: planned 1");
    assert_eq!(pool.spawn(|| 1).wait().expect("the pool is as before"), 1);
}

#[test]
fn a_task_cancelled_before_its_start_never_starts() {
    let pool = pool(1);
    let go_on = occupy(&pool);
    let token = CancelToken::new();
    let held = Arc::new(());
    let (first, second) = (Arc::clone(&held), Arc::clone(&held));
    let by_token = pool.task().token(&token).spawn(move || drop(first));
    let by_handle = pool.spawn(move || drop(second));
    token.cancel();
    by_handle.cancel();
    go_on.send(()).expect("it waits");
    assert!(matches!(by_token.wait(), Err(TaskError::Cancelled)));
    assert!(matches!(by_handle.wait(), Err(TaskError::Cancelled)));
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn a_child_token_is_cancelled_with_its_parent_but_not_vice_versa() {
    let parent = CancelToken::new();
    let (one, other) = (parent.child(), parent.child());
    one.cancel();
    assert!(one.is_cancelled() && !parent.is_cancelled() && !other.is_cancelled());
    parent.cancel();
    assert!(other.is_cancelled());
}

#[test]
fn high_priority_runs_first() {
    let pool = pool(1);
    let go_on = occupy(&pool);
    let order = Arc::new(Mutex::new(Vec::new()));
    let handles: Vec<_> = [Priority::Low, Priority::Normal, Priority::High]
        .into_iter()
        .map(|priority| {
            let order = Arc::clone(&order);
            let task = move || order.lock().expect("no thread panics").push(priority);
            pool.task().priority(priority).spawn(task)
        })
        .collect();
    go_on.send(()).expect("it waits");
    handles.into_iter().for_each(|handle| handle.wait().expect("it ends"));
    let order = order.lock().expect("no thread panics");
    assert_eq!(*order, [Priority::High, Priority::Normal, Priority::Low]);
}

#[test]
fn low_priority_does_not_starve() {
    fn again(pool: &Arc<Pool>, left: usize, log: &Arc<Mutex<Vec<usize>>>) {
        log.lock().expect("no thread panics").push(left);
        if left > 0 {
            let (pool_too, log) = (Arc::clone(pool), Arc::clone(log));
            pool.spawn_detached(move || again(&pool_too, left - 1, &log));
        }
    }
    let pool = Arc::new(pool(1));
    let go_on = occupy(&pool);
    let log = Arc::new(Mutex::new(Vec::new()));
    let low = {
        let log = Arc::clone(&log);
        let seen = move || log.lock().expect("no thread panics").len();
        pool.task().priority(Priority::Low).spawn(seen)
    };
    let (pool_too, log_too) = (Arc::clone(&pool), Arc::clone(&log));
    let chain = pool.spawn(move || again(&pool_too, 1000, &log_too));
    go_on.send(()).expect("it waits");
    assert!(low.wait().expect("it ends") <= 2 * 61, "it came within two looks at the shared queue");
    chain.wait().expect("it ends");
}

#[test]
fn a_task_is_named_after_its_location_or_as_given() {
    let pool = pool(1);
    let place = pool.spawn(current_name).wait().expect("it ends").expect("every task has a name");
    assert!(place.contains("tests/tasks.rs:"), "{place}");
    let name = pool.task().name("mine").spawn(current_name).wait().expect("it ends");
    assert_eq!(name.as_deref(), Some("mine"));
    assert_eq!(current_name(), None);
}

#[test]
fn a_task_may_wait_for_another_in_a_pool_with_one_thread() {
    let pool = Arc::new(pool(1));
    let inside = Arc::clone(&pool);
    let depth = pool.spawn(move || {
        fn deeper(pool: &Arc<Pool>, left: usize) -> usize {
            if left == 0 {
                return 0;
            }
            let pool_too = Arc::clone(pool);
            1 + pool.spawn(move || deeper(&pool_too, left - 1)).wait().expect("it ends")
        }
        deeper(&inside, 20)
    });
    assert_eq!(depth.wait().expect("it ends"), 20);
}

#[test]
fn blocked_threads_are_replaced_and_come_back() {
    let pool = pool(2);
    for _ in 0..50 {
        // More than there are threads: only if each is replaced do all arrive.
        let barrier = Arc::new(Barrier::new(8));
        let handles: Vec<_> = (0..8)
            .map(|_| {
                let barrier = Arc::clone(&barrier);
                pool.spawn(move || blocking(|| barrier.wait()).is_leader())
            })
            .collect();
        let leaders =
            handles.into_iter().filter(|_| true).map(|handle| handle.wait().expect("it ends"));
        assert_eq!(leaders.filter(|is_leader| *is_leader).count(), 1);
    }
}

#[test]
fn a_task_spawned_by_a_busy_worker_is_stolen() {
    for threads in 2..=4 {
        let pool = pool(threads);
        for _ in 0..100 {
            pool.install(|| {
                let is_done = Arc::new(AtomicUsize::new(0));
                let done = Arc::clone(&is_done);
                pool.spawn_detached(move || done.store(1, SeqCst));
                // Without `blocking`: this thread does not come back to look for work.
                while is_done.load(SeqCst) == 0 {
                    std::thread::yield_now();
                }
            });
        }
    }
}

#[test]
fn all_tasks_spawned_by_a_busy_worker_are_stolen() {
    for threads in 2..=4 {
        let pool = pool(threads);
        for _ in 0..20 {
            pool.install(|| {
                let left = Arc::new(AtomicUsize::new(500));
                for _ in 0..500 {
                    let left = Arc::clone(&left);
                    pool.spawn_detached(move || {
                        left.fetch_sub(1, SeqCst);
                    });
                }
                // Without `blocking`: this thread does not come back to look for work.
                while left.load(SeqCst) > 0 {
                    std::thread::yield_now();
                }
            });
        }
    }
}

#[test]
fn a_pool_may_be_dropped_by_its_own_thread() {
    let (sender, receiver) = mpsc::channel();
    let pool = Arc::new(pool(2));
    let inside = Arc::clone(&pool);
    let (go, may_go) = mpsc::channel();
    pool.spawn_detached(move || {
        may_go.recv().expect("the test sends it");
        let forked = join(|| drop(inside), || 1);
        sender.send(forked.1).expect("the test receives it");
    });
    drop(pool);
    go.send(()).expect("it waits");
    assert_eq!(receiver.recv(), Ok(1));
}

#[test]
fn a_closed_pool_reports_it() {
    let pool = pool(1);
    let go_on = occupy(&pool);
    let waiting = pool.spawn(|| 1);
    pool.close();
    go_on.send(()).expect("it waits");
    assert!(matches!(waiting.wait(), Err(TaskError::Closed)));
    assert!(matches!(pool.spawn(|| 2).wait(), Err(TaskError::Closed)));
    let installed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pool.install(|| 3)));
    let panic = installed.expect_err("the pool is closed");
    let message = panic.downcast_ref::<String>().expect("it has a message");
    assert!(message.contains("is closed"), "{message}");
}

#[test]
fn bad_thread_counts_are_rejected() {
    let error = Pool::builder().threads(0).build().expect_err("no threads");
    assert!(matches!(error, BuildError::NoThreads));
    assert!(error.to_string().contains("at least one thread"));
    let error = Pool::builder().threads(100_000).build().expect_err("too many");
    assert!(matches!(error, BuildError::TooManyThreads(100_000)));
}

#[test]
fn the_global_pool_is_built_once() {
    let pool = Pool::builder().threads(2).build_global().expect("this test is its first user");
    assert_eq!(pool.threads(), 2);
    let error = Pool::builder().build_global().expect_err("there is one");
    assert!(matches!(error, BuildError::GlobalExists));
    assert_eq!(join(|| 1, || 2), (1, 2));
}

#[test]
fn an_external_thread_is_stolen_from_and_leaves_nothing_behind() {
    let pool = pool(2);
    let count = Arc::new(AtomicUsize::new(0));
    for _ in 0..100 {
        let sum = pool.enter(|| {
            for _ in 0..10 {
                let count = Arc::clone(&count);
                pool.spawn_detached(move || {
                    count.fetch_add(1, SeqCst);
                });
            }
            let (a, b) = join(|| 1, || join(|| 2, || 3));
            a + b.0 + b.1
        });
        assert_eq!(sum, 6);
    }
    while count.load(SeqCst) < 1000 {
        std::thread::yield_now();
    }
}

#[test]
fn a_pool_within_a_pool_and_back() {
    let (outer, inner) = (pool(1), pool(1));
    let sum = outer.install(|| {
        let there = inner.install(|| outer.install(|| join(|| 1, || 2)));
        let (a, b) = join(|| inner.install(|| 3), || 4);
        there.0 + there.1 + a + b
    });
    assert_eq!(sum, 10);
}

#[test]
fn the_idle_hook_may_spawn_work() {
    let left = Arc::new(AtomicUsize::new(100));
    let (sender, receiver) = mpsc::channel();
    let hook = {
        let left = Arc::clone(&left);
        move || {
            let more = left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
            let Ok(more) = more else { return false };
            let sender = sender.clone();
            filch_pool::task::spawn_detached(move || {
                sender.send(more).expect("the test receives it");
            });
            true
        }
    };
    let _pool = Pool::builder().threads(2).idle_hook(hook).build().expect("threads can be started");
    let mut brought: Vec<usize> = receiver.iter().take(100).collect();
    brought.sort_unstable();
    assert_eq!(brought, (1..=100).collect::<Vec<_>>());
}
