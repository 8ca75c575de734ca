//! A pool that waits costs nothing. Alone in its file, and so in its process, whose time it measures.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use filch_pool::{Pool, net::Async};

/// How much time all threads of this process have computed for.
fn computed() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
}

#[test]
fn waiting_costs_no_computing() {
    let pool = Pool::builder().threads(2).build().expect("threads can be started");
    let listener = pool
        .install(|| Async::<TcpListener>::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))))
        .unwrap();
    let server = pool.spawn_future(async move { listener.accept().await.map(|_| ()) });
    let timer = pool.spawn_future(filch_pool::time::sleep(Duration::from_secs(3600)));
    // The first seconds may have in them what comes before the waiting. A pool that spins computes in all.
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        let (before, begun) = (computed(), Instant::now());
        std::thread::sleep(Duration::from_secs(1));
        let share = (computed() - before).as_secs_f64() / begun.elapsed().as_secs_f64();
        if share < 0.02 {
            break;
        }
        assert!(Instant::now() < patience, "{share} of the time was spent computing");
    }
    server.abort();
    timer.abort();
}
