//! Futures make progress even if every worker computes.

use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;
use std::time::Duration;

use filch_pool::{Pool, block_on, join, net::Async, spawn_future, time::sleep};

fn fib(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (a, b) = join(|| fib(n - 1), || fib(n - 2));
    a + b
}

/// Calls `futures` with a pool whose workers all compute until it returns.
fn in_a_storm(threads: usize, futures: impl FnOnce(&Pool)) {
    let pool = Pool::builder().threads(threads).build().expect("threads can be started");
    let is_over = Arc::new(AtomicBool::new(false));
    let (begun, has_begun) = mpsc::channel();
    for _ in 0..threads {
        let (is_over, begun) = (Arc::clone(&is_over), begun.clone());
        pool.spawn_detached(move || {
            begun.send(()).expect("the test waits for it");
            while !is_over.load(SeqCst) {
                assert_eq!(fib(16), 987);
            }
        });
    }
    for _ in 0..threads {
        has_begun.recv().expect("it begins");
    }
    futures(&pool);
    is_over.store(true, SeqCst);
}

fn timers(pool: &Pool) {
    let handles: Vec<_> = (0..10)
        .map(|n| pool.spawn_future(async move { sleep(Duration::from_millis(n)).await }))
        .collect();
    for handle in handles {
        block_on(handle).expect("it ends");
    }
}

fn sockets(pool: &Pool) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback works");
    let address = listener.local_addr().expect("loopback works");
    let server = pool.spawn_future(async move {
        let listener = Async::new(listener)?;
        let (stream, _) = listener.accept().await?;
        let mut byte = [0];
        for _ in 0..10 {
            stream.read_exact(&mut byte).await?;
            stream.write_all(&byte).await?;
        }
        std::io::Result::Ok(())
    });
    let client = pool.spawn_future(async move {
        let stream = Async::<TcpStream>::connect(address).await?;
        let mut byte = [0];
        for n in 0..10 {
            stream.write_all(&[n]).await?;
            stream.read_exact(&mut byte).await?;
            assert_eq!(byte, [n]);
        }
        std::io::Result::Ok(())
    });
    block_on(client).expect("it ends").expect("loopback works");
    block_on(server).expect("it ends").expect("loopback works");
}

/// Futures that wake one another, and fork.
fn tasks(pool: &Pool) {
    let sum = pool.spawn_future(async {
        let handles: Vec<_> = (0..10).map(|_| spawn_future(async { fib(10) })).collect();
        let mut sum = 0;
        for handle in handles {
            sum += handle.await.expect("it ends");
        }
        sum
    });
    assert_eq!(block_on(sum).expect("it ends"), 550);
}

#[test]
fn one_busy_worker_still_serves_timers() {
    in_a_storm(1, timers);
}

#[test]
fn two_busy_workers_still_serve_timers() {
    in_a_storm(2, timers);
}

#[test]
fn one_busy_worker_still_serves_sockets() {
    in_a_storm(1, sockets);
}

#[test]
fn two_busy_workers_still_serve_sockets() {
    in_a_storm(2, sockets);
}

#[test]
fn busy_workers_still_run_futures() {
    in_a_storm(1, tasks);
    in_a_storm(2, tasks);
}

#[test]
fn a_future_spawned_by_a_busy_worker_runs() {
    let pool = Pool::builder().threads(1).build().expect("threads can be started");
    let done = pool.install(|| {
        let is_done = Arc::new(AtomicBool::new(false));
        let handles: Vec<_> = (0..5)
            .map(|_| {
                let is_done = Arc::clone(&is_done);
                spawn_future(async move { is_done.store(true, SeqCst) })
            })
            .collect();
        // The only worker does not come back before one of them has run.
        while !is_done.load(SeqCst) {
            assert_eq!(fib(16), 987);
        }
        handles.len()
    });
    assert_eq!(done, 5);
}

#[test]
fn extra_threads_stop_when_the_workers_are_back() {
    let pool = Pool::builder().threads(1).build().expect("threads can be started");
    for _ in 0..3 {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        pool.spawn_detached(move || {
            while !over.load(SeqCst) {
                assert_eq!(fib(16), 987);
            }
        });
        timers(&pool);
        is_over.store(true, SeqCst);
        timers(&pool);
    }
}
