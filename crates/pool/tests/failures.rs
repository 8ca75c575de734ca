//! Destructors that panic, spawn or take long; closing in the middle; hooks that fail: the pool
//! continues, and nothing is used after its end.

mod busy;

use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use filch_pool::{Pool, scope, spawn, task::spawn_detached, time::sleep_until, watch::Watch};

use busy::occupy;

fn pool(threads: usize) -> Pool {
    Pool::builder().threads(threads).build().expect("threads can be started")
}

/// Calls a closure when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what}");
        thread::yield_now();
    }
}

#[test]
fn a_refused_closure_is_dropped_before_install_returns() {
    let pool = pool(1);
    let go_on = occupy(&pool);
    let (has_returned, was_early) = (AtomicBool::new(false), AtomicBool::new(false));
    let (is_being_dropped, is_queued) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|threads| {
        threads.spawn(|| {
            let borrowed = OnDrop(|| {
                is_being_dropped.store(true, SeqCst);
                // Gives the caller a chance to continue too early.
                for _ in 0..10_000 {
                    was_early.fetch_or(has_returned.load(SeqCst), SeqCst);
                    thread::yield_now();
                }
            });
            is_queued.store(true, SeqCst);
            let refused = catch_unwind(AssertUnwindSafe(|| {
                pool.install(move || {
                    let _borrowed = &borrowed;
                });
            }));
            has_returned.store(true, SeqCst);
            assert!(refused.is_err(), "it was never run");
        });
        wait_until("the caller comes", || is_queued.load(SeqCst));
        wait_until("what is installed waits in a queue, or was refused", || {
            pool.stats().shared > 0 || is_being_dropped.load(SeqCst)
        });
        pool.close();
        go_on.send(()).expect("it waits for this");
    });
    assert!(is_being_dropped.load(SeqCst));
    assert!(!was_early.load(SeqCst), "the caller went on while what it lent was in use");
}

/// So many that they overflow into the shared queue, which refuses them; each spawns when dropped.
#[test]
fn a_destructor_of_a_task_may_spawn() {
    for threads in 1..3 {
        let pool = Arc::new(pool(threads));
        let dropped = Arc::new(AtomicUsize::new(0));
        let inside = (Arc::clone(&pool), Arc::clone(&dropped));
        pool.install(move || {
            let (pool, dropped) = inside;
            pool.close();
            for _ in 0..2000 {
                let dropped = Arc::clone(&dropped);
                let held = OnDrop(move || {
                    let last = Arc::clone(&dropped);
                    let last = OnDrop(move || {
                        last.fetch_add(1, SeqCst);
                    });
                    spawn_detached(move || drop(last));
                    dropped.fetch_add(1, SeqCst);
                });
                spawn_detached(move || drop(held));
            }
        });
        drop(pool);
        wait_until("all are dropped, or run", || dropped.load(SeqCst) == 4000);
    }
}

/// Panics when it is dropped, that many times.
struct Bomb(usize);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 > 0 {
            panic_any(Self(self.0 - 1));
        }
    }
}

#[test]
fn a_panic_payload_that_panics_when_dropped_ends_no_thread() {
    let pool = pool(1);
    pool.spawn_detached(|| resume_unwind(Box::new(Bomb(2))));
    pool.spawn_detached({
        let bomb = Bomb(2);
        move || drop(bomb)
    });
    drop(pool.spawn(|| resume_unwind(Box::new(Bomb(2)))));
    assert_eq!(pool.install(|| 7), 7);
}

/// Of two panics only one is passed on.
#[test]
fn a_dropped_panic_payload_may_panic() {
    let pool = pool(2);
    let begun = AtomicBool::new(false);
    let wait = || wait_until("the other has started", || begun.load(SeqCst));
    let bomb = || {
        begun.store(true, SeqCst);
        resume_unwind(Box::new(Bomb(2)))
    };
    let joined = catch_unwind(AssertUnwindSafe(|| {
        pool.install(|| {
            filch_pool::join(
                || {
                    wait();
                    resume_unwind(Box::new("first"))
                },
                bomb,
            )
        })
    }));
    let panic = joined.map(|((), ())| ()).expect_err("both panic");
    assert_eq!(panic.downcast_ref(), Some(&"first"));

    let scoped = catch_unwind(AssertUnwindSafe(|| {
        pool.install(|| {
            scope(|s| {
                (0..3).for_each(|_| s.spawn(move |_| bomb()));
                resume_unwind(Box::new("first"));
            });
        });
    }));
    let panic = scoped.expect_err("all panic");
    assert_eq!(panic.downcast_ref(), Some(&"first"));
    assert_eq!(pool.install(|| 7), 7);
}

