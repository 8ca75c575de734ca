//! Timers: none is early, and none is lost.

use std::future::{Future, pending};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use filch_pool::{
    Pool, block_on,
    task::spawn_detached,
    time::{Elapsed, interval, sleep, sleep_until, timeout},
};

fn pool(threads: usize) -> Pool {
    Pool::builder().threads(threads).build().expect("threads can be started")
}

const SHORT: Duration = Duration::from_millis(20);

#[test]
fn a_sleep_is_never_too_short() {
    let pool = pool(2);
    let begun = Instant::now();
    block_on(pool.spawn_future(async { sleep(SHORT).await })).expect("it ends");
    assert!(begun.elapsed() >= SHORT);
}

#[test]
fn a_thread_outside_of_any_pool_can_sleep() {
    let begun = Instant::now();
    block_on(sleep(SHORT));
    assert!(begun.elapsed() >= SHORT);
}

/// The order in which timers end that are due at different times is tested where one thread wakes
/// them all: two threads may wake them at the same time.
#[test]
fn a_thousand_timers_end_once_each_and_none_early() {
    let pool = pool(1);
    let ended = Arc::new(Mutex::new(Vec::new()));
    let begun = Instant::now() + SHORT;
    let handles: Vec<_> = (0..1000)
        .map(|n| {
            // All numbers below a thousand, shuffled.
            let rank = n * 387 % 1000;
            let ended = Arc::clone(&ended);
            pool.spawn_future(async move {
                let due = begun + Duration::from_micros(50) * rank;
                sleep_until(due).await;
                assert!(Instant::now() >= due, "{rank} ends too soon");
                ended.lock().expect("no thread panics").push(rank);
            })
        })
        .collect();
    for handle in handles {
        block_on(handle).expect("it ends");
    }
    let mut ended =
        Arc::into_inner(ended).expect("all have ended").into_inner().expect("no thread panics");
    ended.sort_unstable();
    assert!(ended.into_iter().eq(0..1000));
}

#[test]
fn an_earlier_timer_interrupts_the_wait_for_a_later_one() {
    let pool = pool(2);
    let later = pool.spawn_future(sleep(Duration::from_secs(3600)));
    // Then one of them sleeps in the poller, until the later timer is due.
    let begun = Instant::now();
    while pool.stats().sleeping < 2 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", pool.trace_line());
        thread::yield_now();
    }
    block_on(pool.spawn_future(sleep(SHORT))).expect("it ends");
    // And from a thread outside of the pool.
    let sooner = block_on(pool.spawn_future(async { timeout(SHORT, pending::<()>()).await }));
    assert_eq!(sooner.expect("it ends"), Err(Elapsed));
    later.abort();
}

#[test]
fn a_quick_future_does_not_time_out() {
    let quick = block_on(timeout(Duration::from_secs(3600), async {
        sleep(SHORT).await;
        1
    }));
    assert_eq!(quick, Ok(1));
}

/// Ends the tasks that spawn one another. Not an `Arc`: the sanitizer does not see how that orders
/// its end.
static STOP: AtomicBool = AtomicBool::new(false);

/// A task that spawns the next one, so that no worker ever runs out of them.
fn again() {
    if !STOP.load(Relaxed) {
        spawn_detached(again);
    }
}

#[test]
fn timers_end_while_every_worker_is_busy_with_tasks() {
    let pool = pool(2);
    (0..64).for_each(|_| pool.spawn_detached(again));
    let ticking = pool.spawn_future(async {
        let mut ticks = interval(Duration::from_millis(1));
        for _ in 0..20 {
            ticks.tick().await;
        }
    });
    block_on(ticking).expect("it ends");
    STOP.store(true, Relaxed);
}

#[test]
fn ticks_stay_on_schedule() {
    let period = Duration::from_millis(1);
    block_on(async {
        let mut ticks = interval(period);
        let first = ticks.tick().await;
        let mut before = first;
        for _ in 0..10 {
            let due = ticks.tick().await;
            assert!(due > before && Instant::now() >= due);
            assert_eq!((due - first).as_nanos() % period.as_nanos(), 0);
            before = due;
        }
    });
}

#[test]
fn a_sleep_outlives_the_pool_that_watched_it() {
    let first = pool(1);
    let mut span = SHORT;
    let (nap, begun) = loop {
        let begun = Instant::now();
        let mut nap = Box::pin(sleep(span));
        // Polled once on a worker of the pool.
        let (nap, is_over) = first.install(move || {
            let mut context = Context::from_waker(Waker::noop());
            let is_over = nap.as_mut().poll(&mut context).is_ready();
            (nap, is_over)
        });
        if !is_over {
            break (nap, begun);
        }
        span *= 2;
    };
    drop(first);
    block_on(nap);
    assert!(begun.elapsed() >= span);
}
