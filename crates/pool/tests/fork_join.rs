//! Forks, scopes and parallel loops.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use filch_pool::{Pool, for_each, join, map_reduce, scope};

fn pools() -> impl Iterator<Item = Pool> {
    (1..=4).map(|threads| Pool::builder().threads(threads).build().expect("threads can be started"))
}

fn fib(n: u32) -> u64 {
    if n < 2 {
        return u64::from(n);
    }
    let (a, b) = join(|| fib(n - 1), || fib(n - 2));
    a + b
}

#[test]
fn forks_are_joined() {
    for pool in pools() {
        assert_eq!(pool.install(|| fib(24)), 46_368);
    }
    assert_eq!(fib(20), 6_765, "outside of any pool as well");
}

#[test]
fn forks_deeper_than_the_queue_still_run() {
    fn deep(left: u32) -> u32 {
        if left == 0 {
            return 0;
        }
        // The fork waits while the first half goes deeper.
        let (a, b) = join(|| deep(left - 1), || 1);
        a + b
    }
    for threads in 1..=4 {
        let pool = Pool::builder().threads(threads).stack_size(64 << 20).build();
        let pool = pool.expect("threads can be started");
        assert_eq!(pool.install(|| deep(20_000)), 20_000);
    }
}

#[test]
fn a_panic_reaches_the_caller_of_join_and_the_pool_continues() {
    let text = |panic: Box<dyn std::any::Any + Send>| *panic.downcast_ref::<&str>().expect("text");
    for pool in pools() {
        for round in 0..200 {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                pool.install(|| {
                    join(
                        || (round % 3 == 0).then(|| resume_unwind(Box::new("first"))),
                        || (round % 2 == 0).then(|| resume_unwind(Box::new("second"))),
                    )
                })
            }));
            match (round % 3, round % 2) {
                (0, _) => assert_eq!(text(outcome.expect_err("it panics")), "first"),
                (_, 0) => assert_eq!(text(outcome.expect_err("it panics")), "second"),
                _ => assert!(outcome.is_ok()),
            }
        }
        assert_eq!(pool.install(|| fib(10)), 55);
    }
}

#[test]
fn a_scope_ends_when_its_tasks_have_finished() {
    for pool in pools() {
        let counts: Vec<AtomicUsize> = (0..100).map(|_| AtomicUsize::new(0)).collect();
        pool.install(|| {
            scope(|s| {
                for count in &counts {
                    s.spawn(move |s| {
                        count.fetch_add(1, SeqCst);
                        for _ in 0..3 {
                            s.spawn(move |_| {
                                count.fetch_add(fib(5) as usize, SeqCst);
                            });
                        }
                    });
                }
            });
        });
        assert!(counts.iter().all(|count| count.load(SeqCst) == 16));
    }
}

#[test]
fn scopes_within_scopes_and_forks() {
    for pool in pools() {
        let total = AtomicUsize::new(0);
        pool.install(|| {
            scope(|outer| {
                for _ in 0..20 {
                    outer.spawn(|outer| {
                        let add = || {
                            total.fetch_add(1, SeqCst);
                        };
                        let spawn = || scope(|inner| inner.spawn(move |_| add()));
                        join(spawn, || outer.spawn(move |_| add()));
                    });
                }
            });
        });
        assert_eq!(total.load(SeqCst), 40);
    }
}

#[test]
fn a_panic_in_a_scope_is_passed_on_when_all_tasks_have_finished() {
    for pool in pools() {
        let count = AtomicUsize::new(0);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            pool.install(|| {
                scope(|s| {
                    for n in 0..100 {
                        let count = &count;
                        s.spawn(move |_| {
                            count.fetch_add(1, SeqCst);
                            if n == 50 {
                                resume_unwind(Box::new("planned"));
                            }
                        });
                    }
                });
            });
        }));
        let panic = outcome.expect_err("one panics");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"planned"));
        assert_eq!(count.load(SeqCst), 100);
    }
}

#[test]
fn a_cancelled_scope_starts_no_more_tasks() {
    let pool = Pool::builder().threads(1).build().expect("threads can be started");
    let count = AtomicUsize::new(0);
    pool.install(|| {
        scope(|s| {
            for _ in 0..10 {
                s.spawn(|_| {
                    count.fetch_add(1, SeqCst);
                });
            }
            s.cancel();
            assert!(s.is_cancelled());
        });
    });
    assert_eq!(count.load(SeqCst), 0);
}

#[test]
fn every_item_is_visited_once_and_the_order_is_kept() {
    for pool in pools() {
        for count in [0_usize, 1, 2, 3, 1000, 100_000] {
            let mut items = vec![0_u8; count];
            pool.install(|| for_each(items.as_mut_slice(), |item| *item += 1));
            assert!(items.iter().all(|item| *item == 1));
            let seen = AtomicUsize::new(0);
            pool.install(|| {
                for_each(0..count, |_| {
                    seen.fetch_add(1, SeqCst);
                });
            });
            assert_eq!(seen.into_inner(), count);
            let text = pool.install(|| {
                let numbers: Vec<usize> = (0..count).collect();
                let list = |n: &usize| vec![*n];
                map_reduce(numbers.as_slice(), Vec::new, list, |mut all, more| {
                    all.extend(more);
                    all
                })
            });
            assert!(text.into_iter().eq(0..count));
        }
    }
}

#[test]
fn ranges_of_any_width() {
    let sum = map_reduce(-3..4_i32, || 0, |n| n, |a, b| a + b);
    assert_eq!(sum, 0);
    let backwards = std::ops::Range { start: 5_u32, end: 3 };
    assert_eq!(map_reduce(backwards, || 0, |_| 1, |a, b| a + b), 0);
    let last = map_reduce(u64::MAX - 3..u64::MAX, || 0, |n| n, u64::max);
    assert_eq!(last, u64::MAX - 1);
}