#[test]
fn panicking_destructors_do_not_prevent_others() {
    let pool = pool(2);
    let dropped = Arc::new(AtomicUsize::new(0));
    let go_on = [occupy(&pool), occupy(&pool)];
    for _ in 0..100 {
        let dropped = Arc::clone(&dropped);
        let held = OnDrop(move || {
            dropped.fetch_add(1, SeqCst);
            resume_unwind(Box::new("planned"));
        });
        pool.spawn_detached(move || drop(held));
    }
    pool.close();
    assert_eq!(dropped.load(SeqCst), 100);
    for go_on in go_on {
        go_on.send(()).expect("it waits for this");
    }
}

#[test]
fn an_idle_hook_that_panics_ends_no_thread() {
    let calls = Arc::new(AtomicUsize::new(0));
    let inside = Arc::clone(&calls);
    let hook = move || {
        inside.fetch_add(1, SeqCst);
        resume_unwind(Box::new("planned"))
    };
    let pool = Pool::builder().threads(2).idle_hook(hook).build().expect("threads can be started");
    for round in 0..100 {
        assert_eq!(pool.install(|| round), round);
    }
    wait_until("it is called", || calls.load(SeqCst) > 0);
    assert_eq!(pool.install(|| 7), 7);
}

/// More tasks than fit into a worker's queue, and it waits for each.
#[test]
fn a_waiting_worker_does_not_hide_the_tasks_it_waits_for() {
    for threads in 1..4 {
        let pool = pool(threads);
        for count in [2, 300, 700, 2000] {
            let sum = pool.spawn(move || {
                let handles: Vec<_> = (0..count).map(|n| spawn(move || n)).collect();
                handles.into_iter().map(|handle| handle.wait().expect("it runs")).sum::<usize>()
            });
            assert_eq!(sum.wait().expect("it runs"), count * (count - 1) / 2);
        }
    }
}

/// The task that was spawned last is in the `next` slot, the others are elsewhere.
#[test]
fn tasks_can_be_waited_for_in_any_order() {
    let pool = pool(1);
    let sum = pool.spawn(|| {
        let handles: Vec<_> = (0..5).map(|n| spawn(move || n)).collect();
        handles.into_iter().rev().map(|handle| handle.wait().expect("it runs")).sum::<usize>()
    });
    assert_eq!(sum.wait().expect("it runs"), 10);
}

/// One half of a fork closes the pool while the other waits for it.
#[test]
fn a_stolen_fork_may_drop_its_pool() {
    let pool = Arc::new(pool(2));
    let (done, is_done) = mpsc::channel();
    let inside = Arc::clone(&pool);
    pool.spawn_detached(move || {
        let begun = AtomicBool::new(false);
        filch_pool::join(
            || wait_until("the other half is stolen", || begun.load(SeqCst)),
            || {
                begun.store(true, SeqCst);
                drop(inside);
            },
        );
        done.send(()).expect("the test receives it");
    });
    drop(pool);
    is_done.recv().expect("both halves end");
}

/// One half of a fork waits for a task that its owner has spawned before, and still has in its
/// queue.
#[test]
fn a_worker_that_waits_for_a_fork_does_not_hide_tasks_from_it() {
    let pool = pool(2);
    let sum = pool.spawn(|| {
        let handles: Vec<_> = (0..3).map(|n| spawn(move || n)).collect();
        let begun = AtomicBool::new(false);
        let (_, sum) = filch_pool::join(
            || wait_until("the other half is stolen", || begun.load(SeqCst)),
            || {
                begun.store(true, SeqCst);
                handles.into_iter().map(|handle| handle.wait().expect("it runs")).sum::<usize>()
            },
        );
        sum
    });
    assert_eq!(sum.wait().expect("it runs"), 3);
}

