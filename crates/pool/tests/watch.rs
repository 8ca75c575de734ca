//! Watchers: which events they get, which they lose, and that events agree with the counters.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use filch_pool::{
    Pool,
    stats::{PoolStats, WorkerState},
    watch::{PoolEvent, PoolEventKind, Watch},
};

/// Waits until all workers sleep and have reported all their events.
fn settle(pool: &Pool) {
    let begun = Instant::now();
    let is_still = |stats: &PoolStats| {
        stats.sleeping == pool.threads() && stats.in_state(WorkerState::Sleeping) == pool.threads()
    };
    let parks = |stats: PoolStats| is_still(&stats).then(|| stats.parks());
    while parks(pool.stats()).is_none_or(|before| parks(pool.stats()) != Some(before)) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", pool.trace_line());
        thread::yield_now();
    }
}

fn read(watch: &Watch) -> Vec<PoolEvent> {
    std::iter::from_fn(|| watch.try_next()).collect()
}

/// One worker has many small tasks, so that the others steal.
fn work(pool: &Pool, tasks: u64) {
    static SUM: AtomicU64 = AtomicU64::new(0);
    let done = std::sync::Arc::new(AtomicU64::new(0));
    pool.install(|| {
        for _ in 0..tasks {
            let done = std::sync::Arc::clone(&done);
            pool.spawn_detached(move || {
                (0..2000).for_each(|number| _ = SUM.fetch_add(number, SeqCst));
                done.fetch_add(1, SeqCst);
            });
        }
    });
    settle(pool);
    assert_eq!(done.load(SeqCst), tasks);
}

#[test]
fn events_agree_with_the_counters() {
    let pool = Pool::builder().threads(3).build().unwrap();
    settle(&pool);
    let (watch, before) = (pool.watch_last(1_000_000), pool.stats());
    let begun = Instant::now();
    while pool.stats().steals() == before.steals() {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing was stolen");
        work(&pool, 2000);
    }
    let (events, after) = (read(&watch), pool.stats());
    assert_eq!(watch.lost(), 0);
    let sum = |count: fn(PoolEventKind) -> usize| {
        events.iter().map(|event| count(event.kind) as u64).sum::<u64>()
    };
    let stolen = sum(|kind| if let PoolEventKind::Steal { count, .. } = kind { count } else { 0 });
    let exposed = sum(|kind| if let PoolEventKind::Expose { count } = kind { count } else { 0 });
    let overflowed =
        sum(|kind| if let PoolEventKind::Overflow { count } = kind { count } else { 0 });
    assert_eq!(stolen, after.stolen() - before.stolen());
    assert_eq!(exposed, after.promotions() - before.promotions());
    assert_eq!(overflowed, after.overflowed() - before.overflowed());
    let thefts = sum(|kind| usize::from(matches!(kind, PoolEventKind::Steal { .. })));
    assert_eq!(thefts, after.steals() - before.steals());
    let parks = sum(|kind| usize::from(kind == PoolEventKind::Park));
    assert_eq!(parks, after.parks() - before.parks());
}

#[test]
fn events_are_in_order_and_name_the_worker() {
    let pool = Pool::builder().threads(3).build().unwrap();
    settle(&pool);
    let watch = pool.watch_last(1_000_000);
    work(&pool, 2000);
    let events = read(&watch);
    assert!(events.is_sorted_by_key(|event| event.at));
    assert_eq!(
        (events[0].worker, events[0].kind),
        (None, PoolEventKind::Push),
        "the task from outside"
    );
    for worker in 0..3 {
        let own =
            events.iter().filter(|event| event.worker == Some(worker)).map(|event| event.kind);
        // It slept when the watch started.
        let mut is_asleep = true;
        for kind in own {
            match kind {
                PoolEventKind::Unpark => assert!(std::mem::replace(&mut is_asleep, false)),
                PoolEventKind::Park => assert!(!std::mem::replace(&mut is_asleep, true)),
                PoolEventKind::Steal { from, to, count } => {
                    assert!(!is_asleep && to == worker && from != worker && count > 0);
                }
                _ => assert!(!is_asleep),
            }
        }
    }
}

#[test]
fn a_slow_watcher_loses_the_oldest_events_and_learns_how_many() {
    let pool = Pool::builder().threads(2).build().unwrap();
    settle(&pool);
    let (all, few) = (pool.watch_last(1_000_000), pool.watch_last(8));
    work(&pool, 1000);
    let (all, read_few) = (read(&all), read(&few));
    assert!(all.len() > 8);
    assert_eq!(read_few, all[all.len() - 8..]);
    assert_eq!(few.lost(), all.len() as u64 - 8);
}

#[test]
fn an_unsubscribed_watcher_gets_nothing_and_the_others_everything() {
    let pool = Pool::builder().threads(1).build().unwrap();
    settle(&pool);
    let (first, second) = (pool.watch(), pool.watch());
    pool.spawn_detached(|| ());
    assert_eq!(first.try_next(), second.try_next());
    settle(&pool);
    assert_eq!(read(&first), read(&second));
    drop(first);
    pool.spawn_detached(|| ());
    assert_eq!(second.try_next().map(|event| event.kind), Some(PoolEventKind::Push));
    drop(second);
    pool.install(|| ());
    assert_eq!(pool.watch().try_next(), None, "earlier events are not reported");
}

#[test]
fn an_event_wakes_a_waiting_watcher() {
    let pool = Pool::builder().threads(1).build().unwrap();
    settle(&pool);
    let mut watch = pool.watch();
    thread::scope(|scope| {
        let waiting = scope.spawn(move || watch.next());
        pool.spawn_detached(|| ());
        assert_eq!(waiting.join().unwrap().unwrap().kind, PoolEventKind::Push);
    });
}

#[test]
fn waiting_for_an_event_ends_with_the_time_limit_and_with_the_pool() {
    let pool = Pool::builder().threads(1).build().unwrap();
    settle(&pool);
    let watch = pool.watch();
    assert_eq!(watch.next_within(Duration::ZERO), None);
    assert_eq!(watch.next_within(Duration::from_millis(2)), None);
    thread::scope(|scope| {
        let rest = scope.spawn(move || watch.count());
        drop(pool);
        // The end of the pool woke the worker.
        assert!(rest.join().unwrap() >= 1);
    });
}