/// A pool is closed while one of its threads waits for a task that will not run any more.
#[test]
fn waiting_for_a_task_ends_when_the_pool_is_closed() {
    for threads in 1..3 {
        for _ in 0..100 {
            let pool = pool(threads);
            let waits = Arc::new(AtomicBool::new(false));
            let inside = Arc::clone(&waits);
            let outer = pool.spawn(move || {
                let handles: Vec<_> = (0..300).map(|n| spawn(move || n)).collect();
                inside.store(true, SeqCst);
                handles.into_iter().map(|handle| usize::from(handle.wait().is_ok())).sum::<usize>()
            });
            wait_until("it begins", || waits.load(SeqCst));
            drop(pool);
            assert!(outer.wait().is_ok_and(|ran| ran <= 300), "it had started, so it finished");
        }
    }
}

/// Drops a pool when it is woken, once no other reference to that pool, or to this, is left.
struct Dropper {
    pool: Arc<Pool>,
    let_go: Arc<AtomicUsize>,
    dropped_by: mpsc::Sender<String>,
}

impl Wake for Dropper {
    fn wake(self: Arc<Self>) {
        wait_until("the others let go of it", || self.let_go.load(SeqCst) == 2);
        let Self { pool, dropped_by, .. } =
            Arc::into_inner(self).expect("this is the last reference");
        drop(Arc::into_inner(pool).expect("this is the last reference"));
        let name = thread::current().name().expect("it is a thread of a pool").to_owned();
        dropped_by.send(name).expect("the test receives it");
    }
}

/// Records that it was woken.
struct Called(AtomicBool);

impl Wake for Called {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

/// The only worker is busy, so the pool's own monitor wakes the two timers. The first waker drops
/// the pool, and the worker continues only when the second was called, too.
#[test]
fn a_waker_may_drop_the_pool_that_wakes_it() {
    let patience = Duration::from_secs(60);
    let pool = Arc::new(Pool::builder().threads(1).name("dropped").build().unwrap());
    let watch = pool.watch();
    let (dropped_by, was_dropped_by) = mpsc::channel();
    let let_go = Arc::new(AtomicUsize::new(0));
    let dropper = Dropper { pool: Arc::clone(&pool), let_go: Arc::clone(&let_go), dropped_by };
    let dropper = Waker::from(Arc::new(dropper));
    let inside = Arc::clone(&let_go);
    let busy = pool.spawn(move || {
        let called = Arc::new(Called(AtomicBool::new(false)));
        let other = Waker::from(Arc::clone(&called));
        let mut span = Duration::from_millis(20);
        let _naps = loop {
            // Due at the same time, so that the same poll finds both, the older one first.
            let due = Instant::now() + span;
            let mut naps = [sleep_until(due), sleep_until(due)];
            let mut waits = |nap: usize, waker| {
                Pin::new(&mut naps[nap]).poll(&mut Context::from_waker(waker)).is_pending()
            };
            if waits(0, Waker::noop()) && waits(1, &other) && waits(0, &dropper) {
                break naps;
            }
            called.0.store(false, SeqCst);
            span *= 2;
        };
        drop(dropper);
        inside.fetch_add(1, SeqCst);
        wait_until("the second is woken", || called.0.load(SeqCst));
    });
    drop(pool);
    let_go.fetch_add(1, SeqCst);
    let name = was_dropped_by.recv_timeout(patience).expect("the pool is dropped");
    assert_eq!(name, "dropped-monitor");
    assert!(busy.wait().is_ok());
    expect_end(watch);
}

/// Watchers are notified that the pool has ended.
fn expect_end(watch: Watch) {
    let (end, has_ended) = mpsc::channel();
    thread::spawn(move || {
        watch.for_each(drop);
        end.send(()).expect("the test receives it");
    });
    has_ended.recv_timeout(Duration::from_secs(60)).expect("it has ended");
}

#[test]
fn watchers_are_notified_of_the_end_if_a_worker_drops_the_pool() {
    let pool = Arc::new(Pool::builder().threads(2).build().unwrap());
    let watch = pool.watch();
    let (let_go, is_let_go) = mpsc::channel();
    let inside = Arc::clone(&pool);
    pool.spawn_detached(move || {
        is_let_go.recv().expect("it is let go of");
        drop(Arc::into_inner(inside).expect("this is the last reference"));
    });
    drop(pool);
    let_go.send(()).expect("the test receives it");
    expect_end(watch);
}
